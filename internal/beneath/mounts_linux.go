package beneath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxMountsBytes is how much of the kernel's list of mounts is read.
const maxMountsBytes = 16 << 20

// mount is a line of that list.
type mount struct{ id, point, kind string }

// fuse reports whether a program answers for what is mounted.
func (m mount) fuse() bool {
	return m.kind == "fuse" || m.kind == "fuseblk" || strings.HasPrefix(m.kind, "fuse.")
}

// mounts lists what is mounted where, as this process sees it. No file system is
// asked for that.
func mounts() (out []mount, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(io.LimitReader(f, maxMountsBytes))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		kind, _, _ := strings.Cut(after, " ")
		if !found || len(fields) < 5 {
			return nil, fmt.Errorf("read the list of mounts: %q is no line of it", lines.Text())
		}
		out = append(out, mount{id: fields[0], point: unescape(fields[4]), kind: kind})
	}
	return out, lines.Err()
}

// unescape undoes how that list writes spaces and the like: a backslash and three
// octal digits.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// noFUSE refuses a descriptor of a file system that a program answers for. One that is
// mounted in another namespace alone is not told that way.
func noFUSE(fd int) error {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return fmt.Errorf("find where it is mounted: %w", err)
	}
	var id string
	for line := range strings.Lines(string(info)) {
		if rest, found := strings.CutPrefix(line, "mnt_id:"); found {
			id = strings.TrimSpace(rest)
		}
	}
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.id == id && m.fuse() {
			return ErrFUSE
		}
	}
	return nil
}

// noFUSEAt refuses a path that lies in such a file system. A link that leads into one
// is not told that way.
func noFUSEAt(path string) error {
	all, err := mounts()
	if err != nil {
		return err
	}
	path = filepath.Clean(path)
	var over mount
	for _, m := range all {
		if within := m.point == "/" || path == m.point || strings.HasPrefix(path, m.point+"/"); within && len(m.point) >= len(over.point) {
			over = m
		}
	}
	if over.fuse() {
		return ErrFUSE
	}
	return nil
}
