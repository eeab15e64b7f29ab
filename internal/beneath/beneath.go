// Package beneath opens what lies under a folder that somebody else may write
// to, and nothing that lies outside it.
//
// Every path is relative to an open folder. On Linux each open goes through
// openat2 with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS:
// a symbolic link anywhere on the way, planted before or during the call, makes
// it fail with ErrLink. On other systems os.Root keeps the path inside and a
// check before the open refuses links; the check can be raced there, leaving the
// folder cannot.
//
// Opening never blocks on a FIFO. The caller looks at Stat before it reads.
package beneath

import (
	"errors"
	"fmt"
	"io"
)

// ErrLink means that a symbolic link stands where a folder or file was to be
// opened or made.
var ErrLink = errors.New("a symbolic link is in the way")

// ErrUnsupported means that the kernel has no openat2 (Linux before 5.6, or a
// filter that hides it).
var ErrUnsupported = errors.New("the kernel does not offer openat2 (Linux 5.6 or newer is needed)")

// ErrNotRegular means that something else than a regular file was to be read.
var ErrNotRegular = errors.New("it is no regular file")

// ErrTooLong means that a file has more bytes than the reader takes.
var ErrTooLong = errors.New("it is too long")

func readAll(f *File, rel string, limit int64) ([]byte, error) {
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %q: %w", rel, err)
	case st.Kind != Regular:
		return nil, fmt.Errorf("read %q: %w: %s", rel, ErrNotRegular, st.Kind)
	case st.Size > limit:
		return nil, fmt.Errorf("read %q: %w: %d bytes, at most %d are read", rel, ErrTooLong, st.Size, limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", rel, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %q: %w: at most %d bytes are read", rel, ErrTooLong, limit)
	}
	return data, nil
}

// Kind is the type of a directory entry.
type Kind uint8

// The kinds of entry.
const (
	Unknown Kind = iota // not told by the directory; ask Lstat
	Regular
	Directory
	Symlink
	FIFO
	Socket
	Device
)

// String returns the kind as a person says it.
func (k Kind) String() string {
	switch k {
	case Regular:
		return "regular file"
	case Directory:
		return "directory"
	case Symlink:
		return "symbolic link"
	case FIFO:
		return "FIFO"
	case Socket:
		return "socket"
	case Device:
		return "device"
	case Unknown:
		return "unknown kind of file"
	}
	return "unknown kind of file"
}

// Stat is what the file system says about an entry. Two equal values mean that
// nothing was seen to change. Times are nanoseconds since 1970. Dev, Ino,
// CtimeNs, UID and GID are zero where the system does not tell them.
type Stat struct {
	Kind             Kind
	Perm             uint32 // the low twelve mode bits
	Size             int64
	MtimeNs, CtimeNs int64
	Dev, Ino         uint64
	UID, GID         uint32
}

// Entry is one name in a folder.
type Entry struct {
	Name string
	Kind Kind
}
