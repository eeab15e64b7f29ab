package containerdengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"striatum/internal/mountns"
	"striatum/sandbox"
)

// volume is a tmpfs in containerd's mount namespace. Files in it belong to id
// 0, whichever sandbox wrote them.
type volume struct {
	e    *Engine
	dir  string
	once sync.Once
	err  error
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
	if err := e.d.mounts.Do(func() error { return mountns.Tmpfs(v.dir, bytes) }); err != nil {
		return nil, fmt.Errorf("make volume: %w", err)
	}
	return v, nil
}

// Keep copies the content to dst and drops the volume.
func (v *volume) Keep(dst string) error {
	fd := -1
	if err := v.e.d.mounts.Do(func() (err error) {
		fd, err = unix.Open(v.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		return err
	}); err != nil {
		return fmt.Errorf("keep volume: %w", err)
	}
	from := os.NewFile(uintptr(fd), v.dir)
	err := keepTree(from, dst)
	if cerr := from.Close(); err == nil {
		err = cerr
	}
	if err != nil {
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
