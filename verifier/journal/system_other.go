//go:build !linux

package journal

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// identity returns the inode number; the birth time is read on Linux only.
func identity(f *os.File) (inode, bornNS string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", "", fmt.Errorf("identify lane state: %w", err)
	}
	return strconv.FormatUint(st.Ino, 10), "0", nil
}

// reserve writes zeros: other systems promise no space otherwise.
func reserve(f *os.File, size int64) error {
	zeros := make([]byte, 64<<10)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}
