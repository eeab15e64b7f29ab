//go:build unix

// Package filelock makes processes take turns. The lock is the kernel's, on an
// open file: it ends with the process that holds it, however that dies, and
// the file that is left behind means nothing.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// poll is how often a waiter asks again.
const poll = 10 * time.Millisecond

// Lock waits until this process holds the lock on path, which it makes (0600)
// if needed. The caller must call release. The error wraps the cause of ctx if
// that ended first. Two calls in one process exclude each other too.
func Lock(ctx context.Context, path string) (release func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f.Close, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for lock %q: %w", path, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
