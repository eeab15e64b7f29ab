package launcher

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"striatum/internal/initproto"
)

// inodesPerMiB bounds the entries of one tmpfs per megabyte of its size; the
// kernel spends about a kilobyte on each outside the size.
const inodesPerMiB = 1024

// mountTmpfs mounts an empty tmpfs of at most size bytes at dir.
func mountTmpfs(dir string, size int64) error {
	inodes := max(size>>20, 1) * inodesPerMiB
	data := "mode=0711,size=" + strconv.FormatInt(size, 10) + ",nr_inodes=" + strconv.FormatInt(inodes, 10)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}

// mountShared mounts what all programs share.
func (l *launcher) mountShared() error {
	if l.setup.SharedBytes == 0 {
		return nil
	}
	if err := mountTmpfs(sharedDir, l.setup.SharedBytes); err != nil {
		return err
	}
	return l.mountPlaces(sharedDir, true)
}

// mountFresh mounts what a program has for itself, in the calling thread's
// own mount namespace, and hides the launcher's mount points there. System V
// shared memory, which outlives whoever made it, is the program's own as well.
func (l *launcher) mountFresh() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("make mount and IPC namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if l.setup.FreshBytes > 0 {
		if err := mountTmpfs(freshDir, l.setup.FreshBytes); err != nil {
			return err
		}
		if err := l.mountPlaces(freshDir, false); err != nil {
			return err
		}
		if err := unix.Unmount(freshDir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("hide tmpfs: %w", err)
		}
	}
	for _, dir := range l.setup.Hide {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("hide %q: %w", dir, err)
		}
	}
	return nil
}

// mountPlaces mounts the writable places that are shared, or those that are
// not, with their content in the tmpfs at dir.
func (l *launcher) mountPlaces(dir string, shared bool) error {
	for i, m := range l.setup.Mounts {
		if m.Shared != shared {
			continue
		}
		up := dir + "/u" + strconv.Itoa(i)
		mode := placeMode(m)
		if err := makeOwned(up, mode); err != nil {
			return err
		}
		var err error
		switch m.Kind {
		case initproto.Scratch:
			err = unix.Mount(up, m.Target, "", unix.MS_BIND, "")
		case initproto.Layer:
			if l.setup.CopyLayers {
				if err := copyTree(m.Source, up); err != nil {
					return fmt.Errorf("copy what belongs at %q (it counts against the disk limit): %w", m.Target, err)
				}
				if err := sameTime(up, m.Source); err != nil {
					return err
				}
				err = unix.Mount(up, m.Target, "", unix.MS_BIND, "")
				break
			}
			work := dir + "/w" + strconv.Itoa(i)
			if err := makeOwned(work, 0o700); err != nil {
				return err
			}
			if err := sameTime(up, m.Source); err != nil {
				return err
			}
			data := "lowerdir=" + m.Source + ",upperdir=" + up + ",workdir=" + work + ",userxattr"
			err = unix.Mount("overlay", m.Target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, data)
		}
		if err != nil {
			return fmt.Errorf("mount %q: %w", m.Target, err)
		}
	}
	return nil
}

// placeMode gives temporary folders their usual mode.
func placeMode(m initproto.Mount) uint32 {
	if m.Kind == initproto.Scratch && (strings.HasSuffix(m.Target, "/tmp") || m.Target == "/dev/shm") {
		return 0o1777
	}
	return 0o755
}

func makeOwned(path string, mode uint32) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("make place: %w", err)
	}
	if err := unix.Chmod(path, mode); err != nil {
		return fmt.Errorf("make place: %w", err)
	}
	if err := unix.Chown(path, checkID, checkID); err != nil {
		return fmt.Errorf("make place: %w", err)
	}
	return nil
}

// sameTime gives a folder the times of another, so that the top of a layer does not
// tell when it was made.
func sameTime(dir, of string) error {
	var st unix.Stat_t
	if err := unix.Stat(of, &st); err != nil {
		return fmt.Errorf("read times of %q: %w", of, err)
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dir, []unix.Timespec{st.Mtim, st.Mtim}, 0); err != nil {
		return fmt.Errorf("set times of %q: %w", dir, err)
	}
	return nil
}
