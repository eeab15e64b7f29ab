package journal

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/receipt"
)

func TestAFullDiskCannotKeepAFailureOrAReceiptFromBeingStored(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := open(t, filepath.Join(dir, "journal"), testConfig())
	e := begin(t, s, "a")
	fill(t, filepath.Join(dir, "ballast"))

	d := e.Draft
	d.Executions = []receipt.Execution{{Judgement: receipt.Fail, ExitCode: 1, StartedAt: "2026-01-02T03:04:05Z"}}
	if err := e.Note(d); err != nil {
		t.Errorf("note: %v", err)
	}
	fill(t, filepath.Join(dir, "more"))
	sealed := finish(t, e)
	if _, envelope, err := s.j.Load(sealed); err != nil || len(envelope) == 0 {
		t.Errorf("%d bytes, error %v", len(envelope), err)
	}
	fill(t, filepath.Join(dir, "yet-more"))
	if _, err := s.Begin(draft("a"), "local"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("began on a full disk: %v", err)
	}
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	if _, err := rand.Read(block); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}
