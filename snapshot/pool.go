package snapshot

import (
	"context"
	"sync"
)

// pool runs tasks that make further tasks, the newest first, so that what waits
// stays about as large as one folder for each level. Its bound is the walker's
// limit on entries: a task is made for entries that were counted.
type pool struct {
	mu    sync.Mutex
	wake  *sync.Cond
	queue []func(*worker) error
	busy  int
	err   error // the first; ends everything
}

func newPool() *pool {
	p := new(pool)
	p.wake = sync.NewCond(&p.mu)
	return p
}

func (p *pool) push(task func(*worker) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, task)
	p.wake.Signal()
}

// run works on the queue until it is empty, or until the first error, or until
// ctx ends. All workers are gone when it returns.
func (p *pool) run(ctx context.Context, workers int) error {
	stop := context.AfterFunc(ctx, func() { p.fail(context.Cause(ctx)) })
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			w := newWorker()
			for task := p.next(); task != nil; task = p.next() {
				p.done(task(w))
			}
		})
	}
	wg.Wait()
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
	task := p.queue[last]
	p.queue[last] = nil
	p.queue = p.queue[:last]
	p.busy++
	return task
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
