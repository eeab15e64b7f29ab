package containerdengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"striatum/internal/cgroup"
)

const (
	// pidFile names the reaper of a private containerd.
	pidFile = "reaper.pid"
	// goneLimit is how long killed processes may take to be gone.
	goneLimit = 10 * time.Second
)

// sweep removes what a killed engine of the same home left: processes that
// still die, cgroups, mounts and the folder. Everything has the home's id in
// its name; nothing else is touched.
func (e *Engine) sweep() error {
	if err := killReaper(filepath.Join(e.dir, pidFile)); err != nil {
		return err
	}
	if err := e.removeGroups(); err != nil {
		return err
	}
	return removeTree(e.dir)
}

// group returns the cgroup of a sandbox, or of all with an empty name.
func (e *Engine) group(name string) cgroup.Group {
	return cgroup.Group{H: e.cgroups, Path: filepath.Join("/striatum-"+e.id, name)}
}

// removeGroups kills what is in the engine's cgroups and removes them.
func (e *Engine) removeGroups() error {
	all := e.group("")
	return retry(func() error {
		if err := all.Kill(); err != nil {
			return err
		}
		return all.Remove()
	})
}

// retry repeats f until it succeeds, at most goneLimit long.
func retry(f func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	limit := time.NewTimer(goneLimit)
	defer limit.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return err
		}
	}
}

// killReaper kills the process that the file names, if it still is that one,
// and with it all that is in its pid namespace.
func killReaper(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var pid int
	name := string(data)
	if _, err := fmt.Sscan(name, &pid); err != nil || pid <= 1 {
		return nil // it was killed before it wrote the name
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep: open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if processName(pid) != name {
		return nil // another process has the id now
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("sweep: kill process %d: %w", pid, err)
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(goneLimit.Milliseconds()))
	if err != nil || n != 1 {
		return fmt.Errorf("sweep: process %d does not end: %w", pid, errors.Join(err, os.ErrDeadlineExceeded))
	}
	return nil
}

// removeTree removes a folder of the engine after whatever is mounted in it.
func removeTree(dir string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var targets []string
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			targets = append(targets, f[4])
		}
	}
	for _, t := range slices.Backward(targets) {
		if err := unix.Unmount(t, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("sweep: unmount %q: %w", t, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// removeNamespace removes the engine's empty namespace from the host's
// containerd.
func (e *Engine) removeNamespace() error {
	if e.d.reaper != nil {
		return nil
	}
	err := retry(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
		defer cancel()
		err := e.d.client.NamespaceService().Delete(ctx, e.namespace())
		if errdefs.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove containerd's namespace: %w", err)
	}
	return nil
}

// sweepHost removes the engine's own containers from the host's containerd,
// and its own mounts from that one's mount namespace.
func (e *Engine) sweepHost(ctx context.Context) error {
	ctx = e.context(ctx)
	containers, err := e.d.client.Containers(ctx)
	if err != nil {
		return fmt.Errorf("sweep: list containers: %w", err)
	}
	for _, c := range containers {
		task, err := c.Task(ctx, nil)
		if err == nil {
			_, err = task.Delete(ctx, containerd.WithProcessKill)
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("sweep: remove task %s: %w", c.ID(), err)
		}
		if err := c.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("sweep: remove container %s: %w", c.ID(), err)
		}
	}
	return e.d.mounts.Do(func() error {
		info, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		for line := range strings.Lines(string(info)) {
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.d.dir+"/") {
				_ = unix.Unmount(f[4], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
		}
		return nil
	})
}
