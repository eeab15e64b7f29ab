package daemon_test

import (
	"bytes"
	"crypto/rand"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"striatum/claim"
	"striatum/daemon"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/store"
	"striatum/store/sqlite"
	"striatum/store/storetest"
	"striatum/workflow"
	"striatum/workflowgenerate"
)

const repoID, runID = "repo-1", "run-1"

// desk is a service over a store that runs each closure twice, with a clock.
type desk struct {
	*testing.T
	*daemon.Service
	store store.Store
	now   time.Time
	lane  *seal.PrivateKey
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), lane: receipttest.Key(t, 1)}
	clock := func() time.Time { return d.now }
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	d.store = storetest.Twice(s)
	d.Service = d.over(d.store)
	return d
}

func (d *desk) over(s store.Store) *daemon.Service {
	return daemon.New(daemon.Config{
		Store: s, Now: func() time.Time { return d.now }, Rand: rand.Reader, StoreClass: seal.ClassShared,
		StoreName: "embedded", Home: "/home/x",
	})
}

func (d *desk) enrol() *desk {
	d.Helper()
	spec := daemon.LaneSpec{LaneID: "lane-1", PublicKey: d.lane.Public(), Class: seal.ClassShared}
	d.must(d.EnrolLane(d.Context(), daemon.LocalUser(), spec))
	return d
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desk) head() (position int64) {
	d.Helper()
	d.must(d.store.View(d.Context(), func(r store.Reader) error {
		e, err := r.Head(d.Context())
		position = e.Position
		return err
	}))
	return position
}

// refused expects an error of the given kind whose text has the words, and that
// nothing was written.
func (d *desk) refused(kind problem.Kind, words string, do func() error) {
	d.Helper()
	before := d.head()
	err := do()
	p := problem.Of(err)
	if p == nil || p.Kind != kind || !strings.Contains(err.Error(), words) {
		d.Errorf("got %v, want kind %d with %q", err, kind, words)
	}
	if after := d.head(); after != before {
		d.Errorf("%d rows were written", after-before)
	}
}

func operator() daemon.Principal { return daemon.Principal{Kind: daemon.Operator, Name: "op-1"} }

// sign returns the envelope of a passing receipt after change.
func (d *desk) sign(change func(r *receipt.Receipt)) ([]byte, receipt.Verified) {
	d.Helper()
	r := receipttest.Facts()
	if change != nil {
		change(&r)
	}
	envelope, _ := receipttest.Sign(d, r, d.lane)
	v, err := receipt.Open(envelope, receipttest.Ring(d.lane))
	d.must(err)
	return envelope, v
}

func (d *desk) opened(r receipt.Receipt) []byte {
	d.Helper()
	envelope, err := receipt.SignOpened(receipt.Opened{
		LaneID: r.Lane.LaneID, LaneEpoch: r.LaneEpoch, RepositoryID: r.RepositoryID, Sequence: r.Sequence, PrevSeal: r.PrevSeal,
		RunID: r.RunID, JobID: r.JobID, Nonce: r.Nonce, CheckID: r.Check.ID, CheckDigest: r.Check.Digest,
		TreeSHA256: r.Inputs.TreeSHA256, Requester: "local", OpenedAt: "2026-05-04T03:02:00Z",
	}, d.lane)
	d.must(err)
	return envelope
}

func TestMatrixOfPrincipals(t *testing.T) {
	kinds := []daemon.Principal{
		daemon.LocalUser(),
		{Kind: daemon.Session, Name: "s-1", Jobs: []string{"verify"}},
		{Kind: daemon.Lane, Name: "lane-1"},
		operator(),
		{},
	}
	place := daemon.Worktree{Path: "/w", Device: 1, Inode: 2}
	files := policyFiles(t)
	_, policy, err := files.Document()
	if err != nil {
		t.Fatal(err)
	}
	declared := []claim.Claim{{ID: "tests-pass", Statement: "The tests pass.", CheckID: "builtin:go-test", JobID: "verify"}}
	// Each operation with a letter per principal, in the order above: y or n.
	tests := []struct {
		name, allowed string
		do            func(d *desk, p daemon.Principal) error
	}{
		{"record opened", "ynyyn", func(d *desk, p daemon.Principal) error {
			_, v := d.sign(nil)
			return d.RecordOpened(d.Context(), p, d.opened(v.Receipt()))
		}},
		{"record receipt", "ynyyn", func(d *desk, p daemon.Principal) error {
			envelope, _ := d.sign(nil)
			_, err := d.RecordReceipt(d.Context(), p, envelope)
			return err
		}},
		{"declare claims", "ynyyn", func(d *desk, p daemon.Principal) error {
			_, err := d.UpdateClaims(d.Context(), p, repoID, runID, declared, nil)
			return err
		}},
		{"assert a claim", "yynyn", func(d *desk, p daemon.Principal) error {
			_, err := d.UpdateClaims(d.Context(), daemon.LocalUser(), repoID, runID, declared, nil)
			d.must(err)
			_, err = d.UpdateClaims(d.Context(), p, repoID, runID, nil, []claim.Update{{ClaimID: "tests-pass", Status: claim.Asserted}})
			return err
		}},
		{"bind a receipt", "ynyyn", func(d *desk, p daemon.Principal) error {
			envelope, v := d.sign(nil)
			_, err := d.RecordReceipt(d.Context(), daemon.LocalUser(), envelope)
			d.must(err)
			_, err = d.UpdateClaims(d.Context(), daemon.LocalUser(), repoID, runID, declared, nil)
			d.must(err)
			_, err = d.UpdateClaims(d.Context(), p, repoID, runID, nil, []claim.Update{{ClaimID: "tests-pass", Receipt: &v}})
			return err
		}},
		{"enrol another lane", "nnnyn", func(d *desk, p daemon.Principal) error {
			return d.EnrolLane(d.Context(), p, daemon.LaneSpec{LaneID: "lane-2", PublicKey: receipttest.Key(t, 2).Public(), Class: seal.ClassShared})
		}},
		{"mint the first token", "ynnyn", func(d *desk, p daemon.Principal) error {
			_, err := d.MintOperator(d.Context(), p, time.Hour)
			return err
		}},
		{"mint another token", "nnnyn", func(d *desk, p daemon.Principal) error {
			_, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour)
			d.must(err)
			_, err = d.MintOperator(d.Context(), p, time.Hour)
			return err
		}},
		{"bind a repository", "nnnyn", func(d *desk, p daemon.Principal) error {
			return d.BindRepository(d.Context(), p, place, "mine")
		}},
		{"accept a policy", "nnnyn", func(d *desk, p daemon.Principal) error {
			return d.AcceptPolicy(d.Context(), p, repoID, files, policy)
		}},
		{"explain a receipt", "nnnyn", func(d *desk, p daemon.Principal) error {
			envelope, v := d.sign(nil)
			_, err := d.RecordReceipt(d.Context(), daemon.LocalUser(), envelope)
			d.must(err)
			return d.Explain(d.Context(), p, v.Seal(), "flaky")
		}},
		{"read the gate", "yyyyy", func(d *desk, _ daemon.Principal) error {
			_, err := d.Gate(d.Context(), daemon.GateQuery{RepositoryID: repoID})
			return err
		}},
	}
	for _, tt := range tests {
		for i, p := range kinds {
			t.Run(tt.name+"/"+p.Kind.String(), func(t *testing.T) {
				err := tt.do(newDesk(t).enrol(), p)
				if tt.allowed[i] == 'y' {
					if err != nil {
						t.Errorf("refused: %v", err)
					}
					return
				}
				if got := problem.Of(err); got == nil || got.Kind != problem.Refused {
					t.Errorf("got %v, want kind Refused", err)
				}
			})
		}
	}
}

func TestOperatorTokenIsShownOnceAndExpires(t *testing.T) {
	d := newDesk(t)
	token, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour)
	d.must(err)
	p, err := d.Authenticate(d.Context(), token)
	d.must(err)
	if p.Kind != daemon.Operator || p.Name == "" || strings.Contains(token, p.Name) {
		t.Errorf("got principal %v for %s", p, token)
	}
	d.must(d.store.View(d.Context(), func(r store.Reader) error {
		rows, err := r.Log(d.Context(), store.Page{})
		for _, row := range rows {
			if bytes.Contains(row.Record, []byte(token)) || bytes.Contains(row.Record, []byte(token[len("striatum_op_"):])) {
				t.Error("the token stands in the store")
			}
		}
		return err
	}))
	d.now = d.now.Add(time.Hour - time.Second)
	if _, _, live, err := d.OperatorToken(d.Context()); err != nil || !live {
		t.Errorf("got live %t, %v a second before it expires", live, err)
	}
	d.now = d.now.Add(time.Second)
	d.refused(problem.Refused, "expired", func() error { _, err := d.Authenticate(d.Context(), token); return err })
	if _, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour); err != nil {
		t.Errorf("after it expired a local user gets the next: %v", err)
	}
}

func TestRevokedTokenIsRefused(t *testing.T) {
	d := newDesk(t)
	token, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour)
	d.must(err)
	d.must(d.RevokeToken(d.Context(), operator(), token))
	d.refused(problem.Refused, "revoked", func() error { _, err := d.Authenticate(d.Context(), token); return err })
	if _, _, live, err := d.OperatorToken(d.Context()); err != nil || live {
		t.Errorf("got live %t, %v", live, err)
	}
}

func TestUnknownTokensAreRefused(t *testing.T) {
	d := newDesk(t)
	token, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour)
	d.must(err)
	for _, bad := range []string{"x", "striatum_op_", token[:len(token)-1], token + "A", strings.ToUpper(token), " " + token, "striatum_se_" + token[12:]} {
		d.refused(problem.Refused, "", func() error { _, err := d.Authenticate(d.Context(), bad); return err })
	}
	if p, err := d.Authenticate(d.Context(), ""); err != nil || p.Kind != daemon.Local {
		t.Errorf("no token: got %v, %v, want the local user", p, err)
	}
}

func TestRepositoryIsMintedOnceForAPlace(t *testing.T) {
	d := newDesk(t)
	place := daemon.Worktree{Path: "/src/\xff", Device: 1, Inode: 1<<64 - 1}
	if _, found, err := d.FindRepository(d.Context(), place); found || err != nil {
		t.Errorf("before: got found %t, %v", found, err)
	}
	var mu sync.Mutex
	ids, creations := map[string]bool{}, 0
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			repo, created, err := d.Repository(t.Context(), place)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[repo.ID] = true
			if created {
				creations++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || creations != 1 {
		t.Errorf("got ids %v from %d creations, want one", ids, creations)
	}
	moved := daemon.Worktree{Path: "/src/\xff", Device: 1, Inode: 7}
	other, created, err := d.Repository(d.Context(), moved)
	d.must(err)
	if !created || ids[other.ID] {
		t.Errorf("another folder at the same path: got %v, created %t", other, created)
	}
	d.must(d.BindRepository(d.Context(), operator(), moved, "my-project"))
	if repo, _, err := d.Repository(d.Context(), moved); err != nil || repo.ID != "my-project" {
		t.Errorf("after binding: got %v, %v", repo, err)
	}
	d.refused(problem.Usage, "not an id", func() error { return d.BindRepository(d.Context(), operator(), moved, "../x") })
}

func TestSharedStoreTakesNoIsolatedLane(t *testing.T) {
	d := newDesk(t)
	spec := daemon.LaneSpec{LaneID: "lane-1", PublicKey: d.lane.Public(), Class: seal.ClassIsolated}
	for _, p := range []daemon.Principal{daemon.LocalUser(), operator()} {
		d.refused(problem.Refused, "shared", func() error { return d.EnrolLane(d.Context(), p, spec) })
	}
	spec.Class = "other"
	d.refused(problem.Usage, "not a class", func() error { return d.EnrolLane(d.Context(), operator(), spec) })
}

func TestEnrollingAgainDoesNothingAndAKeyHasOneLane(t *testing.T) {
	d := newDesk(t).enrol()
	before := d.head()
	d.enrol()
	if d.head() != before {
		t.Error("a row was written")
	}
	d.refused(problem.Refused, "enrolled as lane", func() error {
		return d.EnrolLane(d.Context(), operator(), daemon.LaneSpec{LaneID: "lane-2", PublicKey: d.lane.Public(), Class: seal.ClassShared})
	})
}

func TestOnlySoundEvidenceIsRecorded(t *testing.T) {
	d := newDesk(t).enrol()
	good, v := d.sign(nil)
	unknown, _ := receipttest.Sign(t, receipttest.Facts(), receipttest.Key(t, 9))
	record := func(p daemon.Principal, envelope []byte) func() error {
		return func() error { _, err := d.RecordReceipt(d.Context(), p, envelope); return err }
	}
	d.refused(problem.Refused, "unknown key", record(daemon.LocalUser(), unknown))
	d.refused(problem.Refused, "", record(daemon.LocalUser(), bytes.Replace(good, []byte(`"sig":"M`), []byte(`"sig":"N`), 1)))
	d.refused(problem.Invalid, "", record(daemon.LocalUser(), []byte("{}")))
	d.refused(problem.Refused, "brings it", record(daemon.Principal{Kind: daemon.Lane, Name: "lane-2"}, good))
	d.refused(problem.Invalid, "", func() error { return d.RecordOpened(d.Context(), daemon.LocalUser(), good) })

	for range 2 { // the second time does nothing
		got, err := d.RecordReceipt(d.Context(), daemon.LocalUser(), good)
		d.must(err)
		d.must(d.RecordOpened(d.Context(), daemon.LocalUser(), d.opened(v.Receipt())))
		if got != v.Seal() {
			t.Errorf("got seal %s, want %s", got, v.Seal())
		}
	}
	envelope, err := d.Receipt(d.Context(), v.Seal())
	if err != nil || !bytes.Equal(envelope, good) {
		t.Errorf("the envelope is not what was recorded: %v", err)
	}
	list, err := d.Receipts(d.Context(), repoID, daemon.ReceiptFilter{CheckDigest: v.Receipt().Check.Digest})
	if err != nil || len(list) != 1 || list[0].Seal != v.Seal() || list[0].Classification != "asserted" {
		t.Errorf("got %v, %v", list, err)
	}
	if head := d.head(); head != 3 { // lane, receipt, opened
		t.Errorf("got %d rows, want 3", head)
	}
	d.refused(problem.Usage, "not found", func() error { _, err := d.Receipt(d.Context(), receipttest.Digest("no")); return err })
}

func TestClaimsFollowTheWritersRules(t *testing.T) {
	d := newDesk(t).enrol()
	local := daemon.LocalUser()
	declared := []claim.Claim{{ID: "tests-pass", Statement: "The tests pass.", CheckID: "builtin:go-test", JobID: "verify"}}
	envelope, v := d.sign(nil)
	update := func(p daemon.Principal, u claim.Update) func() error {
		return func() error {
			_, err := d.UpdateClaims(d.Context(), p, repoID, runID, nil, []claim.Update{u})
			return err
		}
	}
	first, err := d.UpdateClaims(d.Context(), local, repoID, runID, declared, nil)
	d.must(err)
	d.refused(problem.Refused, "not recorded", update(local, claim.Update{ClaimID: "tests-pass", Receipt: &v}))
	d.refused(problem.Invalid, "VERIFIED", update(local, claim.Update{ClaimID: "tests-pass", Status: claim.Verified}))
	d.refused(problem.Refused, "job", update(daemon.Principal{Kind: daemon.Session, Name: "s-1"}, claim.Update{ClaimID: "tests-pass", Status: claim.Asserted}))
	_, err = d.RecordReceipt(d.Context(), local, envelope)
	d.must(err)
	bound, err := d.UpdateClaims(d.Context(), local, repoID, runID, declared, []claim.Update{{ClaimID: "tests-pass", Receipt: &v}})
	d.must(err)
	if c, _ := bound.Find("tests-pass"); c.Status != claim.Asserted || c.Author != "lane:lane-1" || c.ReceiptRef != v.Seal() {
		t.Errorf("got %+v", c)
	}
	if bound.PrevSeal() != first.Seal() {
		t.Error("the ledger does not follow the one before")
	}
	before := d.head()
	if _, err := d.UpdateClaims(d.Context(), local, repoID, runID, declared, []claim.Update{{ClaimID: "tests-pass", Receipt: &v}}); err != nil || d.head() != before {
		t.Errorf("an update that changes nothing: %d rows, %v", d.head()-before, err)
	}
	got, found, err := d.Ledger(d.Context(), repoID, runID)
	if err != nil || !found || got.Seal() != bound.Seal() {
		t.Errorf("got %v, %t, %v", got.Seal(), found, err)
	}
	if _, found, err := d.Ledger(d.Context(), repoID, ""); found || err != nil {
		t.Errorf("another run: got found %t, %v", found, err)
	}
}

// policyFiles returns the files that `workflow generate` makes.
func policyFiles(t testing.TB) daemon.Files {
	t.Helper()
	plan, err := workflowgenerate.Generate(workflowgenerate.Spec{Shape: "verification_gate", Checks: []string{"builtin:go-test"}})
	if err != nil {
		t.Fatal(err)
	}
	files := daemon.Files{}
	for _, f := range plan.Files {
		if f.Path == workflow.DefaultPath || f.Path == workflow.DefaultIntentPath {
			files[f.Path] = f.Data
		}
	}
	return files
}
