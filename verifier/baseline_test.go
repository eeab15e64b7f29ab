package verifier_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/baseline"
	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/seal"
	"striatum/verifier"
)

// baselined has a test of each kind, a table, test data and an embedded file.
const baselined = "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n" +
	"-- m.go --\npackage m\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Sub(a, b int) int { return a - b }\n" +
	"-- m_test.go --\npackage m\n\nimport (\n\t_ \"embed\"\n\t\"os\"\n\t\"strconv\"\n\t\"testing\"\n)\n\n" +
	"//go:embed want.txt\nvar want string\n\n" +
	"func TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n\n" +
	"func TestTable(t *testing.T) {\n\tfor _, c := range []int{1, 2, 3} {\n\t\tt.Run(strconv.Itoa(c), func(t *testing.T) {\n\t\t\tif Add(c, c) != 2*c {\n\t\t\t\tt.Error(\"wrong\")\n\t\t\t}\n\t\t})\n\t}\n}\n\n" +
	"func TestGolden(t *testing.T) {\n\tgot, err := os.ReadFile(\"testdata/golden\")\n\tif err != nil || string(got) == \"\" || want == \"\" {\n\t\tt.Error(err)\n\t}\n}\n" +
	"-- sub_test.go --\npackage m\n\nimport \"testing\"\n\nfunc TestSub(t *testing.T) {\n\tif Sub(3, 2) != 1 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n" +
	"-- want.txt --\n3\n-- testdata/golden --\n3\n"

// census runs go-test on a tree and returns the one outcome.
func (l *lab) census(t *testing.T, root string) verifier.Outcome {
	t.Helper()
	outcomes, err := l.verify(t.Context(), t, root, goTest, nil)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes[0]
}

// TestTheLaneComparesTheTestsWithTheBaseline: the cheats 6, 12, 13, 14 and 17, each
// of which passes, beside honest changes.
func TestTheLaneComparesTheTestsWithTheBaseline(t *testing.T) {
	l := open(t)
	first := l.census(t, testenv.Tree(t, baselined))
	r := first.Receipt.Receipt()
	if r.Classification != receipt.Asserted || r.Baseline == nil || r.Baseline.SHA256 != "" || r.Baseline.Entry || r.Baseline.CensusSHA256 != seal.SHA256Hex(first.Census) {
		t.Fatalf("%s %s: %+v", r.Classification, codes(r), r.Baseline)
	}
	accepted, err := baseline.Parse(first.Census)
	if err != nil {
		t.Fatal(err)
	}
	check, _ := accepted.Find("builtin:go-test")
	var names []string
	for _, x := range check.Packages[0].Tests {
		names = append(names, x.Name)
		if want := map[string]int64{"TestTable": 3}[x.Name]; x.Subtests != want || x.Skipped {
			t.Errorf("%+v", x)
		}
	}
	for _, x := range check.Files {
		names = append(names, x.Path)
	}
	for _, x := range check.Data {
		names = append(names, x.Path)
	}
	if diff := cmp.Diff([]string{"TestAdd", "TestGolden", "TestSub", "TestTable", "m_test.go", "sub_test.go", "testdata/golden", "want.txt"}, names); diff != "" {
		t.Fatal(diff)
	}

	type lists struct{ Removed, Skipped, Inputs, Edited []string }
	for name, c := range map[string]struct {
		change func(t *testing.T, root string)
		want   lists
	}{
		"nothing": {func(*testing.T, string) {}, lists{}},
		"honest: tests added, moved and edited": {func(t *testing.T, root string) {
			rewrite(t, filepath.Join(root, "m_test.go"), "\"wrong\"", "\"it is wrong\"")
			move(t, root, "sub_test.go", "minus_test.go")
			put(t, root, "testdata/more", "x")
			put(t, root, "idle_test.go", "package m\n\nimport \"testing\"\n\nfunc TestIdle(t *testing.T) { t.Skip() }\n")
		}, lists{Edited: []string{"example.test/m TestAdd", "example.test/m TestTable"}}},
		"14: removed, and another renamed": {func(t *testing.T, root string) {
			move(t, root, "sub_test.go", "sub_test.go.bak")
			rewrite(t, filepath.Join(root, "m_test.go"), "TestGolden", "TestBronze")
		}, lists{Removed: []string{"example.test/m TestGolden", "example.test/m TestSub"}}},
		"12, 13: skipped, and a table that lost a row": {func(t *testing.T, root string) {
			rewrite(t, filepath.Join(root, "sub_test.go"), "\tif Sub", "\tt.Skip()\n\tif Sub")
			rewrite(t, filepath.Join(root, "m_test.go"), "1, 2, 3}", "1, 2}")
		}, lists{
			Removed: []string{"example.test/m TestTable: 3 subtests passed, and 2 do"}, Skipped: []string{"example.test/m TestSub"},
			Edited: []string{"example.test/m TestSub", "example.test/m TestTable"},
		}},
		"6: left out by a constraint": {func(t *testing.T, root string) {
			rewrite(t, filepath.Join(root, "sub_test.go"), "package m", "//go:build never\n\npackage m")
			rewrite(t, filepath.Join(root, "m_test.go"), "package m", "//go:build linux\n\npackage m")
		}, lists{
			Removed: []string{"example.test/m TestSub"},
			Inputs:  []string{`m_test.go: its constraint was "" and is "linux"`, `sub_test.go: it is left out, constraint "never"`},
		}},
		"17: golden and embedded files changed": {func(t *testing.T, root string) {
			put(t, root, "testdata/golden", "4\n")
			put(t, root, "want.txt", "4\n")
		}, lists{Inputs: []string{"testdata/golden: it has other content", "want.txt: it has other content"}}},
	} {
		t.Run(name, func(t *testing.T) {
			root := testenv.Tree(t, baselined)
			put(t, root, baseline.Path, string(first.Census))
			c.change(t, root)
			r := l.census(t, root).Receipt.Receipt()
			b := r.Baseline
			if r.Classification != receipt.Asserted || b == nil || b.SHA256 != seal.SHA256Hex(first.Census) || !b.Entry || b.CensusSHA256 == "" {
				t.Fatalf("%s %s: %+v", r.Classification, codes(r), b)
			}
			got := lists{Removed: b.TestsRemoved.Names, Skipped: b.TestsNewlySkipped.Names, Inputs: b.TestInputsChanged.Names}
			for _, f := range r.Findings {
				if edited, _, ok := strings.Cut(f.Detail, ": its source"); ok && f.Code == "test_edited" {
					got.Edited = append(got.Edited, edited)
				}
			}
			slices.Sort(got.Edited)
			if diff := cmp.Diff(c.want, got, cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABaselineThatIsNoneIsIndeterminate(t *testing.T) {
	l := open(t)
	root := testenv.Tree(t, good)
	put(t, root, baseline.Path, "{}\n")
	o := l.census(t, root)
	r := o.Receipt.Receipt()
	if r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "baseline_invalid") || len(r.Executions) != 0 || o.Census != nil {
		t.Errorf("%s %s %+v", r.Classification, codes(r), r.Incidents)
	}
}

func move(t *testing.T, root, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(root, from), filepath.Join(root, to)); err != nil {
		t.Fatal(err)
	}
}

// rewrite puts by into the place of each old.
func rewrite(t *testing.T, file, old, by string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q: %v", file, old, err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(data), old, by)), 0o600); err != nil {
		t.Fatal(err)
	}
}
