package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"striatum/allowlist"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
	"striatum/workflow"
)

// AttestationSchemaVersion marks the document whose digest an operator names to
// attest it.
const AttestationSchemaVersion = "striatum.verifier_attestation.v1"

// AttestationDocument is what an operator attests: that this closure may be
// trusted for this check of this repository.
type AttestationDocument struct {
	SchemaVersion string `json:"schema_version"`
	RepositoryID  string `json:"repository_id"`
	CheckID       string `json:"check_id"`
	CheckDigest   string `json:"check_digest"`
	ClosureSHA256 string `json:"closure_sha256"`
}

// Digest returns the SHA-256 of the document's canonical JSON.
func (d AttestationDocument) Digest() (string, error) {
	data, err := seal.Canonical(d)
	if err != nil {
		return "", fmt.Errorf("digest of an attestation: %w", err)
	}
	return seal.SHA256Hex(data), nil
}

// AttestationInfo is an attestation with its place in the log. The Position of
// its Revocation is zero while it is active.
type AttestationInfo struct {
	store.Attestation
	Position   int64      `json:"position"`
	RecordedAt string     `json:"recorded_at"`
	Revocation Revocation `json:"revocation"`
}

// Revocation says who took an attestation back, and when.
type Revocation struct {
	Position   int64  `json:"position"`
	RecordedAt string `json:"recorded_at"`
	By         string `json:"by"`
}

// Active reports whether a was not taken back.
func (a AttestationInfo) Active() bool { return a.Revocation.Position == 0 }

// AttestQuery names a check and the bytes to attest for it: Pins is a signed
// pins file that has a pin of the check; empty where the host has none.
type AttestQuery struct {
	RepositoryID string `json:"repository_id"`
	CheckID      string `json:"check_id"`
	Pins         []byte `json:"pins,omitempty"`
}

// Attestable is what an attestation would be about. The definition is the accepted
// policy's: canonical JSON, whose SHA-256 is the check digest. The pin is one of
// exactly this definition.
type Attestable struct {
	Definition  []byte              `json:"definition,omitempty"`
	Description string              `json:"description"` // of the check, in its author's words
	Pin         allowlist.Pin       `json:"pin"`
	Document    AttestationDocument `json:"document"`
	Digest      string              `json:"digest"`
	// Claims are those of the accepted policy that rest on the check. Stops say
	// why none of them reads VERIFIED all the same.
	Claims []string `json:"claims,omitempty"`
	Stops  []Stop   `json:"stops,omitempty"`
	// Active is the attestation that says this already, Before the last active
	// one that says something else of a check with this id; nil: none.
	Active *AttestationInfo `json:"active,omitempty"`
	Before *AttestationInfo `json:"before,omitempty"`
	// BeforeDefinition, BeforeClosure and BeforeFiles (the lines that the closure's
	// definition is the digest of) are what Before was about; nil where the store
	// knows their digests only.
	BeforeDefinition []byte                  `json:"before_definition,omitempty"`
	BeforeClosure    []allowlist.ClosurePart `json:"before_closure,omitempty"`
	BeforeFiles      []byte                  `json:"before_files,omitempty"`
}

// Stop is a basis that keeps a claim at ASSERTED whatever is attested.
type Stop struct {
	Code     gate.Code `json:"code"`
	Sentence string    `json:"sentence"`
}

// Attestable returns what Attest would attest. The error is a problem: Refused
// for what is not in the accepted policy and for pins that no lane in good
// standing signed, Unfilled where they have no pin of the check as accepted.
func (s *Service) Attestable(ctx context.Context, q AttestQuery) (a Attestable, err error) {
	err = s.view(ctx, q.what(), func(r store.Reader) error {
		a, err = s.attestable(ctx, r, q)
		return err
	})
	return a, err
}

// Attest records an operator's word that the bytes of a pin may be trusted for
// their check. digest must be that of the document: what the operator saw.
// fresh is false when that is attested already.
func (s *Service) Attest(ctx context.Context, p Principal, q AttestQuery, digest string) (position int64, fresh bool, err error) {
	if err := p.mustBe(q.what(), Operator); err != nil {
		return 0, false, err
	}
	err = s.update(ctx, q.what(), func(w store.Writer) error {
		a, err := s.attestable(ctx, w, q)
		if err != nil {
			return err
		}
		if a.Digest != digest {
			return problem.New(problem.Refused, q.what(), fmt.Sprintf("the digest of what would be attested is %s, not %s", a.Digest, clip(digest)), "look at it with "+allowlist.AttestCommand(q.CheckID)+", then give the digest that it prints")
		}
		if fresh = a.Active == nil; !fresh {
			position = a.Active.Position
			return nil
		}
		if err := keepAttested(ctx, w, a); err != nil {
			return err
		}
		d := a.Document
		position, err = w.AddAttestation(ctx, store.Attestation{
			RepositoryID: d.RepositoryID, CheckID: d.CheckID, CheckDigest: d.CheckDigest, ClosureSHA256: d.ClosureSHA256, By: p.String(),
		})
		return err
	})
	return position, fresh, err
}

// RevokeAttestation takes attestations of a check back: the one at a position
// or, if that is zero, every active one of that check id. It returns the
// positions of those that were active.
func (s *Service) RevokeAttestation(ctx context.Context, p Principal, repositoryID, checkID string, position int64) (revoked []int64, err error) {
	what := fmt.Sprintf("revoke the attestation of the check %q", clip(checkID))
	if err := p.mustBe(what, Operator); err != nil {
		return nil, err
	}
	err = s.update(ctx, what, func(w store.Writer) error {
		revoked = nil
		all, err := attestations(ctx, w, repositoryID)
		if err != nil {
			return err
		}
		found := false
		for _, a := range all {
			if a.CheckID != checkID || position != 0 && a.Position != position {
				continue
			}
			found = true
			if !a.Active() {
				continue
			}
			if _, err := w.AddAttestationRevocation(ctx, store.AttestationRevocation{RepositoryID: repositoryID, Attestation: a.Position, By: p.String()}); err != nil {
				return err
			}
			revoked = append(revoked, a.Position)
		}
		if !found {
			return problem.New(problem.Usage, what, "there is none in this store", "`striatum verifier attest --list` names all")
		}
		return nil
	})
	return revoked, err
}

// Attestations lists every attestation of a repository, in the order in which
// they were made.
func (s *Service) Attestations(ctx context.Context, repositoryID string) (out []AttestationInfo, err error) {
	err = s.view(ctx, "list the attestations", func(r store.Reader) error {
		out, err = attestations(ctx, r, repositoryID)
		return err
	})
	return out, err
}

func attestations(ctx context.Context, r store.Reader, repositoryID string) ([]AttestationInfo, error) {
	rows, err := store.All(func(p store.Page) ([]store.Row[store.Attestation], error) {
		return r.Attestations(ctx, repositoryID, p)
	})
	if err != nil {
		return nil, err
	}
	ends := map[int64]Revocation{}
	err = store.Each(func(p store.Page) ([]store.Row[store.AttestationRevocation], error) {
		return r.AttestationRevocations(ctx, repositoryID, p)
	}, func(row store.Row[store.AttestationRevocation]) error {
		ends[row.Value.Attestation] = Revocation{row.Position, row.RecordedAt, row.Value.By}
		return nil
	})
	out := make([]AttestationInfo, 0, len(rows))
	for _, row := range rows {
		out = append(out, AttestationInfo{row.Value, row.Position, row.RecordedAt, ends[row.Position]})
	}
	return out, err
}

func (q AttestQuery) what() string { return fmt.Sprintf("attest the check %q", clip(q.CheckID)) }

func (s *Service) attestable(ctx context.Context, r store.Reader, q AttestQuery) (Attestable, error) {
	refused := func(why, hint string) error { return problem.New(problem.Refused, q.what(), why, hint) }
	unpinned := func(why string) error {
		return problem.New(problem.Unfilled, q.what(), "the check as accepted is not pinned: "+why, "run: "+allowlist.PinCommand)
	}
	const look = "look at the worktree's with `striatum policy show`, then accept it"
	policy, found, err := acceptedPolicy(ctx, r, q.RepositoryID)
	switch {
	case err != nil:
		return Attestable{}, err
	case !found:
		return Attestable{}, refused("no policy is accepted for this repository", look)
	}
	c, found, err := policy.Files.attestable(q.CheckID)
	if err != nil {
		return Attestable{}, fmt.Errorf("%w: the accepted policy: %w", store.ErrCorrupt, err)
	}
	if !found {
		return Attestable{}, refused("the accepted policy has no such external or builtin+toolchain check", look)
	}
	if len(q.Pins) == 0 {
		return Attestable{}, unpinned("there are no pins of this host")
	}
	pins, lane, err := trustedPins(ctx, r, q)
	if err != nil {
		return Attestable{}, err
	}
	if c.unfilled {
		return Attestable{}, unpinned("the entry is an unfilled template")
	}
	digest := seal.SHA256Hex(c.definition)
	pin, why := allowlist.PinFor(&pins, pins.HostFingerprint, q.CheckID, digest, c.argv)
	if why != "" {
		return Attestable{}, unpinned(why)
	}
	a := Attestable{Definition: c.definition, Description: c.description, Pin: pin, Stops: s.stops(c.stops, lane)}
	a.Document = AttestationDocument{AttestationSchemaVersion, q.RepositoryID, q.CheckID, digest, pin.ClosureSHA256}
	if a.Digest, err = a.Document.Digest(); err != nil {
		return Attestable{}, err
	}
	required, _, err := policy.Files.Requirements()
	if err != nil {
		return Attestable{}, fmt.Errorf("%w: the accepted policy: %w", store.ErrCorrupt, err)
	}
	for _, c := range required {
		if c.CheckID == q.CheckID {
			a.Claims = append(a.Claims, c.ClaimID)
		}
	}
	return a, compareAttested(ctx, r, &a)
}

// attestable is a check whose bytes can be attested.
type attestable struct {
	definition  []byte
	description string
	argv        []string
	unfilled    bool
	stops       []allowlist.Stop
}

// attestable finds the check among f: one of the workflow with a pinned toolchain,
// or an entry of the intent.
func (f Files) attestable(checkID string) (c attestable, found bool, err error) {
	w, _, err := f.Workflow()
	if err != nil {
		return c, false, err
	}
	for _, check := range w.Checks() {
		if check.CheckID() == checkID && workflow.ToolchainBuiltin(check.Uses) {
			b, _ := workflow.LookupBuiltin(check.Uses)
			c.argv = b.Argv()
			c.definition, err = check.Document()
			return c, true, err
		}
	}
	intent, _, err := f.Intent()
	if err != nil {
		return c, false, err
	}
	entry, pointer, found := intent.Entry(checkID)
	if !found {
		return c, false, nil
	}
	c = attestable{description: entry.Description, argv: entry.Argv.Words, unfilled: len(entry.UnfilledAt(pointer)) > 0, stops: entry.Stops()}
	c.definition, err = entry.Document()
	return c, true, err
}

// trustedPins opens the query's pins and returns the lane that signed them.
func trustedPins(ctx context.Context, r store.Reader, q AttestQuery) (allowlist.Pins, gate.Lane, error) {
	const again = "pins are never written by hand: remove the file and run: " + allowlist.PinCommand
	ring, err := keyring(ctx, r)
	if err != nil {
		return allowlist.Pins{}, gate.Lane{}, err
	}
	pins, err := allowlist.ParsePins(q.Pins, ring)
	if err != nil {
		return allowlist.Pins{}, gate.Lane{}, problem.Wrap(problem.Refused, err, q.what(), again)
	}
	lanes, err := gateLanes(ctx, r)
	if err != nil || len(pins.Checks) == 0 {
		return pins, gate.Lane{}, err
	}
	by := lanes[slices.IndexFunc(lanes, func(l gate.Lane) bool { return l.KeyID == pins.Checks[0].ObservedBy })]
	if by.Kind != gate.NotRevoked {
		return allowlist.Pins{}, gate.Lane{}, problem.New(problem.Refused, q.what(), fmt.Sprintf("the key of lane %q, which signed the pins, was revoked", by.LaneID), again)
	}
	return pins, by, nil
}

// stops says what keeps claims that rest on a check at ASSERTED.
func (s *Service) stops(own []allowlist.Stop, lane gate.Lane) []Stop {
	var out []Stop
	for _, stop := range own {
		out = append(out, Stop{gate.Code(stop.Code), stop.Sentence})
	}
	switch {
	case lane.Class == seal.ClassIsolated && lane.Lowered != "":
		out = append(out, Stop{gate.LaneNotIsolated, fmt.Sprintf("lane %q, which saw these bytes, was not found isolated by its newest probe: %q", lane.LaneID, lane.Lowered)})
	case lane.Class != seal.ClassIsolated:
		out = append(out, Stop{gate.LaneNotIsolated, fmt.Sprintf("lane %q, which saw these bytes, is shared: whoever runs it can read its key", lane.LaneID)})
	}
	if s.cfg.StoreClass != seal.ClassIsolated {
		out = append(out, Stop{gate.StoreNotIsolated, "this store is writable by whoever runs striatum"})
	}
	return out
}

// keepAttested keeps the bytes behind the digests, by which the next
// attestation of the check finds them to compare.
func keepAttested(ctx context.Context, w store.Writer, a Attestable) error {
	closure, err := seal.Canonical(a.Pin.Closure)
	if err != nil {
		return fmt.Errorf("keep what is attested: %w", err)
	}
	for _, data := range [][]byte{a.Definition, closure, []byte(a.Pin.Definition)} {
		if len(data) == 0 {
			continue // a toolchain has no definition in the tree
		}
		if _, err := w.PutBlob(ctx, data); err != nil {
			return err
		}
	}
	return nil
}

// compareAttested fills in what is attested already of a's check.
func compareAttested(ctx context.Context, r store.Reader, a *Attestable) error {
	all, err := attestations(ctx, r, a.Document.RepositoryID)
	if err != nil {
		return err
	}
	for _, was := range all {
		switch {
		case !was.Active() || was.CheckID != a.Document.CheckID:
		case was.CheckDigest == a.Document.CheckDigest && was.ClosureSHA256 == a.Document.ClosureSHA256:
			a.Active = &was
		default:
			a.Before = &was
		}
	}
	if a.Before == nil {
		return nil
	}
	if a.BeforeDefinition, err = blob(ctx, r, a.Before.CheckDigest); err != nil {
		return err
	}
	a.BeforeClosure, a.BeforeFiles, err = closure(ctx, r, a.Before.ClosureSHA256)
	return err
}

// Closure returns the parts of a closure that was attested once, by its digest, and
// the lines of its definition's files; nil where the store does not know them.
func (s *Service) Closure(ctx context.Context, digest string) (parts []allowlist.ClosurePart, files []byte, err error) {
	err = s.view(ctx, "read a closure", func(r store.Reader) error {
		parts, files, err = closure(ctx, r, digest)
		return err
	})
	return parts, files, err
}

func closure(ctx context.Context, r store.Reader, digest string) (parts []allowlist.ClosurePart, files []byte, err error) {
	data, err := blob(ctx, r, digest)
	if err != nil || data == nil {
		return nil, nil, err
	}
	if err := seal.Decode(data, &parts, seal.Limits{Bytes: allowlist.MaxPinsBytes, Depth: allowlist.MaxDepth}); err != nil {
		return nil, nil, fmt.Errorf("%w: what was attested: %w", store.ErrCorrupt, err)
	}
	if digest := allowlist.DefinitionDigest(parts); digest != "" {
		files, err = blob(ctx, r, digest)
	}
	return parts, files, err
}

// blob reads the bytes with that digest; nil if the store does not have them.
func blob(ctx context.Context, r store.Reader, digest string) ([]byte, error) {
	data, err := r.Blob(ctx, digest)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return data, err
}
