//go:build !linux

package durable

import "golang.org/x/sys/unix"

// SyncFS asks the system to write everything to disk.
func SyncFS(string) error {
	return unix.Sync()
}
