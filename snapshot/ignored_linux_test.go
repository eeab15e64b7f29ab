package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the rules leave out is named where the walk meets it, and nothing more is
// walked for it: the ignored folder has more entries than may be looked at.
func TestIgnoredGoFilesAndFoldersAreNamed(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	gitInit(t, dir, "sha1")
	put(t, dir+"/kept/tracked_test.go", "package kept\n", 0o644)
	git(t, dir, "add", "-A")
	put(t, dir+"/.gitignore", "*_test.go\n*.o\nbig/\nlink.go\n", 0o644)
	put(t, dir+"/kept/kept.go", "package kept\n", 0o644)
	put(t, dir+"/kept/new_test.go", "package kept\n", 0o644)
	put(t, dir+"/kept/x.o", "", 0o644)
	put(t, dir+"/a_test.go", "package a\n", 0o644)
	symlink(t, "kept/kept.go", dir+"/link.go")
	for i := range 100 {
		put(t, fmt.Sprintf("%s/big/%d_test.go", dir, i), "", 0o644)
	}
	opt := Options{Limits: Limits{Files: 10}}
	want := []string{"a_test.go", "big/", "kept/new_test.go", "link.go"}
	frozen, err := Freeze(t.Context(), dir, Store{Dir: t.TempDir()}, opt)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := Digest(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Snapshot{"freeze": frozen, "digest": digest} {
		if diff := cmp.Diff(want, s.Ignored); diff != "" || s.IgnoredMore != 0 {
			t.Errorf("%s: %d more, (-want +got):\n%s", name, s.IgnoredMore, diff)
		}
		if got := paths(t, s); !slices.Contains(got, "kept/tracked_test.go") || slices.Contains(got, "a_test.go") {
			t.Errorf("%s has %q", name, got)
		}
	}
}

func TestManyIgnoredPathsAreCutTheSameEachTime(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/.gitignore", "*.go\n", 0o644)
	const folders, each = 30, 150
	for i := range folders {
		for k := range each {
			put(t, fmt.Sprintf("%s/p%02d/f%03d.go", dir, i, k), "", 0o644)
		}
	}
	var first Snapshot
	for round := range 3 {
		s, err := Digest(t.Context(), dir, Options{Workers: 4})
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			first = s
		}
		if len(s.Ignored) != MaxIgnored || s.IgnoredMore != folders*each-MaxIgnored || !slices.IsSorted(s.Ignored) || s.Ignored[MaxIgnored-1] != "p06/f099.go" {
			t.Fatalf("%d paths, %d more, the last %q", len(s.Ignored), s.IgnoredMore, s.Ignored[len(s.Ignored)-1])
		}
		if diff := cmp.Diff(first.Ignored, s.Ignored); diff != "" {
			t.Errorf("round %d:\n%s", round, diff)
		}
	}
}
