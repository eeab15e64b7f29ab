package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNothingIsOpenedThroughALink(t *testing.T) {
	base := t.TempDir()
	top := filepath.Join(base, "top")
	for _, dir := range []string{"top/d", "out"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"top/d/f", "out/f"} {
		if err := os.WriteFile(filepath.Join(base, file), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for at, to := range map[string]string{"dir": "d", "out": "../out", "file": "d/f", "magic": "/proc/self/root", "abs": filepath.Join(base, "out")} {
		if err := os.Symlink(to, filepath.Join(top, at)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, rel := range []string{"dir", "dir/f", "out", "out/f", "file", "magic", "magic/etc/passwd", "abs/f"} {
		if _, err := d.ReadFile(rel, 10); !errors.Is(err, ErrLink) {
			t.Errorf("ReadFile(%q) = %v, want ErrLink", rel, err)
		}
		if _, err := d.Dir(rel); !errors.Is(err, ErrLink) {
			t.Errorf("Dir(%q) = %v, want ErrLink", rel, err)
		}
		if f, err := d.Create(rel+"x/new", 0o644); err == nil {
			t.Errorf("Create(%q) = %v, want an error", rel, f)
		}
	}
	for _, rel := range []string{"..", "../out/f", "d/../../out/f", "/etc/passwd"} {
		if _, err := d.ReadFile(rel, 1<<20); err == nil {
			t.Errorf("ReadFile(%q) left the folder", rel)
		}
	}
	if data, err := d.ReadFile("d/f", 1); err != nil || string(data) != "x" {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
	if _, err := Open("/proc/self/root"); err == nil {
		t.Error("Open followed a magic link")
	}
}

func TestAFIFONeverBlocks(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "p"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.ReadFile("p", 10); !errors.Is(err, ErrNotRegular) {
		t.Errorf("ReadFile of a FIFO = %v, want ErrNotRegular", err)
	}
}

func TestALeaseTellsOfWriters(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "f")
	if err := os.WriteFile(at, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	take := func() (*File, bool) {
		f, err := d.File("f")
		if err != nil {
			t.Fatal(err)
		}
		return f, f.Lease()
	}
	f, ok := take()
	if !d.LocalFS() || !ok {
		t.Skip("this file system gives no leases")
	}
	if !f.LeaseHeld() {
		t.Error("an undisturbed lease is not held")
	}
	if _, err := unix.Open(at, unix.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("opening for writing = %v, want EAGAIN", err)
	}
	if f.LeaseHeld() {
		t.Error("a writer came, and the lease is called held")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(at, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := take(); ok {
		t.Error("a lease was given beside an open writer")
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(w.Fd()), 0, 4, unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if f, ok := take(); ok {
		t.Error("a lease was given beside a writable mapping")
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	f, ok = take()
	if !ok {
		t.Error("no lease was given when all writers were gone")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCreateIsExclusive(t *testing.T) {
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f, err := d.Create("f", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create("f", 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create of what is there = %v, want fs.ErrExist", err)
	}
}
