package home_test

import (
	"crypto/rand"
	"io"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/internal/home"
	"striatum/internal/problem"
)

func TestHomeOnAReadOnlyDiskIsAClearProblem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	there := filepath.Join(dir, "there")
	if err := useHome(t.Context(), there, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, _, err := home.Open(t.Context(), filepath.Join(dir, "new"), rand.Reader)
	wantKind(t, err, problem.Missing, "make it writable")
	wantKind(t, useHome(t.Context(), there, io.Discard), problem.Missing, "writable")
}
