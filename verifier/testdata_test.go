package verifier

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/baseline"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/verifier/gocheck"
)

// TestLinksHideNoTestData: a link is not the file that has its target as content, and
// what links lead to is test data, too.
func TestLinksHideNoTestData(t *testing.T) {
	frozen := func(entries map[string]string, links map[string]string) map[string]string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range entries {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for name, target := range links {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
		}
		snap, err := snapshot.Freeze(t.Context(), dir, snapshot.Store{Dir: t.TempDir()}, snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := testData(snap, gocheck.Discovery{DataDirs: []string{"p/testdata", "testdata"}})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, x := range data {
			got[x.Path] = x.SHA256
		}
		return got
	}
	before := frozen(map[string]string{"testdata/golden": "sum5", "shared/a": "1", "other": "2"}, nil)
	after := frozen(map[string]string{"testdata/sum5": "sum6", "shared/a": "1", "other": "2"}, map[string]string{"testdata/golden": "sum5"})
	if before["testdata/golden"] != seal.SHA256Hex([]byte("sum5")) || before["testdata/golden"] == after["testdata/golden"] {
		t.Errorf("a file and a link to a file of that name are the same: %v, %v", before, after)
	}
	led := frozen(map[string]string{"shared/a": "1", "deep/b": "2", "other": "3"}, map[string]string{"p/testdata": "../shared", "shared/l": "../deep", "testdata/out": "../../x", "testdata/abs": "/etc/hosts"})
	want := map[string]string{
		"shared/a": seal.SHA256Hex([]byte("1")), "deep/b": seal.SHA256Hex([]byte("2")),
		"p/testdata": led["p/testdata"], "shared/l": led["shared/l"], "testdata/out": led["testdata/out"], "testdata/abs": led["testdata/abs"],
	}
	if diff := cmp.Diff(want, led); diff != "" {
		t.Errorf("behind links (-want +got)\n%s", diff)
	}
	if d := baseline.Compare(
		baseline.Check{Data: []baseline.Data{{Path: "testdata/golden", SHA256: before["testdata/golden"]}}},
		baseline.Check{Data: []baseline.Data{{Path: "testdata/golden", SHA256: after["testdata/golden"]}}},
	); len(d.InputsChanged) != 1 {
		t.Errorf("got %+v", d)
	}
}
