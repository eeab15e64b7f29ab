package gocheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/testenv"
)

// listed is what go list says of one package.
type listed struct {
	ImportPath, Name                             string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	IgnoredGoFiles                               []string
	Imports, TestImports, XTestImports           []string
}

// goList asks the real go command for the packages that patterns name.
func goList(t *testing.T, dir string, env []string, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Name,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,IgnoredGoFiles"}, args...)...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// files is the part of a package that go list and Census both say.
type files struct{ ImportPath, Name, Go, Test, XTest string }

func compareWithGoList(t *testing.T, d Discovery, list []listed) {
	t.Helper()
	var want, got []files
	for _, p := range list {
		if len(p.GoFiles)+len(p.CgoFiles)+len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue // go list -e names what it cannot load
		}
		goFiles := slices.Sorted(slices.Values(slices.Concat(p.GoFiles, p.CgoFiles)))
		want = append(want, files{p.ImportPath, p.Name, strings.Join(goFiles, " "), strings.Join(p.TestGoFiles, " "), strings.Join(p.XTestGoFiles, " ")})
	}
	slices.SortFunc(want, func(a, b files) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	for _, p := range d.Packages {
		got = append(got, files{p.ImportPath, p.Name, strings.Join(p.GoFiles, " "), strings.Join(p.TestFiles, " "), strings.Join(p.XTestFiles, " ")})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-go list +census)\n%s", diff)
	}
}

// goTestList compiles the tests and asks each binary what it would run, without
// benchmarks. The result is "import/path Name", sorted.
func goTestList(t *testing.T, dir string, env []string, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"test", "-json", "-vet=off", "-list=."}, args...)...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go test -list: %v: %s", err, out[max(0, len(out)-2000):])
	}
	output := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var e struct{ Action, Package, Output string }
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e.Action == "output" {
			output[e.Package] += e.Output
		}
	}
	var names []string
	for p, text := range output {
		for line := range strings.SplitSeq(text, "\n") {
			for _, prefix := range []string{"Test", "Fuzz", "Example"} {
				if strings.HasPrefix(line, prefix) {
					names = append(names, p+" "+line)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

func discovered(d Discovery) []string {
	var names []string
	for _, p := range d.Packages {
		for _, test := range p.Tests {
			names = append(names, p.ImportPath+" "+test.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestCensusSeesWhatTheGoCommandSees(t *testing.T) {
	dir := unpack(t, "census.txtar")
	for _, c := range []struct {
		name, env string
		params    Params
	}{
		{"cgo", "CGO_ENABLED=1", Params{}},
		{"no cgo", "CGO_ENABLED=0", Params{}},
		{"a tag", "CGO_ENABLED=1", Params{Tags: []string{"custom"}}},
		{"some packages", "CGO_ENABLED=1", Params{Packages: []string{"./sys", "./deep/...", ".", "./only/...", "./sys/..."}}},
		{"a hidden package", "CGO_ENABLED=1", Params{Packages: []string{"./vendor", "./testdata"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, dir, c.params)
			ctx := BuildContext{GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, CgoEnabled: c.env == "CGO_ENABLED=1", GoVersion: runtime.Version()}
			d, _, err := Census(rootFS(t, dir).FS(), l.discovery.Module, c.params, ctx)
			if err != nil {
				t.Fatal(err)
			}
			env := append(l.env, c.env)
			var args []string
			if len(c.params.Tags) > 0 {
				args = append(args, "-tags="+strings.Join(c.params.Tags, ","))
			}
			args = append(args, c.params.patterns()...)
			compareWithGoList(t, d, goList(t, dir, env, args...))
			if c.name == "a hidden package" {
				return // the go command lists it and does not test it
			}
			if diff := cmp.Diff(goTestList(t, dir, env, args...), discovered(d)); diff != "" {
				t.Errorf("tests (-go test -list +census)\n%s", diff)
			}
		})
	}
}

func TestCensusNamesWhatIsLeftOut(t *testing.T) {
	l := newLab(t, unpack(t, "census.txtar"), Params{})
	var got []string
	for _, f := range l.notes.Findings {
		got = append(got, f.Code+" "+f.Path)
	}
	slices.Sort(got)
	want := []string{
		"example_not_run renamed/renamed_test.go", "ignore_line go.mod", "ignore_line go.mod", "module_not_checked nested/go.mod",
		"package_ignored deep/anywhere", "package_ignored dropped", "test_directory_excluded .dot", "test_directory_excluded _under",
		"test_file_excluded excluded/excluded_test.go", "test_file_excluded sys/.hidden_test.go", "test_file_excluded sys/_hidden_test.go",
		"test_file_excluded sys/custom_test.go", "test_file_excluded sys/old_test.go", "test_file_excluded sys/sys_windows_test.go",
		"vendor_directory vendor",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCensusAgreesWithTheGoCommandOnRealModules uses the modules that this one
// depends on, as they lie in the module cache, and the standard library.
func TestCensusAgreesWithTheGoCommandOnRealModules(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{if not .Main}}{{.Path}} {{.Dir}}{{end}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	withTests := map[string]bool{ // those that need no module that this one lacks
		"github.com/google/go-cmp": true, "github.com/gowebpki/jcs": true, "github.com/google/uuid": true, "golang.org/x/text": true,
	}
	compared := 0
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		path, dir, ok := strings.Cut(line, " ")
		if !ok || dir == "" || (!strings.HasPrefix(path, "golang.org/x/") && !withTests[path] && !strings.HasPrefix(path, "github.com/containerd/")) {
			continue
		}
		t.Run(path, func(t *testing.T) {
			tree := rootFS(t, dir).FS()
			m, _, err := FindModule(tree, Selection{})
			var problem *ModuleError
			if errors.As(err, &problem) && problem.Problem == NoModule {
				return // older than modules
			}
			if err != nil {
				t.Fatal(err)
			}
			compared++
			d, _, err := Census(tree, m, Params{}, hostContext())
			if err != nil {
				t.Fatal(err)
			}
			env := append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
			compareWithGoList(t, d, goList(t, dir, env, "./..."))
			if withTests[path] && path != "golang.org/x/text" {
				if diff := cmp.Diff(goTestList(t, dir, env, "./..."), discovered(d)); diff != "" {
					t.Errorf("tests (-go test -list +census)\n%s", diff)
				}
			}
		})
	}
	if compared < 5 {
		t.Errorf("only %d modules were compared", compared)
	}
}

func hostContext() BuildContext {
	return BuildContext{GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, CgoEnabled: os.Getenv("CGO_ENABLED") != "0", GoVersion: runtime.Version()}
}

func TestCensusAgreesWithTheGoCommandOnTheStandardLibrary(t *testing.T) {
	src := filepath.Join(hostEnv(t)["GOROOT"], "src")
	d, _, err := Census(os.DirFS(src), Module{Dir: ".", Path: "std"}, Params{Packages: []string{"./net/...", "./os/...", "./go/...", "./encoding/...", "./crypto/...", "./testing/..."}}, hostContext())
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Packages {
		d.Packages[i].ImportPath = strings.TrimPrefix(d.Packages[i].ImportPath, "std/")
	}
	compareWithGoList(t, d, goList(t, src, os.Environ(), "./net/...", "./os/...", "./go/...", "./encoding/...", "./crypto/...", "./testing/..."))
}

func TestCensusSaysWhichFilesAreOverItsBound(t *testing.T) {
	big := "package p\n\nimport \"testing\"\n\nfunc TestP(t *testing.T) {}\n//" + strings.Repeat("x", MaxSourceBytes) + "\n"
	l := newLab(t, testenv.Tree(t, "-- go.mod --\nmodule m\n-- p_test.go --\n"+big), Params{})
	if diff := cmp.Diff([]string{"p_test.go"}, l.discovery.Incomplete); diff != "" {
		t.Error(diff)
	}
	comment := "//" + strings.Repeat("x", MaxSourceBytes) + "\npackage p\n"
	l = newLab(t, testenv.Tree(t, "-- go.mod --\nmodule m\n-- p.go --\n"+comment), Params{})
	if diff := cmp.Diff([]string{"p.go"}, l.discovery.Unread); diff != "" {
		t.Error(diff)
	}
}

func TestCensusLeavesBrokenSourcesToTheCompiler(t *testing.T) {
	l := newLab(t, testenv.Tree(t, `-- go.mod --
module m
-- a/a_test.go --
package a

import "testing"

func TestA(t *testing.T) {}

func TestBroken(t *testing.T) {
-- b/b.go --
package b
-- b/c.go --
package c
-- b/b_test.go --
package b

import "testing"

func TestB(t *testing.T) {}

func TestWrong(x int) {}
-- c/c.go --
this is not Go
`), Params{})
	if len(l.discovery.Packages) != 3 {
		t.Fatalf("packages %+v", l.discovery.Packages)
	}
	for _, p := range l.discovery.Packages {
		if p.Problem == "" {
			t.Errorf("package %s has no problem", p.ImportPath)
		}
	}
	if v := l.goTest(); v.compile != "failed" {
		t.Errorf("compile %q", v.compile)
	}
}

func TestPackagesOutsideThePatternsAreNamed(t *testing.T) {
	dir := testenv.Tree(t, `-- a/a.go --
package a
-- b/b.go --
package b
-- b/b_test.go --
package b
-- c/c.go --
package c
-- c/nested/go.mod --
module other
-- c/nested/x.go --
package x
`)
	for patterns, want := range map[string]string{
		"./...": "", "./a ./b/... ./c": "",
		"./a":       "2 packages of the module, 1 of them with tests, are not among the check's packages, first: m/b",
		"./a ./b":   "1 packages of the module, 0 of them with tests, are not among the check's packages, first: m/c",
		"./b/... .": "2 packages of the module, 0 of them with tests, are not among the check's packages, first: m/a",
	} {
		_, findings, err := Census(rootFS(t, dir).FS(), Module{Dir: ".", Path: "m"}, Params{Packages: strings.Fields(patterns)}, hostContext())
		got := ""
		for _, f := range findings {
			if f.Code == "packages_not_checked" {
				got += f.Detail
			}
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", patterns, got, err, want)
		}
	}
}

func TestCensusRefusesPatternsThatNoCommandGets(t *testing.T) {
	for _, p := range []string{"", "all", "std", "example.com/x", "-x", "../x", "./../x", "./a/../../x", "/etc", "./a//b", "./a...b", "...", "./x\ny", ".\\a", "./.../x", "./"} {
		if err := (Params{Packages: []string{p}}).Validate(); err == nil {
			t.Errorf("pattern %q was accepted", p)
		}
	}
	for _, p := range []string{".", "./...", "./a", "./a/...", "./a/b-c_d/..."} {
		if err := (Params{Packages: []string{p}}).Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, tag := range []string{"", "a b", "a,b", "!a", "a\n"} {
		if err := (Params{Tags: []string{tag}}).Validate(); err == nil {
			t.Errorf("tag %q was accepted", tag)
		}
	}
	dir := testenv.Tree(t, "-- go.mod --\nmodule m\n")
	_, _, err := Census(rootFS(t, dir).FS(), Module{Dir: ".", Path: "m"}, Params{Packages: []string{"./gone"}}, hostContext())
	if _, ok := errors.AsType[*LiteralError](err); !ok {
		t.Errorf("error %v, want a LiteralError", err)
	}
}
