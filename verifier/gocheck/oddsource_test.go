package gocheck

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/testenv"
)

// scan is the census' findings of a tree as "code path: detail", sorted.
func scan(t *testing.T, text string) []string {
	t.Helper()
	tree := rootFS(t, testenv.Tree(t, text)).FS()
	m, _, err := FindModule(tree, Selection{})
	if err != nil {
		t.Fatal(err)
	}
	_, findings, err := Census(tree, m, Params{}, BuildContext{GOOS: "linux", GOARCH: "amd64", GoVersion: runtime.Version()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings {
		got = append(got, f.Code+" "+f.Path+": "+f.Detail)
	}
	slices.Sort(got)
	return got
}

func TestTheScanNamesWhatDoesNotReadAsItCompiles(t *testing.T) {
	const mod = "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n"
	got := scan(t, mod+
		"-- plain.go --\npackage m\n\n// Ünïcode, and a tab:\tall of it shows.\nconst a = \"\\u202e\"\n"+
		"-- bidi.go --\npackage m\n\nconst b = \"x\u202ey\u2066\"\n"+
		"-- windows.go --\r\npackage m\r\n"+
		"-- x/control_test.go --\npackage x\n\n// hidden\x1b[8m\n"+
		"-- x/return.go --\npackage x // seen\rpackage y\n")
	want := []string{
		"bidi_source bidi.go: line 3 holds U+202E, which changes the reading direction",
		"control_source x/control_test.go: line 3 holds the control character U+001B",
		"control_source x/return.go: line 1 holds the control character U+000D",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheScanNamesTheConstraintOfATestFileThatIsLeftOut(t *testing.T) {
	const test = "package m\n\nimport \"testing\"\n\nfunc TestA(*testing.T) {}\n"
	got := scan(t, "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n-- m.go --\npackage m\n"+
		"-- a_test.go --\n// A comment.\n\n//go:build never||(  !linux )\n\n"+test+
		"-- b_test.go --\n// +build never\n// +build other\n\n"+test+
		"-- c_windows_test.go --\n"+test+
		"-- d_test.go --\n//go:build linux\n\n"+strings.ReplaceAll(test, "TestA", "TestD"))
	want := []string{
		`test_file_excluded a_test.go: its build constraint "never || !linux" or its name leaves it out for linux/amd64, cgo off`,
		`test_file_excluded b_test.go: its build constraint "never && other" or its name leaves it out for linux/amd64, cgo off`,
		"test_file_excluded c_windows_test.go: its name leaves it out for linux/amd64, cgo off",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheScanNamesSettingsOfSourcesAndWorkspaces(t *testing.T) {
	text := "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n-- go.work --\ngo 1.24\n\ntoolchain go1.24.9\n\ngodebug panicnil=1\n\nuse .\n" +
		"-- m.go --\n//go:debug panicnil=1\n\npackage main\n\nfunc main() {}\n" +
		"-- m_test.go --\n//go:debug madvdontneed=1\n\npackage main\n"
	want := []string{"godebug_line m.go: godebug panicnil=1", "godebug_line m_test.go: godebug madvdontneed=1"}
	if diff := cmp.Diff(want, scan(t, text)); diff != "" {
		t.Error(diff)
	}
	_, notes, err := FindModule(rootFS(t, testenv.Tree(t, text)).FS(), Selection{GoWork: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"go_work_used": "go.work", "toolchain_line": "go.work", "godebug_line": "go.work"}, codes(notes.Findings)); diff != "" {
		t.Error(diff)
	}
}

func TestTheCensusSaysWhatTestsAreMadeOfAndRead(t *testing.T) {
	const head = "package a\n\nimport \"testing\"\n\n"
	text := "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n-- m.go --\npackage m\n" +
		"-- a/a.go --\npackage a\n" +
		"-- a/a_test.go --\n" + head +
		"func TestA(t *testing.T) { helper() }\n\nfunc helper() {}\n\nfunc Example() {\n\t// Output:\n}\n" +
		"-- a/b_test.go --\n//go:build linux\n\npackage a_test\n\nimport (\n\t_ \"embed\"\n\t\"testing\"\n)\n\n//go:embed want/*.txt all:more\nvar want string\n\nfunc TestB(*testing.T) {}\n" +
		"-- a/c_windows_test.go --\n" + head + "func TestC(*testing.T) {}\n" +
		"-- a/want/1.txt --\n-- a/want/2.bin --\n-- a/more/x --\n" +
		"-- a/testdata/x --\n-- testdata/deep/testdata/y --\n-- b/testdata/z --\n-- vendor/v/testdata/n --\n-- .hidden/testdata/n --\n" +
		"-- nested/go.mod --\nmodule example.test/n\n-- nested/testdata/n --\n"
	read := func(text string) Discovery {
		tree := rootFS(t, testenv.Tree(t, text)).FS()
		m, _, err := FindModule(tree, Selection{})
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := Census(tree, m, Params{}, BuildContext{GOOS: "linux", GOARCH: "amd64", GoVersion: runtime.Version()})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := read(text)
	if diff := cmp.Diff([][]string{{"a/testdata", "b/testdata", "testdata"}, {"a/more", "a/want/1.txt"}}, [][]string{d.DataDirs, d.Embedded}); diff != "" {
		t.Error(diff)
	}
	of := func(d Discovery) Package {
		return d.Packages[slices.IndexFunc(d.Packages, func(p Package) bool { return p.Dir == "a" })]
	}
	a := of(read(text))
	slices.SortFunc(a.Sources, func(a, b TestSource) int { return strings.Compare(a.Path, b.Path) })
	want := []TestSource{{Path: "a/a_test.go"}, {Path: "a/b_test.go", Constraint: "linux"}, {Path: "a/c_windows_test.go", Excluded: true}}
	for i, s := range a.Sources {
		if (s.Helpers == "") != s.Excluded {
			t.Errorf("%+v", s)
		}
		a.Sources[i].Helpers = ""
	}
	if diff := cmp.Diff(want, a.Sources); diff != "" {
		t.Error(diff)
	}
	// A body is of its own test alone, and helpers of neither tests nor imports.
	bodies := func(d Discovery) map[string]string {
		all := map[string]string{}
		for _, test := range of(d).Tests {
			all[test.Name] = test.Body
		}
		for _, s := range of(d).Sources {
			all[s.Path] = s.Helpers
		}
		return all
	}
	changed := func(old, by string) []string {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q", old)
		}
		var names []string
		was, is := bodies(d), bodies(read(strings.Replace(text, old, by, 1)))
		for name, body := range is {
			if was[name] != body {
				names = append(names, name)
			}
		}
		return names
	}
	for _, c := range []struct{ old, by, want string }{
		{"{ helper() }", "{ helper(); helper() }", "TestA"},
		{"func helper() {}", "func helper() { _ = 1 }", "a/a_test.go"},
		{"// Output:", "// Output: x", "Example"},
		{"_ \"embed\"\n", "_ \"embed\"\n\t_ \"os\"\n", ""},
	} {
		if got := strings.Join(changed(c.old, c.by), " "); got != c.want {
			t.Errorf("%q changed: %q, want %q", c.old, got, c.want)
		}
	}
}
