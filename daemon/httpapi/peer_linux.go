package httpapi

import (
	"net"

	"golang.org/x/sys/unix"
)

// readPeer returns who connected, as of then.
func readPeer(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, credErr
	}
	if cred.Uid == ^uint32(0) { // of a user namespace that has no name for it
		return peer{}, errNoPeer
	}
	return peer{known: true, uid: cred.Uid, pid: cred.Pid}, nil
}
