package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/store"
	"striatum/store/sqlite"
	"striatum/store/storetest"
)

// small mounts a file system of its own.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDiskLosesNothingAndIsNamed(t *testing.T) {
	dir := small(t)
	path := filepath.Join(dir, "store.db")
	s := open(t, path)
	rows := int64(len(storetest.Populate(t, s)))
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	add := func() error {
		return s.Update(t.Context(), func(w store.Writer) error {
			blob, err := w.PutBlob(t.Context(), []byte(strings.Repeat("x", 200_000)))
			if err != nil {
				return err
			}
			_, err = w.AddPolicy(t.Context(), store.Policy{RepositoryID: "repo-1", DocumentSHA256: blob, By: "operator"})
			return err
		})
	}
	put := 0
	var err error
	for put < 100 && err == nil {
		err = s.Update(t.Context(), func(w store.Writer) error {
			_, err := w.PutBlob(t.Context(), []byte(strings.Repeat(string(rune('a'+put%26)), 100_000+put)))
			return err
		})
		put++
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("after %d blobs: got %v, want ErrFull", put, err)
	}
	if err := add(); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(dir, "other.db"), clock); !errors.Is(err, store.ErrFull) {
		t.Errorf("a new store on a full disk: got %v, want ErrFull", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := add(); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if got := verified(t, path); got != rows+1 {
		t.Errorf("got %d rows, want the %d of before and one", got, rows)
	}
}

func TestReadOnlyDiskIsNamed(t *testing.T) {
	dir := small(t)
	path := filepath.Join(dir, "store.db")
	s, err := sqlite.Open(t.Context(), path, clock)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Populate(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(dir, "other.db"), clock); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("a new store: got %v, want ErrReadOnly", err)
	}
	if s, err := sqlite.Open(t.Context(), path, clock); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("the store that is there: got %v, want ErrReadOnly", err)
		if err == nil {
			_ = s.Close()
		}
	}
}
