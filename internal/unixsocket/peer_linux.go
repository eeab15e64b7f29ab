package unixsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxGroups is the most groups that the kernel gives a process.
	maxGroups = 1 << 16
	// overflow is what the kernel names an id that has no number, unless it is told
	// otherwise.
	overflow = 65534
)

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
	ns, err := namespace()
	if err != nil {
		return Peer{}, err
	}
	return ns.name(p)
}

// naming is how the kernel names ids to this process: one that its user namespace
// has no number for is named as the overflow one, as all others are.
type naming struct {
	whole    bool // every id has a number here
	uid, gid uint32
}

// name leaves out the groups that the kernel does not name. The error is ErrNoPeer.
func (n naming) name(p Peer) (Peer, error) {
	const none = ^uint32(0)
	if p.UID == none || p.GID == none || !n.whole && (p.UID == n.uid || p.GID == n.gid) {
		return Peer{}, ErrNoPeer
	}
	if !n.whole {
		p.Groups = slices.DeleteFunc(p.Groups, func(gid uint32) bool { return gid == n.gid })
	}
	return p, nil
}

// namespace reads how ids are named. Where all have a number nothing more is asked.
func namespace() (n naming, err error) {
	n = naming{whole: true, uid: overflow, gid: overflow}
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		data, err := os.ReadFile(file)
		if err != nil {
			return n, fmt.Errorf("read how ids are named: %w", err)
		}
		n.whole = n.whole && slices.Equal(strings.Fields(string(data)), []string{"0", "0", "4294967295"})
	}
	if n.whole {
		return n, nil
	}
	for file, id := range map[string]*uint32{"/proc/sys/kernel/overflowuid": &n.uid, "/proc/sys/kernel/overflowgid": &n.gid} {
		data, err := os.ReadFile(file)
		if err != nil {
			return n, fmt.Errorf("read how ids are named: %w", err)
		}
		number, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
		if err != nil {
			return n, fmt.Errorf("read how ids are named: %w", err)
		}
		*id = uint32(number)
	}
	return n, nil
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
