package verifier_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/seal"
	"striatum/verifier"
	"striatum/verifier/rehearsal"
)

// rehearse rehearses one entry, pinned in the tree before change.
func (l *lab) rehearse(t *testing.T, text, tree string, change func(root string)) rehearsal.Rehearsal {
	t.Helper()
	root := testenv.Tree(t, tree)
	e := entry(t, text)
	pins := l.pin(t, root, e)
	if change != nil {
		change(root)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	stored := len(l.stored)
	done, err := l.lane(t, nil).Rehearse(t.Context(), ask(root, e, pins))
	if err != nil || len(done) != 1 {
		t.Fatalf("%d rehearsals, %v", len(done), err)
	}
	r := done[0].Rehearsal
	ring := seal.NewKeyring(seal.Key{Public: l.key.Public(), Role: seal.RoleLane, LaneID: "lane-test"})
	kept, _, err := rehearsal.Find(verifier.RehearsalsDir(l.dir), r.Subject, ring)
	if err != nil || kept.Verdict != r.Verdict || kept.RehearsedAt != r.RehearsedAt {
		t.Errorf("kept %q, %v", kept.Verdict, err)
	}
	if len(l.stored) != stored {
		t.Error("a rehearsal made a receipt")
	}
	if _, err := os.Lstat(filepath.Join(l.dir, "rehearsal-tree")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty worktree is still there: %v", err)
	}
	return r
}

// reasonCodes are the codes of a rehearsal's reasons.
func reasonCodes(r rehearsal.Rehearsal) string {
	var codes []string
	for _, x := range r.Reasons {
		codes = append(codes, x.Code)
	}
	slices.Sort(codes)
	return strings.Join(slices.Compact(codes), " ")
}

// shellEntry is a check by the script x.sh, which must say that in.txt is bad.
func shellEntry(agreement, rest string) string {
	return `{"id": "x", "argv": ["sh", "x.sh", "{target}"], "definition": ["x.sh"], "backs_claim": "c", "agreement": "` + agreement + `", "pass_when": "exit_zero",
		"negative_control": {"mutation_of": ".", "mutation": {"file": "in.txt", "find": "good", "replace": "bad"}, "fails_with": "is bad"}` + rest + `}`
}

func shellTree(script string) string { return "-- x.sh --\n" + script + "\n-- in.txt --\ngood\n" }

const (
	// honestShell fails for want of the file, too.
	honestShell = "test -s $1/in.txt || exit 2; grep -q good $1/in.txt || { echo it is bad; exit 1; }"
	// tapRunner is a check of tests; PASSED stands for when one passed.
	tapRunner = `n=0 bad=0
for t in tests/*; do
	test -e $t || continue
	n=$((n+1))
	sh $t > /tmp/said; code=$?
	sed 's/^/# /' /tmp/said
	if PASSED; then echo ok $n - $t; else echo not ok $n - $t; bad=1; fi
done
echo 1..$n
exit $bad
-- tests/a.sh --
test -s in.txt || exit 2
grep -q good in.txt || { echo it is bad; exit 1; }
echo fine`
)

// TestRehearsalTellsVacuousFromHonest holds what a rehearsal must say of checks
// that cannot fail, and of those that can, in several languages.
func TestRehearsalTellsVacuousFromHonest(t *testing.T) {
	l := open(t)
	honestPython := strings.Replace(checkSchema, "for p in", "if not any(pathlib.Path(sys.argv[1]).glob(\"*.json\")): sys.exit(\"no schema\")\nfor p in", 1)
	for name, c := range map[string]struct {
		entry, tree string
		change      func(root string)
		want        rehearsal.Verdict
		failed      bool
		codes       string
	}{
		"honest shell":  {shellEntry("exit_code", ""), shellTree(honestShell), nil, rehearsal.Graduates, false, ""},
		"honest python": {schemaEntry(), honestPython, nil, rehearsal.Graduates, false, ""},
		"honest tests":  {shellEntry("tap", ""), shellTree(strings.Replace(tapRunner, "PASSED", "grep -q fine /tmp/said", 1)), nil, rehearsal.Graduates, false, ""},

		"true":       {strings.Replace(shellEntry("exit_code", ""), `"sh", "x.sh", "{target}"`, `"true"`, 1), shellTree("true"), nil, rehearsal.Refused, false, "negative_control_did_not_fail passes_on_empty_worktree"},
		"exits zero": {shellEntry("exit_code", ""), shellTree("(" + honestShell + ")\nexit 0"), nil, rehearsal.Refused, false, "negative_control_did_not_fail passes_on_empty_worktree"},
		"passes where nothing is": {
			shellEntry("exit_code", ""), shellTree("for f in $1/in*; do test -e $f || continue; grep -q good $f || { test -s $f && echo it is bad; exit 1; }; done"), nil,
			rehearsal.Refused, false, "passes_on_empty_worktree",
		},
		"passes with emptied tests": {
			shellEntry("tap", ""), shellTree(strings.Replace(tapRunner, "PASSED", "test $code = 0", 1)), nil,
			rehearsal.Refused, false, "passes_on_emptied_tests",
		},
		"empty suite, tap":          {shellEntry("tap", ""), shellTree("echo 1..0"), nil, rehearsal.Refused, true, "nothing_to_check"},
		"empty suite, junit":        {shellEntry("junit", ""), shellTree("echo '<testsuite tests=\"0\"/>'"), nil, rehearsal.Refused, true, "nothing_to_check"},
		"empty suite, go-test-json": {shellEntry("go-test-json", ""), shellTree("true"), nil, rehearsal.Refused, true, "nothing_to_check"},
		"fails":                     {shellEntry("exit_code", ""), shellTree(honestShell), func(root string) { put(t, root, "in.txt", "bad\n") }, rehearsal.Refused, true, "exit_nonzero"},
		"invalid control": {
			shellEntry("exit_code", ""), shellTree(honestShell + "\n"), func(root string) { put(t, root, "in.txt", "good good\n") },
			rehearsal.Refused, false, "negative_control_invalid",
		},
		"edited script": {
			shellEntry("exit_code", ""), shellTree(honestShell), func(root string) { put(t, root, "x.sh", "true\n") },
			rehearsal.Indeterminate, false, "toolchain_drift negative_control_missing execution_missing rehearsal_incomplete",
		},
		"endless where nothing is": {
			shellEntry("exit_code", `, "limits": {"wall_clock": "3s"}`), shellTree("test -e $1/in.txt || sleep 100; " + honestShell), nil,
			rehearsal.Indeterminate, false, "execution_cut_short limit_hit limit_wall_clock",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.rehearse(t, c.entry, c.tree, c.change)
			got, want := strings.Fields(reasonCodes(r)), strings.Fields(c.codes)
			slices.Sort(want)
			if r.Verdict != c.want || r.Failed() != c.failed || !slices.Equal(got, want) {
				t.Errorf("%s, failed %t, %v; want %s, %t, %s", r.Verdict, r.Failed(), r.Reasons, c.want, c.failed, c.codes)
			}
			if r.Verdict == rehearsal.Graduates && (!r.Posture.Strict || len(r.Runs) != 2 || len(r.Controls) != 3) {
				t.Errorf("it graduates with %d runs and %d controls", len(r.Runs), len(r.Controls))
			}
		})
	}
}

// lenient is the lab's engine, in which the third known-bad input is as good as
// any.
type lenient struct {
	sandbox.Engine
	bad *atomic.Int64
}

func (e lenient) Prepare(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := e.Engine.Prepare(ctx, spec)
	return lenientBox{box, e.bad}, err
}

type lenientBox struct {
	sandbox.Sandbox
	bad *atomic.Int64
}

func (b lenientBox) Run(ctx context.Context, programs []sandbox.Program, to sandbox.Streams) (sandbox.Result, error) {
	for i := range programs {
		for k, f := range programs[i].Files {
			if bytes.Equal(f.Data, []byte("bad\n")) && b.bad.Add(1) == 3 {
				programs[i].Files[k].Data = []byte("good\n")
			}
		}
	}
	return b.Sandbox.Run(ctx, programs, to)
}

// TestRehearsalNamesAFlakyControl fails twice as it must and passes the third time.
func TestRehearsalNamesAFlakyControl(t *testing.T) {
	l := open(t)
	l.wrap = func(e sandbox.Engine) sandbox.Engine { return lenient{e, new(atomic.Int64)} }
	defer func() { l.wrap = nil }()
	r := l.rehearse(t, shellEntry("exit_code", ""), shellTree(honestShell), nil)
	if r.Verdict != rehearsal.Refused || reasonCodes(r) != "negative_control_nondeterministic" {
		t.Errorf("%s, %v", r.Verdict, r.Reasons)
	}
	if len(r.Controls) != 3 || r.Controls[1].Control.Outcome != receipt.FailedAsRequired || r.Controls[2].Control.Outcome != receipt.DidNotFail {
		t.Errorf("controls %+v", r.Controls)
	}
}

// TestRehearsalTriesEveryMutation has a list of which the second says nothing: a
// run would pick either.
func TestRehearsalTriesEveryMutation(t *testing.T) {
	l := open(t)
	text := strings.Replace(shellEntry("exit_code", ""), `{"file": "in.txt", "find": "good", "replace": "bad"}`,
		`[{"file": "in.txt", "find": "good", "replace": "bad"}, {"file": "in.txt", "find": "nice", "replace": "ugly"}]`, 1)
	r := l.rehearse(t, text, "-- x.sh --\n"+honestShell+"\n-- in.txt --\ngood\nnice\n", nil)
	if r.Verdict != rehearsal.Refused || reasonCodes(r) != "negative_control_did_not_fail" || len(r.Controls) != 6 || r.Controls[2].Control.Outcome != receipt.FailedAsRequired {
		t.Errorf("%s, %v", r.Verdict, r.Reasons)
	}
}
