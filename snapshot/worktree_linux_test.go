package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"striatum/internal/problem"
)

func findings(s Snapshot) []string {
	var out []string
	for _, f := range s.Findings {
		out = append(out, string(f.Code)+" "+f.Path)
	}
	return out
}

func paths(t testing.TB, s Snapshot) []string {
	t.Helper()
	data, err := s.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		out = append(out, strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)[3])
	}
	return out
}

func TestATreeWithoutGitHasTheSameID(t *testing.T) {
	needGit(t)
	for seed := range uint64(100) {
		dir := t.TempDir()
		randomTree(t, rand.New(rand.NewPCG(seed, 9)), dir, 0)
		got := mustDigest(t, dir)
		gitInit(t, dir, "sha256")
		if want := gitTree(t, dir); got.TreeSHA256 != want {
			t.Errorf("seed %d: got tree %s, git says %s", seed, got.TreeSHA256, want)
		}
	}
}

// An index of a SHA-1 repository, in any version, tells what is tracked though
// it is ignored, links and folders below ignored folders too.
func TestTrackedFilesCountThoughIgnored(t *testing.T) {
	needGit(t)
	for _, version := range []string{"2", "3", "4"} {
		dir := t.TempDir()
		gitInit(t, dir, "sha1")
		put(t, dir+"/out/a/kept", "1", 0o644)
		if err := os.Symlink("kept", dir+"/out/a/link"); err != nil {
			t.Fatal(err)
		}
		put(t, dir+"/out/a/.gitignore", "!new\n", 0o644)
		git(t, dir, "add", "-A")
		put(t, dir+"/.gitignore", "out/\n", 0o644)
		put(t, dir+"/out/a/new", "1", 0o644)
		put(t, dir+"/out/b/new", "1", 0o644)
		put(t, dir+"/noted", "1", 0o644)
		git(t, dir, "add", "-N", "noted") // makes entries of version 3
		git(t, dir, "update-index", "--index-version", version)
		want := []string{".gitignore", "noted", "out/a/.gitignore", "out/a/kept", "out/a/link"}
		if diff := cmp.Diff(want, paths(t, mustDigest(t, dir))); diff != "" {
			t.Errorf("index version %s (-want +got):\n%s", version, diff)
		}
	}
}

func TestAnUnreadableIndexIsAFinding(t *testing.T) {
	needGit(t)
	for name, harm := range map[string]func(t *testing.T, dir string){
		"damaged": func(t *testing.T, dir string) { put(t, dir+"/.git/index", "DIRC\x00\x00\x00\x02garbage", 0o644) },
		"link": func(t *testing.T, dir string) {
			rename(t, dir+"/.git/index", dir+"/i")
			symlink(t, "../i", dir+"/.git/index")
		},
		"FIFO":        func(t *testing.T, dir string) { rename(t, dir+"/.git/index", dir+"/i"); fifo(t, dir+"/.git/index") },
		".git a link": func(t *testing.T, dir string) { rename(t, dir+"/.git", dir+"/g"); symlink(t, "g", dir+"/.git") },
		"split":       func(t *testing.T, dir string) { git(t, dir, "update-index", "--split-index") },
		".git a lie": func(t *testing.T, dir string) {
			rename(t, dir+"/.git", dir+"/g")
			put(t, dir+"/.git", "gitdir: g\n", 0o644)
		},
	} {
		dir := t.TempDir()
		gitInit(t, dir, "sha1")
		put(t, dir+"/kept", "1", 0o644)
		git(t, dir, "add", "-A")
		put(t, dir+"/.gitignore", "kept\ng\ni\n", 0o644)
		harm(t, dir)
		s := mustDigest(t, dir)
		if diff := cmp.Diff([]string{"index_unreadable .git"}, findings(s)); diff != "" {
			t.Errorf("%s: findings (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{".gitignore"}, paths(t, s)); diff != "" {
			t.Errorf("%s: paths (-want +got):\n%s", name, diff)
		}
	}
}

func symlink(t testing.TB, target, at string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, at); err != nil {
		t.Fatal(err)
	}
}

func fifo(t testing.TB, at string) {
	t.Helper()
	if err := unix.Mkfifo(at, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWhatHasNoContentIsRefusedWithItsPath(t *testing.T) {
	for _, c := range []struct {
		name, path, part string
		plant            func(t *testing.T, at string)
	}{
		{"FIFO", "a/pipe", "it is a FIFO", func(t *testing.T, at string) { fifo(t, at) }},
		{"socket", "a/sock", "it is a socket", func(t *testing.T, at string) {
			t.Chdir(filepath.Dir(at)) // a socket's path has 108 bytes
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(at), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}},
		{"device", "a/null", "it is a device", func(t *testing.T, at string) {
			if err := unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
				t.Skipf("no device can be made here: %v", err)
			}
		}},
		{"FIFO with an odd name", "a/p\n\xff", "it is a FIFO", func(t *testing.T, at string) { fifo(t, at) }},
		{"striatum link", ".striatum", "symbolic link", func(t *testing.T, at string) { symlink(t, "a", at) }},
		{"striatum link to nothing", ".striatum", "symbolic link", func(t *testing.T, at string) { symlink(t, "/nowhere", at) }},
		{"verification link", "verification", "symbolic link", func(t *testing.T, at string) { symlink(t, "a", at) }},
		{"unreadable", "a/secret", "permission denied", func(t *testing.T, at string) {
			if os.Geteuid() == 0 {
				t.Skip("root reads everything")
			}
			put(t, at, "x", 0)
		}},
		{"huge ignore file", "a/.gitignore", "at most 1048576 bytes", func(t *testing.T, at string) { put(t, at, strings.Repeat("x\n", 600_000), 0o644) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, store := t.TempDir(), newStore(t)
			put(t, dir+"/a/f", "x", 0o644)
			c.plant(t, filepath.Join(dir, c.path))
			_, err := Freeze(context.Background(), dir, store, Options{})
			wantProblem(t, err, problem.Refused, c.part)
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Path != Quote(c.path) {
				t.Errorf("got %v, want a RefusedError about %q", err, c.path)
			}
			if left := append(list(store.tmpDir()), list(store.treesDir())...); len(left) != 0 {
				t.Errorf("left in the store: %v", left)
			}
			if strings.Contains(c.part, "FIFO") {
				put(t, dir+"/.gitignore", "p*\n", 0o644)
				if got := paths(t, mustDigest(t, dir)); !slices.Equal(got, []string{".gitignore", "a/f"}) {
					t.Errorf("ignored, it leaves %q", got)
				}
			}
		})
	}
}

func TestLimitsOfAWorktree(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a/b/c", "12345", 0o644)
	put(t, dir+"/d", "12345", 0o644)
	put(t, dir+"/.gitignore", "/out/\n", 0o644)
	for i := range 40 {
		put(t, fmt.Sprintf("%s/out/%d", dir, i), strings.Repeat("x", 100), 0o644)
	}
	for _, c := range []struct {
		lim  Limits
		part string
	}{
		{Limits{Files: 2}, "more than 2 files"},
		{Limits{Bytes: 15}, "more than 15 bytes"},
		{Limits{FileBytes: 4}, "at most 4"},
		{Limits{Depth: 1}, "more than 1 folders deep"},
		{Limits{PathBytes: 4}, "at most 4 are taken"},
	} {
		store := newStore(t)
		_, err := Freeze(context.Background(), dir, store, Options{Limits: c.lim})
		wantProblem(t, err, problem.Refused, c.part)
		if left := append(list(store.tmpDir()), list(store.treesDir())...); len(left) != 0 {
			t.Errorf("%v: left in the store: %v", c.lim, left)
		}
	}
	fits := Options{Limits: Limits{Files: 3, Bytes: 16, FileBytes: 6, Depth: 2, PathBytes: 10}}
	if _, err := Digest(context.Background(), dir, fits); err != nil {
		t.Errorf("just within the limits: %v", err)
	}
	for i := range 13 {
		if err := os.MkdirAll(fmt.Sprintf("%s/empty/%d", dir, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Digest(context.Background(), dir, fits)
	wantProblem(t, err, problem.Refused, "entries, ignored ones included")
}

// Paths that Linux takes step by step, and never as one.
func TestVeryDeepFoldersAreRefused(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 250)
	for range 30 {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	_, err = Digest(context.Background(), dir, Options{})
	wantProblem(t, err, problem.Refused, "at most 4000 are taken")
}

func TestFindingsOfAWorktree(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	gitInit(t, dir, "sha256")
	put(t, dir+"/nested/.git/HEAD", "ref: refs/heads/main\n", 0o644)
	put(t, dir+"/nested/f", "x", 0o644)
	put(t, dir+"/file/.git", "gitdir: /etc\n", 0o644)
	put(t, dir+"/file/f", "x", 0o644)
	put(t, dir+"/.striatum/report", "x", 0o644)
	put(t, dir+"/deep/.striatum/kept", "x", 0o644)
	put(t, dir+"/case/A", "x", 0o644)
	put(t, dir+"/case/a", "x", 0o644)
	put(t, dir+"/form/\u00e9", "x", 0o644)
	put(t, dir+"/form/e\u0301", "x", 0o644)
	put(t, dir+"/.GIT", "x", 0o644)
	put(t, dir+"/c\x01", "x", 0o644)
	put(t, dir+"/bad\xff", "x", 0o644)
	put(t, dir+"/\u202etxt.exe", "x", 0o644)
	for name, to := range map[string]string{
		"in": "nested/f", "absolute": "/etc/passwd", "up": "..", "up2": "../nested/../../x", "broken": "nested/none", "chain": "hop", "hop": "../out",
		"loop": "loop", "back": "nested/../nested", "self": ".",
	} {
		symlink(t, to, dir+"/links/"+name)
	}
	git(t, dir, "add", "-A", "-f", ".striatum")
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("a", 64)+",module")
	put(t, dir+"/module/f", "x", 0o644)
	put(t, dir+"/.gitignore", "module\n", 0o644)
	s := mustDigest(t, dir)
	want := []string{
		`bidi_name "\342\200\256txt.exe"`,
		`colliding_names .GIT`, `colliding_names case/a`, `colliding_names "form/\303\251"`,
		`control_name "bad\377"`, `control_name "c\001"`,
		"link_leaves_tree links/absolute", "link_leaves_tree links/up2",
		"nested_repository file", "nested_repository nested", "submodule module", "tracked_striatum .striatum",
	}
	// links/hop leads to out beside links, links/up to the top: both inside.
	got := findings(s)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	have := paths(t, s)
	for _, p := range []string{"nested/f", "file/f", "module/f", "deep/.striatum/kept", ".GIT"} {
		if !slices.Contains(have, p) {
			t.Errorf("%s is not part: %q", p, have)
		}
	}
	for _, p := range have {
		if strings.HasPrefix(p, ".striatum") || strings.Contains(p, ".git/") || strings.HasSuffix(p, "/.git") {
			t.Errorf("%s is part", p)
		}
	}
}

// While a tree is changed all the time, each snapshot either says so or is a
// frozen tree that has the id that it was given, of whole files.
func TestAChangingTreeGivesAConsistentCopyOrNone(t *testing.T) {
	needGit(t)
	dir, store, outside := t.TempDir(), newStore(t), t.TempDir()
	put(t, outside+"/secret", "outside", 0o644)
	put(t, outside+"/.gitignore", "*\n", 0o644)
	symlink(t, outside, dir+"/link")
	put(t, dir+"/d/secret", "inside!", 0o644)
	whole := map[string]bool{}
	for _, c := range "abc" {
		whole[strings.Repeat(string(c), 300_000)] = true
	}
	put(t, dir+"/big", strings.Repeat("a", 300_000), 0o644)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for _, f := range []func(i int){
		func(i int) {
			tmp := outside + "/tmp"
			put(t, tmp, strings.Repeat(string("abc"[i%3]), 300_000), 0o644)
			_ = os.Rename(tmp, dir+"/big")
		},
		func(int) {
			_ = unix.Renameat2(unix.AT_FDCWD, dir+"/d", unix.AT_FDCWD, dir+"/link", unix.RENAME_EXCHANGE)
		},
		func(i int) {
			at := fmt.Sprintf("%s/new%d", dir, i%7)
			if os.Remove(at) != nil {
				_ = os.WriteFile(at, []byte("new"), 0o644)
			}
		},
	} {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				f(i)
			}
		})
	}
	took := 0
	for range 60 {
		s, err := Freeze(context.Background(), dir, store, Options{})
		if err != nil {
			if !errors.Is(err, ErrChanged) || problem.Of(err).Kind != problem.Indeterminate {
				t.Errorf("Freeze: %v", err)
			}
			continue
		}
		took++
		if got := treeSHA256(t, s.Dir); got != s.TreeSHA256 {
			t.Errorf("the frozen tree has the id %s and is called %s", got, s.TreeSHA256)
		}
		if data, err := os.ReadFile(s.Dir + "/big"); err != nil || !whole[string(data)] {
			t.Errorf("a part of a file was frozen: %d bytes, %v", len(data), err)
		}
		for _, p := range paths(t, s) {
			info, err := os.Lstat(filepath.Join(s.Dir, p))
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if data, err := os.ReadFile(filepath.Join(s.Dir, p)); err != nil || string(data) == "outside" {
				t.Errorf("%s came from outside", p)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	if left := list(store.tmpDir()); len(left) != 0 {
		t.Errorf("left in tmp: %v", left)
	}
	t.Logf("%d of 60 snapshots were taken", took)
}

// What was hashed is what was copied, also of a file that somebody is writing.
func TestTheCopyOfAFileBeingWrittenHasItsDigest(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", strings.Repeat("a", 1<<20), 0o644)
	f, err := os.OpenFile(dir+"/f", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if _, err := f.WriteAt([]byte(strings.Repeat(string("ab"[i%2]), 1<<20)), 0); err != nil {
				t.Error(err)
			}
		}
	})
	store := newStore(t)
	for range 30 {
		s, err := Freeze(context.Background(), dir, store, Options{})
		if errors.Is(err, ErrChanged) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if again := mustDigest(t, s.Dir); again.TreeSHA256 != s.TreeSHA256 {
			t.Errorf("the frozen tree has the id %s and is called %s", again.TreeSHA256, s.TreeSHA256)
		}
	}
	stop.Store(true)
	wg.Wait()
}

func TestFindTop(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, base+"/repo/.git/HEAD", "x", 0o644)
	put(t, base+"/repo/a/b/f", "x", 0o644)
	put(t, base+"/plain/verification/workflow.json", "x", 0o644)
	put(t, base+"/plain/c/f", "x", 0o644)
	put(t, base+"/none/d/f", "x", 0o644)
	symlink(t, "repo/a", base+"/link")
	for dir, want := range map[string]string{"repo": "repo", "repo/a/b": "repo", "plain/c": "plain", "none/d": "none/d", "link": "repo", "repo/.git": "repo"} {
		got, err := FindTop(filepath.Join(base, dir))
		if err != nil || got != filepath.Join(base, want) {
			t.Errorf("FindTop(%s) = %s, %v, want %s", dir, got, err, want)
		}
	}
	for _, dir := range []string{"none/d/f", "nothing"} {
		_, err := FindTop(filepath.Join(base, dir))
		wantProblem(t, err, problem.Usage, "director")
	}
}

func TestATopThatIsNoFolderIsRefused(t *testing.T) {
	base := t.TempDir()
	put(t, base+"/f", "x", 0o644)
	for _, at := range []string{"f", "none"} {
		_, err := Digest(context.Background(), filepath.Join(base, at), Options{})
		wantProblem(t, err, problem.Refused, "director")
	}
}

func TestASnapshotEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "x", 0o644)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	if _, err := Digest(ctx, dir, Options{}); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}
