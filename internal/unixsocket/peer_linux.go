package unixsocket

import (
	"errors"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is the most groups that the kernel gives a process.
const maxGroups = 1 << 16

// PeerOf returns who connected.
func PeerOf(c *net.UnixConn) (p Peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		p = Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}
		p.Groups, err = peerGroups(fd)
	})
	if err := errors.Join(cerr, err); err != nil {
		return Peer{}, err
	}
	if p.UID == ^uint32(0) || p.GID == ^uint32(0) { // of a user namespace that has no name for it
		return Peer{}, ErrNoPeer
	}
	return p, nil
}

func peerGroups(fd uintptr) ([]uint32, error) {
	for n := uint32(64); ; {
		groups := make([]uint32, n)
		size := 4 * n
		_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // the package for it has no such call
		switch {
		case e == 0:
			return groups[:size/4], nil
		case e != unix.ERANGE || size/4 <= n || size/4 > maxGroups:
			return nil, e
		}
		n = size / 4
	}
}
