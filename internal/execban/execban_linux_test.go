package execban_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/internal/execban"
)

// confined is set in the process that takes the ban: it cannot be taken back, so
// the test runs itself again.
const confined = "STRIATUM_TEST_CONFINED"

func TestMain(m *testing.M) {
	if os.Getenv(confined) != "" {
		if err := inside(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("every thread was refused")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// inside starts threads, takes the ban, and tries to start a program on each of
// them and on new ones.
func inside() error {
	const threads = 8
	before, err := execban.Read()
	if err != nil || before.Holds() || before.Refused {
		return fmt.Errorf("before: %+v, %w", before, err)
	}
	var ready, done sync.WaitGroup
	banned := make(chan struct{})
	errs := make(chan error, 2*threads)
	try := func() {
		defer done.Done()
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		ready.Done()
		<-banned
		errs <- tryEverything()
	}
	ready.Add(threads)
	done.Add(threads)
	for range threads {
		go try()
	}
	ready.Wait()
	if err := execban.Install(); err != nil {
		return err
	}
	ready.Add(threads)
	done.Add(threads)
	for range threads { // threads that are younger than the ban
		go try()
	}
	ready.Wait()
	state, err := execban.Read()
	if err != nil || !state.Holds() || state.Threads < threads {
		return fmt.Errorf("after: %+v, %w", state, err)
	}
	close(banned)
	done.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func tryEverything() error {
	path := []byte("/bin/true\x00")
	if err := unix.Exec("/bin/true", []string{"true"}, nil); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("execve: %w", err)
	}
	fd, err := unix.Open("/bin/true", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if errno := execveat(fd, path); errno != unix.EPERM {
		return fmt.Errorf("execveat: %w", errno)
	}
	if err := exec.Command("/bin/true").Run(); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("os/exec: %w", err)
	}
	return nil
}

func TestNoThreadStartsAProgram(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), confined+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "every thread was refused") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestReadSaysThatNothingIsInForce(t *testing.T) {
	s, err := execban.Read()
	if err != nil || s.Threads == 0 || s.Refused || s.Holds() {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestOnlyWholeConfinementHolds(t *testing.T) {
	whole := execban.State{Threads: 3, NoNewPrivs: 3, Filtered: 3, Refused: true}
	for _, s := range []execban.State{{}, {Refused: true}, {3, 2, 3, true}, {3, 3, 2, true}, {3, 3, 3, false}} {
		if s.Holds() {
			t.Errorf("%+v holds", s)
		}
	}
	if !whole.Holds() {
		t.Error("the whole of it does not hold")
	}
}
