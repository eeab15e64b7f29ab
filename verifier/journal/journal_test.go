package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
)

var testKey = func() *seal.PrivateKey {
	k, err := seal.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}()

func testConfig() Config {
	return Config{
		Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }, Rand: rand.Reader,
		Key: testKey, LaneID: "lane-1", MachineID: "machine", PID: os.Getpid(),
	}
}

func open(t testing.TB, dir string, cfg Config) *Session {
	t.Helper()
	j, err := Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := j.Lock(t.Context(), "test", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Release() })
	return s
}

func draft(repository string) receipt.Receipt {
	sum := strings.Repeat("a", 64)
	return receipt.Receipt{
		RepositoryID: repository, Nonce: "nonce-1",
		Check:  receipt.Check{ID: "builtin:go-test", Kind: receipt.Builtin, Digest: sum},
		Tools:  receipt.Tools{BuiltinID: "builtin:go-test"},
		Inputs: receipt.Inputs{TreeSHA256: sum},
		Lane:   receipt.Lane{HostFingerprint: "0011aabb-linux-amd64", OS: "linux", Arch: "amd64"},
	}
}

func begin(t testing.TB, s *Session, repository string) *Entry {
	t.Helper()
	e, err := s.Begin(draft(repository), "local")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// finish seals the entry as it stands.
func finish(t testing.TB, e *Entry) string {
	t.Helper()
	sealed, err := e.Finish(sign(t, e, "done"))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func sign(t testing.TB, e *Entry, why string) []byte {
	t.Helper()
	envelope, _, err := receipt.Sign(e.Aborted(time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC), why), testKey)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

func TestNumbersOfARepositoryFormAChain(t *testing.T) {
	s := open(t, t.TempDir(), testConfig())
	prev := map[string]string{"a": zeroSeal, "b": zeroSeal}
	for i := range 6 {
		repository := []string{"a", "b"}[i%2]
		e := begin(t, s, repository)
		if e.Opened.Sequence != int64(i/2+1) || e.Opened.PrevSeal != prev[repository] || e.Opened.LaneEpoch != s.Epoch() {
			t.Errorf("number %d of %s: %+v, want after %s", i, repository, e.Opened, prev[repository])
		}
		ring := seal.NewKeyring(seal.Key{Public: testKey.Public(), Role: seal.RoleLane, Class: seal.ClassShared, LaneID: "lane-1"})
		if o, err := receipt.OpenOpened(e.Envelope, ring); err != nil || o != e.Opened {
			t.Errorf("opened record %+v, error %v", o, err)
		}
		prev[repository] = finish(t, e)
	}
	if n, sealed, err := s.Head("a"); n != 3 || sealed != prev["a"] || err != nil {
		t.Errorf("head %d %s, error %v", n, sealed, err)
	}
}

func TestANumberIsOpenedOnlyAfterTheOneBeforeIsFinished(t *testing.T) {
	s := open(t, t.TempDir(), testConfig())
	e := begin(t, s, "a")
	if _, err := s.Begin(draft("a"), "local"); !errors.Is(err, ErrStillOpen) {
		t.Errorf("error %v, want ErrStillOpen", err)
	}
	finish(t, e)
	begin(t, s, "a")
}

func TestADraftThatNoReceiptCouldComeFromIsRefused(t *testing.T) {
	s := open(t, t.TempDir(), testConfig())
	bad := draft("a")
	bad.Check.Digest = "none"
	if _, err := s.Begin(bad, "local"); err == nil {
		t.Error("accepted")
	}
	odd := draft("a")
	odd.Findings = []receipt.Finding{{Code: "odd_name", Path: "bad \xff name"}}
	if _, err := s.Begin(odd, "local \xff"); err != nil {
		t.Errorf("invalid UTF-8 in a path: %v", err)
	}
}

func TestAPlaceHasOneReceipt(t *testing.T) {
	s := open(t, t.TempDir(), testConfig())
	e := begin(t, s, "a")
	first := sign(t, e, "first")
	sealed, err := e.Finish(first)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := e.Finish(first); err == nil && again != sealed {
		t.Errorf("the same receipt again gives %s", again)
	}
	if _, err := e.Finish(sign(t, e, "second")); err == nil {
		t.Error("a second receipt was accepted")
	}
	next := begin(t, s, "a")
	if _, err := next.Finish(first); err == nil {
		t.Error("the receipt of another place was accepted")
	}
}

func TestALaneIsSettledWhenAllIsRecorded(t *testing.T) {
	dir := t.TempDir()
	says := func(want string) {
		t.Helper()
		if got, err := Unsettled(dir); err != nil || want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	says("") // no lane ever ran
	s := open(t, dir, testConfig())
	says("it is held by process")
	e := begin(t, s, "a")
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	says("1 of its receipts are not recorded")
	s = open(t, dir, testConfig())
	left, err := s.Leftovers()
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	sealed, err := left[0].Finish(sign(t, e, "done"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	says("1 of its receipts are not recorded")
	s = open(t, dir, testConfig())
	if err := errors.Join(s.MarkRecorded(sealed), s.Release()); err != nil {
		t.Fatal(err)
	}
	says("")
}

func TestReceiptsArePendingUntilRecordedAndKeptForEver(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, testConfig())
	e := begin(t, s, "a")
	envelope := sign(t, e, "done")
	sealed, err := e.Finish(envelope)
	if err != nil {
		t.Fatal(err)
	}
	check := func(wantPending int) {
		t.Helper()
		pending, err := s.j.Pending()
		if err != nil || len(pending) != wantPending {
			t.Errorf("pending %v, error %v, want %d", pending, err, wantPending)
		}
		opened, got, err := s.j.Load(sealed)
		if err != nil || string(got) != string(envelope) || string(opened) != string(e.Envelope) {
			t.Errorf("loaded %d and %d bytes, error %v", len(opened), len(got), err)
		}
	}
	check(1)
	for range 2 {
		if err := s.MarkRecorded(sealed); err != nil {
			t.Fatal(err)
		}
		check(0)
	}
	unknown := strings.Repeat("0", 64)
	if err := s.MarkRecorded(unknown); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown seal: error %v", err)
	}
	if _, _, err := s.j.Load(unknown); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown seal: error %v", err)
	}
}

func TestALeftoverIsIndeterminateUnlessItHadFailed(t *testing.T) {
	for _, failed := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir, testConfig())
		e := begin(t, s, "a")
		want := receipt.Indeterminate
		if failed {
			d := e.Draft
			d.Executions = []receipt.Execution{{Judgement: receipt.Fail, ExitCode: 1, StartedAt: "2026-01-02T03:04:05Z", Reasons: []receipt.Reason{{Code: "test_failed"}}}}
			if err := e.Note(d); err != nil {
				t.Fatal(err)
			}
			want = receipt.Failed
		}
		_ = s.Release() // as a kill does

		s = open(t, dir, testConfig())
		left, err := s.Leftovers()
		if err != nil || len(left) != 1 || left[0].Opened != e.Opened {
			t.Fatalf("leftovers %v, error %v", left, err)
		}
		if _, err := s.Begin(draft("a"), "local"); !errors.Is(err, ErrStillOpen) {
			t.Errorf("error %v, want ErrStillOpen", err)
		}
		sealed := finish(t, left[0])
		_, envelope, err := s.j.Load(sealed)
		if err != nil {
			t.Fatal(err)
		}
		r, err := receipt.Parse(envelope)
		if err != nil || r.Classification != want || r.Incidents[len(r.Incidents)-1].Code != AbortedCode {
			t.Errorf("%s, incidents %v, error %v, want %s", r.Classification, r.Incidents, err, want)
		}
		if left, _ := s.Leftovers(); len(left) != 0 {
			t.Errorf("still left: %v", left)
		}
	}
}

func TestTheEpochLastsAsLongAsTheStateStaysWhereItIs(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, testConfig())
	epoch := s.Epoch()
	finish(t, begin(t, s, "a"))
	left := begin(t, s, "b")
	_ = s.Release()

	s = open(t, dir, testConfig())
	if s.Epoch() != epoch {
		t.Errorf("epoch %s after reopening, want %s", s.Epoch(), epoch)
	}
	_ = s.Release()

	restored := filepath.Join(t.TempDir(), "restored")
	if err := os.CopyFS(restored, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	elsewhere := testConfig()
	elsewhere.MachineID = "another machine"
	for name, s := range map[string]*Session{"copy": open(t, restored, testConfig()), "other machine": open(t, dir, elsewhere)} {
		if s.Epoch() == epoch {
			t.Errorf("%s: same epoch", name)
		}
		if e := begin(t, s, "a"); e.Opened.Sequence != 1 || e.Opened.PrevSeal != zeroSeal {
			t.Errorf("%s: continues with number %d", name, e.Opened.Sequence)
		}
		if more, _ := s.Leftovers(); len(more) != 1 || more[0].Opened.RepositoryID != "a" {
			t.Errorf("%s: leftovers of the other epoch are offered: %v", name, more)
		}
		if _, err := os.Stat(filepath.Join(s.j.dir, "epochs", epoch, key(left.Opened.RepositoryID), "entry.json")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if pending, _ := s.j.Pending(); len(pending) != 1 {
			t.Errorf("%s: pending %v, want the receipt of the old epoch", name, pending)
		}
	}
}

func TestRenewBeginsANewChain(t *testing.T) {
	s := open(t, t.TempDir(), testConfig())
	epoch := s.Epoch()
	finish(t, begin(t, s, "a"))
	if err := s.Renew(); err != nil {
		t.Fatal(err)
	}
	e := begin(t, s, "a")
	if s.Epoch() == epoch || e.Opened.Sequence != 1 || e.Opened.PrevSeal != zeroSeal {
		t.Errorf("epoch %s, number %d", s.Epoch(), e.Opened.Sequence)
	}
	finish(t, e)
	if n, _, _ := s.Head("a"); n != 1 {
		t.Errorf("head %d, want 1", n)
	}
}

func TestDamagedStateIsAnErrorAndNotANewChain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, testConfig())
	finish(t, begin(t, s, "a"))
	chainFile := s.j.chainPath("a")
	if err := os.WriteFile(chainFile, []byte(`{"sequence":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(draft("a"), "local"); err == nil {
		t.Error("began after a damaged chain")
	}
	_ = s.Release()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.j.Lock(t.Context(), "test", 0, nil); err == nil {
		t.Error("locked with a damaged state")
	}
}

func TestOneHoldsTheLaneAndTheOthersAreToldWho(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig()
	first := open(t, dir, cfg)
	j, err := Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var told []Holder
	_, err = j.Lock(t.Context(), "second", 120*time.Millisecond, func(h Holder) { told = append(told, h) })
	var busy *BusyError
	if p := problem.Of(err); p == nil || p.Kind != problem.Indeterminate || !errors.As(err, &busy) {
		t.Fatalf("error %v, want a busy lane", err)
	}
	want := Holder{lockMarker, os.Getpid(), "test", "2026-01-02T03:04:05Z"}
	if len(told) != 1 || told[0] != want || busy.Holder != want {
		t.Errorf("told %v, busy %v, want %v", told, busy.Holder, want)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	if _, err = j.Lock(ctx, "second", time.Hour, func(Holder) { cancel(stop) }); !errors.Is(err, stop) {
		t.Errorf("cancelled: error %v", err)
	}
	s, err := j.Lock(t.Context(), "second", time.Hour, func(Holder) { _ = first.Release() })
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Release()
}

func TestOpenNeedsAWholeConfiguration(t *testing.T) {
	if _, err := Open(t.TempDir(), Config{}); err == nil {
		t.Error("accepted")
	}
}
