package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/baseline"
	"striatum/claim"
	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/store"
	"striatum/workflow"
)

// checked is a desk whose one claim was checked by builtin:go-test on the tree
// receipttest.Digest("tree"), outside any run.
type checked struct {
	*desk
	files daemon.Files
	// check changes a receipt so that it is of the workflow's check.
	check func(r *receipt.Receipt)
	claim string
	last  string // the seal of the newest attempt
}

func newChecked(t testing.TB) *checked {
	c := &checked{desk: newDesk(t).enrol(), files: policyFiles(t)}
	w, _, err := c.files.Workflow()
	c.must(err)
	ref := w.Checks()[0]
	digest, err := ref.Digest()
	c.must(err)
	c.claim = ref.BacksClaim
	c.check = func(r *receipt.Receipt) {
		r.RunID, r.JobID = "", ref.JobID
		r.Check.ID, r.Check.Digest, r.Check.BacksClaim = ref.CheckID(), digest, ref.BacksClaim
	}
	return c
}

// attempt records the given number of the chain and binds its claim to it.
func (c *checked) attempt(sequence int64, prev string, change func(r *receipt.Receipt)) receipt.Verified {
	c.Helper()
	envelope, v := c.sign(func(r *receipt.Receipt) {
		c.check(r)
		r.Sequence, r.PrevSeal = sequence, prev
		if change != nil {
			change(r)
		}
	})
	c.must(c.RecordOpened(c.Context(), daemon.LocalUser(), c.opened(v.Receipt())))
	_, err := c.RecordReceipt(c.Context(), daemon.LocalUser(), envelope)
	c.must(err)
	w, _, err := c.files.Workflow()
	c.must(err)
	_, err = c.UpdateClaims(c.Context(), daemon.LocalUser(), repoID, "", daemon.DeclaredClaims(w), []claim.Update{{ClaimID: c.claim, Receipt: &v}})
	c.must(err)
	c.last = v.Seal()
	return v
}

func (c *checked) query() daemon.GateQuery {
	return daemon.GateQuery{
		RepositoryID: repoID, Files: c.files,
		Tree: gate.Tree{SHA256: receipttest.Digest("tree"), Source: "worktree", ManifestSHA256: receipttest.Digest("manifest")},
	}
}

func (c *checked) gate(q daemon.GateQuery) gate.Report {
	c.Helper()
	before := c.head()
	r, err := c.Gate(c.Context(), q)
	c.must(err)
	if c.head() != before {
		c.Error("reading the gate wrote something")
	}
	return r
}

func codes(r gate.Report) []gate.Code {
	var out []gate.Code
	for _, c := range r.Claims {
		for _, b := range c.Bases {
			out = append(out, b.Code)
		}
	}
	return out
}

func (c *checked) wantBasis(r gate.Report, signal gate.Signal, code gate.Code) {
	c.Helper()
	for _, got := range codes(r) {
		if got == code && len(r.Claims) == 1 && r.Claims[0].Signal == signal {
			return
		}
	}
	c.Errorf("got signal %s with %v, want %s with %s", r.Signal, codes(r), signal, code)
}

func fails(r *receipt.Receipt) {
	r.Executions = []receipt.Execution{receipttest.Execution(receipt.Fail), receipttest.Execution(receipt.Fail)}
}

func TestPassingBuiltinReadsAssertedAndGreen(t *testing.T) {
	c := newChecked(t)
	c.attempt(1, receipt.FirstPrevSeal, nil)
	r := c.gate(c.query())
	if !r.Green() || r.NothingChecked() || r.Claims[0].Effective != claim.Asserted {
		t.Fatalf("got %s, %v", r.Verdict, codes(r))
	}
	want := []gate.Code{gate.BuiltinCap, gate.PolicyNotAccepted, gate.LaneNotIsolated, gate.StoreNotIsolated}
	if diff := cmp.Diff(codes(r), want); diff != "" {
		t.Error(diff)
	}
	if r.Store.Name != "embedded" || r.Store.Home != "/home/x" || r.Trust != "shared" {
		t.Errorf("got store %+v, trust %s", r.Store, r.Trust)
	}
	one, err := r.Encode()
	c.must(err)
	two, err := c.gate(c.query()).Encode()
	c.must(err)
	if !bytes.Equal(one, two) {
		t.Error("two reads differ")
	}
	q := c.query()
	q.Floor = claim.Verified
	if c.gate(q).Green() {
		t.Error("green at the floor VERIFIED")
	}
	q = c.query()
	q.RequireIsolated = true
	if c.gate(q).Green() {
		t.Error("green where isolation is required")
	}
}

func TestNothingRecordedIsNeverGreen(t *testing.T) {
	c := newChecked(t)
	for name, q := range map[string]daemon.GateQuery{
		"no receipt": c.query(), "no workflow": {RepositoryID: repoID}, "unknown repository": {}, "another run": {RepositoryID: repoID, RunID: "run-9", Files: c.files},
	} {
		if r := c.gate(q); r.Green() || !r.NothingChecked() || r.Verdict != gate.NothingWasChecked {
			t.Errorf("%s: got %q", name, r.Verdict)
		}
	}
}

func TestFailureReadsRedUntilItIsExplained(t *testing.T) {
	c := newChecked(t)
	failed := c.attempt(1, receipt.FirstPrevSeal, fails)
	c.wantBasis(c.gate(c.query()), gate.Red, gate.CheckNotPassing)
	c.attempt(2, failed.Seal(), nil)
	c.wantBasis(c.gate(c.query()), gate.Red, gate.ContradictedByFailure)
	c.must(c.Explain(c.Context(), operator(), failed.Seal(), "the disk was full"))
	r := c.gate(c.query())
	if !r.Green() || r.Claims[0].Attempts.Made != 2 || r.Claims[0].Attempts.Failed != 1 {
		t.Errorf("got %v, %+v", codes(r), r.Claims[0].Attempts)
	}
}

func TestUnsealedNumberHoldsAClaimBackUntilItIsExplained(t *testing.T) {
	c := newChecked(t)
	_, lost := c.sign(func(r *receipt.Receipt) { c.check(r); r.Nonce = "lost" })
	opened := c.opened(lost.Receipt())
	c.must(c.RecordOpened(c.Context(), daemon.LocalUser(), opened))
	c.attempt(2, lost.Seal(), nil)
	if r := c.gate(c.query()); r.Green() {
		t.Fatal("green beside a number that was opened and never sealed")
	}
	o, err := receipt.OpenOpened(opened, receipttest.Ring(c.lane))
	c.must(err)
	c.must(c.Explain(c.Context(), operator(), gate.OpenedName(o), "power cut"))
	c.must(c.Explain(c.Context(), operator(), lost.Seal(), "power cut"))
	if r := c.gate(c.query()); !r.Green() {
		t.Errorf("explained, and still %v", codes(r))
	}
	c.refused(problem.Usage, "it is not found in this store", func() error { return c.Explain(c.Context(), operator(), receipttest.Digest("no"), "x") })
	c.refused(problem.Usage, "beginning", func() error { return c.Explain(c.Context(), operator(), receipt.FirstPrevSeal, "x") })
	c.refused(problem.Usage, "reason", func() error { return c.Explain(c.Context(), operator(), lost.Seal(), "") })
}

func TestAnotherTreeIsStale(t *testing.T) {
	c := newChecked(t)
	c.attempt(1, receipt.FirstPrevSeal, nil)
	q := c.query()
	q.Tree.SHA256 = receipttest.Digest("edited")
	c.wantBasis(c.gate(q), gate.Amber, gate.StaleTree)
	q.Tree = gate.Tree{}
	c.wantBasis(c.gate(q), gate.Amber, gate.TreeNotJudged)
}

func TestReceiptsOfOtherChecksAreNoHoles(t *testing.T) {
	c := newChecked(t)
	envelope, other := c.sign(func(r *receipt.Receipt) { r.RunID = "" })
	_, err := c.RecordReceipt(c.Context(), daemon.LocalUser(), envelope)
	c.must(err)
	c.attempt(2, other.Seal(), nil)
	if r := c.gate(c.query()); !r.Green() {
		t.Errorf("got %v", codes(r))
	}
}

func TestLaneIsJudgedByItsPlaceInTheLog(t *testing.T) {
	c := newChecked(t)
	c.attempt(1, receipt.FirstPrevSeal, nil)
	if _, err := c.RevokeLane(c.Context(), operator(), "lane-1", daemon.RevokedRetired, 0); err != nil {
		t.Fatal(err)
	}
	if r := c.gate(c.query()); !r.Green() {
		t.Errorf("signed before the key was retired: got %v", codes(r))
	}
	// Nothing more is taken from it, for or against a claim, whoever brings it.
	envelope, v := c.sign(func(r *receipt.Receipt) { r.Sequence, r.PrevSeal = 2, receipttest.Digest("x") })
	lane := daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}
	for _, p := range []daemon.Principal{daemon.LocalUser(), lane, operator()} {
		c.refused(problem.Refused, "was revoked", func() error { return c.RecordOpened(c.Context(), p, c.opened(v.Receipt())) })
		c.refused(problem.Refused, "was revoked", func() error {
			_, err := c.RecordReceipt(c.Context(), p, envelope)
			return err
		})
	}
	seals, err := c.Receipts(c.Context(), repoID, daemon.ReceiptFilter{})
	if err != nil || len(seals) != 1 {
		t.Fatalf("got %v, %v", seals, err)
	}
	c.refused(problem.Refused, "was revoked", func() error {
		_, err := c.Bind(c.Context(), lane, daemon.ClaimBinding{RepositoryID: repoID, RunID: runID, ClaimID: "tests-pass", Seal: seals[0].Seal})
		return err
	})
	_, err = c.RevokeLane(c.Context(), operator(), "lane-1", daemon.RevokedCompromised, 0)
	c.must(err)
	c.wantBasis(c.gate(c.query()), gate.Amber, gate.LaneRevoked)
}

func TestAcceptedPolicyDecides(t *testing.T) {
	c := newChecked(t)
	c.attempt(1, receipt.FirstPrevSeal, nil)
	_, digest, err := c.files.Document()
	c.must(err)
	accept := func(files daemon.Files, digest string) func() error {
		return func() error { return c.AcceptPolicy(c.Context(), operator(), repoID, files, digest) }
	}
	c.refused(problem.Refused, "not "+receipttest.Digest("other"), accept(c.files, receipttest.Digest("other")))
	c.refused(problem.Invalid, "requires no claim", accept(daemon.Files{}, digest))
	broken := daemon.Files{workflow.DefaultPath: []byte("{}")}
	c.refused(problem.Invalid, "", accept(broken, digest))
	for id, words := range map[string]string{"builtin:go-test": "", "renamed": "backs no claim"} {
		text, err := baseline.Baseline{}.With(baseline.Check{ID: id, Packages: []baseline.Package{}, Files: []baseline.File{}, Data: []baseline.Data{}}).Encode()
		c.must(err)
		files := maps.Clone(c.files)
		files[baseline.Path] = text
		_, d, err := files.Document()
		c.must(err)
		if words == "" {
			c.must(accept(files, d)())
			continue
		}
		c.refused(problem.Invalid, words, accept(files, d))
	}
	c.must(accept(c.files, digest)())
	before := c.head()
	c.must(accept(c.files, digest)())
	if c.head() != before {
		t.Error("to accept it again wrote a row")
	}
	p, found, err := c.Policy(c.Context(), repoID)
	if err != nil || !found || p.Digest != digest || p.By != "operator:op-1" || !cmp.Equal(p.Files, c.files) {
		t.Errorf("got %+v, %t, %v", p, found, err)
	}
	r := c.gate(c.query())
	if !r.Green() || r.PolicySHA256 != digest || strings.Contains(strings.Join(words(codes(r)), " "), string(gate.PolicyNotAccepted)) {
		t.Errorf("got %v", codes(r))
	}

	// An edited workflow in the tree, even one that is not valid, changes nothing
	// but that it drifts.
	for name, text := range map[string]string{"edited": string(c.files[workflow.DefaultPath]) + " ", "broken": "{}"} {
		q := c.query()
		q.Files = maps.Clone(c.files)
		q.Files[workflow.DefaultPath] = []byte(text)
		t.Run(name, func(*testing.T) { c.wantBasis(c.gate(q), gate.Amber, gate.PolicyDrift) })
	}
	q := c.query()
	q.Files = nil
	c.wantBasis(c.gate(q), gate.Amber, gate.PolicyDrift)
}

func words(codes []gate.Code) (out []string) {
	for _, c := range codes {
		out = append(out, string(c))
	}
	return out
}

func TestInvalidWorkflowIsAnErrorBeforeAPolicyIsAccepted(t *testing.T) {
	c := newChecked(t)
	_, err := c.Gate(c.Context(), daemon.GateQuery{RepositoryID: repoID, Files: daemon.Files{workflow.DefaultPath: []byte("{}")}})
	if p := problem.Of(err); p == nil || p.Kind != problem.Invalid {
		t.Errorf("got %v, want kind Invalid", err)
	}
}

// faultyStore fails the reads that fail names.
type faultyStore struct {
	store.Store
	fail string
}

type faultyReader struct {
	store.Reader
	fail string
}

var errDisk = errors.New("the disk is gone")

func (s faultyStore) View(ctx context.Context, fn func(store.Reader) error) error {
	if s.fail == "view" {
		return errDisk
	}
	return s.Store.View(ctx, func(r store.Reader) error { return fn(faultyReader{r, s.fail}) })
}

func (r faultyReader) Policy(ctx context.Context, id string) (store.Row[store.Policy], error) {
	if r.fail == "policy" {
		return store.Row[store.Policy]{}, errDisk
	}
	return r.Reader.Policy(ctx, id)
}

func (r faultyReader) Receipt(ctx context.Context, seal string) (store.Row[store.Receipt], error) {
	if r.fail == "receipt" {
		return store.Row[store.Receipt]{}, errDisk
	}
	return r.Reader.Receipt(ctx, seal)
}

func (r faultyReader) Blob(ctx context.Context, digest string) ([]byte, error) {
	data, err := r.Reader.Blob(ctx, digest)
	switch {
	case r.fail == "blob":
		return nil, store.ErrCorrupt
	case r.fail == "other bytes" && bytes.Contains(data, []byte("application/vnd.in-toto")):
		return []byte("{}"), err
	}
	return data, err
}

func (r faultyReader) Explanations(ctx context.Context, id string, p store.Page) ([]store.Row[store.Explanation], error) {
	if r.fail == "explanations" {
		return nil, errDisk
	}
	return r.Reader.Explanations(ctx, id, p)
}

func TestFailureOfTheStoreLowersAndIsNamed(t *testing.T) {
	c := newChecked(t)
	c.attempt(1, receipt.FirstPrevSeal, nil)
	for _, fail := range []string{"view", "policy", "receipt", "blob", "other bytes", "explanations"} {
		t.Run(fail, func(t *testing.T) {
			r, err := c.over(faultyStore{c.store, fail}).Gate(t.Context(), c.query())
			if err != nil {
				t.Fatalf("the read failed: %v", err)
			}
			if r.Green() || r.Store.Problem == "" {
				t.Errorf("got signal %s, problem %q", r.Signal, r.Store.Problem)
			}
			if !strings.Contains(strings.Join(words(codes(r)), " "), string(gate.StoreUnavailable)) {
				t.Errorf("got %v, want %s", codes(r), gate.StoreUnavailable)
			}
			if r.RepositoryID != repoID || r.Store.Home != "/home/x" {
				t.Errorf("the report does not say what was read: %+v", r)
			}
		})
	}
}

func TestCancelledReadIsNoReport(t *testing.T) {
	c := newChecked(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Gate(ctx, c.query()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// BenchmarkGateOverHistory reads a gate over a repository with 500 receipts and
// as many opened records: of other trees, or all of the judged one.
func BenchmarkGateOverHistory(b *testing.B) {
	for _, name := range []string{"other trees", "judged tree"} {
		b.Run(name, func(b *testing.B) {
			c := newChecked(b)
			prev := receipt.FirstPrevSeal
			for n := range int64(500) {
				prev = c.attempt(n+1, prev, func(r *receipt.Receipt) {
					if n < 499 && name == "other trees" {
						r.Inputs.TreeSHA256 = receipttest.Digest(fmt.Sprint("tree ", n))
					}
				}).Seal()
			}
			svc := c.over(c.plain)
			for b.Loop() {
				if r, err := svc.Gate(b.Context(), c.query()); err != nil || !r.Green() {
					b.Fatal(r.Verdict, err)
				}
			}
		})
	}
}
