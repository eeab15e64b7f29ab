package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"striatum/claim"
	"striatum/gate"
	"striatum/internal/crew"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
	"striatum/store"
)

// GateQuery says what is to be judged.
type GateQuery struct {
	RepositoryID string
	RunID        string       // empty outside any run
	Floor        claim.Status // zero: ASSERTED; the policy's may be higher
	// RequireIsolated makes a shared lane or store fail a claim.
	RequireIsolated bool
	// Tree is what is judged; its zero value is no tree.
	Tree gate.Tree
	// Files are the policy's files as they stand in that tree.
	Files Files
}

// Gate judges the required claims: those of the accepted policy or, before any,
// of the workflow among the query's files. It writes nothing and waits for
// nobody. What could not be read lowers every claim, by name, and so does a log
// whose chain does not hold, all of which is verified; the error is only for a
// workflow that is not valid (a problem of kind Invalid).
func (s *Service) Gate(ctx context.Context, q GateQuery) (gate.Report, error) {
	offered, floor, err := q.Files.Requirements()
	begin := func() gate.Input {
		in := s.emptyInput(q)
		in.Required = offered
		in.Floor = max(q.Floor, floor)
		return in
	}
	in := begin()
	failed := s.cfg.Store.View(ctx, func(r store.Reader) error {
		in = begin()
		return assemble(ctx, r, &in, q)
	})
	if cause := context.Cause(ctx); cause != nil {
		return gate.Report{}, cause
	}
	if failed != nil {
		in.Store.Problem = unread(failed)
	}
	if in.Policy == nil && err != nil {
		return gate.Report{}, err
	}
	return gate.Evaluate(in), nil
}

// unread is what a report says of a store that could not be read. What a database's
// server says of itself is not for everybody who reads the gate.
func unread(err error) string {
	for _, known := range []error{store.ErrUnavailable, store.ErrBusy} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// The names that a summary carries. They are URNs: nothing is fetched by them.
const (
	summaryVerifier = "urn:striatum:gate"
	summaryResource = "urn:striatum:repository:"
)

// Summary returns a report as a SLSA verification summary, signed with the report
// key. The error is a problem: No for a repository that the store does not know,
// Usage for a report that judged no tree.
func (s *Service) Summary(r gate.Report) (envelope []byte, err error) {
	const what = "sign the verification summary"
	if r.RepositoryID == "" {
		return nil, problem.New(problem.No, what, "this store does not know the worktree, so nothing was checked", "run: striatum verifier run --all")
	}
	payload, err := gate.Summary(r, gate.SummaryOptions{
		VerifierID: summaryVerifier, ResourceURI: summaryResource + r.RepositoryID, TimeVerified: s.cfg.Now(),
	})
	if err != nil {
		return nil, problem.Wrap(problem.Usage, err, what, "judge a tree: the worktree's, or one named by --commit")
	}
	if envelope, err = seal.Sign(s.cfg.ReportKey, seal.PayloadInToto, payload); err != nil {
		return nil, problem.Wrap(problem.Internal, err, what, "")
	}
	return envelope, nil
}

func (s *Service) emptyInput(q GateQuery) gate.Input {
	return gate.Input{
		RepositoryID: q.RepositoryID, RunID: q.RunID, RequireIsolated: q.RequireIsolated, Tree: q.Tree,
		Store:     gate.Store{Name: s.cfg.StoreName, Home: s.cfg.Home, Class: s.cfg.StoreClass},
		Evidence:  map[string]gate.Evidence{},
		TreeFiles: q.Files.digests(),
	}
}

// assemble fills in with all that the store knows of the repository.
func assemble(ctx context.Context, r store.Reader, in *gate.Input, q GateQuery) error {
	policy, found, err := acceptedPolicy(ctx, r, q.RepositoryID)
	if err != nil {
		return err
	}
	if found {
		required, floor, err := policy.Files.Requirements()
		if err != nil {
			return fmt.Errorf("%w: the accepted policy: %w", store.ErrCorrupt, err)
		}
		in.Required = required
		in.Floor = max(q.Floor, floor)
		in.Policy = &gate.Policy{Digest: policy.Digest, Floor: floor, Files: policy.Files.digests()}
	}
	ring, err := keyring(ctx, r)
	if err != nil {
		return err
	}
	if in.Lanes, err = gateLanes(ctx, r); err != nil {
		return err
	}
	if in.Ledger, _, err = ledger(ctx, r, q.RepositoryID, q.RunID); err != nil {
		return err
	}
	opened, err := evidence(ctx, r, ring, in.Ledger.Claims())
	for _, c := range in.Ledger.Claims() {
		if e, ok := opened[c.ReceiptRef]; ok {
			in.Evidence[c.ID] = e
		}
	}
	if err != nil {
		return err
	}
	sealed, err := readHistory(ctx, r, ring, in, opened)
	if err != nil {
		return err
	}
	if err := readOpened(ctx, r, ring, in, sealed); err != nil {
		return err
	}
	if err := readOperators(ctx, r, in); err != nil {
		return err
	}
	_, err = verifyLog(ctx, r) // last, so that a broken chain hides nothing else
	return err
}

// evidence opens the receipts that claims name, each once, by seal. They are read
// one after the other, and as many are opened at once as there are processors. The
// error is a failure of the store.
func evidence(ctx context.Context, r store.Reader, ring seal.Keyring, claims []claim.Claim) (map[string]gate.Evidence, error) {
	opened := map[string]gate.Evidence{}
	var (
		mu    sync.Mutex // guards opened
		all   crew.Group
		slots = make(chan struct{}, runtime.GOMAXPROCS(0))
	)
	defer all.Wait()
	put := func(sealDigest string, e gate.Evidence) {
		mu.Lock()
		defer mu.Unlock()
		opened[sealDigest] = e
	}
	seen := map[string]bool{"": true}
	for _, c := range claims {
		if seen[c.ReceiptRef] {
			continue
		}
		seen[c.ReceiptRef] = true
		row, err := r.Receipt(ctx, c.ReceiptRef)
		if errors.Is(err, store.ErrNotFound) {
			put(c.ReceiptRef, gate.Evidence{Problem: gate.Absent})
			continue
		}
		var envelope []byte
		if err == nil {
			envelope, err = r.Blob(ctx, row.Value.EnvelopeSHA256)
		}
		if err != nil {
			put(c.ReceiptRef, gate.Evidence{Problem: gate.Unavailable})
			return opened, err
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			put(c.ReceiptRef, open(envelope, ring, row))
		})
	}
	return opened, nil
}

// open opens a recorded receipt.
func open(envelope []byte, ring seal.Keyring, row store.Row[store.Receipt]) gate.Evidence {
	v, err := receipt.Open(envelope, ring)
	switch {
	case err == nil && v.Seal() != row.Value.Seal, errors.Is(err, receipt.ErrSealMismatch):
		return gate.Evidence{Problem: gate.SealMismatch}
	case errors.Is(err, seal.ErrUnknownKey):
		return gate.Evidence{Problem: gate.UnknownLane}
	case errors.Is(err, seal.ErrBadSignature), errors.Is(err, seal.ErrWrongRole):
		return gate.Evidence{Problem: gate.SignatureInvalid}
	case err != nil:
		return gate.Evidence{Problem: gate.Unparseable}
	}
	return gate.Evidence{Verified: &v, LogPosition: row.Position}
}

// number is a place in a lane's chain.
type number struct {
	epoch    string
	sequence int64
}

// attempted is a check on a tree.
type attempted struct{ check, tree string }

// readHistory takes every receipt that may speak for or against a judged claim:
// of its check on the judged tree, and of its receipt's check and tree. Of all
// others it takes the number, so the work grows with the attempts and not with
// the age of the repository. Those in opened are not opened again. It returns the
// numbers that have a receipt. A
// stored receipt was opened before it was stored, so one that does not open now
// is a damaged store.
func readHistory(ctx context.Context, r store.Reader, ring seal.Keyring, in *gate.Input, opened map[string]gate.Evidence) (map[number]bool, error) {
	judged := map[attempted]bool{}
	for _, req := range in.Required {
		judged[attempted{req.CheckDigest, in.Tree.SHA256}] = true
		if e := in.Evidence[req.ClaimID]; e.Verified != nil {
			bound := e.Verified.Receipt()
			judged[attempted{bound.Check.Digest, bound.Inputs.TreeSHA256}] = true
		}
	}
	sealed := map[number]bool{}
	list := func(p store.Page) ([]store.Row[store.Receipt], error) { return r.Receipts(ctx, in.RepositoryID, "", p) }
	err := store.Each(list, func(row store.Row[store.Receipt]) error {
		v := row.Value
		sealed[number{v.LaneEpoch, v.Sequence}] = true
		if !judged[attempted{v.CheckDigest, v.TreeSHA256}] {
			in.Places = append(in.Places, gate.Place{LaneEpoch: v.LaneEpoch, Sequence: v.Sequence, Seal: v.Seal, PrevSeal: v.PrevSeal})
			return nil
		}
		e, ok := opened[v.Seal]
		if !ok {
			envelope, err := r.Blob(ctx, row.Value.EnvelopeSHA256)
			if err != nil {
				return err
			}
			e = open(envelope, ring, row)
		}
		if e.Verified == nil {
			return fmt.Errorf("%w: receipt %s does not open any more", store.ErrCorrupt, v.Seal)
		}
		in.History = append(in.History, gate.HistoryEntry{Verified: e.Verified, LogPosition: e.LogPosition})
		return nil
	})
	return sealed, err
}

// readOpened opens the opened records of numbers without a receipt; of the
// others the receipt says more.
func readOpened(ctx context.Context, r store.Reader, ring seal.Keyring, in *gate.Input, sealed map[number]bool) error {
	list := func(p store.Page) ([]store.Row[store.Opened], error) { return r.Opened(ctx, in.RepositoryID, p) }
	return store.Each(list, func(row store.Row[store.Opened]) error {
		if sealed[number{row.Value.LaneEpoch, row.Value.Sequence}] {
			return nil
		}
		envelope, err := r.Blob(ctx, row.Value.EnvelopeSHA256)
		if err != nil {
			return err
		}
		o, err := receipt.OpenOpened(envelope, ring)
		if err != nil {
			return fmt.Errorf("%w: the opened record at %d does not open any more: %w", store.ErrCorrupt, row.Position, err)
		}
		in.Opened = append(in.Opened, o)
		return nil
	})
}

// readOperators reads what operators said of the repository.
func readOperators(ctx context.Context, r store.Reader, in *gate.Input) error {
	attested, err := attestations(ctx, r, in.RepositoryID)
	if err != nil {
		return err
	}
	for _, a := range attested {
		in.Attestations = append(in.Attestations, gate.Attestation{
			CheckDigest: a.CheckDigest, ClosureSHA256: a.ClosureSHA256, Position: a.Position, RevokedAt: a.Revocation.Position,
		})
	}
	return store.Each(func(p store.Page) ([]store.Row[store.Explanation], error) {
		return r.Explanations(ctx, in.RepositoryID, p)
	}, func(row store.Row[store.Explanation]) error {
		in.Explanations = append(in.Explanations, gate.Explanation{Seal: row.Value.Seal, Reason: row.Value.Reason, By: row.Value.By})
		return nil
	})
}
