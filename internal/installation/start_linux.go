package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"striatum/internal/problem"
)

// maxLog is what is kept of the daemon's log, to say why it did not start.
const maxLog = 8 << 10

// Systemd reports whether systemd runs as the host's first process.
func Systemd() bool {
	st, err := os.Lstat("/run/systemd/system")
	return err == nil && st.IsDir()
}

// Start sees that the daemon answers. One that answers already is left as it is;
// systemd starts and enables it where it runs; elsewhere it is started for the moment,
// and stop ends it. It ends with this process, too. Errors are problems.
func (s *Setup) Start(ctx context.Context) (stop func() error, err error) {
	stop = func() error { return nil }
	if answers(ctx) {
		return stop, nil
	}
	if Systemd() {
		for _, args := range [][]string{{"daemon-reload"}, {"enable", "--now", "striatumd.service"}} {
			if err := run("systemctl", args...); err != nil {
				return nil, err
			}
		}
		return stop, await(ctx, nil, nil)
	}
	uid, gid, err := ids(User)
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "")
	}
	group, _, err := gidOf(Group)
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "")
	}
	step := folder(filepath.Dir(Socket), User, 0o755, "")
	there, err := step.There()
	if err == nil && !there {
		err = step.Make()
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.program("striatumd"), "serve", "--config", ConfigPath) //nolint:noctx // stop ends it, in good order
	log := &tail{}
	cmd.Env, cmd.Dir, cmd.Stderr = []string{}, "/", log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{uint32(gid), group}},
		Pdeathsig:  syscall.SIGTERM, Setpgid: true,
	}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // which must live as long as the daemon: it dies with its thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			err = cmd.Wait()
		}
		ended <- err
	}()
	if err := <-started; err != nil {
		return nil, problem.Wrap(problem.Missing, err, "start "+s.program("striatumd"), "")
	}
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case err := <-ended:
			ended <- err
			if !there {
				err = errors.Join(err, os.Remove(filepath.Dir(Socket)))
			}
			return err
		case <-time.After(stopLimit):
			return errors.Join(problem.New(problem.Indeterminate, "stop striatumd", "it did not end", ""), cmd.Process.Kill())
		}
	}
	if err := await(ctx, ended, log); err != nil {
		return nil, errors.Join(err, ignoreExit(stop()))
	}
	return stop, nil
}

// ignoreExit drops that a process ended with an error, which has been said.
func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// await waits until the daemon answers, or has ended.
func await(ctx context.Context, ended chan error, log *tail) error {
	ctx, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !answers(ctx) {
		select {
		case err := <-ended:
			ended <- err
			return problem.New(problem.Indeterminate, "start striatumd", fmt.Sprintf("it ended: %v: %s", err, log.String()), "mend that, and run the command again")
		case <-ctx.Done():
			return problem.New(problem.Indeterminate, "start striatumd", "it does not answer on "+Socket, "journalctl --unit striatumd says why")
		case <-tick.C:
		}
	}
	return nil
}

func answers(ctx context.Context) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", Socket)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// StartLane makes systemd start and enable the lane.
func (s *Setup) StartLane() error {
	return run("systemctl", "enable", "--now", "striatum-lane.service")
}

// tail keeps the first bytes of a log.
type tail struct{ b bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	if left := maxLog - t.b.Len(); left > 0 {
		_, _ = io.Copy(&t.b, bytes.NewReader(p[:min(left, len(p))])) // a buffer takes all
	}
	return len(p), nil
}

func (t *tail) String() string {
	if t == nil {
		return ""
	}
	return t.b.String()
}
