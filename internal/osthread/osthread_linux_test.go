package osthread

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	var ended atomic.Int64
	team, err := NewTeam(3, func() error {
		mu.Lock()
		defer mu.Unlock()
		set[unix.Gettid()] = true
		return nil
	}, func() { ended.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := team.Do(time.Minute, func() {
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
	if err := team.Do(time.Minute, func() { t.Error("it ran after the end") }); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if len(set) != 3 || ended.Load() != 3 {
		t.Errorf("%d threads were set up and %d ended, want 3", len(set), ended.Load())
	}
}

func TestATeamThatCannotBeSetUpIsNone(t *testing.T) {
	bad := errors.New("no")
	if _, err := NewTeam(3, func() error { return bad }, nil); !errors.Is(err, bad) {
		t.Errorf("got %v, want the error of setup", err)
	}
}

func TestAPanicOnAThreadIsTheCallers(t *testing.T) {
	if fault := crew.Catch(func() { _ = Do(func() error { panic("a fault") }) }); fault == nil || fault.Value != "a fault" {
		t.Errorf("got %v", fault)
	}
}

func TestAThreadThatIsHeldHoldsNobody(t *testing.T) {
	var left sync.WaitGroup
	left.Add(2)
	team, err := NewTeam(2, func() error { return nil }, left.Done)
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan struct{})
	for range 2 {
		if err := team.Do(time.Millisecond, func() { <-free }); !errors.Is(err, ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
	}
	if err := team.Do(time.Millisecond, func() { t.Error("it ran on a thread that is held") }); !errors.Is(err, ErrHeld) {
		t.Errorf("without a free thread: got %v, want ErrHeld", err)
	}
	team.Leave()
	if err := team.Do(time.Minute, func() {}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	close(free)
	left.Wait()
}

func TestAPanicInATeamIsTheCallers(t *testing.T) {
	team, err := NewTeam(1, func() error { return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close()
	for range 2 { // the thread goes on
		if fault := crew.Catch(func() { _ = team.Do(time.Minute, func() { panic("a fault") }) }); fault == nil || fault.Value != "a fault" {
			t.Errorf("got %v", fault)
		}
	}
}
