package daemon

import (
	"context"
	"errors"
	"fmt"

	"striatum/claim"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/store"
	"striatum/workflow"
)

// DeclaredClaims returns the claims that a workflow declares, each with the
// check that backs it and that check's job.
func DeclaredClaims(w workflow.Workflow) []claim.Claim {
	var out []claim.Claim
	for _, c := range w.Claims {
		d := claim.Claim{ID: c.ID, Statement: c.Statement}
		for _, check := range w.Checks() {
			if check.BacksClaim == c.ID {
				d.CheckID, d.JobID = check.CheckID(), check.JobID
			}
		}
		out = append(out, d)
	}
	return out
}

// Ledger returns the newest ledger of a run (empty: outside any run). found is
// false when there is none.
func (s *Service) Ledger(ctx context.Context, repositoryID, runID string) (l claim.Ledger, found bool, err error) {
	err = s.view(ctx, "read the claim ledger", func(r store.Reader) error {
		l, found, err = ledger(ctx, r, repositoryID, runID)
		return err
	})
	return l, found, err
}

func ledger(ctx context.Context, r store.Reader, repositoryID, runID string) (claim.Ledger, bool, error) {
	row, err := r.Ledger(ctx, repositoryID, runID)
	if errors.Is(err, store.ErrNotFound) {
		return claim.Ledger{}, false, nil
	}
	if err != nil {
		return claim.Ledger{}, false, err
	}
	data, err := r.Blob(ctx, row.Value.DocumentSHA256)
	if err != nil {
		return claim.Ledger{}, false, err
	}
	l, err := claim.Parse(data)
	if err != nil {
		return claim.Ledger{}, false, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	if l.RepositoryID() != repositoryID || l.RunID() != runID || l.Seal() != row.Value.Seal {
		return claim.Ledger{}, false, fmt.Errorf("%w: the ledger is that of another run", store.ErrCorrupt)
	}
	return l, true, nil
}

// UpdateClaims changes the ledger of a run, all or nothing, by the writer's
// rules of package claim, and returns it. declared, if not nil, are the claims
// that the run's workflow declares (DeclaredClaims); they enter as DESIGNED.
// Updates that carry a receipt are the submission of the lane that signed it;
// the receipt must have been recorded. All others are the principal's word.
func (s *Service) UpdateClaims(ctx context.Context, p Principal, repositoryID, runID string, declared []claim.Claim, ups []claim.Update) (claim.Ledger, error) {
	const what = "write the claim ledger"
	if err := p.mustReachRun(what, repositoryID, runID); err != nil {
		return claim.Ledger{}, err
	}
	if declared != nil {
		if err := p.mustBe("declare claims", Local, Lane, Operator); err != nil {
			return claim.Ledger{}, err
		}
	}
	var out claim.Ledger
	err := s.update(ctx, what, func(w store.Writer) error {
		current, found, err := ledger(ctx, w, repositoryID, runID)
		if err != nil {
			return err
		}
		var next claim.Ledger
		if found {
			next = current
			if declared != nil {
				next, err = current.Declare(declared)
			}
		} else {
			next, err = claim.New(repositoryID, runID, declared)
		}
		if err != nil {
			return notClaimed(err, what)
		}
		save := func(l claim.Ledger) error {
			if found && l.Seal() == current.Seal() {
				return nil
			}
			current, found = l, true
			return addLedger(ctx, w, p, l)
		}
		if err := save(next); err != nil {
			return err
		}
		for _, up := range ups { // one at a time: each may have another writer
			writer, err := p.writer(ctx, w, up.Receipt)
			if err != nil {
				return err
			}
			if next, err = current.Apply(writer, []claim.Update{up}); err != nil {
				return notClaimed(err, what)
			}
			if err := save(next); err != nil {
				return err
			}
		}
		out = current
		return nil
	})
	if err != nil {
		return claim.Ledger{}, err
	}
	return out, nil
}

// ClaimBinding binds the claim of a run to a recorded receipt. Declared, if not nil,
// are the claims that the run's workflow declares, as for UpdateClaims.
type ClaimBinding struct {
	RepositoryID, RunID string
	Declared            []claim.Claim
	ClaimID, Seal       string
}

// Bind binds a claim to the receipt with a seal, which it opens from the store, and
// returns the run's ledger, encoded. The error is a problem: Refused for a receipt
// that is not recorded and for a lane that did not sign it, Invalid for one that is
// about something else.
func (s *Service) Bind(ctx context.Context, p Principal, b ClaimBinding) (ledger []byte, err error) {
	const what = "bind a receipt to a claim"
	if err := p.mustBe(what, Local, Lane, Operator); err != nil {
		return nil, err
	}
	envelope, err := s.Receipt(ctx, b.Seal)
	if err != nil {
		return nil, err
	}
	ring, err := s.Keyring(ctx)
	if err != nil {
		return nil, err
	}
	v, err := receipt.Open(envelope, ring)
	if err != nil {
		return nil, notEvidence(err, what)
	}
	l, err := s.UpdateClaims(ctx, p, b.RepositoryID, b.RunID, b.Declared, []claim.Update{{ClaimID: b.ClaimID, Receipt: &v}})
	if err != nil {
		return nil, err
	}
	return l.Encode(), nil
}

// writer says who writes an update: the lane that signed its receipt, or p.
func (p Principal) writer(ctx context.Context, r store.Reader, v *receipt.Verified) (claim.Writer, error) {
	if v == nil {
		w := claim.Writer{Name: p.Name, Jobs: p.Jobs}
		switch p.Kind {
		case Local:
			w.Principal = claim.Local
		case Session:
			w.Principal = claim.Session
		case Lane:
			w.Principal = claim.Lane
		case Operator:
			w.Principal = claim.Operator
		}
		return w, nil
	}
	const what = "bind a receipt to a claim"
	if err := p.submit(what, v.Key().LaneID); err != nil {
		return claim.Writer{}, err
	}
	if p.Kind == Lane {
		if err := unrevoked(ctx, r, what, p.Name); err != nil {
			return claim.Writer{}, err
		}
	}
	if _, err := r.Receipt(ctx, v.Seal()); errors.Is(err, store.ErrNotFound) {
		return claim.Writer{}, problem.New(problem.Refused, what, fmt.Sprintf("receipt %s is not recorded", v.Seal()), "record it first")
	} else if err != nil {
		return claim.Writer{}, err
	}
	return claim.Writer{Principal: claim.Lane, Name: v.Key().LaneID}, nil
}

func addLedger(ctx context.Context, w store.Writer, p Principal, l claim.Ledger) error {
	digest, err := w.PutBlob(ctx, l.Encode())
	if err != nil {
		return err
	}
	_, err = w.AddLedger(ctx, store.Ledger{
		RepositoryID: l.RepositoryID(), RunID: l.RunID(), Seal: l.Seal(), PrevSeal: l.PrevSeal(),
		By: p.String(), DocumentSHA256: digest,
	})
	return err
}

// notClaimed gives an error of the writer's rules its kind.
func notClaimed(err error, what string) error {
	switch {
	case errors.Is(err, claim.ErrNotAllowed):
		return problem.Wrap(problem.Refused, err, what, "")
	case errors.Is(err, claim.ErrAboveEvidence), errors.Is(err, claim.ErrWrongReceipt), errors.Is(err, claim.ErrInvalid):
		return problem.Wrap(problem.Invalid, err, what, "")
	}
	return err
}
