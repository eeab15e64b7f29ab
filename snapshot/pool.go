package snapshot

import (
	"context"
	"errors"
	"sync"

	"striatum/internal/crew"
)

// pool runs tasks that make further tasks, the newest first, so that what waits
// stays about as large as one folder for each level. Its bound is the walker's
// limit on entries: a task is made for entries that were counted.
type pool struct {
	mu    sync.Mutex
	wake  *sync.Cond
	queue []task
	busy  int
	err   error // the first; ends everything
}

// task is what a worker does; drop, unless it is nil, is called instead where it is
// never begun.
type task struct {
	run  func(*worker) error
	drop func()
}

// errFault ends the workers beside one that panicked.
var errFault = errors.New("a fault of another worker")

func newPool() *pool {
	p := new(pool)
	p.wake = sync.NewCond(&p.mu)
	return p
}

func (p *pool) push(run func(*worker) error, drop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, task{run, drop})
	p.wake.Signal()
}

// run works on the queue until it is empty, or until the first error, or until
// ctx ends. All workers are gone when it returns; a panic of one is the caller's.
func (p *pool) run(ctx context.Context, workers int) error {
	stop := context.AfterFunc(ctx, func() { p.fail(context.Cause(ctx)) })
	defer stop()
	defer p.drop()
	all := crew.Group{Stop: func() { p.fail(errFault) }}
	for range workers {
		all.Go(func() {
			w := newWorker()
			for run := p.next(); run != nil; run = p.next() {
				p.done(run(w))
			}
		})
	}
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// next waits for a task; nil when there is nothing more to do.
func (p *pool) next() func(*worker) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && p.busy > 0 && p.err == nil {
		p.wake.Wait()
	}
	if len(p.queue) == 0 || p.err != nil {
		return nil
	}
	last := len(p.queue) - 1
	run := p.queue[last].run
	p.queue[last] = task{}
	p.queue = p.queue[:last]
	p.busy++
	return run
}

// drop empties the queue of what will not be begun.
func (p *pool) drop() {
	for _, t := range p.queue {
		if t.drop != nil {
			t.drop()
		}
	}
	p.queue = nil
}

func (p *pool) done(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if err != nil && p.err == nil {
		p.err = err
	}
	if p.busy == 0 || p.err != nil {
		p.wake.Broadcast()
	}
}

func (p *pool) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.wake.Broadcast()
}
