package daemon_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"striatum/claim"
	"striatum/daemon"
	"striatum/eventlog"
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
	testing.TB
	*daemon.Service
	store store.Store // runs closures twice
	plain store.Store
	now   time.Time
	lane  *seal.PrivateKey
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	d := &desk{TB: t, now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), lane: receipttest.Key(t, 1)}
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
	d.plain, d.store = s, storetest.Twice(s)
	d.Service = d.over(d.store)
	return d
}

func (d *desk) over(s store.Store) *daemon.Service {
	return daemon.New(daemon.Config{
		Store: s, Now: func() time.Time { return d.now }, Rand: rand.Reader, StoreClass: seal.ClassShared,
		StoreName: "embedded", Home: "/home/x", ReportKey: receipttest.Key(d.TB, 7),
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
	r.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, Reached: 9, Killed: 3}
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

// mint mints the first operator token, of an hour.
func (d *desk) mint() (token string) {
	d.Helper()
	_, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour, func(t string) error { token = t; return nil })
	d.must(err)
	return token
}

// forget keeps a token nowhere.
func forget(string) error { return nil }

func TestTokenThatWasNotKeptIsNotRecorded(t *testing.T) {
	d := newDesk(t)
	lost := errors.New("no space left on device")
	var token string
	_, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour, func(t string) error { token = t; return lost })
	if !errors.Is(err, lost) {
		t.Errorf("got %v, want what keep said", err)
	}
	d.refused(problem.Refused, "does not know it", func() error { _, err := d.Authenticate(d.Context(), token); return err })
	if _, _, live, err := d.OperatorToken(d.Context()); err != nil || live {
		t.Errorf("got live %t, %v", live, err)
	}
}

func TestTokenOfARefusedMintIsNotHandedOut(t *testing.T) {
	d := newDesk(t)
	d.mint()
	d.refused(problem.Refused, "is good until", func() error {
		_, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour, func(string) error {
			t.Error("a second token was handed to a local user")
			return nil
		})
		return err
	})
}

func TestOfTwoMintsAtOnceOneCounts(t *testing.T) {
	d := newDesk(t)
	var first, second string
	_, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour, func(t string) error { second, first = t, d.mint(); return nil })
	if p := problem.Of(err); p == nil || p.Kind != problem.Refused {
		t.Errorf("got %v, want kind Refused", err)
	}
	_, err = d.Authenticate(d.Context(), first)
	d.must(err)
	d.refused(problem.Refused, "does not know it", func() error { _, err := d.Authenticate(d.Context(), second); return err })
}

func TestOperatorTokenIsShownOnceAndExpires(t *testing.T) {
	d := newDesk(t)
	token := d.mint()
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
	if _, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour, forget); err != nil {
		t.Errorf("after it expired a local user gets the next: %v", err)
	}
}

func TestRevokedTokenIsRefused(t *testing.T) {
	d := newDesk(t)
	token := d.mint()
	d.must(d.store.Update(d.Context(), func(w store.Writer) error {
		_, err := w.AddTokenRevocation(d.Context(), store.TokenRevocation{Hash: seal.SHA256Hex([]byte(token)), By: "operator:op"})
		return err
	}))
	d.refused(problem.Refused, "revoked", func() error { _, err := d.Authenticate(d.Context(), token); return err })
	if _, _, live, err := d.OperatorToken(d.Context()); err != nil || live {
		t.Errorf("got live %t, %v", live, err)
	}
}

func TestUnknownTokensAreRefused(t *testing.T) {
	d := newDesk(t)
	token := d.mint()
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
	d.refused(problem.Refused, "shared", func() error { return d.EnrolLane(d.Context(), operator(), spec) })
	// Not even the first one, which a local user may enrol as shared.
	d.refused(problem.Refused, "takes an operator", func() error { return d.EnrolLane(d.Context(), daemon.LocalUser(), spec) })
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
	d.refused(problem.Refused, "job", update(daemon.Principal{Kind: daemon.Session, Name: "s-1", RepositoryID: repoID, RunID: runID}, claim.Update{ClaimID: "tests-pass", Status: claim.Asserted}))
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

// editedLog changes one record on the way out, as whoever wrote the file could.
type editedLog struct{ store.Store }

type editedReader struct{ store.Reader }

func (s editedLog) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(editedReader{r}) })
}

func (r editedReader) Log(ctx context.Context, p store.Page) ([]store.LogRow, error) {
	rows, err := r.Reader.Log(ctx, p)
	if len(rows) > 1 {
		rows[1].Record = bytes.Replace(rows[1].Record, []byte("mine"), []byte("ours"), 1)
	}
	return rows, err
}

func TestLogIsVerified(t *testing.T) {
	d := newDesk(t).enrol()
	for _, id := range []string{"mine", "other"} {
		d.must(d.BindRepository(d.Context(), operator(), daemon.Worktree{Path: "/w"}, id))
	}
	if n, err := d.VerifyLog(d.Context()); n != 3 || err != nil {
		t.Errorf("got %d entries, %v, want 3", n, err)
	}
	n, err := d.over(editedLog{d.store}).VerifyLog(d.Context())
	var broken *eventlog.BrokenError
	if !errors.As(err, &broken) || broken.Position != 2 || n != 1 || problem.Of(err).Kind != problem.Refused {
		t.Errorf("got %d entries, %v, want entry 2 broken", n, err)
	}
}

func TestStoreErrorsBecomeWhatAUserCanActOn(t *testing.T) {
	for _, tt := range []struct {
		err  error
		kind problem.Kind
		hint string
	}{
		{store.ErrBusy, problem.Indeterminate, "try again"},
		{store.ErrFull, problem.Indeterminate, "free space"},
		{store.ErrReadOnly, problem.Missing, "STRIATUM_HOME"},
		{store.ErrNewerSchema, problem.Missing, "newer striatum"},
		{store.ErrCorrupt, problem.Refused, "backup"},
		{store.ErrNotFound, problem.Usage, ""},
		{io.ErrUnexpectedEOF, problem.Internal, ""},
	} {
		p := problem.Of(daemon.StoreProblem(fmt.Errorf("layer: %w", tt.err), "read it"))
		if p.Kind != tt.kind || p.What != "read it" || !strings.Contains(p.Hint, tt.hint) || !errors.Is(p, tt.err) {
			t.Errorf("%v: got %+v", tt.err, p)
		}
	}
	if daemon.StoreProblem(nil, "x") != nil || !errors.Is(daemon.StoreProblem(context.Canceled, "x"), context.Canceled) {
		t.Error("nil and a cancelled context do not stay as they are")
	}
}
