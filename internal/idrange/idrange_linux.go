package idrange

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The ranges: Count of Size ids each, from Base up, all below 2³¹.
const (
	Base  = 0x70000000
	Size  = 65536
	Count = 4096
)

// Range is one range. Check is a user namespace that maps id 0, the owner of
// what a lane keeps, to the range's id of the unprivileged user.
type Range struct {
	Base  uint32
	Check *os.File
	lock  *Lock
}

// Pool is where a lane takes its ranges from.
type Pool struct {
	dir     string
	idle    []string
	checkID uint32
	taken   []span

	mu   sync.Mutex
	free []*Range
	next int
}

// span is ids from first to last, both in use by somebody.
type span struct{ first, last uint64 }

// Open returns a pool with its locks in dir, which all lanes of a host share.
// idle is a command that waits for the end of its standard input; checkID the
// unprivileged user's id inside.
func Open(dir string, idle []string, checkID uint32) (*Pool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make lock folder: %w", err)
	}
	p := &Pool{dir: dir, idle: idle, checkID: checkID}
	for _, f := range []struct {
		path       string
		first, num int // fields of the first id and of the count, or -1
	}{
		{"/etc/passwd", 2, -1}, {"/etc/group", 2, -1}, {"/etc/subuid", 1, 2}, {"/etc/subgid", 1, 2},
	} {
		spans, err := readSpans(f.path, f.first, f.num)
		if err != nil {
			return nil, err
		}
		p.taken = append(p.taken, spans...)
	}
	return p, nil
}

func readSpans(path string, first, num int) ([]span, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ids in use: %w", err)
	}
	defer f.Close()
	var out []span
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) <= max(first, num) {
			continue
		}
		id, err := strconv.ParseUint(fields[first], 10, 32)
		if err != nil {
			continue
		}
		n := uint64(1)
		if num >= 0 {
			if n, err = strconv.ParseUint(fields[num], 10, 32); err != nil || n == 0 {
				continue
			}
		}
		out = append(out, span{id, id + n - 1})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ids in use: %w", err)
	}
	return out, nil
}

// Take returns a range that nobody else has until it is given back.
func (p *Pool) Take() (*Range, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		r := p.free[n-1]
		p.free = p.free[:n-1]
		return r, nil
	}
	for ; p.next < Count; p.next++ {
		base := uint64(Base) + uint64(p.next)*Size
		if p.inUse(base) {
			continue
		}
		lock, err := TryLock(filepath.Join(p.dir, strconv.Itoa(p.next)))
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		p.next++
		check, err := p.userNamespace(uint32(base) + p.checkID)
		if err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		return &Range{Base: uint32(base), Check: check, lock: lock}, nil
	}
	return nil, errors.New("take an id range: all are in use")
}

func (p *Pool) inUse(base uint64) bool {
	for _, s := range p.taken {
		if s.first < base+Size && s.last >= base {
			return true
		}
	}
	return false
}

// Give returns a range to the pool.
func (p *Pool) Give(r *Range) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, r)
}

// Close gives up every range that was given back.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, r := range p.free {
		errs = append(errs, r.Check.Close(), r.lock.Close())
	}
	p.free = nil
	return errors.Join(errs...)
}

// userNamespace makes a user namespace that maps 0 to id and keeps it by a
// descriptor.
func (p *Pool) userNamespace(id uint32) (ns *os.File, err error) {
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(id), Size: 1}}
	cmd := exec.Command(p.idle[0], p.idle[1:]...) //nolint:noctx // ends with its standard input, which this function closes
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: m, GidMappings: m}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	defer func() {
		err = errors.Join(err, in.Close(), cmd.Wait())
	}()
	ns, err = os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/user")
	if err != nil {
		return nil, fmt.Errorf("open user namespace: %w", err)
	}
	return ns, nil
}
