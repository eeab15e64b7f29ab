package beneath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Dir is an open folder. Methods may be called from several goroutines, except
// Entries and Close.
type Dir struct {
	fd  int
	by  *Opener // nil: opened with this process's own rights
	far *Opener // by whom it is read; nil: at once
}

// Open opens the folder at path. Links in path itself are followed, except the
// magic ones of /proc: it is the caller's word, not the worktree's.
func Open(path string) (*Dir, error) { return open(path, nil) }

// Elsewhere opens the folder at path as Open does, with the rights that d was opened
// with.
func (d *Dir) Elsewhere(path string) (*Dir, error) {
	if d.by != nil {
		if err := noFUSEAt(path); err != nil {
			return nil, fmt.Errorf("open folder %q: %w", path, err)
		}
	}
	return open(path, d.by)
}

func open(path string, by *Opener) (*Dir, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	fd, err := by.opens(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, &how) })
	if errors.Is(err, unix.ENOSYS) {
		err = ErrUnsupported
	}
	if err != nil {
		return nil, fmt.Errorf("open folder %q: %w", path, err)
	}
	d, err := (&Dir{fd: fd, by: by}).place()
	if err != nil {
		return nil, fmt.Errorf("open folder %q: %w", path, err)
	}
	return d, nil
}

// Close closes d.
func (d *Dir) Close() error { return d.far.close(d.fd) }

// Dir opens the folder rel, "." for another handle of d itself.
func (d *Dir) Dir(rel string) (*Dir, error) {
	fd, err := d.openat2(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{fd: fd, by: d.by, far: d.far}, nil
}

// File opens rel for reading, whatever kind of file it is.
func (d *Dir) File(rel string) (*File, error) {
	fd, err := d.openat2(rel, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return &File{fd: fd, far: d.far}, nil
}

// Create makes the new file rel for writing; an existing entry is an error.
// perm is subject to the umask.
func (d *Dir) Create(rel string, perm uint32) (*File, error) {
	fd, err := d.openat2(rel, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, perm)
	if err != nil {
		return nil, err
	}
	return &File{fd: fd, far: d.far}, nil
}

func (d *Dir) openat2(rel string, flags int, perm uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(perm), Resolve: resolve}
	if d.by != nil {
		how.Resolve |= unix.RESOLVE_NO_XDEV
	}
	fd, err := d.by.opens(func() (int, error) { return unix.Openat2(d.fd, rel, &how) })
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ELOOP):
		return -1, fmt.Errorf("open %q: %w", rel, ErrLink)
	case errors.Is(err, unix.ENOSYS):
		return -1, fmt.Errorf("open %q: %w", rel, ErrUnsupported)
	case errors.Is(err, unix.ENOTDIR) && d.linkInTheWay(rel):
		return -1, fmt.Errorf("open %q: %w", rel, ErrLink)
	}
	return -1, fmt.Errorf("open %q: %w", rel, err)
}

// linkInTheWay tells a link from another non-directory, for the message only:
// O_DIRECTORY with O_NOFOLLOW reports both as ENOTDIR.
func (d *Dir) linkInTheWay(rel string) bool {
	if strings.Contains(rel, "/") {
		return false
	}
	st, err := d.Lstat(rel)
	return err == nil && st.Kind == Symlink
}

// Stat describes d itself.
func (d *Dir) Stat() (Stat, error) { return fstat(d.far, d.fd) }

// Lstat describes the entry name, which has no slash, without following it.
func (d *Dir) Lstat(name string) (Stat, error) {
	if strings.Contains(name, "/") {
		return Stat{}, fmt.Errorf("stat %q: %w", name, unix.EINVAL)
	}
	var st unix.Stat_t
	if err := d.by.does(func() error { return unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return Stat{}, fmt.Errorf("stat %q: %w", name, err)
	}
	return fromUnix(&st), nil
}

// Readlink returns the target of the link name, which has no slash. A target
// longer than Linux can store (4095 bytes) cannot exist.
func (d *Dir) Readlink(name string) (string, error) {
	if strings.Contains(name, "/") {
		return "", fmt.Errorf("read link %q: %w", name, unix.EINVAL)
	}
	buf := make([]byte, unix.PathMax)
	n, err := d.by.call(func() (int, error) { return unix.Readlinkat(d.fd, name, buf) }, nil)
	if err != nil {
		return "", fmt.Errorf("read link %q: %w", name, err)
	}
	return string(buf[:n]), nil
}

// Entries lists d from its beginning, without "." and "..", in the order of the
// file system. more is asked before every few hundred names with the number seen
// so far; its error ends the listing.
func (d *Dir) Entries(more func(n int) error) ([]Entry, error) {
	if err := d.far.does(func() error { _, err := unix.Seek(d.fd, 0, io.SeekStart); return err }); err != nil {
		return nil, fmt.Errorf("list folder: %w", err)
	}
	var out []Entry
	buf := make([]byte, 32<<10)
	for {
		if err := more(len(out)); err != nil {
			return nil, err
		}
		n, err := d.far.call(func() (int, error) { return unix.Getdents(d.fd, buf) }, nil)
		if err != nil {
			return nil, fmt.Errorf("list folder: %w", err)
		}
		if n == 0 {
			return out, nil
		}
		out = appendDirents(out, buf[:n])
	}
}

// appendDirents parses linux_dirent64: ino 8, off 8, reclen 2, type 1, name.
func appendDirents(out []Entry, buf []byte) []Entry {
	const nameAt = 19
	for len(buf) >= nameAt {
		reclen := int(binary.NativeEndian.Uint16(buf[16:]))
		if reclen < nameAt || reclen > len(buf) {
			return out
		}
		name := buf[nameAt:reclen]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		if s := string(name); s != "." && s != ".." {
			out = append(out, Entry{Name: s, Kind: direntKind(buf[18])})
		}
		buf = buf[reclen:]
	}
	return out
}

func direntKind(t byte) Kind {
	switch t {
	case unix.DT_REG:
		return Regular
	case unix.DT_DIR:
		return Directory
	case unix.DT_LNK:
		return Symlink
	case unix.DT_FIFO:
		return FIFO
	case unix.DT_SOCK:
		return Socket
	case unix.DT_CHR, unix.DT_BLK:
		return Device
	}
	return Unknown
}

// Mkdir makes the folder name, which has no slash.
func (d *Dir) Mkdir(name string, perm uint32) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("make folder %q: %w", name, unix.EINVAL)
	}
	if err := d.by.does(func() error { return unix.Mkdirat(d.fd, name, perm) }); err != nil {
		return fmt.Errorf("make folder %q: %w", name, err)
	}
	return nil
}

// Symlink makes the link name, which has no slash.
func (d *Dir) Symlink(target, name string) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("make link %q: %w", name, unix.EINVAL)
	}
	if err := d.by.does(func() error { return unix.Symlinkat(target, d.fd, name) }); err != nil {
		return fmt.Errorf("make link %q: %w", name, err)
	}
	return nil
}

// Link gives the file name of the folder from the name in d too. Neither has a
// slash.
func (d *Dir) Link(from *Dir, name string) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("link %q: %w", name, unix.EINVAL)
	}
	if err := d.by.does(func() error { return unix.Linkat(from.fd, name, d.fd, name, 0) }); err != nil {
		return fmt.Errorf("link %q: %w", name, err)
	}
	return nil
}

// Rename moves the entry from over the entry to, both directly in d. A link at
// to is replaced, not followed.
func (d *Dir) Rename(from, to string) error {
	if strings.Contains(from+to, "/") {
		return fmt.Errorf("rename %q: %w", from, unix.EINVAL)
	}
	if err := d.by.does(func() error { return unix.Renameat(d.fd, from, d.fd, to) }); err != nil {
		return fmt.Errorf("rename %q to %q: %w", from, to, err)
	}
	return nil
}

// Remove removes the entry name, which is no folder and has no slash.
func (d *Dir) Remove(name string) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("remove %q: %w", name, unix.EINVAL)
	}
	if err := d.by.does(func() error { return unix.Unlinkat(d.fd, name, 0) }); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

// SetMtime sets access and modification time of the entry name, "." for d
// itself, without following a link.
func (d *Dir) SetMtime(name string, sec int64) error {
	t := unix.NsecToTimespec(sec * 1e9)
	ts := []unix.Timespec{t, t}
	if err := d.by.does(func() error { return unix.UtimesNanoAt(d.fd, name, ts, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return fmt.Errorf("set time of %q: %w", name, err)
	}
	return nil
}

// Chown gives d itself to uid and gid.
func (d *Dir) Chown(uid, gid uint32) error { return chown(d.far, d.fd, uid, gid) }

// Chmod sets the permission bits of d itself.
func (d *Dir) Chmod(perm uint32) error { return chmod(d.far, d.fd, perm) }

// Sync flushes d's entries to disk.
func (d *Dir) Sync() error { return fsync(d.far, d.fd) }

func retry(f func() (int, error)) (int, error) {
	for tries := 0; ; tries++ {
		n, err := f()
		if (errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN)) && tries < 64 {
			continue
		}
		return n, err
	}
}

// ReadFile returns the content of the regular file rel of at most limit bytes.
func (d *Dir) ReadFile(rel string, limit int64) (data []byte, err error) {
	f, err := d.File(rel)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return readAll(f, rel, limit)
}
