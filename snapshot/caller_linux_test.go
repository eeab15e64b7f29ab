package snapshot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/internal/beneath"
	"striatum/internal/problem"
	"striatum/snapshot"
)

// TestAWorktreeIsReadWithItsCallersRights takes snapshots of a handed folder, in which
// something is root's alone.
func TestAWorktreeIsReadWithItsCallersRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root takes another's rights")
	}
	const somebody = 54321
	base, err := os.MkdirTemp("", "caller") //nolint:usetesting // others may enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(base, 0o755))
	opener, err := new(beneath.Threads).NewOpener(beneath.Caller{UID: somebody, GID: somebody}, "somebody")
	must(err)
	t.Cleanup(opener.Close)
	for name, tt := range map[string]struct {
		make func(tree string)
		want string // refused, naming this; "" for taken
	}{
		"nothing": {func(string) {}, ""},
		"a file":  {func(tree string) { must(os.WriteFile(filepath.Join(tree, "secret"), []byte("x"), 0o600)) }, "secret"},
		"a hard link": {func(tree string) {
			must(os.WriteFile(filepath.Join(base, "elsewhere"), []byte("x"), 0o600))
			must(os.Link(filepath.Join(base, "elsewhere"), filepath.Join(tree, "linked")))
		}, "linked"},
		"a folder": {func(tree string) { must(os.Mkdir(filepath.Join(tree, "shut"), 0o700)) }, "shut"},
		"an ignored folder": {func(tree string) {
			must(os.Mkdir(filepath.Join(tree, "shut"), 0o700))
			must(os.WriteFile(filepath.Join(tree, ".gitignore"), []byte("shut\n"), 0o644))
		}, ""},
		"a link to root's": {func(tree string) { must(os.Symlink("/etc/shadow", filepath.Join(tree, "link"))) }, ""},
		"the ignore rules": {func(tree string) { must(os.WriteFile(filepath.Join(tree, ".gitignore"), nil, 0o600)) }, ".gitignore"},
		"the repository":   {func(tree string) { must(os.Mkdir(filepath.Join(tree, ".git"), 0o700)) }, ".git"},
		"a repository that something is mounted over": {func(tree string) {
			must(os.Mkdir(filepath.Join(tree, ".git"), 0o755))
			must(unix.Mount("tmpfs", filepath.Join(tree, ".git"), "tmpfs", 0, "size=64k,mode=0755"))
			t.Cleanup(func() { must(unix.Unmount(filepath.Join(tree, ".git"), 0)) })
		}, ".git"},
		"a repository elsewhere": {func(tree string) {
			must(os.MkdirAll(filepath.Join(base, "repo", "worktrees", "w"), 0o700))
			must(os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: "+filepath.Join(base, "repo", "worktrees", "w")+"\n"), 0o644))
		}, ".git"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
			must(os.Mkdir(tree, 0o755))
			must(os.WriteFile(filepath.Join(tree, "f"), []byte("x"), 0o644))
			tt.make(tree)
			fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			must(err)
			dir, err := opener.Adopt(fd)
			must(err)
			defer func() { must(dir.Close()) }()
			snap, err := snapshot.Freeze(t.Context(), tree, snapshot.Store{Dir: t.TempDir()}, snapshot.Options{Dir: dir})
			if tt.want != "" {
				if p := problem.Of(err); p == nil || p.Kind != problem.Refused || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want it refused, naming %q", err, tt.want)
				}
				return
			}
			must(err)
			own, err := snapshot.Digest(t.Context(), tree, snapshot.Options{})
			if err != nil || own.TreeSHA256 != snap.TreeSHA256 {
				t.Errorf("got tree %s, and root reads %s, %v", snap.TreeSHA256, own.TreeSHA256, err)
			}
		})
	}
}
