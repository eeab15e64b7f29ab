package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncFS flushes the file system that dir is on: one call for many files.
func SyncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
