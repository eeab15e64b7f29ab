package beneath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"striatum/internal/osthread"
)

// openers is how many threads an Opener has.
const openers = 4

// Opener opens folders and files with a caller's rights, which the kernel judges at
// each open, on threads that took the caller's identity for file access and have no
// capability. A folder that it opened, and every folder opened from that, keeps to
// it, and does not cross into another mounted file system. A caller that is root
// keeps root's rights.
type Opener struct{ team *osthread.Team }

// NewOpener starts the threads. It needs root, and fails where a thread kept more
// than the caller has. The caller must Close it.
func NewOpener(who Caller) (*Opener, error) {
	team, err := osthread.NewTeam(openers, who.become)
	if err != nil {
		return nil, fmt.Errorf("take the rights of uid %d: %w", who.UID, err)
	}
	return &Opener{team: team}, nil
}

// Close ends the threads; what was opened can still be read.
func (o *Opener) Close() { o.team.Close() }

// Adopt opens the folder that fd, which it closes, is a descriptor of: anew and with
// the caller's rights, whatever those are that fd itself gives.
func (o *Opener) Adopt(fd int) (*Dir, error) {
	handed := &Dir{fd: fd, by: o}
	d, err := handed.Dir(".")
	if cerr := handed.Close(); cerr != nil && err == nil {
		return nil, errors.Join(cerr, d.Close())
	}
	return d, err
}

// Path returns where d lies, as this process sees it now.
func (d *Dir) Path() (string, error) { return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", d.fd)) }

var errKept = errors.New("the thread kept other rights than the caller's")

// become gives the calling thread, and no other, the caller's identity. The calls
// are raw: those of the libraries change all threads of the process.
func (who Caller) become() error {
	groups := slices.Sorted(slices.Values(who.Groups))
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0]) //nolint:gosec // a raw call, for this thread alone
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	for _, call := range []struct {
		number uintptr
		id     uint32
	}{{unix.SYS_SETFSGID, who.GID}, {unix.SYS_SETFSUID, who.UID}} {
		_, _, _ = unix.RawSyscall(call.number, uintptr(call.id), 0, 0)       // returns the one before
		now, _, _ := unix.RawSyscall(call.number, uintptr(^uint32(0)), 0, 0) // changes nothing
		if uint32(now) != call.id {
			return errKept
		}
	}
	got := make([]uint32, len(groups)+1)
	n, _, e := unix.RawSyscall(unix.SYS_GETGROUPS, uintptr(len(got)), uintptr(unsafe.Pointer(&got[0])), 0) //nolint:gosec // a raw call, for this thread alone
	if e != 0 || int(n) != len(groups) || !slices.Equal(slices.Sorted(slices.Values(got[:n])), groups) {
		return errKept
	}
	if who.UID == 0 {
		return nil
	}
	return dropCapabilities()
}

// dropCapabilities takes every capability from the calling thread: with one of them
// it could read what the caller cannot.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none, left [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if err := unix.Capget(&header, &left[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if left != none {
		return errKept
	}
	return nil
}
