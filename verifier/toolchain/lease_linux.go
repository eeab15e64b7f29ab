package toolchain

import (
	"os"

	"golang.org/x/sys/unix"
)

// lease takes a read lease on f, which the kernel grants only while nobody has
// the file open or mapped for writing, and holds writers off until release. It
// is false where leases are not to be had: then nothing may be cached.
func lease(f *os.File) (release func(), ok bool) {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return func() {}, false
	}
	// Closing f gives the lease up as well; a failure here changes nothing.
	return func() { _, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK) }, true
}
