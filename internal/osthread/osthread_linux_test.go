package osthread

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/internal/crew"
)

func TestNeverTheFirstThread(t *testing.T) {
	for range 500 {
		if err := Do(func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("ran on the first thread")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatAThreadChangesEndsWithIt(t *testing.T) {
	var before, inside, after int
	before = unix.Umask(0o022)
	if err := Do(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		unix.Umask(0o077)
		inside = unix.Umask(0o077)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	after = unix.Umask(before)
	if inside != 0o077 || after != 0o022 {
		t.Errorf("umask is %o inside and %o after, want 77 and 22", inside, after)
	}
}

func TestATeamRunsOnThreadsThatWereSetUp(t *testing.T) {
	var mu sync.Mutex
	set := map[int]bool{}
	team, err := NewTeam(3, func() error {
		mu.Lock()
		defer mu.Unlock()
		set[unix.Gettid()] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := team.Do(func() {
				mu.Lock()
				defer mu.Unlock()
				if !set[unix.Gettid()] {
					t.Error("it ran on another thread")
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	team.Close()
	if err := team.Do(func() { t.Error("it ran after the end") }); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if len(set) != 3 {
		t.Errorf("%d threads were set up, want 3", len(set))
	}
}

func TestATeamThatCannotBeSetUpIsNone(t *testing.T) {
	bad := errors.New("no")
	if _, err := NewTeam(3, func() error { return bad }); !errors.Is(err, bad) {
		t.Errorf("got %v, want the error of setup", err)
	}
}

func TestAPanicOnAThreadIsTheCallers(t *testing.T) {
	if fault := crew.Catch(func() { _ = Do(func() error { panic("a fault") }) }); fault == nil || fault.Value != "a fault" {
		t.Errorf("got %v", fault)
	}
}
