package containerdengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"striatum/internal/mountns"
	"striatum/internal/problem"
)

const (
	// maxWaiting is how many ended containers wait for a quiet moment. Each
	// takes a cgroup and some hundred kilobytes of the shim.
	maxWaiting = 64
	// quiet is how long nothing must have happened.
	quiet = 200 * time.Millisecond
	// exitLimit is how long a killed container may take to end.
	exitLimit = 10 * time.Second
)

// bin holds ended containers until there is time to remove them. One always
// stays while the engine is open: it keeps the shim alive that the next
// container then shares.
type bin struct {
	e    *Engine
	mu   sync.Mutex
	wait []*box
	busy int
	shut bool
	wake chan struct{}  // one pending wake is enough
	stop chan struct{}  // closed by close
	ends sync.WaitGroup // discards in progress
	done chan struct{}  // closed when work has ended
}

func newBin(e *Engine) *bin {
	b := &bin{e: e, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go b.work()
	return b
}

// enter says that a sandbox is being prepared or run, until leave is called.
func (b *bin) enter() (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return nil, errors.New("the sandbox engine is closed")
	}
	b.busy++
	return func() {
		b.mu.Lock()
		b.busy--
		b.mu.Unlock()
		b.nudge()
	}, nil
}

func (b *bin) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put takes a container whose launcher has ended.
func (b *bin) put(x *box) {
	b.mu.Lock()
	b.wait = append(b.wait, x)
	b.mu.Unlock()
	b.nudge()
}

// next returns the oldest container to be removed now, or nil.
func (b *bin) next(isQuiet bool) *box {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wait) > maxWaiting || isQuiet && b.busy == 0 && len(b.wait) > 1 {
		x := b.wait[0]
		b.wait = b.wait[1:]
		return x
	}
	return nil
}

func (b *bin) work() {
	defer close(b.done)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		isQuiet := false
		select {
		case <-b.stop:
			return
		case <-b.wake:
			timer.Reset(quiet)
		case <-timer.C:
			isQuiet = true
		}
		for x := b.next(isQuiet); x != nil; x = b.next(isQuiet) {
			b.remove(x)
			select {
			case <-b.stop:
				return
			default:
			}
		}
	}
}

func (b *bin) remove(x *box) {
	if err := x.remove(); err != nil {
		b.e.cfg.Log.Warn("cannot remove a sandbox", slog.String("sandbox", x.id), slog.String("error", err.Error()))
	}
}

// close waits for what is being discarded. A private containerd is ended
// next, with all that waits; from the host's it is removed here.
func (b *bin) close() error {
	b.mu.Lock()
	b.shut = true
	b.mu.Unlock()
	b.ends.Wait()
	close(b.stop)
	<-b.done
	var errs []error
	for _, x := range b.wait {
		if b.e.d.reaper == nil {
			errs = append(errs, x.remove())
		}
	}
	b.wait = nil
	return errors.Join(errs...)
}

// Discard kills what runs, and has the container removed at a quiet moment.
func (b *box) Discard() {
	b.discard.Do(func() {
		b.e.bin.ends.Go(func() {
			b.killAll()
			drained := b.drain()
			if !b.awaitExit(exitLimit) {
				b.e.cfg.Log.Warn("a killed sandbox does not end", slog.String("sandbox", b.id))
			} else {
				b.e.ids.Give(b.ids)
			}
			<-drained
			b.closeStreams()
			b.e.bin.put(b)
		})
	})
}

// killAll kills the first process of the container, and so all: through the
// kernel, which works also when containerd does not answer.
func (b *box) killAll() {
	b.kill.Do(func() {
		if err := b.group.Kill(); err != nil {
			b.e.cfg.Log.Warn("cannot kill a sandbox by its cgroup", slog.String("sandbox", b.id), slog.String("error", err.Error()))
		}
		pids, err := b.group.Processes()
		if err != nil || len(pids) > 0 {
			ctx, cancel := context.WithTimeout(b.e.context(context.Background()), exitLimit)
			defer cancel()
			_ = b.task.Kill(ctx, 9, containerd.WithKillAll)
		}
	})
}

// awaitExit waits until the first process is gone, and with it all others.
func (b *box) awaitExit(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-b.exit:
		return true
	case <-b.e.d.ended:
		return true
	case <-timer.C:
		return false
	}
}

// drain reads what is left of the launcher's output to its end, at most
// exitLimit long: the shim has the pipe's other side open for reading too, and
// hangs on a full one even when this side is closed.
func (b *box) drain() (done <-chan struct{}) {
	ended := make(chan struct{})
	timer := time.AfterFunc(exitLimit, b.streams.Cancel)
	go func() {
		defer close(ended)
		defer timer.Stop()
		_, _ = io.Copy(io.Discard, b.streams.Stdout)
	}()
	return ended
}

func (b *box) closeStreams() {
	if b.streams != nil {
		b.streams.Cancel()
		_ = b.streams.Close()
	}
}

// remove removes the container, its mounts, cgroup and pipes.
func (b *box) remove() error {
	ctx, cancel := context.WithTimeout(b.e.context(context.Background()), exitLimit)
	defer cancel()
	var errs []error
	if b.task == nil && b.container != nil {
		// Whoever gave up on making it did not learn whether it was made.
		if task, err := b.container.Task(ctx, nil); err == nil {
			b.task = task
		}
	}
	if b.task != nil {
		if _, err := b.task.Delete(ctx, containerd.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete task: %w", err))
		}
	}
	if b.container != nil {
		if err := b.container.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete container: %w", err))
		}
	}
	return errors.Join(append(errs, b.unmount())...)
}

func (b *box) unmount() error {
	if len(b.mounts) == 0 {
		return nil
	}
	err := b.e.d.mounts.Do(func() error {
		var errs []error
		for _, m := range b.mounts {
			errs = append(errs, mountns.Unmount(m))
		}
		return errors.Join(append(errs, rmdirParent(b.mounts[0]))...)
	})
	b.mounts = nil
	return err
}

// abandon removes what Prepare made before it failed.
func (b *box) abandon() error {
	if b.task != nil {
		b.killAll()
		<-b.drain()
	}
	err := b.remove()
	b.closeStreams()
	b.e.ids.Give(b.ids)
	return err
}

// goneWait is how long after an error a killed containerd may take to be seen
// as gone.
const goneWait = time.Second

// explain adds to an error what the user can do about it.
func (e *Engine) explain(err error) error {
	if e.gone() {
		return problem.Wrap(problem.Indeterminate, err, "containerd has ended", "run the command again")
	}
	return problem.Wrap(problem.Indeterminate, err, "make a sandbox", "run `striatum doctor`")
}

// gone says whether a private containerd has ended.
func (e *Engine) gone() bool {
	if e.d.ended == nil {
		return false
	}
	if _, err := e.d.client.Version(context.Background()); err == nil {
		return false
	}
	timer := time.NewTimer(goneWait)
	defer timer.Stop()
	select {
	case <-e.d.ended:
		return true
	case <-timer.C:
		return false
	}
}
