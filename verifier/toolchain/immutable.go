package toolchain

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Immutable reports whether only root can change what path names: the file and
// every folder above it, also along links, is owned by root and writable by
// nobody else. observed names the first part that is not, or says what was
// seen ("owned by root, written only by root").
func Immutable(path string) (ok bool, observed string) {
	if !filepath.IsAbs(path) {
		return false, fmt.Sprintf("%q is not an absolute path", path)
	}
	for range 40 { // as many links as the kernel follows
		next, why := immutableStep(filepath.Clean(path))
		if why != "" {
			return false, why
		}
		if next == "" {
			return true, "owned by root, written only by root"
		}
		path = next
	}
	return false, fmt.Sprintf("%q has too many links", path)
}

// immutableStep checks the components of a clean path from the root on. next
// is what the path is when its first link is replaced, or empty at the end.
func immutableStep(path string) (next, why string) {
	for end := 0; end <= len(path); end++ {
		if end != 0 && end != len(path) && path[end] != '/' {
			continue
		}
		part := path[:max(end, 1)]
		var st unix.Stat_t
		if err := unix.Lstat(part, &st); err != nil {
			return "", fmt.Sprintf("%q: %v", part, err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			if st.Uid != 0 {
				return "", fmt.Sprintf("%q is owned by uid %d", part, st.Uid)
			}
			buf := make([]byte, unix.PathMax)
			n, err := unix.Readlink(part, buf)
			if err != nil {
				return "", fmt.Sprintf("%q: %v", part, err)
			}
			target := string(buf[:n])
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(part), target)
			}
			return filepath.Join(target, path[end:]), ""
		}
		if why := mutable(part, st.Uid, uint32(st.Mode)); why != "" { //nolint:unconvert // 16 bits on darwin
			return "", why
		}
	}
	return "", ""
}

// mutable says why others than root may write to a file or folder, or "".
func mutable(path string, uid, mode uint32) string {
	switch {
	case uid != 0:
		return fmt.Sprintf("%q is owned by uid %d", path, uid)
	case mode&0o022 != 0:
		return fmt.Sprintf("%q can be written by others than root (mode %04o)", path, mode&0o7777)
	}
	return ""
}
