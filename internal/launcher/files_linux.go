package launcher

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"striatum/internal/initproto"
	"striatum/internal/osthread"
)

// beneath keeps an opening inside its folder whatever a program left there.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// actAsCheck makes files of the calling thread be opened and made by check.
func actAsCheck() error {
	for _, nr := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
		_, _, _ = unix.RawSyscall(nr, checkID, 0, 0) // tells no error; asked below
		if now, _, _ := unix.RawSyscall(nr, ^uintptr(0), 0, 0); now != checkID {
			return errors.New("change file system identity: refused")
		}
	}
	return nil
}

// actAsRoot undoes actAsCheck.
func actAsRoot() {
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0) // cannot fail for root and tells no error
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, 0, 0, 0)
}

// writeFiles writes a program's files as check. Their times are those of the
// folder that they are in, whose own times stay.
func (l *launcher) writeFiles(files []initproto.File) error {
	if len(files) == 0 {
		return nil
	}
	if err := actAsCheck(); err != nil {
		return err
	}
	defer actAsRoot()
	for _, f := range files {
		if err := l.writeFile(f); err != nil {
			return fmt.Errorf("write %q: %w", f.Path, err)
		}
	}
	return nil
}

// place returns the target of the innermost layer above p, and p below it.
func (l *launcher) place(p string) (root, rel string, err error) {
	for _, m := range l.setup.Mounts {
		if strings.HasPrefix(p, m.Target+"/") && len(m.Target) > len(root) {
			root = m.Target
		}
	}
	if root == "" || path.Clean(p) != p {
		return "", "", errors.New("not below a writable place")
	}
	return root, p[len(root)+1:], nil
}

func (l *launcher) writeFile(f initproto.File) error {
	root, rel, err := l.place(f.Path)
	if err != nil {
		return err
	}
	rootFD, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(rootFD)
	dirFD, err := openDir(rootFD, path.Dir(rel))
	if err != nil {
		return err
	}
	defer unix.Close(dirFD)
	var dir unix.Stat_t
	if err := unix.Fstat(dirFD, &dir); err != nil {
		return err
	}
	fd, err := unix.Openat2(dirFD, path.Base(rel), &unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Mode:    0o600,
		Resolve: beneath,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for data := f.Data; len(data) > 0; {
		n, err := unix.Write(fd, data)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	if err := unix.Fchmod(fd, f.Mode&0o777); err != nil {
		return err
	}
	times := []unix.Timespec{dir.Mtim, dir.Mtim}
	if err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	return unix.UtimesNanoAt(dirFD, "", []unix.Timespec{dir.Atim, dir.Mtim}, unix.AT_EMPTY_PATH)
}

// openDir opens the folder rel below rootFD, making what is missing.
func openDir(rootFD int, rel string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath}
	fd, err := unix.Openat2(rootFD, rel, how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	up, err := openDir(rootFD, path.Dir(rel))
	if err != nil {
		return -1, err
	}
	defer unix.Close(up)
	if err := unix.Mkdirat(up, path.Base(rel), 0o755); err != nil {
		return -1, err
	}
	return unix.Openat2(up, path.Base(rel), how)
}

// collect sends the files of p as the program left them, from its mount
// namespace, opened by check without following a link. It runs on a thread of
// its own, which ends with it.
func (l *launcher) collect(mountNS int, p initproto.Program) error {
	if len(p.Collect) == 0 {
		return nil
	}
	return osthread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("collect: %w", err)
		}
		if err := unix.Setns(mountNS, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace: %w", err)
		}
		if err := actAsCheck(); err != nil {
			return err
		}
		for i, name := range p.Collect {
			if err := l.collectFile(int64(i), name, p.CollectBytes); err != nil {
				return fmt.Errorf("collect %q: %w", name, err)
			}
		}
		return nil
	})
}

func (l *launcher) collectFile(index int64, name string, limit int64) error {
	last := initproto.Collected{Index: index, Last: true}
	fd, err := openRegular(name)
	if err != nil {
		return l.send(initproto.TypeCollected, last.Encode())
	}
	defer unix.Close(fd)
	buf := make([]byte, initproto.MaxChunk)
	for sent := int64(0); ; {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return l.send(initproto.TypeCollected, last.Encode())
		}
		if n == 0 {
			last.Regular = true
			return l.send(initproto.TypeCollected, last.Encode())
		}
		if sent+int64(n) > limit {
			last.Regular, last.Truncated, last.Data = true, true, buf[:limit-sent]
			return l.send(initproto.TypeCollected, last.Encode())
		}
		part := initproto.Collected{Index: index, Regular: true, Data: buf[:n]}
		if err := l.send(initproto.TypeCollected, part.Encode()); err != nil {
			return err
		}
		sent += int64(n)
	}
}

// openRegular opens a regular file, through no link.
func openRegular(name string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return -1, io.ErrUnexpectedEOF
	}
	return fd, nil
}
