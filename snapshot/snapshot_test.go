package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustDigest(t testing.TB, dir string) Snapshot {
	t.Helper()
	s, err := Digest(context.Background(), dir, Options{})
	if err != nil {
		t.Fatalf("Digest: %v", err)
	}
	return s
}

func mustFreeze(t testing.TB, dir string, store Store, opt Options) Snapshot {
	t.Helper()
	s, err := Freeze(context.Background(), dir, store, opt)
	if err != nil {
		t.Fatalf("Freeze: %v", err)
	}
	return s
}

func newStore(t testing.TB) Store {
	t.Helper()
	return Store{Dir: filepath.Join(t.TempDir(), "store")}
}

// oddNames are names that a careless reader takes for something else.
var oddNames = []string{
	"a", "b", "a.go", "Z", "-rf", "a b", "a\nb", "\xff\xfe", "\xc3\xa9", "e\xcc\x81", "~", "a.", "a-", "a0", "lib", "lib.c", "lib-x", "lib0", "\"q\"", "tab\t", "*", "[x]", "!x", "#x", " ", "\u202egpj", "con", ".hidden", "\x01",
}

// randomTree fills dir: files, executables, links, folders, empty folders,
// ignore files.
func randomTree(t testing.TB, r *rand.Rand, dir string, depth int) {
	t.Helper()
	for _, i := range r.Perm(len(oddNames))[:r.IntN(8)] {
		at := filepath.Join(dir, oddNames[i])
		switch kind := r.IntN(8); {
		case kind < 2 && depth < 4:
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			randomTree(t, r, at, depth+1)
		case kind == 2:
			targets := []string{"a", "../b", "/etc/passwd", "../../../..", "nowhere", "lib/x", ".", "\xff"}
			if err := os.Symlink(targets[r.IntN(len(targets))], at); err != nil {
				t.Fatal(err)
			}
		default:
			perms := []os.FileMode{0o644, 0o755, 0o600, 0o700, 0o444, 0o711, 0o655}
			put(t, at, randomText(r), perms[r.IntN(len(perms))])
		}
	}
	if r.IntN(3) == 0 {
		rules := []string{"*", "!a", "/lib", "lib/", "*.go", "a*", "**/b", "[a-z]", "!*/", "Z\n!Z", "\\ ", "lib/**"}
		put(t, filepath.Join(dir, ".gitignore"), rules[r.IntN(len(rules))]+"\n"+rules[r.IntN(len(rules))]+"\n", 0o644)
	}
}

func randomText(r *rand.Rand) string {
	sizes := []int{0, 1, 10, 100, 5000, 300_000}
	n := sizes[r.IntN(len(sizes)-1)]
	if r.IntN(40) == 0 {
		n = sizes[len(sizes)-1]
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = "abc \r\n\x00$Id$"[r.IntN(11)]
	}
	return string(out)
}

func TestTreeIDEqualsStockGit(t *testing.T) {
	needGit(t)
	store := newStore(t)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		dir := t.TempDir()
		gitInit(t, dir, "sha256")
		randomTree(t, r, dir, 0)
		if r.IntN(3) == 0 {
			// Ignored now, tracked since before.
			put(t, dir+"/kept/lib", "tracked", 0o644)
			git(t, dir, "add", "-f", "kept/lib")
			put(t, dir+"/kept/.gitignore", "*\n", 0o644)
		}
		if r.IntN(4) == 0 {
			git(t, dir, "update-index", "--index-version", "4")
		}
		got := mustDigest(t, dir)
		if r.IntN(2) == 0 {
			got = mustFreeze(t, dir, store, Options{})
			if again := mustDigest(t, got.Dir); again.TreeSHA256 != got.TreeSHA256 && !hasIgnoreFile(got) {
				t.Errorf("seed %d: the frozen tree has the id %s, the worktree %s", seed, again.TreeSHA256, got.TreeSHA256)
			}
		}
		if want := gitTree(t, dir); got.TreeSHA256 != want {
			t.Errorf("seed %d: got tree %s, git says %s", seed, got.TreeSHA256, want)
		}
	}
}

// hasIgnoreFile says whether a frozen tree would ignore files of its own, which
// were tracked in the worktree.
func hasIgnoreFile(s Snapshot) bool {
	data, err := s.ReadManifest()
	return err != nil || strings.Contains(string(data), ".gitignore")
}

func TestFrozenTreeHoldsExactlyTheManifest(t *testing.T) {
	dir, store := t.TempDir(), newStore(t)
	put(t, dir+"/b/run", "#!/bin/sh\n", 0o700)
	put(t, dir+"/a", "text", 0o600)
	put(t, dir+"/odd\n\xff", "", 0o644)
	if err := os.Symlink("b/run", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/empty/deeper", 0o755); err != nil {
		t.Fatal(err)
	}
	s := mustFreeze(t, dir, store, Options{})
	sum := func(s string) string { d := sha256.Sum256([]byte(s)); return hex.EncodeToString(d[:]) }
	want := fmt.Sprintf("100644 %s 4 a\n100755 %s 10 b/run\n120000 %s 5 l\n100644 %s 0 \"odd\\n\\377\"\n", sum("text"), sum("#!/bin/sh\n"), sum("b/run"), sum(""))
	got, err := s.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	if s.ManifestSHA256 != sum(want) || s.Files != 4 || s.Bytes != 14 {
		t.Errorf("got manifest digest %s, %d files, %d bytes", s.ManifestSHA256, s.Files, s.Bytes)
	}
	found := map[string]string{}
	err = filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.ModTime().Unix() != frozenTime {
			t.Errorf("%q was modified at %v", path, info.ModTime())
		}
		rel, err := filepath.Rel(s.Dir, path)
		found[rel] = info.Mode().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{".": "drwxr-xr-x", "a": "-rw-r--r--", "b": "drwxr-xr-x", "b/run": "-rwxr-xr-x", "l": "Lrwxrwxrwx", "odd\n\xff": "-rw-r--r--"}, found); diff != "" {
		t.Errorf("frozen tree (-want +got):\n%s", diff)
	}
}
