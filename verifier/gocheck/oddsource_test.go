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
