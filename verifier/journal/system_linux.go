package journal

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// identity returns what no restored copy of f shares: its inode number and the
// time it was born.
func identity(f *os.File) (inode, bornNS string, err error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", "", fmt.Errorf("identify lane state: %w", err)
	}
	var born int64
	if st.Mask&unix.STATX_BTIME != 0 {
		born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return strconv.FormatUint(st.Ino, 10), strconv.FormatInt(born, 10), nil
}

// reserve makes sure that size bytes can be written to f even on a disk that
// is full by then.
func reserve(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		if err != unix.EINTR {
			return err
		}
	}
}
