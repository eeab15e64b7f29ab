package snapshot

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// protecting matches whole paths by path.Match, or all below a folder "x/**".
func protecting(commit string, paths ...string) Protection {
	return Protection{Commit: commit, Paths: paths, Match: func(pattern, name string) bool {
		if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
			return strings.HasPrefix(name, dir+"/")
		}
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	}}
}

// examined is a repository with a product, its examination, and a commit of both.
func examined(t *testing.T, format string) (dir, commit string) {
	t.Helper()
	needGit(t)
	dir = t.TempDir()
	gitInit(t, dir, format)
	put(t, dir+"/sum.go", "package sum\n", 0o644)
	put(t, dir+"/sum_test.go", "package sum // strict\n", 0o644)
	put(t, dir+"/run_test.go", "#!/bin/sh\n", 0o755)
	put(t, dir+"/gone_test.go", "package sum // deleted later\n", 0o644)
	put(t, dir+"/testdata/golden", "4\n", 0o644)
	put(t, dir+"/testdata/odd\tname", "5\n", 0o644)
	put(t, dir+"/docs/page", "text\n", 0o644)
	return dir, commitAll(t, dir)
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func linkTo(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// TestProtectRestoresTheExamination: what was edited, deleted or added of it does not
// count, what is not of it does; the worktree stays as it is.
func TestProtectRestoresTheExamination(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		dir, commit := examined(t, format)
		put(t, dir+"/sum.go", "package sum // a new product\n", 0o644)
		put(t, dir+"/new.go", "package sum // another file\n", 0o755)
		put(t, dir+"/sum_test.go", "package sum // weakened\n", 0o644)
		put(t, dir+"/run_test.go", "#!/bin/sh\n", 0o644)
		put(t, dir+"/main_test.go", "package sum // TestMain\n", 0o644)
		put(t, dir+"/testdata/golden", "5\n", 0o644)
		put(t, dir+"/testdata/more/deep", "6\n", 0o644)
		remove(t, dir+"/gone_test.go")
		linkTo(t, "sum.go", dir+"/link")
		store := newStore(t)
		base := mustFreeze(t, dir, store, Options{})
		got, err := Protect(context.Background(), dir, base, protecting(commit, "*_test.go", "testdata/**"), store, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := Protected{
			Restored: []string{"run_test.go", "sum_test.go", "testdata/golden"},
			Added:    []string{"gone_test.go"},
			Removed:  []string{"main_test.go", "testdata/more/deep"},
			Files:    5, Snapshot: got.Snapshot,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", format, diff)
		}
		if again := mustDigest(t, dir); again.TreeSHA256 != base.TreeSHA256 {
			t.Errorf("%s: the worktree changed", format)
		}
		// The same by hand is the same tree.
		git(t, dir, "checkout", "-q", commit, "--", "sum_test.go", "run_test.go", "gone_test.go", "testdata")
		remove(t, dir+"/main_test.go")
		remove(t, dir+"/testdata/more")
		if hand := mustDigest(t, dir); hand.TreeSHA256 != got.TreeSHA256 || hand.ManifestSHA256 != got.ManifestSHA256 ||
			hand.Files != got.Snapshot.Files || hand.Bytes != got.Bytes {
			t.Errorf("%s: got %s, by hand %s", format, got.TreeSHA256, hand.TreeSHA256)
		}
		if in := treeSHA256(t, got.Dir); in != got.TreeSHA256 {
			t.Errorf("%s: the frozen tree is %s, and is said to be %s", format, in, got.TreeSHA256)
		}
		if in := treeSHA256(t, base.Dir); in != base.TreeSHA256 {
			t.Errorf("%s: the tree that was asked about changed in the store", format)
		}
	}
}

// TestProtectChangesNothingOfAnHonestTree: it is the same tree, in one place.
func TestProtectChangesNothingOfAnHonestTree(t *testing.T) {
	dir, commit := examined(t, "sha1")
	put(t, dir+"/sum.go", "package sum // a new product\n", 0o644)
	store := newStore(t)
	base := mustFreeze(t, dir, store, Options{})
	got, err := Protect(context.Background(), dir, base, protecting(commit, "*_test.go"), store, Options{})
	if err != nil || got.TreeSHA256 != base.TreeSHA256 || got.Dir != base.Dir || len(got.Restored)+len(got.Added)+len(got.Removed) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestProtectCopiesWhatItCannotLink: the tree is the same.
func TestProtectCopiesWhatItCannotLink(t *testing.T) {
	dir, commit := examined(t, "sha1")
	put(t, dir+"/sum_test.go", "package sum // weakened\n", 0o644)
	store := newStore(t)
	base := mustFreeze(t, dir, store, Options{})
	got, err := protect(context.Background(), dir, base, protecting(commit, "*_test.go"), &store, Options{}.withDefaults(), false)
	if err != nil {
		t.Fatal(err)
	}
	if in := treeSHA256(t, got.Dir); in != got.TreeSHA256 || in == base.TreeSHA256 {
		t.Errorf("the frozen tree is %s, and is said to be %s", in, got.TreeSHA256)
	}
}

// TestProtectRefuses: where the commit's files cannot all stand in the tree, or the
// tree keeps a way around them, there is no tree.
func TestProtectRefuses(t *testing.T) {
	absent := strings.Repeat("a", 40)
	for name, c := range map[string]struct {
		before func(t *testing.T, dir string) // the commit
		after  func(t *testing.T, dir string)
		commit string
		paths  []string
		code   Code
		part   string
	}{
		"no such commit": {commit: absent, paths: []string{"*_test.go"}, code: ProtectedUnreadable, part: "git fetch"},
		"objects are missing": {
			after: func(t *testing.T, dir string) {
				id := git(t, dir, "rev-parse", "HEAD:sum_test.go")
				remove(t, dir+"/.git/objects/"+id[:2]+"/"+id[2:])
			},
			paths: []string{"*_test.go"}, code: ProtectedUnreadable, part: "sum_test.go",
		},
		"no repository": {
			after: func(t *testing.T, dir string) { remove(t, dir+"/.git") },
			paths: []string{"*_test.go"}, code: ProtectedUnreadable, part: "git repository",
		},
		"a pattern that matches nothing": {
			after: func(t *testing.T, dir string) { put(t, dir+"/a.rb", "x", 0o644) },
			paths: []string{"*_test.go", "*.rb"}, code: ProtectedUnmatched, part: `"*.rb"`,
		},
		"every file": {paths: []string{"*", "docs/**", "testdata/**"}, code: ProtectedEverything},
		"a folder became a file": {
			after: func(t *testing.T, dir string) { remove(t, dir+"/testdata"); put(t, dir+"/testdata", "x", 0o644) },
			paths: []string{"testdata/**"}, code: ProtectedConflict, part: "below a folder of that name",
		},
		"a folder became a link": {
			after: func(t *testing.T, dir string) { remove(t, dir+"/testdata"); linkTo(t, "docs", dir+"/testdata") },
			paths: []string{"testdata/**"}, code: ProtectedConflict, part: "below a folder of that name",
		},
		"a file became a folder": {
			after: func(t *testing.T, dir string) {
				remove(t, dir+"/sum_test.go")
				put(t, dir+"/sum_test.go/a/b", "x", 0o644)
			},
			paths: []string{"*_test.go"}, code: ProtectedConflict, part: "the protected file sum_test.go",
		},
		"a protected link to what is not": {
			before: func(t *testing.T, dir string) { linkTo(t, "docs/page", dir+"/l_test.go") },
			paths:  []string{"*_test.go"}, code: ProtectedConflict, part: "docs/page",
		},
		"a protected link to a folder that is not": {
			before: func(t *testing.T, dir string) { linkTo(t, "docs", dir+"/l_test.go") },
			paths:  []string{"*_test.go"}, code: ProtectedConflict, part: "docs",
		},
		"a protected link over one that is not": {
			before: func(t *testing.T, dir string) { linkTo(t, "way/golden", dir+"/l_test.go") },
			after:  func(t *testing.T, dir string) { linkTo(t, "testdata", dir+"/way") },
			paths:  []string{"*_test.go", "testdata/**"}, code: ProtectedConflict, part: "way/golden",
		},
		"a protected link to a place outside": {
			before: func(t *testing.T, dir string) { linkTo(t, "/workspace/docs/page", dir+"/l_test.go") },
			paths:  []string{"*_test.go"}, code: ProtectedConflict, part: "/workspace",
		},
		"a pattern that matches in a submodule only": {
			before: func(t *testing.T, dir string) {
				git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+absent+",sub")
				git(t, dir, "commit", "-q", "-m", "sub")
			},
			after: func(t *testing.T, dir string) { put(t, dir+"/sub/sum", "x", 0o644) },
			paths: []string{"*_test.go", "sub/**"}, code: ProtectedUnmatched,
		},
		"a submodule below a pattern, and nothing of it in the tree": {
			before: func(t *testing.T, dir string) {
				git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+absent+",testdata/sub")
				git(t, dir, "commit", "-q", "-m", "sub")
			},
			paths: []string{"*_test.go", "testdata/**"}, code: ProtectedConflict, part: "another repository's commit there",
		},
		"a pattern that matches in a submodule too": {
			before: func(t *testing.T, dir string) {
				git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+absent+",sub")
				git(t, dir, "commit", "-q", "-m", "sub")
			},
			after: func(t *testing.T, dir string) { put(t, dir+"/sub/page", "x", 0o644) },
			paths: []string{"*_test.go", "*/page"}, code: ProtectedConflict, part: "another repository's commit at sub",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, commit := examined(t, "sha1")
			if c.before != nil {
				c.before(t, dir)
				if git(t, dir, "log", "-1", "--format=%s") != "sub" {
					commitAll(t, dir)
				}
				commit = git(t, dir, "rev-parse", "HEAD")
			}
			if c.after != nil {
				c.after(t, dir)
			}
			if c.commit != "" {
				commit = c.commit
			}
			store := newStore(t)
			base := mustFreeze(t, dir, store, Options{})
			got, err := Protect(context.Background(), dir, base, protecting(commit, c.paths...), store, Options{})
			e, ok := errors.AsType[*ProtectError](err)
			if !ok || e.Code != c.code || !strings.Contains(e.Detail, c.part) {
				t.Fatalf("got %+v, %v, want %s with %q", got, err, c.code, c.part)
			}
			if diff := cmp.Diff(Protected{}, got); diff != "" {
				t.Errorf("and a tree:\n%s", diff)
			}
			if left := list(store.tmpDir()); len(left) != 0 {
				t.Errorf("the store keeps %q", left)
			}
		})
	}
}

// TestProtectTakesTheCommitsLinks: they stand as they are where all that they lead to
// is protected, or nothing is there.
func TestProtectTakesTheCommitsLinks(t *testing.T) {
	dir, _ := examined(t, "sha1")
	linkTo(t, "testdata/golden", dir+"/l_test.go")
	linkTo(t, "testdata", dir+"/d_test.go")
	linkTo(t, "nowhere", dir+"/n_test.go")
	commit := commitAll(t, dir)
	remove(t, dir+"/l_test.go")
	put(t, dir+"/l_test.go", "4\n", 0o644)
	store := newStore(t)
	base := mustFreeze(t, dir, store, Options{})
	got, err := Protect(context.Background(), dir, base, protecting(commit, "*_test.go", "testdata/**"), store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(got.Dir + "/l_test.go"); err != nil || target != "testdata/golden" || !cmp.Equal(got.Restored, []string{"l_test.go"}) {
		t.Errorf("got a link to %q, %v; restored %q", target, err, got.Restored)
	}
	put(t, dir+"/nowhere", "the tree's own\n", 0o644)
	base = mustFreeze(t, dir, store, Options{})
	_, err = Protect(context.Background(), dir, base, protecting(commit, "*_test.go", "testdata/**"), store, Options{})
	if e, ok := errors.AsType[*ProtectError](err); !ok || e.Code != ProtectedConflict {
		t.Errorf("a link that led nowhere leads to a file of the tree: got %v", err)
	}
}

// TestProtectTakesNoTagAndNoName: only the full id of the commit itself names it.
func TestProtectTakesNoTagAndNoName(t *testing.T) {
	dir, _ := examined(t, "sha1")
	git(t, dir, "tag", "-a", "-m", "x", "v1")
	store := newStore(t)
	base := mustFreeze(t, dir, store, Options{})
	for _, rev := range []string{"HEAD", "main", "v1", git(t, dir, "rev-parse", "v1"), strings.ToUpper(git(t, dir, "rev-parse", "HEAD"))} {
		_, err := Protect(context.Background(), dir, base, protecting(rev, "*_test.go"), store, Options{})
		if e, ok := errors.AsType[*ProtectError](err); !ok || e.Code != ProtectedUnreadable {
			t.Errorf("%s: got %v", rev, err)
		}
	}
}
