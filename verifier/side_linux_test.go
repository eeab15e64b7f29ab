package verifier_test

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/verifier/journal"
)

// fivePackages is a module of five packages with a test each, whose body is
// extra in the last.
func fivePackages(extra string) string {
	var b strings.Builder
	fmt.Fprint(&b, "-- go.mod --\nmodule example.test/five\n\ngo 1.24\n")
	for i := range 5 {
		body := fmt.Sprintf("t.Log(\"said by %d\", os.Getpid())", i)
		if i == 4 {
			body += "\n\t" + extra
		}
		fmt.Fprintf(&b, "-- p%d/p_test.go --\npackage p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestP%[1]d(t *testing.T) {\n\t%s\n}\n", i, body)
	}
	return b.String()
}

// TestPackagesRunSideBySide: the packages of an execution are shared out to
// several sandboxes, and the receipt is of all of them.
func TestPackagesRunSideBySide(t *testing.T) {
	l := open(t)
	for name, c := range map[string]struct {
		extra  string
		want   receipt.Classification
		code   string
		passed int64
	}{
		"all pass":  {"", receipt.Asserted, "", 5},
		"one fails": {"t.Fail()", receipt.Failed, "tests_failed", 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.receiptOf(t, testenv.Tree(t, fivePackages(c.extra)), goTest)
			if got := codes(r); r.Classification != c.want || !strings.Contains(got, c.code) {
				t.Fatalf("%s, codes %s; want %s, %s", r.Classification, got, c.want, c.code)
			}
			if len(r.Executions) != 2 || r.Census == nil || r.Census.Discovered != 5 || r.Census.Passed != c.passed {
				t.Errorf("census %+v", r.Census)
			}
			for _, x := range r.Executions {
				f, err := journal.OpenOutput(filepath.Join(l.dir, "outputs"), x.StdoutSHA256)
				if err != nil {
					t.Fatal(err)
				}
				out, err := io.ReadAll(f)
				if err != nil || f.Close() != nil || int64(len(out)) != x.StdoutBytes {
					t.Fatalf("%d bytes of %d: %v", len(out), x.StdoutBytes, err)
				}
				for i := range 5 {
					if said := fmt.Sprintf("said by %d ", i); strings.Count(string(out), said) != 1 {
						t.Errorf("the output does not have %q once", said)
					}
				}
			}
		})
	}
}
