package gocheck

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
)

func TestIgnoredFilesAreNamedWhereGoWouldReadThem(t *testing.T) {
	tree := fstest.MapFS{
		"go.mod": {Data: []byte("module m\n")}, "a/a.go": {Data: []byte("package a\n")},
		"nested/go.mod": {Data: []byte("module n\n")},
	}
	ignored := []string{
		"a/.x_test.go", "a/_x_test.go", "a/x_test.go", "a/sub/", "b/y.go", "gone/deep/", "left/z.go", "nested/n_test.go", "nested/sub/",
		"node_modules/", "testdata/", "testdata/t.go", "vendor/", "vendor/v/v.go", "_old/o.go", ".cache/", "x/testdata/deep/t.go", "x_test.go",
	}
	m := Module{Dir: ".", Path: "m", ignored: []string{"./left"}}
	for name, c := range map[string]struct {
		module   Module
		packages []string
		want     []string
	}{
		"the whole module": {m, nil, []string{
			"go_file_ignored a/x_test.go", "folder_ignored a/sub", "go_file_ignored b/y.go", "folder_ignored gone/deep",
			"folder_ignored node_modules", "go_file_ignored x_test.go",
		}},
		"one package":      {m, []string{"./a"}, []string{"go_file_ignored a/x_test.go"}},
		"packages below":   {m, []string{"./a/...", "./b"}, []string{"go_file_ignored a/x_test.go", "folder_ignored a/sub", "go_file_ignored b/y.go"}},
		"a module below":   {Module{Dir: "nested", Path: "n"}, nil, []string{"go_file_ignored nested/n_test.go", "folder_ignored nested/sub"}},
		"the top's folder": {m, []string{"."}, []string{"go_file_ignored x_test.go"}},
	} {
		t.Run(name, func(t *testing.T) {
			findings, err := IgnoredFindings(tree, c.module, Params{Packages: c.packages}, ignored, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, f.Code+" "+f.Path)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIgnoredFilesAreBoundedAndNeverSilent(t *testing.T) {
	var many []string
	for i := range MaxFindings + 5 {
		many = append(many, fmt.Sprintf("p%03d_test.go", i))
	}
	findings, err := IgnoredFindings(fstest.MapFS{}, Module{Dir: "."}, Params{}, append(many, "bad\xff.go"), 7)
	if err != nil {
		t.Fatal(err)
	}
	got := receipt.CountFindings(findings, 0)
	want := []receipt.FindingKind{{Code: "go_file_ignored", Count: MaxFindings + 6}, {Code: "ignored_list_cut", Count: 1}}
	if diff := cmp.Diff(want, got.Kinds); diff != "" || len(findings) != MaxFindings+2 {
		t.Errorf("%d findings, (-want +got):\n%s", len(findings), diff)
	}
	// What was cut is told even where nothing else is.
	findings, err = IgnoredFindings(fstest.MapFS{}, Module{Dir: "m"}, Params{}, nil, 7)
	if err != nil || len(findings) != 1 || findings[0].Code != "ignored_list_cut" {
		t.Errorf("%v, %+v", err, findings)
	}
	// A name that is not UTF-8 can be sealed.
	findings, err = IgnoredFindings(fstest.MapFS{}, Module{Dir: "."}, Params{}, []string{"bad\xff.go"}, 0)
	if err != nil || len(findings) != 1 || findings[0].Path != `bad\xff.go` {
		t.Errorf("%v, %+v", err, findings)
	}
}
