package mountns

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"striatum/internal/crew"
	"striatum/internal/osthread"
)

// Thread is an operating system thread in another mount namespace.
type Thread struct {
	work chan func()
	done chan struct{}
}

// Start runs first, which may start a process that is to be killed when the
// thread ends, and enters the mount namespace of the process whose id first
// returns.
func Start(first func() (pid int, err error)) (*Thread, error) {
	t := &Thread{work: make(chan func()), done: make(chan struct{})}
	entered := make(chan error, 1)
	osthread.Go(func() {
		defer close(t.done)
		pid, err := first()
		if err == nil {
			err = enter(pid)
		}
		entered <- err
		if err != nil {
			return
		}
		for f := range t.work {
			f()
		}
	})
	if err := <-entered; err != nil {
		<-t.done
		return nil, err
	}
	return t, nil
}

func enter(pid int) error {
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	if err != nil {
		return fmt.Errorf("open mount namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave shared folders: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mount namespace: %w", err)
	}
	return nil
}

// Do runs f on the thread, one call at a time. It must not be called after
// Stop. A panic of f is the caller's.
func (t *Thread) Do(f func() error) error {
	done := make(chan *crew.Fault, 1)
	var err error
	t.work <- func() { done <- crew.Catch(func() { err = f() }) }
	if fault := <-done; fault != nil {
		panic(fault)
	}
	return err
}

// Stop ends the thread, and with it what first tied to its life.
func (t *Thread) Stop() {
	close(t.work)
	<-t.done
}

// Bind is one bind mount. IDMap is a descriptor of a user namespace through
// which owners are translated, or negative.
type Bind struct {
	Source, Target string
	ReadOnly       bool
	IDMap          int
}

// Mount makes the folder b.Target and binds b.Source there, without set-user-id
// and devices and without what is mounted below it.
func (b Bind) Mount() (err error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, b.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("open %q for mounting: %w", b.Source, err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if b.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if b.IDMap >= 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(b.IDMap)
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("map the owners of %q: %w", b.Source, err)
	}
	if err := os.MkdirAll(b.Target, 0o711); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, b.Target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %q: %w", b.Target, err)
	}
	return nil
}

// Tmpfs makes the folder target and mounts an empty tmpfs of at most size
// bytes there.
func Tmpfs(target string, size int64) error {
	if err := os.MkdirAll(target, 0o711); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	data := "mode=0755,size=" + strconv.FormatInt(size, 10) + ",nr_inodes=" + strconv.FormatInt(max(size>>10, 1024), 10)
	if err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}

// Unmount detaches what is mounted at target and removes the folder.
func Unmount(target string) error {
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %q: %w", target, err)
	}
	if err := unix.Rmdir(target); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

// Try runs f on a thread with a mount namespace of its own that ends with it.
func Try(f func() error) error {
	return osthread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		return f()
	})
}
