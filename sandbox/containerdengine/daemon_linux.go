package containerdengine

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
	"strconv"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"striatum/internal/mountns"
	"striatum/internal/problem"
)

const (
	// startLimit is how long a containerd may take until it answers.
	startLimit = 30 * time.Second
	// dialLimit is how long a running one may take.
	dialLimit = 10 * time.Second
	// pollInterval is how often a starting containerd is asked.
	pollInterval = 4 * time.Millisecond
	// logTail is how much of its log is shown when it does not start.
	logTail = 2 << 10
)

// daemon is the containerd in use.
type daemon struct {
	client *containerd.Client
	mounts *mountns.Thread // in its mount namespace
	// dir is a folder in that namespace alone, or on the host where the
	// containerd is the host's.
	dir string
	// reaper is the process above a private one, nil otherwise; ended is
	// closed when it is gone.
	reaper *os.Process
	ended  chan struct{}
	// exe is the program of the host's containerd, empty for a private one.
	exe string
	// madeShimDir says that shimDir was not there before.
	madeShimDir bool
}

// shimDir is where every shim puts its socket, whatever it is told. A private
// containerd has a tmpfs of its own there.
const shimDir = "/run/containerd"

func makeShimDir() (made bool, err error) {
	err = os.Mkdir(shimDir, 0o711)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("make folder for shims: %w", err)
	}
	return true, nil
}

// daemonConfig is the configuration of a private containerd: nothing but what
// runs containers. Names that one version does not know do no harm.
const daemonConfig = `version = 2
root = %q
state = %q
oom_score = 0
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.monitor.v1.cgroups", "io.containerd.monitor.task.v1.cgroups",
  "io.containerd.monitor.container.v1.restart", "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.overlayfs",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = %q
[debug]
  level = "error"
`

// startDaemon starts a private containerd whose state is in dir, a folder of
// the engine's alone.
func startDaemon(ctx context.Context, dir, initPath, containerdPath, shimPath string) (_ *daemon, err error) {
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o711); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	socket := filepath.Join(dir, "containerd.sock")
	config := filepath.Join(dir, "containerd.toml")
	text := fmt.Sprintf(daemonConfig, filepath.Join(own, "root"), filepath.Join(own, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure containerd: %w", err)
	}
	logPath := filepath.Join(dir, "containerd.log")
	logFile, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open containerd's log: %w", err)
	}
	defer logFile.Close()

	made, err := makeShimDir()
	if err != nil {
		return nil, err
	}
	//nolint:noctx // it outlives the call; the reaper and Close end it
	cmd := exec.Command(initPath, "daemon", own+":"+shimDir, containerdPath, "--config", config)
	cmd.Env = []string{"PATH=" + filepath.Dir(shimPath) + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL, // sent when the mount thread's process, or that thread, ends
		Setsid:     true,
	}
	d := &daemon{dir: own, ended: make(chan struct{}), madeShimDir: made}
	d.mounts, err = mountns.Start(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, fmt.Errorf("start containerd: %w", err)
		}
		d.reaper = cmd.Process
		go func() {
			_ = cmd.Wait()
			close(d.ended)
		}()
		return cmd.Process.Pid, nil
	})
	if err != nil {
		if d.reaper != nil {
			_ = d.reaper.Kill()
			<-d.ended
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, pidFile), []byte(processName(d.reaper.Pid)), 0o600); err != nil {
		return nil, fmt.Errorf("remember containerd: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("it took too long"))
	defer cancel()
	if err := d.await(ctx, socket); err != nil {
		return nil, problem.Wrap(problem.Missing, fmt.Errorf("%w%s", err, tail(logPath)), "start containerd", "run `striatum doctor`")
	}
	if err := d.dial(ctx, socket, startLimit); err != nil {
		return nil, problem.Wrap(problem.Missing, err, "talk to containerd", "run `striatum doctor`")
	}
	return d, nil
}

// await waits until somebody listens on socket.
func (d *daemon) await(ctx context.Context, socket string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		var dialer net.Dialer
		if c, err := dialer.DialContext(ctx, "unix", socket); err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.ended:
			return errors.New("it ended at once")
		case <-tick.C:
		}
	}
}

func (d *daemon) dial(ctx context.Context, socket string, limit time.Duration) error {
	client, err := containerd.New(socket, containerd.WithTimeout(limit))
	if err != nil {
		return fmt.Errorf("dial %q: %w", socket, err)
	}
	if _, err := client.Version(ctx); err != nil {
		return errors.Join(fmt.Errorf("ask %q for its version: %w", socket, err), client.Close())
	}
	d.client = client
	return nil
}

// joinDaemon uses the containerd that listens on socket, with the engine's
// folder dir.
func joinDaemon(ctx context.Context, dir, socket string) (*daemon, error) {
	d := &daemon{dir: filepath.Join(dir, "own")}
	if err := os.Mkdir(d.dir, 0o711); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	pid, err := peer(ctx, socket)
	if err == nil {
		err = d.dial(ctx, socket, dialLimit)
	}
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, "talk to containerd", "start it, or leave its socket out of the configuration to have a private one")
	}
	if d.exe, err = os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err != nil {
		return nil, errors.Join(fmt.Errorf("look at containerd: %w", err), d.client.Close())
	}
	if d.mounts, err = mountns.Start(func() (int, error) { return pid, nil }); err != nil {
		return nil, errors.Join(err, d.client.Close())
	}
	return d, nil
}

// peer returns the process that listens on socket.
func peer(ctx context.Context, socket string) (int, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("dial %q: %w", socket, err)
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("look at %q: %w", socket, err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("look at %q: %w", socket, err)
	}
	return int(cred.Pid), nil
}

// stop ends a private containerd with everything in it, and leaves the host's.
func (d *daemon) stop() error {
	var err error
	if d.client != nil {
		err = d.client.Close()
	}
	d.mounts.Stop()
	if d.reaper != nil {
		if kerr := d.reaper.Kill(); kerr != nil && !errors.Is(kerr, os.ErrProcessDone) {
			err = errors.Join(err, kerr)
		}
		<-d.ended
	}
	if d.madeShimDir {
		// Another lane, or the host's containerd, may need it by now.
		if rerr := unix.Rmdir(shimDir); rerr != nil && !errors.Is(rerr, unix.ENOTEMPTY) && !errors.Is(rerr, unix.EBUSY) && !errors.Is(rerr, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("remove folder for shims: %w", rerr))
		}
	}
	return err
}

// processName names a process so that it is never taken for a later one with
// the same id: its id and the time when it started.
func processName(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	const startTime = 20 // fields after the end of the name: field 22 of the line
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(f) < startTime {
		return ""
	}
	return strconv.Itoa(pid) + " " + f[startTime-1]
}

func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > logTail {
		_, _ = f.Seek(-logTail, io.SeekEnd)
	}
	data, _ := io.ReadAll(io.LimitReader(f, logTail))
	if len(data) == 0 {
		return ""
	}
	return "\n" + strings.TrimSpace(string(data))
}
