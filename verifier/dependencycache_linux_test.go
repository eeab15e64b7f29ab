package verifier_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/workflow"
)

// TestDependenciesAreCompiledOnceAndApart: the layer of a tree's dependencies is
// made by its first check, used by the next, not used by another set of
// imports, and has nothing of the tree in it.
func TestDependenciesAreCompiledOnceAndApart(t *testing.T) {
	warm := open(t)
	warm.receiptOf(t, testenv.Tree(t, good), goTest) // the layer of the standard library is there to be copied
	home := t.TempDir()
	stds, err := filepath.Glob(filepath.Join(warm.dir, "cache", "std-*"))
	if err != nil || len(stds) == 0 {
		t.Fatalf("layers of the standard library: %q, %v", stds, err)
	}
	if err := os.Mkdir(filepath.Join(home, "cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", append([]string{"-al", "-t", filepath.Join(home, "cache")}, stds...)...).CombinedOutput(); err != nil {
		t.Fatalf("copy the layer: %v: %s", err, out)
	}
	l, err := newLab(home, testenv.Containerd(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	l.downloads = filepath.Join(hostGo(t).modcache, "cache", "download")
	cmp, cmpVersion := ownSums(t, "github.com/google/go-cmp")
	tree := func(used string) string {
		return testenv.Tree(t, fmt.Sprintf(`-- go.mod --
module example.test/a

go 1.24

require github.com/google/go-cmp %s
-- go.sum --
%s-- a.go --
package a

import "github.com/google/go-cmp/cmp%s"

var Marker = "a mark of the tree"

var _ = cmp%[4]s
-- a_test.go --
package a

import "testing"

func TestMarker(t *testing.T) {
	if Marker == "" {
		t.Error(Marker)
	}
}
`, cmpVersion, cmp, used, map[string]string{"": ".Equal", "/cmpopts": "opts.EquateEmpty"}[used]))
	}
	layers := func() []string {
		found, err := filepath.Glob(filepath.Join(l.dir, "cache", "deps-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	var steps []string
	check := func(root, uses string) {
		t.Helper()
		steps = nil
		out, err := l.verify(t.Context(), t, root, workflow.CheckRef{Uses: uses}, func(_, step string) { steps = append(steps, step) })
		if err != nil {
			t.Fatal(err)
		}
		if r := out[0].Receipt.Receipt(); r.Classification != receipt.Asserted {
			t.Fatalf("%s: %s, %s", uses, r.Classification, codes(r))
		}
	}
	made := func() bool {
		return slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, "compile the dependencies") })
	}
	root := tree("")
	if check(root, "builtin:go-build"); !made() || len(layers()) != 1 {
		t.Errorf("the first check: steps %q, layers %q", steps, layers())
	}
	for _, uses := range []string{"builtin:go-vet", "builtin:go-test"} {
		if check(root, uses); made() || len(layers()) != 1 {
			t.Errorf("%s after it: steps %q, layers %q", uses, steps, layers())
		}
	}
	deps := layers()[0]
	std, err := filepath.Glob(filepath.Join(l.dir, "cache", "std-*"))
	if err != nil || len(std) != 1 {
		t.Fatalf("layers below: %q, %v", std, err)
	}
	below, entries := 0, 0
	err = filepath.WalkDir(deps, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if strings.Contains(string(data), "a mark of the tree") {
			t.Errorf("%s is of the tree", p)
		}
		a, err := os.Stat(p)
		if err != nil {
			return err
		}
		if b, err := os.Stat(std[0] + strings.TrimPrefix(p, deps)); err == nil && os.SameFile(a, b) {
			below++
		} else if strings.Contains(string(data), "github.com/google/go-cmp/cmp") {
			entries++
		}
		return nil
	})
	if err != nil || below == 0 || entries == 0 {
		t.Errorf("%d files of the layer below, %d of the dependency, %v", below, entries, err)
	}
	if check(tree("/cmpopts"), "builtin:go-build"); !made() || len(layers()) != 2 {
		t.Errorf("other imports: steps %q, layers %q", steps, layers())
	}
}

// fabricate puts a module into a download cache, and returns its go.sum lines.
func fabricate(t *testing.T, downloads, name, version string, files map[string]string) string {
	t.Helper()
	src, dir := t.TempDir(), filepath.Join(downloads, filepath.FromSlash(name), "@v")
	for file, text := range files {
		put(t, src, file, text)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	packed, err := os.Create(filepath.Join(dir, version+".zip"))
	if err == nil {
		err = errors.Join(zip.CreateFromDir(packed, module.Version{Path: name, Version: version}, src), packed.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, version+".mod", files["go.mod"])
	put(t, dir, version+".info", `{"Version":"`+version+`"}`)
	whole, err1 := dirhash.HashZip(packed.Name(), dirhash.Hash1)
	mod, err2 := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(src, "go.mod")) })
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n", name, version, whole, mod)
}

// TestACDependencyIsCompiledBesideTheTree: a C compiler sees more than the key of
// a cached package covers. A dependency that compiles only where the lane makes its
// layer, or only where the tree is not, fails as it does with plain go.
func TestACDependencyIsCompiledBesideTheTree(t *testing.T) {
	l := open(t)
	l.downloads = t.TempDir()
	t.Cleanup(func() { l.downloads = "" })
	for name, condition := range map[string]string{
		"only.test/layer": `#if !__has_include("/workspace/warm/warm.go")`,
		"only.test/apart": `#if __has_include("/workspace/m.go")`,
	} {
		sums := fabricate(t, l.downloads, name, "v1.0.0", map[string]string{
			"go.mod": "module " + name + "\n\ngo 1.24\n",
			"c.go":   "package c\n\n/*\n" + condition + "\n#error not here\n#endif\nstatic int one(void) { return 1; }\n*/\nimport \"C\"\n\nfunc One() int { return int(C.one()) }\n",
		})
		root := testenv.Tree(t, "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n\nrequire "+name+" v1.0.0\n-- go.sum --\n"+sums+
			"-- m.go --\npackage m\n\nimport c \""+name+"\"\n\nvar X = c.One()\n")
		for range 2 { // when the layer is made, and when it is there
			r := l.receiptOf(t, root, workflow.CheckRef{Uses: "builtin:go-build"})
			if got := codes(r); r.Classification != receipt.Failed || !strings.Contains(got, "build_failed") {
				t.Errorf("%s: %s; codes: %s; incidents %v", name, r.Classification, got, r.Incidents)
			}
		}
	}
}

// TestAMalformedGoSumIsWhatTheGoCommandSays: a module that needs its go.sum
// fails with it, as it does with plain go.
func TestAMalformedGoSumIsWhatTheGoCommandSays(t *testing.T) {
	l := open(t)
	root := testenv.Tree(t, `-- go.mod --
module example.test/a

go 1.24

require github.com/google/go-cmp v0.7.0
-- go.sum --
github.com/google/go-cmp
-- a.go --
package a

import _ "github.com/google/go-cmp/cmp"
`)
	r := l.receiptOf(t, root, workflow.CheckRef{Uses: "builtin:go-build"})
	if got := codes(r); r.Classification != receipt.Failed || !strings.Contains(got, "module_file_invalid") {
		t.Errorf("%s; codes: %s; incidents %v", r.Classification, got, r.Incidents)
	}
}
