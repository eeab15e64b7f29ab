package osthread

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"striatum/internal/crew"
)

// The errors of Team.Do.
var (
	ErrClosed = errors.New("the threads have ended")
	// ErrHeld means that a function did not end in time: it may still run.
	ErrHeld = errors.New("a thread is held")
)

// Team is a number of threads that were all set up alike, and do nothing but what
// Do gives them.
type Team struct {
	work  chan func()
	done  chan struct{}
	once  sync.Once
	ended sync.WaitGroup
}

// NewTeam starts n threads, each of which runs setup first. If that fails on one of
// them, all end. Each calls end, unless it is nil, when it ends.
func NewTeam(n int, setup func() error, end func()) (*Team, error) {
	t := &Team{work: make(chan func()), done: make(chan struct{})}
	ready := make(chan error, n)
	for range n {
		t.ended.Add(1)
		Go(func() {
			defer t.ended.Done()
			if end != nil {
				defer end()
			}
			err := setup()
			ready <- err
			if err == nil {
				t.serve()
			}
		})
	}
	var err error
	for range n {
		err = errors.Join(err, <-ready)
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("set up a thread: %w", err)
	}
	return t, nil
}

func (t *Team) serve() {
	for {
		select {
		case f := <-t.work:
			f()
		case <-t.done:
			return
		}
	}
}

// Do runs f on one of the threads, when one is free; a panic of f is the caller's.
// The error is ErrClosed, and then f does not run, or ErrHeld if f has not ended, or
// no thread was free, within limit. Threads that do not come back are the caller's to
// leave with Leave.
func (t *Team) Do(limit time.Duration, f func()) error {
	ran := make(chan *crew.Fault, 1)
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case t.work <- func() { ran <- crew.Catch(f) }:
	case <-t.done:
		return ErrClosed
	case <-late.C:
		return ErrHeld
	}
	select {
	case fault := <-ran:
		if fault != nil {
			panic(fault)
		}
		return nil
	case <-late.C:
		return ErrHeld
	}
}

// Leave ends the threads, each when it has done what it does, and waits for none.
func (t *Team) Leave() { t.once.Do(func() { close(t.done) }) }

// Close ends the threads and waits for what they do.
func (t *Team) Close() {
	t.Leave()
	t.ended.Wait()
}
