package rehearsal_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/schemacheck"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/verifier/rehearsal"
)

// facts are those of a check of tests that graduates.
func facts() rehearsal.Rehearsal {
	r := receipttest.Facts()
	r.Check.ID, r.Check.Kind, r.Check.Agreement = "unit", receipt.External, "tap"
	x := rehearsal.Rehearsal{
		Subject: rehearsal.Subject{RepositoryID: "repo-1", CheckDigest: r.Check.Digest, ClosureSHA256: receipttest.Digest("closure")},
		Check:   r.Check, TreeSHA256: receipttest.Digest("tree"), Mutations: 2, TestFiles: 3,
		Runs: r.Executions, Posture: r.Posture, Limits: r.Limits, Lane: r.Lane, RehearsedAt: "2026-05-04T03:02:09Z",
		Reds: []rehearsal.Red{{Input: rehearsal.EmptyWorktree, Execution: receipttest.Execution(receipt.Fail)}, {Input: rehearsal.EmptiedTests, Execution: receipttest.Execution(receipt.Fail)}},
	}
	for i := range 6 {
		x.Controls = append(x.Controls, try(int64(i/3+1), receipt.FailedAsRequired, ""))
	}
	return x
}

func try(mutation int64, outcome receipt.ControlOutcome, why string) rehearsal.Control {
	judgement := map[receipt.ControlOutcome]receipt.Judgement{receipt.FailedAsRequired: receipt.Fail, receipt.DidNotFail: receipt.Pass, receipt.Invalid: receipt.Inconclusive}[outcome]
	x := receipttest.Execution(judgement)
	return rehearsal.Control{Mutation: mutation, File: "a.txt", Control: receipt.Control{
		Kind: receipt.ControlWorktree, MutationOf: ".", MutationSHA256: receipttest.Digest("mutation"), Execution: &x, Emptied: &x, Outcome: outcome, Why: why,
	}}
}

func signed(t *testing.T, r rehearsal.Rehearsal) ([]byte, rehearsal.Rehearsal) {
	t.Helper()
	envelope, r, err := rehearsal.Sign(r, receipttest.Key(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	return envelope, r
}

func TestVerdictFollowsFromTheFacts(t *testing.T) {
	unreadable := receipttest.Execution(receipt.Inconclusive)
	unreadable.Reasons = []receipt.Reason{{Code: "report_unreadable", Detail: "it has no plan"}}
	for name, c := range map[string]struct {
		change func(*rehearsal.Rehearsal)
		want   rehearsal.Verdict
		failed bool
		code   string // the only one; empty: none
	}{
		"honest": {func(*rehearsal.Rehearsal) {}, rehearsal.Graduates, false, ""},
		"no test files": {func(r *rehearsal.Rehearsal) {
			r.TestFiles, r.Reds = 0, r.Reds[:1]
		}, rehearsal.Graduates, false, "no_test_files"},
		"no format of tests": {func(r *rehearsal.Rehearsal) {
			r.Check.Agreement, r.TestFiles, r.Reds = "stdout", 0, r.Reds[:1]
		}, rehearsal.Graduates, false, ""},
		"a fixture": {func(r *rehearsal.Rehearsal) {
			unmutated := receipttest.Execution(receipt.Pass)
			r.Controls[0].Control.Kind, r.Controls[0].Control.Baseline = receipt.ControlFixture, &unmutated
		}, rehearsal.Graduates, false, "control_not_on_subject"},
		"a red ends without a report": {func(r *rehearsal.Rehearsal) {
			r.Reds[1].Execution = unreadable
		}, rehearsal.Graduates, false, ""},

		"fails on the tree": {func(r *rehearsal.Rehearsal) {
			r.Runs[0], r.Runs[1] = receipttest.Execution(receipt.Fail), receipttest.Execution(receipt.Fail)
			r.Controls, r.Reds = nil, nil
		}, rehearsal.Refused, true, "test_failed"},
		"empty worktree passes": {func(r *rehearsal.Rehearsal) { r.Reds[0].Execution = receipttest.Execution(receipt.Pass) }, rehearsal.Refused, false, "passes_on_empty_worktree"},
		"emptied tests pass":    {func(r *rehearsal.Rehearsal) { r.Reds[1].Execution = receipttest.Execution(receipt.Pass) }, rehearsal.Refused, false, "passes_on_emptied_tests"},
		"control passes once":   {func(r *rehearsal.Rehearsal) { r.Controls[4] = try(2, receipt.DidNotFail, "") }, rehearsal.Refused, false, "negative_control_nondeterministic"},
		"control invalid once":  {func(r *rehearsal.Rehearsal) { r.Controls[2] = try(1, receipt.Invalid, "exit code 127") }, rehearsal.Refused, false, "negative_control_nondeterministic"},
		"control passes": {func(r *rehearsal.Rehearsal) {
			for i := range 3 {
				r.Controls[3+i] = try(2, receipt.DidNotFail, "")
			}
		}, rehearsal.Refused, false, "negative_control_did_not_fail"},
		"control invalid": {func(r *rehearsal.Rehearsal) {
			for i := range 3 {
				r.Controls[i] = try(1, receipt.Invalid, "the file is not there")
			}
		}, rehearsal.Refused, false, "negative_control_invalid"},
		"refused although a limit was hit": {func(r *rehearsal.Rehearsal) {
			r.Reds[0].Execution = receipttest.Execution(receipt.Pass)
			r.Runs[0].TimedOut = true
		}, rehearsal.Refused, false, "execution_cut_short passes_on_empty_worktree"},

		"runs differ":        {func(r *rehearsal.Rehearsal) { r.Runs[1].ResultSHA256 = receipttest.Digest("other") }, rehearsal.Indeterminate, false, "no_reexecution_agreement"},
		"one run":            {func(r *rehearsal.Rehearsal) { r.Runs = r.Runs[:1] }, rehearsal.Indeterminate, false, "execution_missing"},
		"two tries":          {func(r *rehearsal.Rehearsal) { r.Controls = r.Controls[:5] }, rehearsal.Indeterminate, false, "negative_control_missing"},
		"one mutation":       {func(r *rehearsal.Rehearsal) { r.Mutations = 3 }, rehearsal.Indeterminate, false, "negative_control_missing"},
		"no mutation":        {func(r *rehearsal.Rehearsal) { r.Mutations, r.Controls = 0, nil }, rehearsal.Indeterminate, false, "negative_control_missing"},
		"no empty worktree":  {func(r *rehearsal.Rehearsal) { r.Reds = r.Reds[1:] }, rehearsal.Indeterminate, false, "rehearsal_incomplete"},
		"no emptied tests":   {func(r *rehearsal.Rehearsal) { r.Reds = r.Reds[:1] }, rehearsal.Indeterminate, false, "rehearsal_incomplete"},
		"a red is cut short": {func(r *rehearsal.Rehearsal) { r.Reds[0].Execution = receipttest.Execution(receipt.Inconclusive) }, rehearsal.Indeterminate, false, "execution_cut_short"},
		"a red is timed out": {func(r *rehearsal.Rehearsal) { r.Reds[0].Execution = unreadable; r.Reds[0].Execution.TimedOut = true }, rehearsal.Indeterminate, false, "execution_cut_short"},
		"drift": {func(r *rehearsal.Rehearsal) {
			r.Incidents = []receipt.Incident{{Code: "toolchain_drift", Effect: receipt.MakesIndeterminate, Detail: "x"}}
		}, rehearsal.Indeterminate, false, "toolchain_drift"},
		"not strict": {func(r *rehearsal.Rehearsal) { r.Posture.Facets[0].OK = false }, rehearsal.Indeterminate, false, "sandbox_not_strict"},
	} {
		t.Run(name, func(t *testing.T) {
			r := facts()
			c.change(&r)
			_, r = signed(t, r)
			var codes []string
			for _, why := range r.Reasons {
				codes = append(codes, why.Code)
			}
			slices.Sort(codes)
			if got := strings.Join(codes, " "); r.Verdict != c.want || r.Failed() != c.failed || got != c.code {
				t.Errorf("%s, failed %t, %q; want %s, %t, %q", r.Verdict, r.Failed(), got, c.want, c.failed, c.code)
			}
		})
	}
}

// TestNothingGraduatesWithAPieceMissing takes each execution away in turn.
func TestNothingGraduatesWithAPieceMissing(t *testing.T) {
	whole := facts()
	for i := range whole.Runs {
		r := facts()
		r.Runs = slices.Delete(r.Runs, i, i+1)
		if _, r := signed(t, r); r.Verdict != rehearsal.Indeterminate {
			t.Errorf("without run %d: %s", i, r.Verdict)
		}
	}
	for i := range whole.Controls {
		r := facts()
		r.Controls = slices.Delete(r.Controls, i, i+1)
		if _, r := signed(t, r); r.Verdict != rehearsal.Indeterminate {
			t.Errorf("without try %d: %s", i, r.Verdict)
		}
	}
	for i := range whole.Reds {
		r := facts()
		r.Reds = slices.Delete(r.Reds, i, i+1)
		if _, r := signed(t, r); r.Verdict != rehearsal.Indeterminate {
			t.Errorf("without red %d: %s", i, r.Verdict)
		}
	}
}

func TestOnlyWhatALaneSignedIsOpened(t *testing.T) {
	key := receipttest.Key(t, 1)
	envelope, want := signed(t, facts())
	got, by, err := rehearsal.Open(envelope, receipttest.Ring(key))
	if err != nil || by.Public.ID() != key.Public().ID() {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	resigned := func(change func(*rehearsal.Rehearsal)) []byte {
		r := want
		change(&r)
		payload, err := seal.Canonical(r)
		if err != nil {
			t.Fatal(err)
		}
		envelope, err := seal.Sign(key, rehearsal.PayloadType, payload)
		if err != nil {
			t.Fatal(err)
		}
		return envelope
	}
	report := seal.NewKeyring(seal.Key{Public: key.Public(), Role: seal.RoleReport})
	other := seal.NewKeyring(seal.Key{Public: key.Public(), Role: seal.RoleLane, LaneID: "lane-2"})
	edited := slices.Clone(envelope)
	edited[len(`{"payload":"`)+40] ^= 1
	for name, c := range map[string]struct {
		envelope []byte
		ring     seal.Keyring
		want     error
	}{
		"another key":      {envelope, receipttest.Ring(receipttest.Key(t, 2)), seal.ErrUnknownKey},
		"a key of reports": {envelope, report, seal.ErrWrongRole},
		"another lane":     {envelope, other, rehearsal.ErrInvalid},
		"edited":           {edited, receipttest.Ring(key), seal.ErrBadSignature},
		"no envelope":      {[]byte("{}"), receipttest.Ring(key), seal.ErrMalformed},
		"too long":         {make([]byte, rehearsal.MaxBytes+1), receipttest.Ring(key), rehearsal.ErrInvalid},
		"a kinder verdict": {resigned(func(r *rehearsal.Rehearsal) { r.Reds, r.Reasons = nil, nil }), receipttest.Ring(key), rehearsal.ErrInvalid},
		"a builtin":        {resigned(func(r *rehearsal.Rehearsal) { r.Check.Kind = receipt.Builtin }), receipttest.Ring(key), rehearsal.ErrInvalid},
		"another check":    {resigned(func(r *rehearsal.Rehearsal) { r.Subject.CheckDigest = receipttest.Digest("x") }), receipttest.Ring(key), rehearsal.ErrInvalid},
		"another version":  {resigned(func(r *rehearsal.Rehearsal) { r.SchemaVersion = "striatum.rehearsal.v2" }), receipttest.Ring(key), rehearsal.ErrInvalid},
	} {
		if r, _, err := rehearsal.Open(c.envelope, c.ring); !errors.Is(err, c.want) || r.Verdict != "" {
			t.Errorf("%s: got %q, %v; want %v", name, r.Verdict, err, c.want)
		}
	}
}

// TestARecordOfWhatBlowsUpFits has as much of everything as a check can make.
func TestARecordOfWhatBlowsUpFits(t *testing.T) {
	r := facts()
	r.Mutations, r.Controls = rehearsal.MaxMutations, nil
	long := strings.Repeat("\xff\x01\n", 5000)
	for i := range rehearsal.MaxMutations * rehearsal.Repetitions {
		c := try(int64(i/3+1), receipt.FailedAsRequired, "")
		x := *c.Control.Execution
		x.Reasons = slices.Repeat([]receipt.Reason{{Code: "tests_failed", Detail: long}}, 300)
		c.File, c.Control.Execution, c.Control.Emptied, c.Control.Baseline = long, &x, &x, &x
		r.Controls = append(r.Controls, c)
	}
	if envelope, r := signed(t, r); r.Verdict != rehearsal.Graduates {
		t.Errorf("%d bytes, %s %v", len(envelope), r.Verdict, r.Reasons)
	}
}

func TestTheNewestOfASubjectIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rehearsals")
	ring := receipttest.Ring(receipttest.Key(t, 1))
	graduates := facts()
	refused := facts()
	refused.Reds[0].Execution = receipttest.Execution(receipt.Pass)
	keep := func(r rehearsal.Rehearsal) {
		t.Helper()
		envelope, r := signed(t, r)
		if err := rehearsal.Keep(dir, r.Subject, envelope); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := rehearsal.Find(dir, graduates.Subject, ring); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	keep(graduates)
	keep(refused)
	got, _, err := rehearsal.Find(dir, graduates.Subject, ring)
	if err != nil || got.Verdict != rehearsal.Refused {
		t.Errorf("got %s, %v", got.Verdict, err)
	}
	for name, change := range map[string]func(*rehearsal.Subject){
		"another repository": func(s *rehearsal.Subject) { s.RepositoryID = "repo-2" },
		"another check":      func(s *rehearsal.Subject) { s.CheckDigest = receipttest.Digest("x") },
		"another closure":    func(s *rehearsal.Subject) { s.ClosureSHA256 = receipttest.Digest("x") },
	} {
		s := graduates.Subject
		change(&s)
		if _, _, err := rehearsal.Find(dir, s, ring); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v", name, err)
		}
	}

	// A record that is moved to the place of another counts for nothing there.
	other := facts()
	other.Subject.RepositoryID = "repo-2"
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %q, %v", files, err)
	}
	refusedFile := files[0]
	keep(other)
	files, err = filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 2 {
		t.Fatalf("got %q, %v", files, err)
	}
	otherFile := files[slices.IndexFunc(files, func(f string) bool { return f != refusedFile })]
	if err := os.Rename(otherFile, refusedFile); err != nil {
		t.Fatal(err)
	}
	if _, _, err := rehearsal.Find(dir, graduates.Subject, ring); !errors.Is(err, rehearsal.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// TestOldRecordsAreDropped keeps what a kill left out, and the newest in.
func TestOldRecordsAreDropped(t *testing.T) {
	dir := t.TempDir()
	for i := range rehearsal.MaxKept + 20 {
		path := filepath.Join(dir, fmt.Sprintf("%064d.json", i))
		at := time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	left := filepath.Join(dir, ".tmp-0123456789abcdef")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	envelope, r := signed(t, facts())
	if err := rehearsal.Keep(dir, r.Subject, envelope); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != rehearsal.MaxKept {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if _, _, err := rehearsal.Find(dir, r.Subject, receipttest.Ring(receipttest.Key(t, 1))); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]bool{left: false, filepath.Join(dir, fmt.Sprintf("%064d.json", 20)): false, filepath.Join(dir, fmt.Sprintf("%064d.json", 21)): true} {
		if _, err := os.Lstat(name); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %t", filepath.Base(name), err, want)
		}
	}
}

func TestSchemaAndFormatAgree(t *testing.T) {
	schema, err := os.ReadFile(filepath.Join("..", "..", "docs", "schemas", "rehearsal.v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, r := signed(t, facts())
	data, err := seal.Canonical(r)
	if err != nil {
		t.Fatal(err)
	}
	if bad, err := schemacheck.Check(schema, data); err != nil || len(bad) > 0 {
		t.Errorf("%v, %v", bad, err)
	}
	for _, change := range [][2]string{
		{`"verdict":"graduates"`, `"verdict":"fine"`}, {`"subject":{`, `"subject":{"foreign":1,`}, {`"mutations":2,`, ``}, {`"input":"empty_worktree"`, `"input":"."`},
	} {
		text := strings.Replace(string(data), change[0], change[1], 1)
		if text == string(data) {
			t.Fatalf("the record has no %s", change[0])
		}
		if bad, err := schemacheck.Check(schema, []byte(text)); err != nil || len(bad) == 0 {
			t.Errorf("the schema lets %s through, %v", change[1], err)
		}
	}
}
