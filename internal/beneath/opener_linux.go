package beneath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"striatum/internal/osthread"
)

// The bounds of openers. A call to a file system waits for whoever answers for it,
// which may be the caller's own program.
const (
	// openers is how many threads an Opener has.
	openers = 4
	// MaxThreads is how many those of all Openers are, with those that are held.
	MaxThreads = 160
	// CallLimit is how long one call of a file system may take.
	CallLimit = 15 * time.Second
	// CallsLimit is how long all calls of one Opener may take together.
	CallsLimit = 10 * time.Minute
)

// Threads counts the threads of Openers, so that file systems that do not answer hold
// few of them. Its zero value is ready.
type Threads struct {
	mu   sync.Mutex
	all  int
	held map[string]int // by owner, Openers that left threads behind
}

// Opener opens folders and files with a caller's rights, which the kernel judges at
// each open, on threads that took the caller's identity for file access and have no
// capability. A folder that it opened, and every folder opened from that, keeps to
// it, and does not cross into another mounted file system. A caller that is root
// keeps root's rights.
//
// Every call ends: where a file system does not answer, with ErrHeld, and its thread
// is left behind until it does. On file systems other than those that the kernel keeps
// itself (LocalFS) reading is such a call, too. FUSE is refused.
type Opener struct {
	threads *Threads
	owner   string
	team    *osthread.Team
	limit   time.Duration
	spent   atomic.Int64

	mu      sync.Mutex
	left    int   // threads, and one that closes orphans
	lost    error // why nothing more is asked
	orphans []int // descriptors whose closing nobody waits for
	closing bool
	closed  bool
}

// NewOpener starts threads for a caller, for whom owner answers: the error wraps
// ErrThreads while threads are held for that owner, or too many for others. It needs
// root, and fails where a thread kept more than the caller has. The caller must Close
// it.
func (t *Threads) NewOpener(who Caller, owner string) (*Opener, error) {
	if err := t.reserve(owner); err != nil {
		return nil, err
	}
	o := &Opener{threads: t, owner: owner, limit: CallLimit, left: openers + 1}
	var err error
	if o.team, err = osthread.NewTeam(openers, who.become, o.release); err != nil {
		o.release()
		return nil, fmt.Errorf("take the rights of uid %d: %w", who.UID, err)
	}
	return o, nil
}

func (t *Threads) reserve(owner string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.held[owner] > 0:
		return fmt.Errorf("%w: those of %s", ErrThreads, owner)
	case t.all+openers+1 > MaxThreads:
		return fmt.Errorf("%w: there are %d, and at most %d may be", ErrThreads, t.all, MaxThreads)
	}
	t.all += openers + 1
	return nil
}

// release notes that one of the threads has ended.
func (o *Opener) release() {
	o.mu.Lock()
	o.left--
	last := o.left == 0 && o.lost != nil
	o.mu.Unlock()
	t := o.threads
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if !last {
		return
	}
	if t.held[o.owner]--; t.held[o.owner] == 0 {
		delete(t.held, o.owner)
	}
}

// give notes that nothing more is to be asked, because of cause, and returns why.
func (o *Opener) give(cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost != nil {
		return o.lost
	}
	o.lost = cause
	o.threads.mu.Lock()
	if o.threads.held == nil {
		o.threads.held = map[string]int{}
	}
	o.threads.held[o.owner]++
	o.threads.mu.Unlock()
	o.team.Leave()
	return cause
}

func (o *Opener) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

// call makes a system call with the rights of o, within its bounds. Where the call
// returns a descriptor, discard closes one that comes too late; else it is nil.
func (o *Opener) call(f func() (int, error), discard func(int)) (int, error) {
	if o == nil {
		return retry(f)
	}
	if err := o.why(); err != nil {
		return -1, err
	}
	var (
		mu           sync.Mutex // guards what follows
		got          int
		failed       error
		ended, given bool
	)
	began := time.Now() //nolint:forbidigo // how long it takes, by the system's clock
	err := o.team.Do(o.limit, func() {
		n, err := retry(f)
		mu.Lock()
		defer mu.Unlock()
		if given && err == nil && discard != nil {
			discard(n)
		}
		if !given {
			got, failed, ended = n, err, true
		}
	})
	took := time.Since(began)
	mu.Lock()
	defer mu.Unlock()
	given = !ended
	switch {
	case given && errors.Is(err, osthread.ErrHeld):
		return -1, o.give(fmt.Errorf("%w: one call took more than %s", ErrHeld, o.limit))
	case given:
		if why := o.why(); why != nil {
			return -1, why
		}
		return -1, err
	case o.spent.Add(int64(took)) > int64(CallsLimit):
		if failed == nil && discard != nil {
			discard(got)
		}
		return -1, o.give(fmt.Errorf("%w: all calls took more than %s", ErrHeld, CallsLimit))
	}
	return got, failed
}

// opens is call for one that returns a descriptor.
func (o *Opener) opens(f func() (int, error)) (int, error) {
	return o.call(f, func(fd int) { _ = unix.Close(fd) }) // it was only opened
}

// does is call for one that returns nothing.
func (o *Opener) does(f func() error) error {
	_, err := o.call(func() (int, error) { return 0, f() }, nil)
	return err
}

// close closes a descriptor, which may wait for the file system.
func (o *Opener) close(fd int) error {
	if o == nil {
		return unix.Close(fd)
	}
	if o.why() == nil {
		var begun atomic.Bool
		_, err := o.call(func() (int, error) {
			if begun.Swap(true) {
				return 0, nil // a close that was interrupted is done
			}
			return 0, unix.Close(fd)
		}, nil)
		if begun.Load() || err == nil {
			return err
		}
	}
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return unix.Close(fd)
	}
	defer o.mu.Unlock()
	if o.orphans = append(o.orphans, fd); !o.closing {
		o.closing = true
		go o.closeOrphans()
	}
	return nil
}

// closeOrphans closes, one after the other, what nobody waits for.
func (o *Opener) closeOrphans() {
	for {
		o.mu.Lock()
		if len(o.orphans) == 0 {
			o.closing = false
			last := o.closed
			o.mu.Unlock()
			if last {
				o.release()
			}
			return
		}
		fd := o.orphans[0]
		o.orphans = o.orphans[1:]
		o.mu.Unlock()
		_ = unix.Close(fd) // it was only read
	}
}

// Close ends the threads, and with them all reading. What was opened is to be closed
// before.
func (o *Opener) Close() {
	if o.why() != nil {
		o.team.Leave()
	} else {
		o.team.Close()
	}
	o.mu.Lock()
	done := !o.closing && !o.closed
	o.closed = true
	o.mu.Unlock()
	if done {
		o.release()
	}
}

// Adopt opens the folder that fd, which it closes, is a descriptor of: anew and with
// the caller's rights, whatever those are that fd itself gives.
func (o *Opener) Adopt(fd int) (*Dir, error) {
	handed := &Dir{fd: fd, by: o, far: o}
	err := noFUSE(fd)
	var d *Dir
	if err == nil {
		if d, err = handed.Dir("."); err == nil {
			d, err = d.place()
		}
	}
	if cerr := handed.Close(); cerr != nil && err == nil {
		return nil, errors.Join(cerr, d.Close())
	}
	return d, err
}

// place finds out whether reading d may wait for somebody, and closes it where it is
// not to be read.
func (d *Dir) place() (*Dir, error) {
	if d.by == nil {
		return d, nil
	}
	d.far = d.by
	var st unix.Statfs_t
	err := d.far.does(func() error { return unix.Fstatfs(d.fd, &st) })
	if err == nil && st.Type == unix.FUSE_SUPER_MAGIC {
		err = ErrFUSE
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if local(&st) {
		d.far = nil
	}
	return d, nil
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
