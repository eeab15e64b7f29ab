package osthread

import (
	"errors"
	"fmt"
	"sync"
)

// ErrClosed means that a team was closed.
var ErrClosed = errors.New("the threads have ended")

// Team is a number of threads that were all set up alike, and do nothing but what
// Do gives them.
type Team struct {
	work  chan func()
	done  chan struct{}
	once  sync.Once
	ended sync.WaitGroup
}

// NewTeam starts n threads, each of which runs setup first. If that fails on one of
// them, all end.
func NewTeam(n int, setup func() error) (*Team, error) {
	t := &Team{work: make(chan func()), done: make(chan struct{})}
	ready := make(chan error, n)
	for range n {
		t.ended.Add(1)
		Go(func() {
			defer t.ended.Done()
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

// Do runs f on one of the threads, when one is free. The error is ErrClosed, and
// then f does not run.
func (t *Team) Do(f func()) error {
	ran := make(chan struct{})
	select {
	case t.work <- func() { f(); close(ran) }:
		<-ran
		return nil
	case <-t.done:
		return ErrClosed
	}
}

// Close ends the threads and waits for what they do.
func (t *Team) Close() {
	t.once.Do(func() { close(t.done) })
	t.ended.Wait()
}
