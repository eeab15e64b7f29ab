package daemon

import (
	"context"
	"errors"
	"fmt"

	"striatum/allowlist"
	"striatum/claim"
	"striatum/gate"
	"striatum/seal"
	"striatum/store"
)

// Caller is a Service as one principal may use it: every method first asks
// whether that principal may. Those that are not described here do what the
// method of Service with their name does.
type Caller struct {
	s *Service
	p Principal
}

// As returns s for p.
func (s *Service) As(p Principal) Caller { return Caller{s, p} }

// everybody are the kinds that may read.
var everybody = []Kind{Local, Session, Lane, Operator}

// Describe says what store this is and who asks.
func (c Caller) Describe(context.Context) (Description, error) {
	if err := c.p.mustBe("describe the store", everybody...); err != nil {
		return Description{}, err
	}
	return Description{StoreClass: c.s.cfg.StoreClass, StoreName: c.s.cfg.StoreName, Home: c.s.cfg.Home, Principal: c.p}, nil
}

// Description is what every report names of the store that it read, and the
// principal of whoever asked.
type Description struct {
	StoreClass      seal.Class
	StoreName, Home string
	Principal       Principal
}

// FindRepository refuses a session every worktree but that of its repository.
func (c Caller) FindRepository(ctx context.Context, wt Worktree) (Repository, bool, error) {
	const what = "look up the repository"
	if err := c.p.mustBe(what, everybody...); err != nil {
		return Repository{}, false, err
	}
	repo, found, err := c.s.FindRepository(ctx, wt)
	if err != nil || !found {
		return Repository{}, false, err
	}
	if err := c.p.mustReach(what, repo.ID); err != nil {
		return Repository{}, false, err
	}
	return repo, true, nil
}

// Repository is not for sessions, whose repository is known.
func (c Caller) Repository(ctx context.Context, wt Worktree) (Repository, bool, error) {
	if err := c.p.mustBe("record the repository", Local, Lane, Operator); err != nil {
		return Repository{}, false, err
	}
	return c.s.Repository(ctx, wt)
}

// BindRepository makes a worktree count as the repository with that id.
func (c Caller) BindRepository(ctx context.Context, wt Worktree, id string) error {
	return c.s.BindRepository(ctx, c.p, wt, id)
}

// Policy returns the policy that counts.
func (c Caller) Policy(ctx context.Context, repositoryID string) (AcceptedPolicy, bool, error) {
	if err := c.p.mustReach("read the accepted policy", repositoryID); err != nil {
		return AcceptedPolicy{}, false, err
	}
	return c.s.Policy(ctx, repositoryID)
}

// AcceptPolicy makes a policy count.
func (c Caller) AcceptPolicy(ctx context.Context, repositoryID string, files Files, digest string) error {
	return c.s.AcceptPolicy(ctx, c.p, repositoryID, files, digest)
}

// Gate judges. A repository that the store does not know, an empty id, may be
// asked about by everybody: nothing is read for it.
func (c Caller) Gate(ctx context.Context, q GateQuery) (gate.Report, error) {
	const what = "read the gate"
	if err := c.p.mustBe(what, everybody...); err != nil {
		return gate.Report{}, err
	}
	if q.RepositoryID != "" {
		if err := c.p.mustReachRun(what, q.RepositoryID, q.RunID); err != nil {
			return gate.Report{}, err
		}
	}
	return c.s.Gate(ctx, q)
}

// Summary judges, and signs the report as a verification summary. What tree is
// judged is the caller's word, so it is not for sessions.
func (c Caller) Summary(ctx context.Context, q GateQuery) (report gate.Report, envelope []byte, err error) {
	if err := c.p.mustBe("sign a verification summary", Local, Operator); err != nil {
		return gate.Report{}, nil, err
	}
	if report, err = c.s.Gate(ctx, q); err != nil {
		return gate.Report{}, nil, err
	}
	envelope, err = c.s.Summary(report)
	return report, envelope, err
}

// Ledger returns the newest ledger of a run.
func (c Caller) Ledger(ctx context.Context, repositoryID, runID string) (claim.Ledger, bool, error) {
	if err := c.p.mustReachRun("read the claim ledger", repositoryID, runID); err != nil {
		return claim.Ledger{}, false, err
	}
	return c.s.Ledger(ctx, repositoryID, runID)
}

// UpdateClaims changes a ledger.
func (c Caller) UpdateClaims(ctx context.Context, repositoryID, runID string, declared []claim.Claim, ups []claim.Update) (claim.Ledger, error) {
	return c.s.UpdateClaims(ctx, c.p, repositoryID, runID, declared, ups)
}

// Bind binds a claim to a recorded receipt.
func (c Caller) Bind(ctx context.Context, b ClaimBinding) (ledger []byte, err error) {
	return c.s.Bind(ctx, c.p, b)
}

// RecordOpened keeps an opened record.
func (c Caller) RecordOpened(ctx context.Context, envelope []byte) error {
	return c.s.RecordOpened(ctx, c.p, envelope)
}

// RecordReceipt keeps a receipt.
func (c Caller) RecordReceipt(ctx context.Context, envelope []byte) (string, error) {
	return c.s.RecordReceipt(ctx, c.p, envelope)
}

// Receipt returns the envelope of a receipt; a session gets none of another
// repository.
func (c Caller) Receipt(ctx context.Context, sealDigest string) (envelope []byte, err error) {
	what := fmt.Sprintf("read receipt %s", clip(sealDigest))
	if err := c.p.mustBe(what, everybody...); err != nil {
		return nil, err
	}
	if c.p.Kind == Session {
		err := c.s.view(ctx, what, func(r store.Reader) error {
			row, err := r.Receipt(ctx, sealDigest)
			if errors.Is(err, store.ErrNotFound) { // as one of another repository
				return c.p.mustReach(what, "")
			}
			if err != nil {
				return err
			}
			return c.p.mustReachRun(what, row.Value.RepositoryID, row.Value.RunID)
		})
		if err != nil {
			return nil, err
		}
	}
	return c.s.Receipt(ctx, sealDigest)
}

// Receipts lists receipts, for a session those of its run.
func (c Caller) Receipts(ctx context.Context, repositoryID string, f ReceiptFilter) ([]ReceiptInfo, error) {
	if err := c.p.mustReach("list receipts", repositoryID); err != nil {
		return nil, err
	}
	if c.p.Kind != Session {
		return c.s.Receipts(ctx, repositoryID, f)
	}
	var out []ReceiptInfo
	for size := (store.Page{Limit: f.Limit}).Size(); ; {
		page, err := c.s.Receipts(ctx, repositoryID, f)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			if r.RunID == c.p.RunID && len(out) < size {
				out = append(out, r)
			}
			f.After = r.Position
		}
		if len(page) < size || len(out) == size {
			return out, nil
		}
	}
}

// Explain records an operator's reason.
func (c Caller) Explain(ctx context.Context, name, reason string) error {
	return c.s.Explain(ctx, c.p, name, reason)
}

// Attestable returns what Attest would attest.
func (c Caller) Attestable(ctx context.Context, q AttestQuery) (Attestable, error) {
	if err := c.p.mustReach(q.what(), q.RepositoryID); err != nil {
		return Attestable{}, err
	}
	return c.s.Attestable(ctx, q)
}

// Attest records an operator's word.
func (c Caller) Attest(ctx context.Context, q AttestQuery, digest string) (position int64, fresh bool, err error) {
	return c.s.Attest(ctx, c.p, q, digest)
}

// RevokeAttestation takes an operator's word back.
func (c Caller) RevokeAttestation(ctx context.Context, repositoryID, checkID string, position int64) ([]int64, error) {
	return c.s.RevokeAttestation(ctx, c.p, repositoryID, checkID, position)
}

// Closure returns the parts of an attested closure, which may be of any
// repository, so it is not for sessions.
func (c Caller) Closure(ctx context.Context, digest string) (parts []allowlist.ClosurePart, files []byte, err error) {
	if err := c.p.mustBe("read a closure", Local, Lane, Operator); err != nil {
		return nil, nil, err
	}
	return c.s.Closure(ctx, digest)
}

// Attestations lists the attestations of a repository.
func (c Caller) Attestations(ctx context.Context, repositoryID string) ([]AttestationInfo, error) {
	if err := c.p.mustReach("list the attestations", repositoryID); err != nil {
		return nil, err
	}
	return c.s.Attestations(ctx, repositoryID)
}

// EnrolLane enrols a lane.
func (c Caller) EnrolLane(ctx context.Context, spec LaneSpec) error {
	return c.s.EnrolLane(ctx, c.p, spec)
}

// Keyring returns the keys of all lanes.
func (c Caller) Keyring(ctx context.Context) (seal.Keyring, error) {
	if err := c.p.mustBe("read the lanes", everybody...); err != nil {
		return seal.Keyring{}, err
	}
	return c.s.Keyring(ctx)
}

// Lanes lists all lanes.
func (c Caller) Lanes(ctx context.Context) ([]LaneInfo, error) {
	if err := c.p.mustBe("list the lanes", everybody...); err != nil {
		return nil, err
	}
	return c.s.Lanes(ctx)
}

// RevokeLane ends a lane.
func (c Caller) RevokeLane(ctx context.Context, laneID, kind string, since int64) ([]LaneInfo, error) {
	return c.s.RevokeLane(ctx, c.p, laneID, kind, since)
}

// TrustedLanes returns what a trust file is to say of the lanes.
func (c Caller) TrustedLanes(ctx context.Context, most int) ([]TrustedLane, error) {
	return c.s.TrustedLanes(ctx, c.p, most)
}

// VerifyLog reads the whole log, so it is for local users and operators.
func (c Caller) VerifyLog(ctx context.Context) (int64, error) {
	if err := c.p.mustBe("verify the log", Local, Operator); err != nil {
		return 0, err
	}
	return c.s.VerifyLog(ctx)
}

// CheckMint says whether a token may be minted.
func (c Caller) CheckMint(ctx context.Context, spec TokenSpec) error {
	return c.s.CheckMint(ctx, c.p, spec)
}

// RecordToken makes a token count.
func (c Caller) RecordToken(ctx context.Context, spec TokenSpec, sha256 string) (TokenInfo, error) {
	return c.s.RecordToken(ctx, c.p, spec, sha256)
}

// Tokens lists all tokens.
func (c Caller) Tokens(ctx context.Context) ([]TokenInfo, error) { return c.s.Tokens(ctx, c.p) }

// RevokeToken ends a token.
func (c Caller) RevokeToken(ctx context.Context, id string) (int, error) {
	return c.s.RevokeToken(ctx, c.p, id)
}

// RequestChecks asks a lane for checks.
func (c Caller) RequestChecks(ctx context.Context, ask CheckAsk) (RequestInfo, error) {
	return c.s.RequestChecks(ctx, c.p, ask)
}

// TakeRequest gives a request to a lane.
func (c Caller) TakeRequest(ctx context.Context, id string, uid uint32) (RequestInfo, error) {
	return c.s.TakeRequest(ctx, c.p, id, uid)
}

// EndRequest says what became of a request.
func (c Caller) EndRequest(ctx context.Context, id string, end RequestEnd) error {
	return c.s.EndRequest(ctx, c.p, id, end)
}

// CancelRequest ends a request that nobody works on.
func (c Caller) CancelRequest(ctx context.Context, id string) error {
	return c.s.CancelRequest(ctx, c.p, id)
}

// RequestState returns a request.
func (c Caller) RequestState(ctx context.Context, id string) (RequestInfo, error) {
	return c.s.RequestState(ctx, c.p, id)
}

// AbandonRequests ends what a lane left.
func (c Caller) AbandonRequests(ctx context.Context) (int, error) {
	return c.s.AbandonRequests(ctx, c.p)
}
