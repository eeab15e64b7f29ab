package beneath

import "errors"

// Caller is whose rights count: a user with a group and further groups.
type Caller struct {
	UID, GID uint32
	Groups   []uint32
}

// ErrHeld means that a file system did not answer in time. Nothing more is asked of
// it by that Opener.
var ErrHeld = errors.New("its file system does not answer in time")

// ErrFUSE means that a file system is one that a program answers for.
var ErrFUSE = errors.New("it lies on a file system that a program answers for (FUSE), which a lane that serves others does not read")

// ErrThreads means that no Opener may be made now.
var ErrThreads = errors.New("too many threads wait for file systems that do not answer")
