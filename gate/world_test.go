package gate_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"

	"striatum/claim"
	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

const (
	repo     = "repo-1"
	run      = "run-1"
	theClaim = "tests-pass"
	laneID   = "lane-1"
	epoch    = "epoch-1"
)

func digest(s string) string { return seal.SHA256Hex([]byte(s)) }

// tree is the judged tree of every world.
var tree = digest("tree")

// lane signs receipts, and the same facts once.
type lane struct {
	id     string
	key    *seal.PrivateKey
	ring   seal.Keyring
	sealed map[string]*receipt.Verified
}

func newLane(t testing.TB, id string, class seal.Class) lane {
	t.Helper()
	key, err := seal.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ring := seal.NewKeyring(seal.Key{Public: key.Public(), Role: seal.RoleLane, Class: class, LaneID: id})
	return lane{id, key, ring, map[string]*receipt.Verified{}}
}

// sign returns the envelope of r.
func (l lane) sign(t testing.TB, r receipt.Receipt) []byte {
	t.Helper()
	r.Lane.LaneID = l.id
	envelope, _, err := receipt.Sign(r, l.key)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

// seal signs r and opens it again.
func (l lane) seal(t testing.TB, r receipt.Receipt) *receipt.Verified {
	t.Helper()
	facts, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if v := l.sealed[string(facts)]; v != nil {
		return v
	}
	v, err := receipt.Open(l.sign(t, r), l.ring)
	if err != nil {
		t.Fatal(err)
	}
	l.sealed[string(facts)] = &v
	return &v
}

func execution(judgement receipt.Judgement, start string) receipt.Execution {
	e := receipt.Execution{
		Judgement: judgement, ResultSHA256: digest("result"), StdoutSHA256: digest("out"), StderrSHA256: digest(""),
		StartedAt: start, DurationMS: 10,
	}
	if judgement == receipt.Fail {
		e.ExitCode = 1
		e.Reasons = []receipt.Reason{{Code: "tests_failed", Detail: "TestAdd"}}
	}
	return e
}

// facts returns those of a passing external check; after Sign it is
// verified_eligible.
func facts(claimID string) receipt.Receipt {
	control := execution(receipt.Fail, "2026-01-01T00:00:00Z")
	return receipt.Receipt{
		ReceiptID: "r-1", LaneEpoch: epoch, Sequence: 1, PrevSeal: receipt.FirstPrevSeal,
		RepositoryID: repo, RunID: run, Nonce: "nonce-1",
		Check: receipt.Check{
			ID: "check-" + claimID, Kind: receipt.External, Digest: digest("check " + claimID), Argv: []string{"make", "test"},
			BacksClaim: claimID, PassWhen: "exit_zero", Agreement: "stdout",
		},
		Tools: receipt.Tools{ClosureSHA256: digest("closure"), BinarySHA256: digest("binary")},
		Inputs: receipt.Inputs{
			TreeSHA256: tree, ManifestSHA256: digest("manifest"), Files: 3, Bytes: 300,
			Dependencies: &receipt.Dependencies{Digest: digest("dependencies")},
		},
		Control: receipt.Control{
			Kind: receipt.ControlWorktree, MutationOf: ".", MutationSHA256: digest("mutation"),
			Execution: &control, Outcome: receipt.FailedAsRequired,
		},
		Executions: []receipt.Execution{
			execution(receipt.Pass, "2026-01-01T00:00:01Z"), execution(receipt.Pass, "2026-01-01T00:00:02Z"),
		},
		Posture: receipt.Posture{
			Engine: "containerd", SeccompSHA256: digest("seccomp"),
			Facets: []receipt.Facet{{Name: "network", Required: "none", Observed: "none", Observer: "init", OK: true}},
		},
		Limits:    receipt.Limits{WallClockMS: 60000},
		Lane:      receipt.Lane{LaneID: laneID, HostFingerprint: "0123abcd-linux-amd64", OS: "linux", Arch: "amd64"},
		CreatedAt: "2026-01-01T00:00:03Z",
	}
}

func openedFor(r receipt.Receipt, lane string) receipt.Opened {
	return receipt.Opened{
		SchemaVersion: receipt.OpenedSchemaVersion, LaneID: lane, LaneEpoch: r.LaneEpoch, RepositoryID: r.RepositoryID,
		Sequence: r.Sequence, PrevSeal: r.PrevSeal, RunID: r.RunID, Nonce: r.Nonce, CheckID: r.Check.ID,
		CheckDigest: r.Check.Digest, TreeSHA256: r.Inputs.TreeSHA256, OpenedAt: "2026-01-01T00:00:00Z",
	}
}

// world is a situation in which the one required claim reads VERIFIED and is
// green, until something is turned. Turns of facts come before it is built.
type world struct {
	t       testing.TB
	lane    lane
	facts   receipt.Receipt
	authors claim.Status           // set by a local user before the lane binds, if not zero
	edits   []func(c *claim.Claim) // change the ledger's claim behind the writer's rules
	after   []func(w *world)       // changes to in, once it is made

	before *receipt.Verified // number 1 of the chain, of another check
	own    *receipt.Verified // number 2
	in     gate.Input
}

func newWorld(t testing.TB, l lane) *world {
	w := &world{t: t, lane: l}
	first := facts("other-claim")
	w.before = l.seal(t, first)
	w.facts = facts(theClaim)
	w.facts.Sequence, w.facts.PrevSeal = 2, w.before.Seal()
	return w
}

// build makes the input.
func (w *world) build() gate.Input {
	w.t.Helper()
	w.own = w.lane.seal(w.t, w.facts)
	required := facts(theClaim).Check
	w.in = gate.Input{
		RepositoryID: repo, RunID: run, Floor: claim.Asserted,
		Store: gate.Store{Name: "test", Class: seal.ClassIsolated},
		Tree:  gate.Tree{SHA256: tree, Source: "worktree", ManifestSHA256: digest("manifest")},
		Required: []gate.Requirement{{
			ClaimID: theClaim, Statement: "The tests pass.", CheckID: required.ID, CheckDigest: required.Digest,
		}},
		Ledger:   w.ledger(),
		Evidence: map[string]gate.Evidence{theClaim: {Verified: w.own, LogPosition: 20}},
		History: []gate.HistoryEntry{
			{Verified: w.before, LogPosition: 10}, {Verified: w.own, LogPosition: 20},
		},
		Opened: []receipt.Opened{openedFor(w.before.Receipt(), w.lane.id), openedFor(w.own.Receipt(), w.lane.id)},
		Lanes: []gate.Lane{{
			KeyID: w.lane.key.Public().ID(), LaneID: w.lane.id, Class: seal.ClassIsolated, EnrolledAt: 1,
		}},
		Attestations: []gate.Attestation{{CheckDigest: required.Digest, ClosureSHA256: digest("closure"), Position: 5}},
		Policy: &gate.Policy{
			Digest: digest("policy"), Floor: claim.Asserted, Files: map[string]string{"verification/workflow.json": digest("workflow")},
		},
		TreeFiles: map[string]string{"verification/workflow.json": digest("workflow")},
	}
	for _, f := range w.after {
		f(w)
	}
	return w.in
}

func (w *world) ledger() claim.Ledger {
	w.t.Helper()
	l, err := claim.New(repo, run, []claim.Claim{{ID: theClaim, Statement: "The tests pass.", CheckID: w.facts.Check.ID}})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.authors != 0 {
		l = apply(w.t, l, claim.Writer{Principal: claim.Local}, claim.Update{ClaimID: theClaim, Status: w.authors})
	}
	l = apply(w.t, l, claim.Writer{Principal: claim.Lane, Name: w.lane.id}, claim.Update{ClaimID: theClaim, Receipt: w.own})
	for _, edit := range w.edits {
		l = forge(w.t, l, edit)
	}
	return l
}

func apply(t testing.TB, l claim.Ledger, w claim.Writer, ups ...claim.Update) claim.Ledger {
	t.Helper()
	next, err := l.Apply(w, ups)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// forge edits the claim as a process that writes the store itself could.
func forge(t testing.TB, l claim.Ledger, edit func(*claim.Claim)) claim.Ledger {
	t.Helper()
	doc := struct {
		SchemaVersion string        `json:"schema_version"`
		RepositoryID  string        `json:"repository_id"`
		RunID         string        `json:"run_id"`
		Claims        []claim.Claim `json:"claims"`
		LedgerSeal    string        `json:"ledger_seal,omitempty"`
		PrevSeal      string        `json:"prev_ledger_seal"`
	}{}
	if err := json.Unmarshal(l.Encode(), &doc); err != nil {
		t.Fatal(err)
	}
	for i := range doc.Claims {
		edit(&doc.Claims[i])
	}
	doc.LedgerSeal = ""
	body, err := seal.Canonical(doc)
	if err != nil {
		t.Fatal(err)
	}
	doc.LedgerSeal = seal.SHA256Hex(body)
	data, err := seal.Canonical(doc)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := claim.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

// only returns the judgement of the one required claim.
func only(t testing.TB, r gate.Report) gate.Claim {
	t.Helper()
	if len(r.Claims) != 1 {
		t.Fatalf("report has %d claims, want 1", len(r.Claims))
	}
	return r.Claims[0]
}

func codes(c gate.Claim) []gate.Code {
	out := []gate.Code{}
	for _, b := range c.Bases {
		out = append(out, b.Code)
	}
	return out
}

func describe(c gate.Claim) string {
	s := fmt.Sprintf("%s: authored %s, effective %s, %s\n", c.ID, c.Authored, c.Effective, c.Signal)
	for _, b := range c.Bases {
		s += fmt.Sprintf("  %s (%s): %s [%s]\n", b.Code, b.Effect, b.Sentence, b.Fix)
	}
	return s
}
