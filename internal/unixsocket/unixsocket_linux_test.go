package unixsocket

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"striatum/internal/osthread"
)

// Where ids have no number, all who have none are named alike.
func TestAPeerThatIsNamedAsManyAreIsNone(t *testing.T) {
	here, err := namespace()
	if err != nil || here.uid == 0 || here.gid == 0 {
		t.Errorf("got %+v, %v", here, err)
	}
	some, whole := naming{uid: 65534, gid: 65534}, naming{whole: true, uid: 65534, gid: 65534}
	for _, tt := range []struct {
		in     naming
		p      Peer
		ok     bool
		groups []uint32
	}{
		{whole, Peer{UID: 65534, GID: 65534, Groups: []uint32{65534, 7}}, true, []uint32{65534, 7}},
		{whole, Peer{UID: ^uint32(0), GID: 7}, false, nil},
		{some, Peer{UID: 65534, GID: 7}, false, nil},
		{some, Peer{UID: 7, GID: 65534}, false, nil},
		{some, Peer{UID: 7, GID: 7, Groups: []uint32{8, 65534, 9}}, true, []uint32{8, 9}},
	} {
		if got, err := tt.in.name(tt.p); (err == nil) != tt.ok || !slices.Equal(got.Groups, tt.groups) {
			t.Errorf("%+v of %+v: got %+v, %v", tt.p, tt.in, got, err)
		}
	}
}

func TestThePeerIsWhoConnectedWithAllItsGroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	dir, err := os.MkdirTemp("", "sock") //nolint:usetesting // its path is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	l, err := Listen(t.Context(), filepath.Join(dir, "s"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, n := range []int{0, 1, 64, 65, 1000} {
		groups := make([]uint32, n)
		for i := range groups {
			groups[i] = uint32(5000 + i)
		}
		dialed := make(chan error, 1)
		osthread.Go(func() {
			// Raw, for this thread alone, which ends with the call.
			if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(n), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); e != 0 {
				dialed <- e
				return
			}
			c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", filepath.Join(dir, "s"))
			if err == nil {
				err = c.Close()
			}
			dialed <- err
		})
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := <-dialed; err != nil {
			t.Fatal(err)
		}
		p, err := PeerOf(c.(*net.UnixConn))
		if err != nil || p.UID != 0 || int(p.PID) != os.Getpid() || !slices.Equal(p.Groups, groups) {
			t.Errorf("%d groups: got %+v, %v", n, p, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
