package modules

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncAll writes everything that was changed below dir's file system to disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
