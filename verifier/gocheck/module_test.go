package gocheck

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"

	"striatum/internal/testenv"
	"striatum/receipt"
)

// rootFS is the file system of a tree as a lane opens it.
func rootFS(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func codes(findings []receipt.Finding) map[string]string {
	all := map[string]string{}
	for _, f := range findings {
		all[f.Code] = f.Path
	}
	return all
}

func TestAGoWorkOverItsBoundIsNotTheModulesFault(t *testing.T) {
	work := "go 1.24\n\nuse .\n//" + strings.Repeat("x", MaxModFileBytes) + "\n"
	root := rootFS(t, testenv.Tree(t, "-- go.mod --\nmodule example.test/m\n-- go.work --\n"+work))
	_, _, err := FindModule(root.FS(), Selection{GoWork: true})
	if e, ok := errors.AsType[*ModuleError](err); !ok || e.Problem != OverBound || !TooLarge(err) {
		t.Errorf("declared: %v", err)
	}
	if _, _, err := FindModule(root.FS(), Selection{}); err != nil {
		t.Errorf("not declared: %v", err)
	}
}

func TestFindModuleChoosesByTheDefaultRules(t *testing.T) {
	const mod = "module example.test/m\n\ngo 1.24\n"
	for name, c := range map[string]struct {
		text    string
		dir     string
		want    string
		problem ModuleProblem
	}{
		"the tree's own":       {"-- go.mod --\n" + mod + "-- a/go.mod --\n" + mod, "", ".", 0},
		"the only one below":   {"-- x/y/go.mod --\n" + mod, "", "x/y", 0},
		"several below":        {"-- a/go.mod --\n" + mod + "-- b/go.mod --\n" + mod, "", "", SeveralModules},
		"none":                 {"-- a/a.go --\npackage a\n", "", "", NoModule},
		"named":                {"-- a/go.mod --\n" + mod + "-- b/go.mod --\n" + mod, "b", "b", 0},
		"named in testdata":    {"-- testdata/b/go.mod --\n" + mod, "testdata/b", "testdata/b", 0},
		"only in testdata":     {"-- testdata/b/go.mod --\n" + mod, "", "", NoModule},
		"named, with a slash":  {"-- b/go.mod --\n" + mod, "./b/", "b", 0},
		"named, not there":     {"-- b/go.mod --\n" + mod, "c", "", NotAModule},
		"named, out of tree":   {"-- b/go.mod --\n" + mod, "../b", "", NotAModule},
		"named, absolute":      {"-- b/go.mod --\n" + mod, "/b", "", NotAModule},
		"a folder named so":    {"-- go.mod/x --\n", "", "", NoModule},
		"no module line":       {"-- go.mod --\ngo 1.24\n", "", ".", BadModFile},
		"unknown directive":    {"-- go.mod --\n" + mod + "turbo on\n", "", ".", BadModFile},
		"too large":            {"-- go.mod --\n" + mod + "//" + string(make([]byte, MaxModFileBytes)) + "\n", "", ".", OverBound},
		"found under a vendor": {"-- vendor/a/go.mod --\n" + mod, "", "", NoModule},
	} {
		t.Run(name, func(t *testing.T) {
			m, _, err := FindModule(rootFS(t, testenv.Tree(t, c.text)).FS(), Selection{Dir: c.dir})
			var problem *ModuleError
			if c.problem == 0 && err != nil || c.problem != 0 && (!errors.As(err, &problem) || problem.Problem != c.problem) {
				t.Fatalf("error %v, want problem %d", err, c.problem)
			}
			if err == nil && m.Path != "example.test/m" || m.Dir != c.want {
				t.Errorf("module %q in %q, want it in %q", m.Path, m.Dir, c.want)
			}
			if c.problem == SeveralModules && !cmp.Equal(problem.Modules, []string{"a", "b"}) {
				t.Errorf("modules %q", problem.Modules)
			}
		})
	}
}

func TestFindModuleReportsWhatChangesABuild(t *testing.T) {
	dir := unpack(t, "settings.txtar")
	if err := os.Symlink("/usr", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	m, notes, err := FindModule(rootFS(t, dir).FS(), Selection{Declared: []string{"named"}})
	if err != nil {
		t.Fatal(err)
	}
	want := Module{
		Dir: ".", Path: "example.test/m", GoVersion: "1.25", Toolchain: "go1.25.3", Vendored: true, Work: "go.work",
		Requires: []module.Version{{Path: "example.test/a", Version: "v1.0.0"}},
		Replaces: []Replace{
			{Old: module.Version{Path: "example.test/a"}, New: module.Version{Path: "./nested"}},
			{Old: module.Version{Path: "example.test/b"}, New: module.Version{Path: "../outside"}},
			{Old: module.Version{Path: "example.test/c"}, New: module.Version{Path: "/usr/share/go"}},
			{Old: module.Version{Path: "example.test/d"}, New: module.Version{Path: "example.test/e", Version: "v1.2.3"}},
			{Old: module.Version{Path: "example.test/f"}, New: module.Version{Path: "./out/share"}},
		},
		ignored: []string{"./left"},
	}
	if diff := cmp.Diff(want, m, cmp.AllowUnexported(Module{})); diff != "" {
		t.Error(diff)
	}
	got := map[string]int{}
	for _, f := range notes.Findings {
		got[f.Code+" "+f.Path]++
	}
	wantFindings := map[string]int{
		"module_not_checked nested/go.mod": 1, "replace_in_tree go.mod": 1, "replace_outside_tree go.mod": 3, "replace_module go.mod": 1,
		"toolchain_line go.mod": 1, "godebug_line go.mod": 1, "ignore_line go.mod": 1, "vendor_directory vendor": 1, "go_work_ignored go.work": 1,
	}
	if diff := cmp.Diff(wantFindings, got); diff != "" {
		t.Error(diff)
	}
	if len(notes.Incidents) != 3 {
		t.Errorf("incidents %+v, want one for each replacement out of the tree", notes.Incidents)
	}
	for _, i := range notes.Incidents {
		if i.Code != "replace_outside_tree" || i.Effect != receipt.MakesFailed {
			t.Errorf("incident %+v", i)
		}
	}
}

func TestFindModuleReadsGoWorkOnlyWhereDeclared(t *testing.T) {
	text := "-- go.work --\ngo 1.26\n\nuse ./m\nuse ../elsewhere\nreplace example.test/x => ../x\n-- m/go.mod --\nmodule example.test/m\n\ngo 1.24\n"
	m, notes, err := FindModule(rootFS(t, testenv.Tree(t, text)).FS(), Selection{Dir: "m", GoWork: true})
	if err != nil {
		t.Fatal(err)
	}
	if m.Work != "go.work" || m.GoVersion != "1.26" {
		t.Errorf("module %+v", m)
	}
	want := map[string]string{"go_work_used": "go.work", "use_outside_tree": "go.work", "replace_outside_tree": "go.work"}
	if diff := cmp.Diff(want, codes(notes.Findings)); diff != "" {
		t.Error(diff)
	}
	if len(notes.Incidents) != 2 {
		t.Errorf("incidents %+v", notes.Incidents)
	}
}

func TestTooNewComparesGoVersions(t *testing.T) {
	for _, c := range []struct {
		line, lane string
		want       bool
	}{
		{"", "go1.24.0", false},
		{"1.16", "go1.24.0", false},
		{"1.24", "go1.24.0", false},
		{"1.24.0", "go1.24.0", false},
		{"1.24.1", "go1.24.0", true},
		{"1.25", "go1.24.9", true},
		{"1.25rc1", "go1.25.0", false},
		{"1.99", "go1.26.8", true},
	} {
		if got := (Module{GoVersion: c.line}).TooNew(c.lane); got != c.want {
			t.Errorf("go %s with %s: %v, want %v", c.line, c.lane, got, c.want)
		}
	}
	// A file of a future Go may have lines that are not known yet.
	m, _, err := FindModule(rootFS(t, testenv.Tree(t, "-- go.mod --\nmodule m\n\ngo 1.99\n\nnovel thing\n")).FS(), Selection{})
	if err == nil || !m.TooNew("go1.26.8") || m.TooOldIncident("go1.26.8").Effect != receipt.MakesIndeterminate {
		t.Errorf("module %+v, %v", m, err)
	}
}
