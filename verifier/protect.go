package verifier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"striatum/receipt"
	"striatum/snapshot"
	"striatum/workflow"
)

// protectTime bounds how long the protected inputs of a check are looked for: the
// patterns are the tree's, and each is tried on each path.
const protectTime = 5 * time.Minute

// prepare reads the tree that the check runs on, as the procedure does.
func (r *run) prepare(ctx context.Context, p procedure) error {
	r.asked = r.snap
	err := r.protect(ctx)
	if u, ok := unobservedIn(err); ok {
		r.incident(u.code, receipt.MakesIndeterminate, cut(u.detail))
		return errConcluded
	}
	if err != nil {
		return err
	}
	return p.prepare(ctx, r)
}

// protect puts the protected inputs of the check in their place: from here on the
// run's tree is the one with them, and the body says so. The error is unobserved
// where they cannot be had.
func (r *run) protect(ctx context.Context) error {
	p := r.protectedInputs()
	if p == nil {
		return nil
	}
	r.step("restore the protected inputs")
	c := r.lane.cfg
	opt := c.Snapshot
	opt.Dir = r.req.Dir
	ctx, stop := context.WithTimeoutCause(ctx, protectTime, unobserved{"protected_paths_slow", fmt.Sprintf("finding the protected inputs took more than %s; name them by fewer or simpler patterns", protectTime)})
	defer stop()
	got, err := snapshot.Protect(ctx, r.req.Root, r.snap, snapshot.Protection{Commit: p.Commit, Paths: p.Paths, Match: workflow.MatchGlob}, c.Snapshots, opt)
	if e, ok := errors.AsType[*snapshot.ProtectError](err); ok {
		return unobserved{string(e.Code), e.Detail}
	}
	if err != nil {
		return err
	}
	if _, err := c.Snapshots.Trim(r.snap.TreeSHA256, got.TreeSHA256); err != nil {
		return err
	}
	r.snap = got.Snapshot
	r.body.Inputs.Protected = &receipt.Protected{
		Commit: p.Commit, Paths: p.Paths, Files: got.Files,
		Restored: receipt.NewList(got.Restored), Added: receipt.NewList(got.Added), Removed: receipt.NewList(got.Removed),
		TreeSHA256: got.TreeSHA256, ManifestSHA256: got.ManifestSHA256,
	}
	return nil
}

// protectedInputs are those of the intent's entry or, of a builtin, of the workflow.
func (r *run) protectedInputs() *workflow.ProtectedInputs {
	if row, ok := r.sel.Externals[r.check.CheckID()]; ok && r.check.External() {
		return row.Entry.ProtectedInputs
	}
	return r.check.ProtectedInputs
}
