//go:build !linux

package beneath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// Dir is an open folder.
type Dir struct{ root *os.Root }

// Open opens the folder at path; links in path itself are followed.
func Open(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open folder: %w", err)
	}
	return &Dir{root: root}, nil
}

// Elsewhere opens the folder at path as Open does.
func (d *Dir) Elsewhere(path string) (*Dir, error) { return Open(path) }

// Opener is not offered here.
type Opener struct{}

// Threads is not needed here.
type Threads struct{}

// NewOpener is not offered here.
func (t *Threads) NewOpener(Caller, string) (*Opener, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (o *Opener) Close() {}

// Adopt is not offered here.
func (o *Opener) Adopt(int) (*Dir, error) { return nil, errors.ErrUnsupported }

// Path is not told here.
func (d *Dir) Path() (string, error) { return "", errors.ErrUnsupported }

// Close closes d.
func (d *Dir) Close() error { return d.root.Close() }

// noLinks refuses a link in any component of rel that exists.
func (d *Dir) noLinks(rel string) error {
	at := ""
	for part := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, part)
		info, err := d.root.Lstat(at)
		if err != nil {
			return nil
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("open %q: %w", rel, ErrLink)
		}
	}
	return nil
}

// Dir opens the folder rel, "." for another handle of d itself.
func (d *Dir) Dir(rel string) (*Dir, error) {
	if err := d.noLinks(rel); err != nil {
		return nil, err
	}
	root, err := d.root.OpenRoot(rel)
	if err != nil {
		return nil, fmt.Errorf("open folder: %w", err)
	}
	return &Dir{root: root}, nil
}

// File opens the regular file or folder rel for reading.
func (d *Dir) File(rel string) (*File, error) {
	if err := d.noLinks(rel); err != nil {
		return nil, err
	}
	info, err := d.root.Lstat(rel)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("open %q: it is no regular file", rel)
	}
	f, err := d.root.Open(rel)
	if err != nil {
		return nil, err
	}
	return &File{File: f}, nil
}

// Create makes the new file rel for writing; an existing entry is an error.
func (d *Dir) Create(rel string, perm uint32) (*File, error) {
	if err := d.noLinks(path.Dir(rel)); err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(perm))
	if err != nil {
		return nil, err
	}
	return &File{File: f}, nil
}

// Stat describes d itself.
func (d *Dir) Stat() (Stat, error) { return d.Lstat(".") }

// Lstat describes the entry name without following it.
func (d *Dir) Lstat(name string) (Stat, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return Stat{}, err
	}
	return fromInfo(info), nil
}

// Readlink returns the target of the link name.
func (d *Dir) Readlink(name string) (string, error) { return d.root.Readlink(name) }

// Entries lists d; more is asked before every few hundred names.
func (d *Dir) Entries(more func(n int) error) (out []Entry, err error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		if err := more(len(out)); err != nil {
			return nil, err
		}
		list, err := f.ReadDir(512)
		for _, e := range list {
			out = append(out, Entry{Name: e.Name(), Kind: modeKind(e.Type())})
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Mkdir makes the folder name.
func (d *Dir) Mkdir(name string, perm uint32) error { return d.root.Mkdir(name, fs.FileMode(perm)) }

// Symlink makes the link name.
func (d *Dir) Symlink(target, name string) error { return d.root.Symlink(target, name) }

// Link is not offered here; the caller copies.
func (d *Dir) Link(*Dir, string) error { return errors.ErrUnsupported }

// Rename moves the entry from over the entry to, both directly in d.
func (d *Dir) Rename(from, to string) error { return d.root.Rename(from, to) }

// Remove removes the entry name.
func (d *Dir) Remove(name string) error { return d.root.Remove(name) }

// SetMtime sets the times of the entry name; a link keeps its own.
func (d *Dir) SetMtime(name string, sec int64) error {
	info, err := d.root.Lstat(name)
	if err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	return d.root.Chtimes(name, time.Unix(sec, 0), time.Unix(sec, 0))
}

// Chown does nothing: Stat tells no owner here, so there is none to give to.
func (d *Dir) Chown(uint32, uint32) error { return nil }

// Chmod sets the permission bits of d itself.
func (d *Dir) Chmod(perm uint32) error { return d.root.Chmod(".", fs.FileMode(perm)) }

// Sync flushes d's entries to disk.
func (d *Dir) Sync() (err error) {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}

// LocalFS is false: nothing is known about change times here.
func (d *Dir) LocalFS() bool { return false }

// File is an open file.
type File struct{ *os.File }

// Reset moves f to its beginning; with truncate it is emptied too.
func (f *File) Reset(truncate bool) error {
	if truncate {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// Stat describes f.
func (f *File) Stat() (Stat, error) {
	info, err := f.File.Stat()
	if err != nil {
		return Stat{}, err
	}
	return fromInfo(info), nil
}

// Chown does nothing: Stat tells no owner here, so there is none to give to.
func (f *File) Chown(uint32, uint32) error { return nil }

// Chmod sets the permission bits of f.
func (f *File) Chmod(perm uint32) error { return f.File.Chmod(fs.FileMode(perm)) }

// Lease is not offered here.
func (f *File) Lease() bool { return false }

// LeaseHeld is false.
func (f *File) LeaseHeld() bool { return false }

func fromInfo(info fs.FileInfo) Stat {
	return Stat{
		Kind: modeKind(info.Mode()), Perm: uint32(info.Mode().Perm()),
		Size: info.Size(), MtimeNs: info.ModTime().UnixNano(),
	}
}

func modeKind(m fs.FileMode) Kind {
	switch {
	case m.IsRegular():
		return Regular
	case m.IsDir():
		return Directory
	case m&fs.ModeSymlink != 0:
		return Symlink
	case m&fs.ModeNamedPipe != 0:
		return FIFO
	case m&fs.ModeSocket != 0:
		return Socket
	}
	return Device
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
