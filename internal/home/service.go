package home

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"striatum/daemon"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
	"striatum/store/sqlite"
)

// StoreName is how reports name the embedded store.
const StoreName = "embedded sqlite"

// Service opens the embedded store and the service layer over it, and enrols
// the home's own lane, shared, in a new store; created names what was made.
// The caller must call closeStore. Errors are problems.
func (h *Home) Service(ctx context.Context, now func() time.Time, random io.Reader) (svc *daemon.Service, created []string, closeStore func() error, err error) {
	if _, err := os.Lstat(h.StorePath()); errors.Is(err, os.ErrNotExist) {
		created = append(created, "store "+h.StorePath())
	}
	svc, closeStore, err = h.open(ctx, now, random)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeStore())
		}
	}()
	enrolled, err := h.enrol(ctx, svc)
	if err != nil {
		return nil, nil, nil, err
	}
	if enrolled {
		created = append(created, "shared lane "+h.LaneID())
	}
	return svc, created, closeStore, nil
}

// open opens the embedded store, makes it where it is missing, and the service
// over it. Errors are problems.
func (h *Home) open(ctx context.Context, now func() time.Time, random io.Reader) (*daemon.Service, func() error, error) {
	st, err := OpenStore(ctx, h.StorePath(), now)
	if err != nil {
		return nil, nil, err
	}
	return daemon.New(daemon.Config{
		Store: st, Now: now, Rand: random, StoreClass: seal.ClassShared,
		StoreName: StoreName, Home: h.Dir, ReportKey: h.ReportKey,
	}), st.Close, nil
}

// OpenStore opens the SQLite store at path, and makes it where it is missing.
// Errors are problems.
func OpenStore(ctx context.Context, path string, now func() time.Time) (store.Store, error) {
	what := fmt.Sprintf("open the store %q", path)
	st, err := sqlite.Open(ctx, path, now)
	if wide, ok := errors.AsType[*sqlite.PermissionError](err); ok {
		return nil, problem.New(problem.Refused, what, fmt.Sprintf("its mode %04o lets others in", wide.Mode.Perm()), "run: chmod 0600 "+path)
	}
	if errors.Is(err, sqlite.ErrNotRegular) {
		return nil, problem.New(problem.Refused, what, "it is a link, a folder or a device, and not a regular file", "move it away, and a new store is made; or name another home with STRIATUM_HOME")
	}
	if err != nil {
		return nil, daemon.StoreProblem(err, what)
	}
	return st, nil
}

// Inspect looks at the home in dir as Open would, and makes nothing. found is
// false where Open would make it, or some of it. Errors are problems, as Open
// and Service return them, or of kind Refused where the log of the store is
// broken; entries counts those that hold.
func Inspect(ctx context.Context, dir string, now func() time.Time) (found bool, entries int64, err error) {
	h := &Home{Dir: dir}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return false, 0, nil
	}
	if _, err := h.makeFolder(dir, true); err != nil { // it exists, so it is only looked at
		return true, 0, err
	}
	if !h.complete() {
		return false, 0, nil
	}
	if err := h.load(); err != nil {
		return true, 0, err
	}
	if _, err := os.Lstat(h.StorePath()); errors.Is(err, os.ErrNotExist) {
		return false, 0, nil
	}
	svc, closeStore, err := h.open(ctx, now, nil)
	if err != nil {
		return true, 0, err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	entries, err = svc.VerifyLog(ctx)
	return true, entries, err
}

// LaneID returns the id of the home's own lane.
func (h *Home) LaneID() string { return daemon.LaneID(h.LaneKey.Public()) }

// enrol enrols the home's lane in a store that has none. Where the store has
// others, an operator has to.
func (h *Home) enrol(ctx context.Context, svc *daemon.Service) (bool, error) {
	ring, err := svc.Keyring(ctx)
	if err != nil || ring.Len() > 0 {
		return false, err
	}
	spec := daemon.LaneSpec{LaneID: h.LaneID(), PublicKey: h.LaneKey.Public(), Class: seal.ClassShared}
	return true, svc.EnrolLane(ctx, daemon.LocalUser(), spec)
}

// Worktree says where a worktree's top is, as the service knows it: its real
// path with the numbers of its device and inode. The error is a problem.
func Worktree(top string) (daemon.Worktree, error) {
	real, err := filepath.EvalSymlinks(top)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return daemon.Worktree{}, problem.Wrap(problem.Usage, err, "find the worktree", "name a folder that exists")
	}
	st, err := os.Stat(real)
	if err != nil {
		return daemon.Worktree{}, problem.Wrap(problem.Usage, err, "find the worktree", "name a folder that exists")
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok {
		return daemon.Worktree{}, problem.New(problem.Usage, "find the worktree", fmt.Sprintf("%q is not a folder", top), "name a folder")
	}
	return daemon.Worktree{Path: real, Device: uint64(sys.Dev), Inode: sys.Ino}, nil //nolint:unconvert // Dev is an int32 elsewhere
}
