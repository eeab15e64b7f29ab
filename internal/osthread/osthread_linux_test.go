package osthread

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNeverTheFirstThread(t *testing.T) {
	for range 500 {
		if err := Do(func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("ran on the first thread")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatAThreadChangesEndsWithIt(t *testing.T) {
	var before, inside, after int
	before = unix.Umask(0o022)
	if err := Do(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		unix.Umask(0o077)
		inside = unix.Umask(0o077)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	after = unix.Umask(before)
	if inside != 0o077 || after != 0o022 {
		t.Errorf("umask is %o inside and %o after, want 77 and 22", inside, after)
	}
}
