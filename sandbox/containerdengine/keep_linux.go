package containerdengine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"striatum/internal/durable"
)

// maxKeepDepth bounds nested folders of what is kept.
const maxKeepDepth = 128

// keepTree copies a folder to dst, which must not exist: regular files and
// folders, root's, read-only, synced. Anything else in it, also a link, is an
// error. dst appears only when it is complete.
func keepTree(from *os.File, dst string) (err error) {
	tmp := filepath.Join(filepath.Dir(dst), durable.TempPrefix+filepath.Base(dst))
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	if err := keepDir(from, tmp, 0); err != nil {
		return err
	}
	if err := durable.SyncFS(tmp); err != nil {
		return fmt.Errorf("sync %q: %w", tmp, err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dst, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("put %q in place: %w", dst, err)
	}
	return durable.SyncDir(filepath.Dir(dst))
}

func keepDir(from *os.File, to string, depth int) error {
	if depth > maxKeepDepth {
		return fmt.Errorf("folders are nested deeper than %d", maxKeepDepth)
	}
	for {
		entries, err := from.ReadDir(256)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := keepEntry(from, e, filepath.Join(to, e.Name()), depth); err != nil {
				return err
			}
		}
	}
	return os.Chmod(to, 0o755)
}

// openIn opens what is in dir itself under a name, without following a link.
func openIn(dir *os.File, name string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", strconv.Quote(name), err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func keepEntry(from *os.File, e os.DirEntry, to string, depth int) (err error) {
	in, err := openIn(from, e.Name(), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	st, err := in.Stat()
	switch {
	case err != nil:
		return err
	case st.IsDir():
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		return keepDir(in, to, depth+1)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a folder", strconv.Quote(e.Name()))
	}
	mode := os.FileMode(0o444)
	if st.Mode()&0o100 != 0 {
		mode = 0o555
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		// Build caches order their content by these times.
		err = setTimes(out, st)
	}
	return errors.Join(err, out.Chmod(mode), out.Close())
}

func setTimes(f *os.File, st os.FileInfo) error {
	t := unix.NsecToTimespec(st.ModTime().UnixNano())
	return unix.UtimesNanoAt(int(f.Fd()), "", []unix.Timespec{t, t}, unix.AT_EMPTY_PATH)
}
