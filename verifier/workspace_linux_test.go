package verifier_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/workflow"
)

// ownSums are the lines of this module's own go.sum for a module, and its
// version there.
func ownSums(t *testing.T, module string) (lines, version string) {
	t.Helper()
	data, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if f[0] == module && (version == "" || strings.HasPrefix(f[1], version)) {
			version, lines = strings.TrimSuffix(f[1], "/go.mod"), lines+line
		}
	}
	if version == "" {
		t.Fatalf("go.sum does not name %s", module)
	}
	return lines, version
}

// TestAWorkspaceHasTheDependenciesOfAllItsModules: each of two modules has a
// dependency of its own, and one uses the other.
func TestAWorkspaceHasTheDependenciesOfAllItsModules(t *testing.T) {
	l := open(t)
	l.downloads = filepath.Join(hostGo(t).modcache, "cache", "download")
	t.Cleanup(func() { l.downloads = "" })
	cmp, cmpVersion := ownSums(t, "github.com/google/go-cmp")
	jcs, jcsVersion := ownSums(t, "github.com/gowebpki/jcs")
	root := testenv.Tree(t, fmt.Sprintf(`-- go.work --
go 1.24

use (
	./a
	./b
)
-- a/go.mod --
module example.test/a

go 1.24

require github.com/google/go-cmp %s
-- a/go.sum --
%s-- a/a.go --
package a

import "github.com/google/go-cmp/cmp"

func Equal(x, y any) bool { return cmp.Equal(x, y) }
-- b/go.mod --
module example.test/b

go 1.24

require github.com/gowebpki/jcs %s
-- b/go.sum --
%s-- b/b_test.go --
package b

import (
	"testing"

	"example.test/a"
	"github.com/gowebpki/jcs"
)

func TestBoth(t *testing.T) {
	got, err := jcs.Transform([]byte("{ }"))
	if err != nil || !a.Equal(string(got), "{}") {
		t.Errorf("%%s, %%v", got, err)
	}
}
`, cmpVersion, cmp, jcsVersion, jcs))
	check := workflow.CheckRef{Uses: "builtin:go-test", Dir: "b", GoWork: true}
	r := l.receiptOf(t, root, check)
	if got := codes(r); r.Classification != receipt.Asserted || !strings.Contains(got, "go_work_used") || r.Inputs.Dependencies.FirstSeen != 2 {
		t.Errorf("%s; codes: %s; dependencies %+v", r.Classification, got, r.Inputs.Dependencies)
	}
	check.GoWork = false
	if r := l.receiptOf(t, root, check); r.Classification != receipt.Failed || !strings.Contains(codes(r), "compile_failed") {
		t.Errorf("without go_work: %s; codes: %s", r.Classification, codes(r))
	}
}
