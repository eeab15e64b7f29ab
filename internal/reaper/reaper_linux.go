package reaper

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run mounts /proc of its pid namespace and a private tmpfs at each of the
// folders in args[0], separated by colons, then runs the command args[1:] until
// it ends, reaping every orphan. SIGTERM is passed on to the command.
func Run(args []string) error {
	if os.Getpid() != 1 || len(args) < 2 {
		return errors.New("usage: striatum-init daemon DIR[:DIR…] COMMAND [ARGUMENT…], as the first process of a pid namespace")
	}
	if err := prepare(filepath.SplitList(args[0])); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	pid, err := syscall.ForkExec(args[1], args[1:], &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %q: %w", args[1], err)
	}
	go func() {
		for range signals {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
	}()
	return reap(pid)
}

// prepare makes the namespace's own mounts.
func prepare(dirs []string) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	for _, dir := range dirs {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0711"); err != nil {
			return fmt.Errorf("mount private folder %q: %w", dir, err)
		}
	}
	return nil
}

// reap waits for children until main ends.
func reap(main int) error {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		if pid != main {
			continue
		}
		if ws.Signaled() {
			return fmt.Errorf("command ended by signal %d", ws.Signal())
		}
		if ws.ExitStatus() != 0 {
			return fmt.Errorf("command exited with status %d", ws.ExitStatus())
		}
		return nil
	}
}
