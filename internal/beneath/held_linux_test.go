package beneath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/osthread"
)

// silent mounts, at a folder, a file system (FUSE) whose program never answers, with
// that folder's mount seen by others or not. It returns a descriptor of its top, which
// nobody was asked for, and what ends the program.
func silent(t *testing.T, at string, seen bool) (fd int, end func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root mounts for all users")
	}
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this machine has no FUSE: %v", err)
	}
	end = func() {
		if err := unix.Close(device); err != nil {
			t.Error(err)
		}
	}
	mount := func() error {
		if !seen {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
				return err
			}
		}
		err := unix.Mount("silent", at, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", device, somebody, somebody))
		if err == nil {
			fd, err = unix.Open(at, unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		return err
	}
	if err := osthread.Do(mount); err != nil {
		t.Fatal(err)
	}
	if seen {
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	return fd, end
}

// count returns how many threads are counted, and how many owners have some held.
func (t *Threads) count() (all, held int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all, len(t.held)
}

// settle waits until no thread is counted.
func (t *Threads) settle(tb testing.TB) {
	tb.Helper()
	for {
		if all, held := t.count(); all == 0 && held == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAFileSystemThatAProgramAnswersForIsRefusedUnasked(t *testing.T) {
	dir, d := asSomebody(t)
	at := filepath.Join(dir, "its mount")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, end := silent(t, at, true)
	defer end()
	if _, err := d.by.Adopt(fd); !errors.Is(err, ErrFUSE) {
		t.Errorf("handed over: got %v, want ErrFUSE", err)
	}
	for _, path := range []string{at, at + "/repo/.git", dir + "/../" + filepath.Base(dir) + "/its mount/x"} {
		if _, err := d.Elsewhere(path); !errors.Is(err, ErrFUSE) {
			t.Errorf("%s: got %v, want ErrFUSE", path, err)
		}
	}
	if err := d.by.why(); err != nil {
		t.Errorf("it was asked: %v", err)
	}
}

func TestAFileSystemThatDoesNotAnswerEndsTheReading(t *testing.T) {
	for name, read := range map[string]func(t *testing.T, dir string, o *Opener) error{
		"handed over": func(t *testing.T, dir string, o *Opener) error {
			at := filepath.Join(dir, "m")
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			fd, end := silent(t, at, false)
			t.Cleanup(end)
			_, err := o.Adopt(fd)
			return err
		},
		"behind a link": func(t *testing.T, dir string, o *Opener) error {
			at, link := filepath.Join(dir, "m"), filepath.Join(dir, "link")
			if err := errors.Join(os.Mkdir(at, 0o755), os.Symlink(at, link)); err != nil {
				t.Fatal(err)
			}
			d, err := adopt(o, dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			fd, end := silent(t, at, true)
			t.Cleanup(end)
			if err := unix.Close(fd); err != nil {
				t.Fatal(err)
			}
			_, err = d.Elsewhere(link)
			if err == nil || !strings.Contains(err.Error(), link) {
				t.Errorf("got %v, want the path named", err)
			}
			return err
		},
		"in a read": func(t *testing.T, _ string, o *Opener) error {
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			f := &File{fd: ends[0], far: o}
			t.Cleanup(func() {
				if err := unix.Close(ends[1]); err != nil {
					t.Error(err)
				}
			})
			defer f.Close()
			_, err := f.Read(make([]byte, 1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := asSomebody(t)
			var threads Threads
			t.Cleanup(func() { threads.settle(t) }) // after what ends the program, which was registered later
			o, err := threads.NewOpener(Caller{UID: somebody, GID: somebody}, "token")
			if err != nil {
				t.Fatal(err)
			}
			o.limit = 100 * time.Millisecond
			if err := read(t, dir, o); !errors.Is(err, ErrHeld) {
				t.Errorf("got %v, want ErrHeld", err)
			}
			if _, err := open("/", o); !errors.Is(err, ErrHeld) {
				t.Errorf("asked again: got %v, want ErrHeld", err)
			}
			o.Close()
			if all, held := threads.count(); all == 0 || held != 1 {
				t.Errorf("%d threads are counted, of %d owners, want the one that is held", all, held)
			}
			if _, err := threads.NewOpener(Caller{UID: somebody + 1}, "token"); !errors.Is(err, ErrThreads) {
				t.Errorf("the same owner: got %v, want ErrThreads", err)
			}
			other, err := threads.NewOpener(Caller{}, "another token")
			if err != nil {
				t.Fatal(err)
			}
			other.Close()
		})
	}
}

func TestThreadsAreFew(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root takes another's rights")
	}
	var threads Threads
	var made []*Opener
	for i := 0; ; i++ {
		o, err := threads.NewOpener(Caller{}, fmt.Sprint("token ", i))
		if errors.Is(err, ErrThreads) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, o)
	}
	if all, _ := threads.count(); all > MaxThreads || all < MaxThreads-openers {
		t.Errorf("there are %d threads, and at most %d may be", all, MaxThreads)
	}
	for _, o := range made {
		o.Close()
	}
	threads.settle(t)
}

func TestCallsTogetherHaveABound(t *testing.T) {
	_, d := asSomebody(t)
	d.by.spent.Store(int64(CallsLimit))
	if _, err := d.Lstat("x"); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), CallsLimit.String()) {
		t.Errorf("got %v, want ErrHeld", err)
	}
	if _, err := d.File("x"); !errors.Is(err, ErrHeld) {
		t.Errorf("asked again: got %v", err)
	}
}
