package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/initproto"
	"striatum/internal/osthread"
)

// started is a program that runs, or the reason why it does not.
type started struct {
	pid      int
	mountNS  int // descriptor of its mount namespace; -1: none
	at       time.Time
	notFound error
}

// program runs one program from its posture to its end. An error means that
// the sandbox is not to be trusted or used any more.
func (l *launcher) program(p initproto.Program) error {
	var pipes [2]struct{ r, w *os.File }
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make pipe: %w", err)
		}
		defer r.Close()
		defer w.Close()
		pipes[i].r, pipes[i].w = r, w
	}
	st := started{mountNS: -1}
	err := osthread.Do(func() error {
		return l.start(p, [3]int{int(l.null.Fd()), int(pipes[0].w.Fd()), int(pipes[1].w.Fd())}, &st)
	})
	if st.mountNS >= 0 {
		defer unix.Close(st.mountNS)
	}
	if err != nil {
		return err
	}
	if st.notFound != nil {
		if err := l.send(initproto.TypeNotStarted, []byte(st.notFound.Error())); err != nil {
			return err
		}
		return l.send(initproto.TypeProgramEnd, nil)
	}
	if err := l.send(initproto.TypeStarted, nil); err != nil {
		return err
	}
	// The kernel's choice when memory is short is the program, not init.
	_ = os.WriteFile("/proc/"+strconv.Itoa(st.pid)+"/oom_score_adj", []byte("1000"), 0)
	var readers sync.WaitGroup
	for i, t := range []initproto.Type{initproto.TypeStdout, initproto.TypeStderr} {
		pipes[i].w.Close()
		readers.Go(func() { l.forward(t, pipes[i].r) })
	}
	exited, err := reap(st, time.Duration(p.WallClockNS))
	readers.Wait()
	if err != nil {
		return err
	}
	exited.DiskFull = l.diskFull(st.mountNS)
	if err := l.send(initproto.TypeExited, exited.Encode()); err != nil {
		return err
	}
	if err := l.collect(st.mountNS, p); err != nil {
		return err
	}
	return l.send(initproto.TypeProgramEnd, nil)
}

// start runs on the thread whose state the program inherits.
func (l *launcher) start(p initproto.Program, streams [3]int, st *started) error {
	if err := l.mountFresh(); err != nil {
		return err
	}
	fd, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open mount namespace: %w", err)
	}
	st.mountNS = fd
	if err := l.writeFiles(p.Files); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("change folder: %w", err)
	}
	if err := confine(l.setup.Seccomp); err != nil {
		return err
	}
	facets := l.measure()
	if err := l.send(initproto.TypePosture, initproto.EncodeFacets(facets)); err != nil {
		return err
	}
	for _, f := range facets {
		if !f.OK {
			return fmt.Errorf("facet %s is %q, required is %q", f.Name, f.Observed, f.Required)
		}
	}
	st.at = time.Now() //nolint:forbidigo // the launcher measures how long programs run
	pid, err := syscall.ForkExec(p.Path, p.Args, &syscall.ProcAttr{
		Dir: p.Dir, Env: p.Env,
		Files: []uintptr{uintptr(streams[0]), uintptr(streams[1]), uintptr(streams[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		err = fmt.Errorf("start %q: %w", p.Path, err)
		if shortage(err) {
			return err
		}
		st.notFound = err
		return nil
	}
	st.pid = pid
	return nil
}

// shortage says whether a program did not start for want of something that is
// not its own affair.
func shortage(err error) bool {
	for _, e := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// forward sends what comes through r until every writer is gone.
func (l *launcher) forward(t initproto.Type, r io.Reader) {
	buf := make([]byte, initproto.MaxChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 && l.send(t, buf[:n]) != nil {
			return // the lane is gone, and so is this sandbox in a moment
		}
		if err != nil {
			return
		}
	}
}

// reap waits for the program, at most limit, then kills everything else and
// waits until nothing is left.
func reap(st started, limit time.Duration) (initproto.Exited, error) {
	var x initproto.Exited
	var timedOut sync.Once
	var late bool
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			timedOut.Do(func() {
				late = true
				_ = unix.Kill(-1, unix.SIGKILL)
			})
		})
		defer timer.Stop()
	}
	over := false
	for {
		var ws unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &ws, unix.WALL, &ru)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ECHILD) {
			if !over {
				return x, errors.New("wait for program: it is lost")
			}
			return x, nil
		}
		if err != nil {
			return x, fmt.Errorf("wait for program: %w", err)
		}
		x.CPUNS += ru.Utime.Nano() + ru.Stime.Nano()
		x.MaxRSSBytes = max(x.MaxRSSBytes, ru.Maxrss<<10)
		if pid != st.pid {
			if over && ws.Signaled() {
				x.LeftBehind++
			}
			continue
		}
		over = true
		timedOut.Do(func() {}) // from here on the timer has nothing to do
		x.TimedOut = late
		x.DurationNS = time.Since(st.at).Nanoseconds()
		x.ExitCode = int64(ws.ExitStatus())
		if ws.Signaled() {
			x.Signal = int64(ws.Signal())
			x.ExitCode = 128 + x.Signal
		}
		if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return x, fmt.Errorf("kill what is left: %w", err)
		}
	}
}

// diskFull says whether a writable place of the program has no room left.
func (l *launcher) diskFull(mountNS int) bool {
	full := false
	_ = osthread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(mountNS, unix.CLONE_NEWNS); err != nil {
			return err
		}
		for _, m := range l.setup.Mounts {
			var st unix.Statfs_t
			if unix.Statfs(m.Target, &st) == nil && st.Blocks > 0 && (st.Bavail == 0 || st.Ffree == 0) {
				full = true
			}
		}
		return nil
	})
	return full
}
