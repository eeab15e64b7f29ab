//go:build !linux

package modules

import "golang.org/x/sys/unix"

// syncAll asks the system to write everything to disk.
func syncAll(string) error {
	return unix.Sync()
}
