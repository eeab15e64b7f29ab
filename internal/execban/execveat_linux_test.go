package execban_test

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func execveat(fd int, path []byte) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(&path[0])), 0, 0, 0, 0)
	return errno
}
