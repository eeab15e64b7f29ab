package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyTree copies what is in the folder from, which nobody changes meanwhile,
// into the folder to, which nobody else sees: files, folders and links, each
// check's, with its mode and time. Anything else in it is an error.
func copyTree(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := copyEntry(from+"/"+e.Name(), to+"/"+e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func copyEntry(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return fmt.Errorf("look at %q: %w", from, err)
	}
	link := false
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		err = copyFile(from, to)
	case unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); err == nil {
			err = copyTree(from, to)
		}
	case unix.S_IFLNK:
		link = true
		var text string
		if text, err = os.Readlink(from); err == nil {
			err = os.Symlink(text, to)
		}
	default:
		err = fmt.Errorf("%q is neither file, folder nor link", from)
	}
	if err != nil {
		return err
	}
	if err := os.Lchown(to, checkID, checkID); err != nil {
		return err
	}
	if !link {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return fmt.Errorf("set mode of %q: %w", to, err)
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
