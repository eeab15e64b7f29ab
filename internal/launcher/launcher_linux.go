package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"striatum/internal/initproto"
)

// The user of every program, and where the lane mounts what the launcher needs.
const (
	checkID = 1000
	base    = "/.striatum"
	// freshDir is where a program's own tmpfs is mounted until its places are.
	freshDir  = base + "/fresh"
	sharedDir = base + "/shared"
)

// heapLimit bounds the launcher's memory, which counts against the sandbox's.
const heapLimit = 96 << 20

// processors bounds the threads that run Go code, whatever the host has: all
// threads of the launcher together stay below ocispec.InitPids.
const processors = 2

// idleThreads is how many operating system threads are made beforehand, so
// that a sandbox at its process limit cannot stop the launcher.
const idleThreads = 8

// launcher is one sandbox's first process.
type launcher struct {
	setup initproto.Setup
	in    *initproto.Conn
	out   *initproto.Conn
	mu    sync.Mutex // serialises out
	null  *os.File
}

// Run serves the lane on in and out until it sends Done, and returns the
// reason if it could not. It must be called by the first process of a sandbox.
func Run(in io.Reader, out io.Writer) error {
	if os.Getpid() != 1 {
		return errors.New("not the first process of a sandbox")
	}
	debug.SetMemoryLimit(heapLimit)
	runtime.GOMAXPROCS(processors)
	if err := isolateSelf(); err != nil {
		return err
	}
	warmThreads(idleThreads)
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open null device: %w", err)
	}
	defer null.Close()
	l := &launcher{
		in:   &initproto.Conn{R: in, Max: initproto.MaxPayload},
		out:  &initproto.Conn{W: out},
		null: null,
	}
	t, payload, err := l.in.ReadFirst()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil // discarded before it was used
		}
		return fmt.Errorf("read setup: %w", err)
	}
	l.out.Nonce = l.in.Nonce
	if err := l.serve(t, payload); err != nil {
		return errors.Join(err, l.send(initproto.TypeFatal, []byte(err.Error())))
	}
	return l.send(initproto.TypeEnd, nil)
}

func (l *launcher) serve(t initproto.Type, payload []byte) error {
	if t != initproto.TypeSetup {
		return fmt.Errorf("%w: type %d where setup belongs", initproto.ErrFrame, t)
	}
	setup, err := initproto.DecodeSetup(payload)
	if err != nil {
		return err
	}
	l.setup = setup
	if err := l.mountShared(); err != nil {
		return err
	}
	for {
		t, payload, err := l.in.Read()
		if err != nil {
			return fmt.Errorf("read program: %w", err)
		}
		switch t { //nolint:exhaustive // what else comes is refused by the default
		case initproto.TypeDone:
			return nil
		case initproto.TypeProgram:
			p, err := initproto.DecodeProgram(payload)
			if err != nil {
				return err
			}
			if err := l.program(p); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: type %d where a program belongs", initproto.ErrFrame, t)
		}
	}
}

func (l *launcher) send(t initproto.Type, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(t, payload)
}

// isolateSelf closes inherited descriptors, and makes the launcher deaf to
// signals, unreadable for its children, and free of inherited settings.
func isolateSelf() error {
	if err := closeInherited(); err != nil {
		return err
	}
	os.Clearenv()
	unix.Umask(0o022)
	// Taken and dropped, not ignored: a program would inherit that.
	signal.Notify(make(chan os.Signal, 1))
	resetIgnored()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become undumpable: %w", err)
	}
	// The root of the sandbox has no set-user-id effect and no devices.
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("restrict root mount: %w", err)
	}
	return nil
}

// resetIgnored gives back their default to signals that whoever started the lane
// ignores and that the runtime leaves alone (32 and 33): a program would inherit
// it. The kernel's struct sigaction is four words here: handler, flags, restorer
// and mask; its zero value is the default action.
func resetIgnored() {
	const sigIgn, words, maxSignal = 1, 4, 64
	for sig := uintptr(1); sig <= maxSignal; sig++ {
		var now, zero [words]uint64
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if errno == 0 && now[0] == sigIgn {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&zero)), 0, 8, 0, 0)
		}
	}
}

// closeInherited closes every descriptor from 3 up except the runtime's own.
func closeInherited() error {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors: %w", err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range entries {
		fd := 0
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil || fd < 3 {
			continue
		}
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(link, "anon_inode:[event") {
			continue
		}
		_ = unix.Close(fd)
	}
	return nil
}

// warmThreads makes n threads and leaves them idle.
func warmThreads(n int) {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}
