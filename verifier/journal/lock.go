package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/problem"
	"striatum/seal"
)

const (
	maxLockBytes = 4 << 10
	lockPoll     = 50 * time.Millisecond
	lockMarker   = "striatum.lane_lock.v1"
)

// Holder says who holds a lane, as the holder itself wrote it: a help for
// people, never evidence.
type Holder struct {
	SchemaVersion string `json:"schema_version"`
	PID           int    `json:"pid"`
	What          string `json:"what"`
	Since         string `json:"since"` // RFC 3339 UTC
}

// String describes the holder in a sentence's middle.
func (h Holder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d (%s, since %s)", h.PID, h.What, h.Since)
}

// BusyError says that the lane was held for longer than the caller waits.
type BusyError struct {
	Holder Holder
	Waited time.Duration
}

// Error says for whom the caller waited.
func (e *BusyError) Error() string {
	return fmt.Sprintf("lane is held by %s, waited %s", e.Holder, e.Waited)
}

// Unsettled says what the lane with its journal at dir has on its way to the store:
// a check that runs, or receipts that are not recorded. It is empty where there is
// nothing, and where no lane ever ran.
func Unsettled(dir string) (string, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at the lane's journal: %w", err)
	}
	defer func() { _ = f.Close() }() // which gives the lock back
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return "it is held by " + holderOf(f).String(), nil
	} else if err != nil {
		return "", fmt.Errorf("look at the lane's journal: %w", err)
	}
	for _, name := range []string{"open", "pending"} {
		left, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("look at the lane's journal: %w", err)
		}
		if len(left) > 0 {
			return fmt.Sprintf("%d of its receipts are not recorded", len(left)), nil
		}
	}
	return "", nil
}

// lock takes the flock of the folder's lock file. onWait is called once for
// each holder that is waited for.
func lock(ctx context.Context, dir string, me Holder, wait time.Duration, onWait func(Holder)) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock lane: %w", err)
	}
	if err := acquire(ctx, f, wait, onWait); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := announce(f, me); err != nil {
		return nil, errors.Join(fmt.Errorf("lock lane: %w", err), f.Close())
	}
	return f, nil
}

func acquire(ctx context.Context, f *os.File, wait time.Duration, onWait func(Holder)) error {
	var told Holder
	deadline := time.NewTimer(max(wait, 0))
	defer deadline.Stop()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for first := true; ; first = false {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock lane: %w", err)
		}
		holder := holderOf(f)
		if wait > 0 && onWait != nil && (first || holder != told) {
			onWait(holder)
			told = holder
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return &problem.Problem{
				Kind: problem.Indeterminate, What: "the lane is busy", Why: fmt.Sprintf("it is held by %s", holder),
				Hint: "wait until it is done, or allow more time with --wait", Err: &BusyError{holder, wait},
			}
		case <-poll.C:
		}
	}
}

// announce writes who holds the lock. It need not survive a crash.
func announce(f *os.File, me Holder) error {
	data, err := json.Marshal(me)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(data, '\n'), 0)
	return err
}

// holderOf reads who holds the lock; the zero Holder when it cannot be read.
func holderOf(f *os.File) Holder {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxLockBytes))
	var h Holder
	if err != nil || seal.Decode(data, &h, seal.Limits{Bytes: maxLockBytes}) != nil || h.SchemaVersion != lockMarker {
		return Holder{}
	}
	return h
}
