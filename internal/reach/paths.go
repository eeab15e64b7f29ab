package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many links on the way to a file are followed.
const maxLinks = 40

// RootOnly returns why path, without links in it, could be replaced by somebody
// other than root, or nil. A folder that all may write to is good enough where
// it is sticky: what root owns in it stays.
func RootOnly(path string) error {
	for p := path; ; p = filepath.Dir(p) {
		st, err := os.Lstat(p)
		if err != nil {
			return fmt.Errorf("look at %q: %w", p, err)
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok || sys.Uid != 0 {
			return fmt.Errorf("%q is not owned by root", p)
		}
		if st.Mode().Perm()&0o022 != 0 && (!st.IsDir() || st.Mode()&fs.ModeSticky == 0) {
			return fmt.Errorf("%q can be written by others than root", p)
		}
		if p == "/" {
			return nil
		}
	}
}

// step is one file, folder or link on the way to a path.
type step struct {
	path string
	st   fs.FileInfo
}

// way returns everything on the way to an absolute path, with what links on it lead
// to, from / on. What decides where the path leads is all there. Where it does not
// exist the way ends.
func way(path string) ([]step, error) {
	root, err := os.Lstat("/")
	if err != nil {
		return nil, err
	}
	steps := []step{{"/", root}}
	at, rest, links := "/", strings.Split(filepath.Clean(path), "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		st, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return steps, nil
		}
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{next, st})
		if st.Mode().Type() != fs.ModeSymlink {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return nil, fmt.Errorf("look at %q: too many links", path)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(filepath.Clean(target), "/"), rest...)
	}
	return steps, nil
}
