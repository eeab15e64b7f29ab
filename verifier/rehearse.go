package verifier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"striatum/internal/durable"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/external"
	"striatum/verifier/gocheck"
	"striatum/verifier/rehearsal"
)

// maxEmptied bounds the test files that a rehearsal empties: each is named to the
// sandbox.
const maxEmptied = 10_000

// Rehearsed is one check's rehearsal, signed and kept, with what people want to
// see of it.
type Rehearsed struct {
	rehearsal.Rehearsal
	Failing []Failing // at most MaxShown
}

// RehearsalsDir is where a lane with its private folder at dir keeps rehearsals.
func RehearsalsDir(dir string) string { return filepath.Join(dir, "rehearsals") }

// Rehearse tries each check of the intent that the request selects, which must be
// pinned, on inputs that must pass and on inputs that must not, in the sandboxes
// and with the judgement of a run. It takes no number: a rehearsal is no evidence
// for a claim. What it came to is signed and kept before the next check begins.
// Rehearsals hold what was kept, also when the error is not nil. Errors are those
// of Run; a check that a cancelled context cut short leaves nothing.
func (l *Lane) Rehearse(ctx context.Context, req Request) (done []Rehearsed, err error) {
	err = l.each(ctx, "verifier rehearse", req, func(r *run) error {
		x, err := r.rehearse(ctx)
		if err == nil {
			done = append(done, Rehearsed{x, r.shown})
		}
		return err
	})
	return done, err
}

// rehearse rehearses one check, signs what it came to and keeps that.
func (r *run) rehearse(ctx context.Context) (rehearsal.Rehearsal, error) {
	p, err := r.procedure()
	if err != nil {
		return rehearsal.Rehearsal{}, err
	}
	if r.limits, err = limits(p.limits); err != nil {
		return rehearsal.Rehearsal{}, err
	}
	if err := r.draft(p); err != nil {
		return rehearsal.Rehearsal{}, err
	}
	var x rehearsal.Rehearsal
	err = r.prepare(ctx, p)
	if err == nil {
		err = r.tryAll(ctx, &x)
	}
	if ctx.Err() != nil {
		return rehearsal.Rehearsal{}, context.Cause(ctx)
	}
	r.conclusion(ctx, err)
	b := &r.body
	x.Subject = rehearsal.Subject{RepositoryID: b.RepositoryID, CheckDigest: b.Check.Digest, ClosureSHA256: b.Tools.ClosureSHA256}
	x.Check, x.TreeSHA256, x.GitCommit = b.Check, b.Inputs.TreeSHA256, b.Inputs.GitCommit
	x.IntentSHA256, x.PinsSHA256 = b.Inputs.IntentSHA256, r.sel.PinsSHA256
	x.Mutations = int64(len(r.entry.row.Entry.NegativeControl.Mutations))
	x.Runs, x.Incidents, x.Posture, x.Limits = b.Executions, b.Incidents, b.Posture, b.Limits
	x.StriatumVersion, x.StriatumSHA256, x.Lane = b.Tools.StriatumVersion, b.Tools.StriatumSHA256, b.Lane
	x.RehearsedAt = r.lane.cfg.Now().UTC().Format(time.RFC3339)
	envelope, x, err := rehearsal.Sign(x, r.lane.cfg.Key)
	if err != nil {
		return x, err
	}
	return x, rehearsal.Keep(RehearsalsDir(r.lane.cfg.Dir), x.Subject, envelope)
}

// tryAll executes the check on the tree and, if it passes there, on every input
// that it must not pass on.
func (r *run) tryAll(ctx context.Context, x *rehearsal.Rehearsal) error {
	s := &r.entry
	mutations := s.row.Entry.NegativeControl.Mutations
	if len(mutations) > rehearsal.MaxMutations {
		r.incident("too_many_mutations", receipt.MakesIndeterminate, fmt.Sprintf("the entry lists %d mutations, and a rehearsal tries at most %d", len(mutations), rehearsal.MaxMutations))
		return errConcluded
	}
	r.step("on the tree, which must pass")
	runs := s.runs()
	if err := r.tryOn(ctx, r.snap.Dir, runs); err != nil {
		return err
	}
	if slices.ContainsFunc(runs, func(t *trial) bool { return t.judged.Judgement != receipt.Pass }) {
		return nil // a known-bad input is a change of one that passes
	}
	for i, m := range mutations {
		for n := range rehearsal.Repetitions {
			r.step(fmt.Sprintf("mutation %d of %d, try %d of %d", i+1, len(mutations), n+1, rehearsal.Repetitions))
			if err := s.control(r, m); err != nil {
				return err
			}
			bad := s.knownBad()
			boxes, err := r.externalBoxes(ctx, r.snap.Dir, len(s.trials(bad)))
			if err == nil {
				err = r.tryControl(ctx, boxes, bad)
				discard(boxes)
			}
			if err != nil {
				return err
			}
			r.specific(runs)
			x.Controls = append(x.Controls, rehearsal.Control{Mutation: int64(i + 1), File: m.File, Control: r.body.Control})
		}
	}
	return r.tryReds(ctx, x)
}

// tryReds executes the check where there is nothing to check.
func (r *run) tryReds(ctx context.Context, x *rehearsal.Rehearsal) (err error) {
	r.step("on an empty worktree")
	tree, err := r.definitionOnly()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	empty := &trial{target: gocheck.WorkDir}
	if err := r.tryOn(ctx, tree, []*trial{empty}); err != nil {
		return err
	}
	x.Reds = append(x.Reds, rehearsal.Red{Input: rehearsal.EmptyWorktree, Execution: empty.x.fact})
	e := r.entry.row.Entry
	if !e.Agreement.TestFormat() {
		return nil
	}
	manifest, err := r.snap.ReadManifest()
	if err != nil {
		return err
	}
	files, err := external.TestFiles(e, manifest)
	if err != nil {
		return err
	}
	x.TestFiles = int64(len(files))
	switch {
	case len(files) == 0:
		return nil
	case len(files) > maxEmptied:
		r.incident("too_many_test_files", receipt.MakesIndeterminate, fmt.Sprintf("the tree has %d test files, and a rehearsal empties at most %d", len(files), maxEmptied))
		return errConcluded
	}
	r.step("with emptied test files")
	emptied := &trial{target: gocheck.WorkDir}
	for _, f := range files {
		emptied.files = append(emptied.files, sandbox.File{Path: path.Join(gocheck.WorkDir, f.Path), Mode: f.Mode, Data: []byte{}})
	}
	if err := r.tryOn(ctx, r.snap.Dir, []*trial{emptied}); err != nil {
		return err
	}
	x.Reds = append(x.Reds, rehearsal.Red{Input: rehearsal.EmptiedTests, Execution: emptied.x.fact})
	return nil
}

// tryOn runs trials side by side on the tree at a folder of the host.
func (r *run) tryOn(ctx context.Context, tree string, trials []*trial) error {
	boxes, err := r.externalBoxes(ctx, tree, len(trials))
	if err != nil {
		return err
	}
	defer discard(boxes)
	return r.trials(ctx, boxes, trials)
}

// definitionOnly makes a tree that has nothing but the check's definition, of links
// to the frozen one. The caller must remove it; what a kill left is removed here.
func (r *run) definitionOnly() (string, error) {
	tree := filepath.Join(r.lane.cfg.Dir, "rehearsal-tree")
	if err := os.RemoveAll(tree); err != nil {
		return "", fmt.Errorf("make an empty worktree: %w", err)
	}
	if err := durable.MkdirAll(tree, 0o755); err != nil {
		return "", fmt.Errorf("make an empty worktree: %w", err)
	}
	for _, name := range r.entry.observed.definition.Names() {
		to := filepath.Join(tree, name)
		err := os.MkdirAll(filepath.Dir(to), 0o755) //nolint:gosec // the lane's folder above it is 0700
		if err == nil {
			err = os.Link(filepath.Join(r.snap.Dir, name), to)
		}
		if err != nil {
			return "", errors.Join(fmt.Errorf("make an empty worktree: %w", err), os.RemoveAll(tree))
		}
	}
	return tree, nil
}
