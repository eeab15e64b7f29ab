package unixsocket

import "errors"

// Peer is who is at the other end of a connection, as the kernel says, as of when it
// was made. Groups are the further groups of the process.
type Peer struct {
	UID, GID uint32
	PID      int32
	Groups   []uint32
}

// ErrNoPeer means that the kernel names nobody.
var ErrNoPeer = errors.New("the kernel names no peer")
