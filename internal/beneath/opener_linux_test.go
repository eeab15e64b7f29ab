package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const somebody, group, another = 54321, 54322, 54323

// asSomebody returns a folder that everybody may enter, an opener with somebody's
// rights, and the folder as that opener opened it from root's descriptor.
func asSomebody(t *testing.T) (dir string, d *Dir) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root takes another's rights")
	}
	dir, err := os.MkdirTemp("", "beneath") //nolint:usetesting // others may enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o, err := new(Threads).NewOpener(Caller{UID: somebody, GID: somebody, Groups: []uint32{group, 7}}, "somebody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	d, err = adopt(o, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, d
}

// adopt hands over a folder that root opened.
func adopt(o *Opener, path string) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return o.Adopt(fd)
}

// put makes a file with content "x" of that owner and mode.
func put(t *testing.T, path string, uid, gid int, perm os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, perm); err != nil {
		t.Fatal(err)
	}
}

func TestAnOpenerReadsWhatItsCallerMay(t *testing.T) {
	dir, d := asSomebody(t)
	for name, tt := range map[string]struct {
		uid, gid int
		perm     os.FileMode
		may      bool
	}{
		"own":              {somebody, 0, 0o400, true},
		"of the group":     {another, somebody, 0o040, true},
		"of a group":       {another, group, 0o040, true},
		"of everybody":     {0, 0, 0o004, true},
		"root's":           {0, 0, 0o600, false},
		"of root's group":  {0, 0, 0o640, false},
		"another's":        {another, another, 0o660, false},
		"own, unreadable":  {somebody, somebody, 0o044, false},
		"root's, executed": {0, 0, 0o711, false},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, filepath.Join(dir, name), tt.uid, tt.gid, tt.perm)
			_, err := d.ReadFile(name, 10)
			if tt.may && err != nil || !tt.may && !errors.Is(err, fs.ErrPermission) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAFolderThatItsCallerMayNotEnterStaysShut(t *testing.T) {
	dir, d := asSomebody(t)
	shut := filepath.Join(dir, "shut")
	if err := os.Mkdir(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(shut, "f"), 0, 0, 0o644)
	if err := os.Symlink("target", filepath.Join(shut, "l")); err != nil {
		t.Fatal(err)
	}
	if _, err := adopt(d.by, shut); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Adopt = %v, want fs.ErrPermission", err)
	}
	if _, err := d.Elsewhere(shut); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Elsewhere = %v, want fs.ErrPermission", err)
	}
	if _, err := d.ReadFile("shut/f", 10); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("ReadFile = %v, want fs.ErrPermission", err)
	}
	// A folder that was open when it was shut.
	if err := os.Chmod(shut, 0o755); err != nil {
		t.Fatal(err)
	}
	open, err := d.Dir("shut")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := os.Chmod(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Lstat("f"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Lstat = %v, want fs.ErrPermission", err)
	}
	if _, err := open.Readlink("l"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Readlink = %v, want fs.ErrPermission", err)
	}
	if _, err := open.ReadFile("f", 10); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("ReadFile = %v, want fs.ErrPermission", err)
	}
	if err := open.Remove("f"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Remove = %v, want fs.ErrPermission", err)
	}
}

func TestNoCapabilityHelpsAnOpener(t *testing.T) {
	_, d := asSomebody(t)
	proc, err := adopt(d.by, "/proc/1")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	// What CAP_SYS_PTRACE would give.
	if _, err := proc.ReadFile("environ", 1<<20); err == nil {
		t.Error("the environment of another's process was opened")
	}
}

func TestAHardLinkIsJudgedByItsFile(t *testing.T) {
	dir, d := asSomebody(t)
	put(t, filepath.Join(dir, "secret"), 0, 0, 0o600)
	if err := os.Link(filepath.Join(dir, "secret"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadFile("link", 10); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, want fs.ErrPermission", err)
	}
}

func TestAnOpenerDoesNotCrossMounts(t *testing.T) {
	dir, d := asSomebody(t)
	at := filepath.Join(dir, "mounted")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	put(t, filepath.Join(at, "f"), somebody, somebody, 0o644)
	if _, err := d.ReadFile("mounted/f", 10); !errors.Is(err, syscall.EXDEV) {
		t.Errorf("got %v, want EXDEV", err)
	}
}

func TestTheProcessKeepsItsOwnRights(t *testing.T) {
	dir, d := asSomebody(t)
	put(t, filepath.Join(dir, "f"), 0, 0, 0o600)
	for range 100 {
		if _, err := d.ReadFile("f", 10); !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("got %v, want fs.ErrPermission", err)
		}
		if _, err := os.ReadFile(filepath.Join(dir, "f")); err != nil {
			t.Fatal(err)
		}
	}
	d.by.Close()
	if _, err := d.ReadFile("f", 10); err == nil {
		t.Error("it reads although its threads have ended")
	}
}

func TestRootKeepsRootsRights(t *testing.T) {
	dir, _ := asSomebody(t)
	put(t, filepath.Join(dir, "f"), somebody, somebody, 0o600)
	o, err := new(Threads).NewOpener(Caller{}, "root")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	d, err := adopt(o, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if data, err := d.ReadFile("f", 10); err != nil || string(data) != "x" {
		t.Errorf("got %q, %v", data, err)
	}
}
