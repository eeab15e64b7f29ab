package beneath

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// File is an open file. It is used by one goroutine at a time.
type File struct {
	fd     int
	far    *Opener // by whom it is read; nil: at once
	leased bool
}

// Read reads up to len(p) bytes and returns io.EOF at the end.
func (f *File) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.far.call(func() (int, error) { return unix.Read(f.fd, p) }, nil)
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// ReadAt reads len(p) bytes from off, fewer only with an error.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := f.far.call(func() (int, error) { return unix.Pread(f.fd, p[done:], off+int64(done)) }, nil)
		if err != nil {
			return done, fmt.Errorf("read: %w", err)
		}
		if n == 0 {
			return done, io.EOF
		}
		done += n
	}
	return done, nil
}

// Write writes all of p.
func (f *File) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := f.far.call(func() (int, error) { return unix.Write(f.fd, p[done:]) }, nil)
		if err != nil {
			return done, fmt.Errorf("write: %w", err)
		}
		done += n
	}
	return done, nil
}

// Reset moves f to its beginning; with truncate it is emptied too.
func (f *File) Reset(truncate bool) error {
	if truncate {
		if err := f.far.does(func() error { return unix.Ftruncate(f.fd, 0) }); err != nil {
			return fmt.Errorf("truncate: %w", err)
		}
	}
	if _, err := unix.Seek(f.fd, 0, io.SeekStart); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	return nil
}

// Stat describes f.
func (f *File) Stat() (Stat, error) { return fstat(f.far, f.fd) }

// Chown gives f to uid and gid.
func (f *File) Chown(uid, gid uint32) error { return chown(f.far, f.fd, uid, gid) }

// Chmod sets the permission bits of f.
func (f *File) Chmod(perm uint32) error { return chmod(f.far, f.fd, perm) }

// Sync flushes f to disk.
func (f *File) Sync() error { return fsync(f.far, f.fd) }

// Close closes f and releases its lease.
func (f *File) Close() error { return f.far.close(f.fd) }

// Lease takes a read lease. It succeeds only if nobody has the file open for
// writing; a shared writable mapping keeps such an open file alive, so it counts.
// While the lease stands, an open for writing or a truncation waits until f is
// closed, and LeaseHeld says that somebody asked.
func (f *File) Lease() bool {
	if f.far != nil {
		return false
	}
	_, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETLEASE, unix.F_RDLCK)
	f.leased = err == nil
	return f.leased
}

// LeaseHeld says whether the lease still stands undisturbed.
func (f *File) LeaseHeld() bool {
	if !f.leased {
		return false
	}
	kind, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETLEASE, 0)
	return err == nil && kind == unix.F_RDLCK
}

func fstat(far *Opener, fd int) (Stat, error) {
	var st unix.Stat_t
	if err := far.does(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return Stat{}, fmt.Errorf("stat: %w", err)
	}
	return fromUnix(&st), nil
}

func fromUnix(st *unix.Stat_t) Stat {
	out := Stat{
		Perm: st.Mode & 0o7777, Size: st.Size,
		MtimeNs: st.Mtim.Nano(), CtimeNs: st.Ctim.Nano(),
		Dev: uint64(st.Dev), //nolint:unconvert // 32 bits on some machines
		Ino: st.Ino, UID: st.Uid, GID: st.Gid,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		out.Kind = Regular
	case unix.S_IFDIR:
		out.Kind = Directory
	case unix.S_IFLNK:
		out.Kind = Symlink
	case unix.S_IFIFO:
		out.Kind = FIFO
	case unix.S_IFSOCK:
		out.Kind = Socket
	default:
		out.Kind = Device
	}
	return out
}

func chown(far *Opener, fd int, uid, gid uint32) error {
	if err := far.does(func() error { return unix.Fchown(fd, int(uid), int(gid)) }); err != nil {
		return fmt.Errorf("change owner: %w", err)
	}
	return nil
}

func chmod(far *Opener, fd int, perm uint32) error {
	if err := far.does(func() error { return unix.Fchmod(fd, perm) }); err != nil {
		return fmt.Errorf("change mode: %w", err)
	}
	return nil
}

func fsync(far *Opener, fd int) error {
	if err := far.does(func() error { return unix.Fsync(fd) }); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// LocalFS says whether d lies on a file system whose change times the kernel
// keeps itself, so that no user's program can make them up (FUSE) and no other
// host can change a file behind them (network file systems).
func (d *Dir) LocalFS() bool {
	if d.by != nil {
		return d.far == nil
	}
	var st unix.Statfs_t
	return unix.Fstatfs(d.fd, &st) == nil && local(&st)
}

func local(st *unix.Statfs_t) bool {
	switch int64(st.Type) { //nolint:unconvert // 32 bits on some machines
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}
