package verifier_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/verifier"
	"striatum/workflow"
)

// committed writes a tree, commits it with git, and returns its folder and the
// commit's id.
func committed(t *testing.T, tree string) (root, commit string) {
	t.Helper()
	root = testenv.Tree(t, tree)
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "x")
	return root, git("rev-parse", "HEAD")
}

// edit writes files of the tree at root; one without content is removed.
func edit(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(root, name)
		err := os.RemoveAll(name)
		if content != "" {
			err = os.WriteFile(name, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const calculator = `-- go.mod --
module example.org/calc

go 1.26
-- calc.go --
package calc

func Sum(list []int) int {
	sum := 0
	for _, n := range list {
		sum += n
	}
	return sum
}

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
-- calc_test.go --
package calc

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestSum(t *testing.T) {
	if got := Sum([]int{1, 2, 4}); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
}

func TestMax(t *testing.T) {
	golden, err := os.ReadFile("testdata/max")
	if err != nil {
		t.Fatal(err)
	}
	if got := strconv.Itoa(Max(3, 9)) + " " + strconv.Itoa(Max(9, 3)); got != strings.TrimSpace(string(golden)) {
		t.Errorf("got %s, want %s", got, golden)
	}
}
-- testdata/max --
9 9
`

// TestProtectedTestsJudgeTheProduct: with the tests and their golden files protected,
// an agent that breaks the product and edits its examination to fit is red, and one that
// leaves the tests alone and the product right is green.
func TestProtectedTestsJudgeTheProduct(t *testing.T) {
	l := open(t)
	wrongSum := strings.Replace(calculatorFile("calc.go"), "sum += n", "sum -= n", 1)
	wrongMax := strings.Replace(calculatorFile("calc.go"), "a > b", "a < b", 1)
	tests := calculatorFile("calc_test.go")
	for name, c := range map[string]struct {
		edits                    map[string]string
		want                     receipt.Classification
		restored, added, removed []string
	}{
		"honest": {
			edits: map[string]string{"calc.go": strings.Replace(calculatorFile("calc.go"), "sum := 0", "var sum int", 1)},
			want:  receipt.Asserted,
		},
		"a weakened assertion": {
			edits:    map[string]string{"calc.go": wrongSum, "calc_test.go": strings.Replace(tests, "got != 7", "got == 7", 1)},
			want:     receipt.Failed,
			restored: []string{"calc_test.go"},
		},
		"a deleted test": {
			edits: map[string]string{"calc.go": wrongSum, "calc_test.go": ""},
			want:  receipt.Failed,
			added: []string{"calc_test.go"},
		},
		"a TestMain": {
			edits: map[string]string{"calc.go": wrongSum, "main_test.go": "package calc\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n"},
			want:  receipt.Failed, removed: []string{"main_test.go"},
		},
		"a regenerated golden file": {
			edits: map[string]string{"calc.go": wrongMax, "testdata/max": "3 3\n"},
			want:  receipt.Failed, restored: []string{"testdata/max"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, commit := committed(t, calculator)
			edit(t, root, c.edits)
			check := goTest
			check.ProtectedInputs = &workflow.ProtectedInputs{Commit: commit, Paths: []string{"**/*_test.go", "**/testdata"}}
			r := l.receiptOf(t, root, check)
			if r.Classification != c.want {
				t.Errorf("got %s (%s), want %s", r.Classification, codes(r), c.want)
			}
			p := r.Inputs.Protected
			if p == nil || p.Commit != commit || p.Files != 2 || !slices.Equal(p.Paths, check.ProtectedInputs.Paths) {
				t.Fatalf("got %+v", p)
			}
			for _, x := range []struct {
				got  receipt.List
				want []string
			}{{p.Restored, c.restored}, {p.Added, c.added}, {p.Removed, c.removed}} {
				if !slices.Equal(x.got.Names, append([]string{}, x.want...)) {
					t.Errorf("got %q, want %q", x.got.Names, x.want)
				}
			}
			changed := len(c.restored)+len(c.added)+len(c.removed) > 0
			if (p.TreeSHA256 != r.Inputs.TreeSHA256) != changed {
				t.Errorf("the tree that was asked about is %s, the one that ran %s", r.Inputs.TreeSHA256, p.TreeSHA256)
			}
		})
	}
}

// calculatorFile is the content of one file of calculator.
func calculatorFile(name string) string {
	_, rest, _ := strings.Cut(calculator, "-- "+name+" --\n")
	text, _, _ := strings.Cut(rest, "\n-- ")
	return strings.TrimSuffix(text, "\n") + "\n"
}

// TestProtectedInputsThatCannotBeHad: nothing runs, and nothing is green.
func TestProtectedInputsThatCannotBeHad(t *testing.T) {
	l := open(t)
	root, commit := committed(t, calculator)
	for code, p := range map[string]workflow.ProtectedInputs{
		"protected_commit_unreadable": {Commit: strings.Repeat("a", 40), Paths: []string{"**/*_test.go"}},
		"protected_path_unmatched":    {Commit: commit, Paths: []string{"**/*_test.go", "spec/**"}},
		"protected_everything":        {Commit: commit, Paths: []string{"**"}},
	} {
		check := goTest
		check.ProtectedInputs = &p
		outcomes, err := l.verify(t.Context(), t, root, check, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := outcomes[0].Receipt.Receipt()
		if r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), code) || len(r.Executions) != 0 || r.Inputs.Protected != nil {
			t.Errorf("%s: got %s, %s, %d executions", code, r.Classification, codes(r), len(r.Executions))
		}
	}
}

// TestProtectedInputsOfAnExternalCheck: script, control and pin are about the bytes
// that run.
func TestProtectedInputsOfAnExternalCheck(t *testing.T) {
	l := open(t)
	for name, c := range map[string]struct {
		edits    map[string]string
		protect  string
		want     receipt.Classification
		code     string
		restored []string
	}{
		"a script that lies": {
			edits:   map[string]string{"tools/check.py": "print('user.json string')\n", "schema/user.json": `{"type": "strong"}` + "\n"},
			protect: `"tools/**"`, want: receipt.Failed, code: "exit_nonzero", restored: []string{"tools/check.py"},
		},
		"an edited script beside an honest product": {
			edits:   map[string]string{"tools/check.py": "print('user.json string')\n"},
			protect: `"tools/**"`, want: receipt.VerifiedEligible, restored: []string{"tools/check.py"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, commit := committed(t, checkSchema)
			e := entry(t, schemaEntry(`"pass_when"`, `"protected_inputs": {"commit": "`+commit+`", "paths": [`+c.protect+`]}, "pass_when"`))
			edit(t, root, c.edits)
			pins := l.pin(t, root, e) // of the edited tree: it is about what runs
			l.mu.Lock()
			defer l.mu.Unlock()
			outcomes, err := l.lane(t, nil).Run(context.Background(), ask(root, e, pins))
			if err != nil {
				t.Fatal(err)
			}
			r := outcomes[0].Receipt.Receipt()
			if r.Classification != c.want || !strings.Contains(codes(r), c.code) {
				t.Errorf("got %s (%s: %v), want %s", r.Classification, codes(r), r.Reasons, c.want)
			}
			if p := r.Inputs.Protected; p == nil || !slices.Equal(p.Restored.Names, c.restored) || p.TreeSHA256 == r.Inputs.TreeSHA256 {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// TestPinsSayWhyInputsCannotBeProtected: an entry that cannot run is not pinned.
func TestPinsSayWhyInputsCannotBeProtected(t *testing.T) {
	l := open(t)
	root, commit := committed(t, checkSchema)
	e := entry(t, schemaEntry(`"pass_when"`, `"protected_inputs": {"commit": "`+commit+`", "paths": ["spec/**"]}, "pass_when"`))
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, err := l.lane(t, nil).Observe(t.Context(), ask(root, e, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := verifier.Observation{ID: "schema", Code: "protected_path_unmatched"}
	if len(seen) != 1 || seen[0].ID != want.ID || seen[0].Code != want.Code || !strings.Contains(seen[0].Why, `"spec/**"`) {
		t.Errorf("got %+v", seen)
	}
}
