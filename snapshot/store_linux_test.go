package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"striatum/internal/problem"
)

func TestAStoreInsideTheWorktreeIsRefused(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "x", 0o644)
	for _, at := range []string{dir + "/store", dir + "/a/b/store"} {
		_, err := Freeze(context.Background(), dir, Store{Dir: at}, Options{})
		wantProblem(t, err, problem.Refused, "inside the worktree")
	}
	sibling := dir + "-store"
	t.Cleanup(func() { os.RemoveAll(sibling) })
	if _, err := Freeze(context.Background(), dir, Store{Dir: sibling}, Options{}); err != nil {
		t.Errorf("a store beside the worktree: %v", err)
	}
}

func TestOneStateIsFrozenOnce(t *testing.T) {
	store := newStore(t)
	one, two := t.TempDir(), t.TempDir()
	put(t, one+"/f", "x", 0o644)
	put(t, two+"/f", "x", 0o600)
	var wg sync.WaitGroup
	dirs := make([]string, 16)
	for i := range dirs {
		wg.Go(func() {
			s, err := Freeze(context.Background(), []string{one, two}[i%2], store, Options{})
			if err != nil {
				t.Error(err)
			}
			dirs[i] = s.Dir
		})
	}
	wg.Wait()
	if trees := list(store.treesDir()); len(trees) != 1 || slices.ContainsFunc(dirs, func(d string) bool { return d != dirs[0] }) {
		t.Errorf("got trees %v in %v", trees, dirs)
	}
	if left := list(store.tmpDir()); len(left) != 0 {
		t.Errorf("left in tmp: %v", left)
	}
}

func TestSweepRemovesWhatAKillLeft(t *testing.T) {
	dir, store := t.TempDir(), newStore(t)
	put(t, dir+"/f", "x", 0o644)
	kept := mustFreeze(t, dir, store, Options{Now: time.Now})
	put(t, store.tmpDir()+"/freeze-1/tree/part", "x", 0o644)
	put(t, store.tmpDir()+"/drop-1/tree/part", "x", 0o644)
	put(t, store.statDir()+"/.tmp-1", "x", 0o600)
	put(t, store.treeDir("aa")+"/tree/part", "x", 0o644) // no boot file
	put(t, store.treeDir("bb")+"/boot", "another boot", 0o600)
	if err := store.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := append(list(store.tmpDir()), list(store.treesDir())...); !slices.Equal(got, []string{kept.TreeSHA256}) {
		t.Errorf("after the sweep: %v", got)
	}
	if got := list(store.statDir()); len(got) != 1 {
		t.Errorf("after the sweep: %v", got)
	}
	empty := newStore(t)
	if err := empty.Sweep(); err != nil {
		t.Errorf("sweep of a store that is not there: %v", err)
	}
}

func TestTrimDropsWhatWasUsedLongestAgo(t *testing.T) {
	dir, store := t.TempDir(), newStore(t)
	store.QuotaBytes = 2500
	var trees []string
	for i := range 4 {
		put(t, dir+"/f", fmt.Sprintf("%1000d", i), 0o644)
		s := mustFreeze(t, dir, store, Options{})
		trees = append(trees, s.TreeSHA256)
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(filepath.Join(store.treeDir(s.TreeSHA256), "boot"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir+"/f", fmt.Sprintf("%1000d", 1), 0o644)
	mustFreeze(t, dir, store, Options{}) // uses the second anew
	dropped, err := store.Trim(trees[0])
	if err != nil || !slices.Equal(dropped, []string{trees[2], trees[3]}) {
		t.Errorf("dropped %v, %v, want the third and fourth of %v", dropped, err, trees)
	}
	if _, _, ok := store.Path(trees[0]); !ok {
		t.Error("the tree to keep was dropped")
	}
}

func TestDropTakesOnlyTreeIDs(t *testing.T) {
	dir, store := t.TempDir(), newStore(t)
	put(t, dir+"/f", "x", 0o644)
	s := mustFreeze(t, dir, store, Options{})
	for _, name := range []string{"", ".", "..", "../stat", s.TreeSHA256 + "/tree"} {
		if err := store.Drop(name); err == nil {
			t.Errorf("Drop(%q) was taken", name)
		}
	}
	if err := store.Drop(s.TreeSHA256); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if err := store.Drop(s.TreeSHA256); err != nil {
		t.Errorf("dropping what is not there: %v", err)
	}
}

// A tree of an earlier boot was not synced, so it is made anew.
func TestATreeOfAnEarlierBootIsReplaced(t *testing.T) {
	dir, store := t.TempDir(), newStore(t)
	put(t, dir+"/f", "x", 0o644)
	s := mustFreeze(t, dir, store, Options{})
	put(t, store.treeDir(s.TreeSHA256)+"/boot", "another boot", 0o600)
	put(t, s.Dir+"/f", "damaged", 0o644)
	if again := mustFreeze(t, dir, store, Options{}); mustDigest(t, again.Dir).TreeSHA256 != s.TreeSHA256 {
		t.Error("the damaged tree is still there")
	}
}

// settledNow is a clock at which every file made so far has settled.
func settledNow() time.Time { return time.Now().Add(time.Minute) }

func TestAnUnchangedFileIsLinkedAndAChangedOneIsNot(t *testing.T) {
	dir, store := t.TempDir(), newStore(t)
	for _, name := range []string{"same", "mode", "text", "gone", "a/deep"} {
		put(t, dir+"/"+name, "text of "+name, 0o644)
	}
	opt := Options{Now: settledNow, Reuse: &store}
	before := mustFreeze(t, dir, store, opt)
	put(t, dir+"/text", "TEXT of text", 0o644)
	if err := os.Chmod(dir+"/mode", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/gone"); err != nil {
		t.Fatal(err)
	}
	// The mode is remembered by a digest, and the frozen tree has the old one.
	if _, err := Digest(context.Background(), dir, opt); err != nil {
		t.Fatal(err)
	}
	after := mustFreeze(t, dir, store, opt)
	if want := mustDigest(t, dir); after.TreeSHA256 != want.TreeSHA256 {
		t.Errorf("got tree %s, want %s", after.TreeSHA256, want.TreeSHA256)
	}
	if again := mustDigest(t, after.Dir); again.TreeSHA256 != after.TreeSHA256 {
		t.Errorf("the frozen tree has the id %s and is called %s", again.TreeSHA256, after.TreeSHA256)
	}
	linked := func(name string) bool {
		a, err := os.Stat(filepath.Join(before.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.Stat(filepath.Join(after.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return os.SameFile(a, b)
	}
	if linked("mode") || linked("text") {
		t.Error("a changed file was linked")
	}
	if root, err := openRoot(dir); err == nil {
		if root.LocalFS() && (!linked("same") || !linked("a/deep")) {
			t.Error("an unchanged file was copied")
		}
		root.Close()
	}
}

// A digest from memory is right whatever was done to the files since.
func TestReuseSeesEveryChange(t *testing.T) {
	dir, store := t.TempDir(), newStore(t)
	opt := Options{Now: settledNow, Reuse: &store}
	names := []string{"a", "b", "c"}
	for _, n := range names {
		put(t, dir+"/"+n, "0123456789", 0o644)
	}
	open, err := os.OpenFile(dir+"/c", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	check := func(what string) {
		t.Helper()
		got, err := Digest(context.Background(), dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		if want := mustDigest(t, dir); got.TreeSHA256 != want.TreeSHA256 {
			t.Errorf("after %s: got tree %s, want %s", what, got.TreeSHA256, want.TreeSHA256)
		}
	}
	check("nothing")
	check("a digest")
	info, err := os.Stat(dir + "/a")
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/a", "9876543210", 0o644)
	if err := os.Chtimes(dir+"/a", info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	check("a change with the old time set back")
	if err := os.Rename(dir+"/a", dir+"/t"); err != nil {
		t.Fatal(err)
	}
	rename(t, dir+"/b", dir+"/a")
	rename(t, dir+"/t", dir+"/b")
	check("two files of one size were swapped")
	if _, err := open.WriteAt([]byte("x"), 3); err != nil {
		t.Fatal(err)
	}
	check("a write through a handle that was open all the time")
	for _, name := range list(store.statDir()) {
		at := filepath.Join(store.statDir(), name)
		data, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("memory was damaged")
}
