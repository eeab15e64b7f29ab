package idrange

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Lock is a locked file that is removed when the lock is given up.
type Lock struct{ f *os.File }

// TryLock locks the file at path, which it makes (0600) if needed, and returns
// nil where somebody else has it. The lock ends with the process.
func TryLock(path string) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, f.Close()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), f.Close())
		}
		// The holder before may have removed it between opening and locking.
		opened, err1 := f.Stat()
		there, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(opened, there) {
			return &Lock{f}, nil
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
	}
}

// Close removes the file and gives the lock up.
func (l *Lock) Close() error {
	return errors.Join(os.Remove(l.f.Name()), l.f.Close())
}
