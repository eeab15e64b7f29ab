package worktree_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"striatum/internal/beneath"
	"striatum/internal/problem"
	"striatum/internal/worktree"
)

func open(t *testing.T, dir string) *worktree.Root {
	t.Helper()
	r, err := worktree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// names lists everything below dir with its content or target.
func names(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			out[rel] = "-> " + to
			return err
		case d.Type().IsRegular():
			data, err := os.ReadFile(p)
			out[rel] = string(data)
			return err
		default:
			out[rel] = d.Type().String()
		}
		return nil
	}))
	return out
}

func TestWriteFileMakesParentsAndReplacesWholly(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	must(t, r.WriteFile("verification/checks/a.json", []byte("one"), 0o644))
	must(t, os.Link(filepath.Join(dir, "verification/checks/a.json"), filepath.Join(dir, "hard")))
	must(t, r.WriteFile("verification/checks/a.json", []byte("two"), 0o755))
	want := map[string]string{
		".": "d---------", "verification": "d---------", "verification/checks": "d---------",
		"verification/checks/a.json": "two", "hard": "one",
	}
	if d := cmp.Diff(names(t, dir), want); d != "" {
		t.Errorf("tree (-got +want):\n%s", d)
	}
	info, err := os.Stat(filepath.Join(dir, "verification/checks/a.json"))
	must(t, err)
	if got := info.Mode(); got != 0o755 {
		t.Errorf("mode = %v, want 0755", got)
	}
	data, err := r.ReadFile("verification/checks/a.json", 3)
	if err != nil || string(data) != "two" {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
}

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	old := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(old) })
	dir := t.TempDir()
	must(t, open(t, dir).WriteFile("a/b", nil, 0o644))
	for rel, want := range map[string]fs.FileMode{"a": fs.ModeDir | 0o755, "a/b": 0o644} {
		info, err := os.Stat(filepath.Join(dir, rel))
		must(t, err)
		if info.Mode() != want {
			t.Errorf("mode of %s = %v, want %v", rel, info.Mode(), want)
		}
	}
}

// Everything planted here leads to, or stands for, a file outside.
func TestPlantedEntriesAreRefusedAndNothingIsWritten(t *testing.T) {
	link := func(to func(outside string) string, at string) func(*testing.T, string, string) {
		return func(t *testing.T, top, outside string) {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(top, at)), 0o755))
			must(t, os.Symlink(to(outside), filepath.Join(top, at)))
		}
	}
	outsideDir := func(o string) string { return o }
	outsideFile := func(o string) string { return filepath.Join(o, "victim") }
	inside := func(string) string { return "real" }
	for _, c := range []struct {
		name, rel string
		plant     func(t *testing.T, top, outside string)
	}{
		{"file is a link", "verification/w.json", link(outsideFile, "verification/w.json")},
		{"file is a dangling link", "verification/w.json", link(func(o string) string { return o + "/new" }, "verification/w.json")},
		{"file is a link inside the tree", "a", link(inside, "a")},
		{"file is a magic link", "a", link(func(string) string { return "/proc/self/fd/1" }, "a")},
		{"parent is a link", "verification/w.json", link(outsideDir, "verification")},
		{"parent is a dangling link", "verification/w.json", link(func(string) string { return "nowhere" }, "verification")},
		{"parent is a link to the top", "verification/w.json", link(func(string) string { return "." }, "verification")},
		{"middle is a link", "verification/a/b/w.json", link(outsideDir, "verification/a")},
		{".striatum is a link", ".striatum/report.json", link(outsideDir, ".striatum")},
		{".striatum/.gitignore is a link", ".striatum/.gitignore", link(outsideFile, ".striatum/.gitignore")},
		{"file is a folder", "a", func(t *testing.T, top, _ string) { must(t, os.Mkdir(filepath.Join(top, "a"), 0o755)) }},
		{"file is a FIFO", "a", func(t *testing.T, top, _ string) { must(t, unix.Mkfifo(filepath.Join(top, "a"), 0o666)) }},
		{"parent is a file", "a/b", func(t *testing.T, top, _ string) { must(t, os.WriteFile(filepath.Join(top, "a"), nil, 0o644)) }},
		{"parent is a FIFO", "a/b", func(t *testing.T, top, _ string) { must(t, unix.Mkfifo(filepath.Join(top, "a"), 0o666)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := t.TempDir()
			top, outside := filepath.Join(base, "top"), filepath.Join(base, "outside")
			must(t, os.Mkdir(top, 0o755))
			must(t, os.Mkdir(outside, 0o755))
			must(t, os.WriteFile(filepath.Join(outside, "victim"), []byte("untouched"), 0o644))
			c.plant(t, top, outside)
			before := names(t, base)
			r := open(t, top)
			err := r.WriteFile(c.rel, []byte("evil"), 0o644)
			if err == nil || problem.Of(err).Kind != problem.Refused || problem.Of(err).Hint == "" {
				t.Errorf("WriteFile = %#v, want Refused with a hint", err)
			}
			if d := cmp.Diff(names(t, base), before); d != "" {
				t.Errorf("something was written (-got +want):\n%s", d)
			}
			if data, err := r.ReadFile(c.rel, 100); err == nil || problem.Of(err).Kind != problem.Refused {
				t.Errorf("ReadFile = %q, %v, want Refused", data, err)
			}
			if err := r.MkdirAll(c.rel + "/x"); err == nil || problem.Of(err).Kind != problem.Refused {
				if !strings.Contains(c.name, "is a folder") {
					t.Errorf("MkdirAll = %v, want Refused", err)
				}
			}
		})
	}
}

func TestPathsOutsideAreRefused(t *testing.T) {
	base := t.TempDir()
	top := filepath.Join(base, "top")
	must(t, os.Mkdir(top, 0o755))
	r := open(t, top)
	for _, rel := range []string{"", ".", "..", "../x", "a/../../x", "/etc/x", "a//b", "a/", "./a", "a\x00b", ".git/config", "sub/.GIT/hooks/x"} {
		if err := r.WriteFile(rel, nil, 0o644); err == nil || problem.Of(err).Kind != problem.Refused {
			t.Errorf("WriteFile(%q) = %v, want Refused", rel, err)
		}
		if err := r.MkdirAll(rel); err == nil || problem.Of(err).Kind != problem.Refused {
			t.Errorf("MkdirAll(%q) = %v, want Refused", rel, err)
		}
	}
	if got := names(t, base); len(got) != 2 {
		t.Errorf("something was made: %v", got)
	}
}

func TestReadFileTellsMissingAndTooLong(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	for _, rel := range []string{"a", "a/b"} {
		if _, err := r.ReadFile(rel, 1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadFile(%q) of nothing = %v, want fs.ErrNotExist", rel, err)
		}
	}
	must(t, r.WriteFile("a", []byte("12345"), 0o644))
	if _, err := r.ReadFile("a", 4); !errors.Is(err, beneath.ErrTooLong) {
		t.Errorf("ReadFile of 5 bytes with limit 4 = %v, want ErrTooLong", err)
	}
	if _, err := worktree.Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of nothing = %v, want fs.ErrNotExist", err)
	}
}

func TestWhatIsMadeBelongsToTheWorktreesOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	must(t, os.Chown(dir, 12345, 23456))
	r := open(t, dir)
	must(t, r.WriteFile("a/b/c", []byte("x"), 0o600))
	must(t, r.MkdirAll("d/e"))
	must(t, r.WriteFile("a/b/c", []byte("y"), 0o600))
	for _, rel := range []string{"a", "a/b", "a/b/c", "d", "d/e"} {
		info, err := os.Lstat(filepath.Join(dir, rel))
		must(t, err)
		st, _ := info.Sys().(*syscall.Stat_t)
		if st.Uid != 12345 || st.Gid != 23456 {
			t.Errorf("%s belongs to %d:%d, want 12345:23456", rel, st.Uid, st.Gid)
		}
	}
}

// A reader never sees anything but one of the two contents in full.
func TestReplacementIsAtomic(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	a, b := bytes.Repeat([]byte("a"), 100_000), bytes.Repeat([]byte("b"), 200_000)
	must(t, r.WriteFile("f", a, 0o644))
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			data, err := os.ReadFile(filepath.Join(dir, "f"))
			if err != nil || !bytes.Equal(data, a) && !bytes.Equal(data, b) {
				t.Errorf("read %d bytes, %v", len(data), err)
				return
			}
		}
	})
	for i := range 60 {
		must(t, r.WriteFile("f", [][]byte{b, a}[i%2], 0o644))
	}
	stop.Store(true)
	wg.Wait()
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("something was left: %d entries", len(got))
	}
}

// One goroutine swaps a folder and a file for links to the outside all the time;
// whatever WriteFile answers, nothing outside changes.
func TestNothingOutsideIsWrittenWhileFoldersAreSwapped(t *testing.T) {
	base := t.TempDir()
	top, outside := filepath.Join(base, "top"), filepath.Join(base, "outside")
	must(t, os.Mkdir(top, 0o755))
	must(t, os.MkdirAll(filepath.Join(outside, "b"), 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "b/f"), []byte("untouched"), 0o644))
	want := names(t, outside)
	must(t, os.MkdirAll(filepath.Join(top, "a/b"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(top, "link")))
	must(t, os.Symlink(filepath.Join(outside, "b/f"), filepath.Join(top, "flink")))
	realB, err := unix.Open(filepath.Join(top, "a/b"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(realB)) })
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(top, "a"), unix.AT_FDCWD, filepath.Join(top, "link"), unix.RENAME_EXCHANGE)
		}
	})
	wg.Go(func() {
		for !stop.Load() {
			_ = unix.Renameat2(realB, "f", unix.AT_FDCWD, filepath.Join(top, "flink"), unix.RENAME_EXCHANGE)
		}
	})
	r := open(t, top)
	wrote, refused := 0, 0
	for wrote+refused < 600 {
		if err := r.WriteFile("a/b/f", []byte("inside"), 0o644); err == nil {
			wrote++
		} else {
			refused++
		}
		_ = r.MkdirAll("a/b/c")
		if data, err := r.ReadFile("a/b/f", 100); err == nil && string(data) != "inside" {
			t.Errorf("read %q from outside", data)
		}
	}
	stop.Store(true)
	wg.Wait()
	if d := cmp.Diff(names(t, outside), want); d != "" {
		t.Errorf("the outside changed (-got +want):\n%s", d)
	}
	if wrote == 0 || refused == 0 {
		t.Logf("the race was one-sided: %d written, %d refused", wrote, refused)
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "f"), 0o755))
	r := open(t, dir)
	if err := r.WriteFile("f", []byte("x"), 0o644); err == nil {
		t.Fatal("a folder was replaced")
	}
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("something was left: %v", got)
	}
}

func TestLeftoversOfAKillAreSweptWhenOld(t *testing.T) {
	dir := t.TempDir()
	plant := func(name string, age time.Duration) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("part"), 0o600))
		at := time.Now().Add(-age)
		must(t, os.Chtimes(filepath.Join(dir, name), at, at))
	}
	const digits = "0123456789abcdef"
	plant(worktree.TempPrefix+digits, time.Hour)
	plant(worktree.TempPrefix+"fedcba9876543210", time.Second) // another writer's
	plant(worktree.TempPrefix+"notes", time.Hour)              // somebody else's name
	plant("old", time.Hour)
	must(t, os.Symlink("old", filepath.Join(dir, worktree.TempPrefix+"00000000000000ff")))
	must(t, open(t, dir).WriteFile("f", []byte("x"), 0o644))
	want := map[string]string{
		".": "d---------", "f": "x", "old": "part",
		worktree.TempPrefix + "fedcba9876543210": "part",
		worktree.TempPrefix + "notes":            "part",
		worktree.TempPrefix + "00000000000000ff": "-> old",
	}
	if d := cmp.Diff(names(t, dir), want); d != "" {
		t.Errorf("tree (-got +want):\n%s", d)
	}
}

func TestAReadOnlyFolderIsAProblemWithAHint(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere")
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o555))
	err := open(t, dir).WriteFile("f", nil, 0o644)
	if problem.Of(err).Kind != problem.Refused || problem.Of(err).Hint == "" {
		t.Errorf("WriteFile = %v, want Refused with a hint", err)
	}
}
