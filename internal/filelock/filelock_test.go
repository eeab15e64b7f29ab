//go:build unix

package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"striatum/internal/filelock"
)

func TestLockExcludesAndEndsWithRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := filelock.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := filelock.Lock(ended, path); !errors.Is(err, context.Canceled) {
		t.Fatalf("second lock: got %v, want context.Canceled", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = filelock.Lock(ended, path)
	if err != nil {
		t.Fatalf("a free lock is taken without waiting: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}

func TestLockMakesGoroutinesTakeTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 8 {
		wg.Go(func() {
			release, err := filelock.Lock(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside at once", n)
			}
			inside.Add(-1)
			if err := release(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestLockFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.Lock(t.Context(), filepath.Join(dir, "lock")); err == nil {
		t.Fatal("a link was followed")
	}
}
