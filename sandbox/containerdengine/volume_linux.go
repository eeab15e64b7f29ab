package containerdengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"striatum/internal/mountns"
	"striatum/sandbox"
)

// volume is a tmpfs in containerd's mount namespace. What is in it belongs to
// the user check of the sandbox that fills it, and from the first reading to root.
type volume struct {
	e      *Engine
	dir    string
	sealed func() error
	once   sync.Once
	err    error
}

// NewVolume makes a volume in memory that counts against the memory limit of
// the sandbox that fills it.
func (e *Engine) NewVolume(_ context.Context, bytes int64) (sandbox.Volume, error) {
	if bytes <= 0 {
		return nil, errors.New("make volume: its size must be positive")
	}
	name, err := e.name()
	if err != nil {
		return nil, err
	}
	v := &volume{e: e, dir: filepath.Join(e.d.dir, "volumes", name)}
	v.sealed = sync.OnceValue(func() error {
		return v.open(func(top *os.File) error { return disown(top, 0) })
	})
	if err := e.d.mounts.Do(func() error { return mountns.Tmpfs(v.dir, bytes) }); err != nil {
		return nil, fmt.Errorf("make volume: %w", err)
	}
	return v, nil
}

// fill gives the empty volume to the user check of the sandbox whose ids begin
// at base.
func (v *volume) fill(base uint32) error {
	id := int(base) + sandbox.CheckUID
	if err := v.e.d.mounts.Do(func() error { return os.Chown(v.dir, id, id) }); err != nil {
		return fmt.Errorf("give volume away: %w", err)
	}
	return nil
}

// seal gives all that is in the volume to root, whom no sandbox knows: each one
// that reads it sees the same, whichever ids it has.
func (v *volume) seal() error {
	if err := v.sealed(); err != nil {
		return fmt.Errorf("seal volume: %w", err)
	}
	return nil
}

// open calls f with the volume's folder, outside its mount namespace.
func (v *volume) open(f func(top *os.File) error) error {
	fd := -1
	if err := v.e.d.mounts.Do(func() (err error) {
		fd, err = unix.Open(v.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		return err
	}); err != nil {
		return err
	}
	top := os.NewFile(uintptr(fd), v.dir)
	return errors.Join(f(top), top.Close())
}

// disown gives dir and what is in it to root.
func disown(dir *os.File, depth int) error {
	if depth > maxKeepDepth {
		return fmt.Errorf("folders are nested deeper than %d", maxKeepDepth)
	}
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			sub, err := openIn(dir, e.Name(), unix.O_DIRECTORY)
			if err == nil {
				err = errors.Join(disown(sub, depth+1), sub.Close())
			}
			if err != nil {
				return err
			}
		} else if err := unix.Fchownat(int(dir.Fd()), e.Name(), 0, 0, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("change owner of %s: %w", strconv.Quote(e.Name()), err)
		}
	}
	return dir.Chown(0, 0)
}

// Keep copies the content to dst and drops the volume.
func (v *volume) Keep(dst string) error {
	if err := v.open(func(top *os.File) error { return keepTree(top, dst) }); err != nil {
		return fmt.Errorf("keep volume: %w", err)
	}
	return v.Remove()
}

// Remove drops the volume. A second call does nothing.
func (v *volume) Remove() error {
	v.once.Do(func() {
		v.err = v.e.d.mounts.Do(func() error { return mountns.Unmount(v.dir) })
	})
	return v.err
}

func rmdirParent(path string) error {
	if err := unix.Rmdir(filepath.Dir(path)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove mount folder: %w", err)
	}
	return nil
}
