package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// listing says of everything below dir what it is: path, mode, owner, time and
// content.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(p); err != nil {
				return err
			}
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %o %d:%d %d %q\n", strings.TrimPrefix(p, dir), st.Mode, st.Uid, st.Gid, st.Mtim.Sec, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
}

func TestACopyIsChecksAndElseTheSame(t *testing.T) {
	needRoot(t)
	from, to := t.TempDir(), t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	long := strings.Repeat("n", 255)
	for _, err := range []error{
		os.WriteFile(outside, []byte("outside"), 0o600),
		os.MkdirAll(filepath.Join(from, "d/empty"), 0o755),
		os.WriteFile(filepath.Join(from, "d/run"), []byte("#!"), 0o755),
		os.WriteFile(filepath.Join(from, "d/secret"), []byte("s"), 0o600),
		os.WriteFile(filepath.Join(from, long), nil, 0o444),
		os.WriteFile(filepath.Join(from, "a\nb\xff"), []byte(strings.Repeat("x", 100_000)), 0o644),
		os.Symlink(outside, filepath.Join(from, "link")),
		os.Symlink("nowhere", filepath.Join(from, "d/broken")),
		os.Chmod(filepath.Join(from, "d/empty"), 0o500),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"d/run", "a\nb\xff", "link", "d/broken", "d/empty", "d"} {
		when := []unix.Timespec{{Sec: int64(i) + 1}, {Sec: 1000 + int64(i)}}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(from, name), when, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, from)
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	if got, want := listing(t, to), strings.ReplaceAll(before, " 0:0 ", " 1000:1000 "); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if after := listing(t, from); after != before {
		t.Errorf("source was\n%sis\n%s", before, after)
	}
	if st, err := os.Stat(outside); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 || st.Mode() != 0o600 {
		t.Errorf("a link was followed: %+v, %v", st, err)
	}
}

func TestWhatCannotBeCopiedIsAnError(t *testing.T) {
	needRoot(t)
	t.Run("a pipe", func(t *testing.T) {
		from := t.TempDir()
		if err := unix.Mkfifo(filepath.Join(from, "p"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := copyTree(from, t.TempDir()); err == nil || !strings.Contains(err.Error(), "neither file, folder nor link") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("something in the way", func(t *testing.T) {
		from, to := t.TempDir(), t.TempDir()
		for _, dir := range []string{from, to} {
			if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := copyTree(from, to); !errors.Is(err, fs.ErrExist) {
			t.Errorf("got %v, want %v", err, fs.ErrExist)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		if err := copyTree(filepath.Join(t.TempDir(), "none"), t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want %v", err, fs.ErrNotExist)
		}
	})
}
