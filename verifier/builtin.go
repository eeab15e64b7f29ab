package verifier

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"striatum/internal/crew"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
	"striatum/workflow"
)

// procedure is how a check is done. prepare reads the tree, before a number is
// taken; run executes. Either returns errConcluded when the body says all there
// is to say, and any other error for trouble of the infrastructure.
type procedure struct {
	check   receipt.Check
	limits  *workflow.Limits
	control receipt.ControlKind // until prepare knows better
	prepare func(context.Context, *run) error
	run     func(context.Context, *run) error
}

// registry maps the ids of the checks that the binary carries to what they do.
// A test holds it against workflow.Builtins.
func registry() map[string]procedure {
	// argv is what the check stands for, for people; agreement what its two runs
	// are compared by.
	builtin := func(agreement string, prepare, run func(context.Context, *run) error, argv ...string) procedure {
		return procedure{check: receipt.Check{Argv: argv, Agreement: agreement}, prepare: prepare, run: run}
	}
	return map[string]procedure{
		"builtin:go-test":                   builtin("go-test", prepareGo, runTests, "go", "test", "-json", "-count=1"),
		"builtin:go-vet":                    builtin("go-vet", prepareGo, runVet, "go", "vet"),
		"builtin:go-build":                  builtin("go-build", prepareGo, runBuild, "go", "build", "-o=/dev/null"),
		"builtin:artifact-anchor-integrity": builtin("stdout", prepareAnchors, runAnchors, "striatum-init", "anchors"),
	}
}

// plant describes the planted control in the body: its digest is over every
// path and content, in order.
func (r *run) plant(planted []gocheck.Planted) {
	d := newDigest()
	for _, p := range planted {
		d.field(p.Path)
		d.field(string(p.Data))
	}
	r.body.Control.MutationSHA256 = d.sum()
}

// plantedFiles are the planted files as the sandbox takes them.
func plantedFiles(planted []gocheck.Planted) []sandbox.File {
	files := make([]sandbox.File, len(planted))
	for i, p := range planted {
		files[i] = sandbox.File{Path: gocheck.WorkDir + "/" + p.Path, Mode: 0o644, Data: p.Data}
	}
	return files
}

// controlled records what came of the control's execution. judge is asked only
// if all programs ran to their own end: a limit says nothing about failing.
func (r *run) controlled(x *execution, judge func() (receipt.ControlOutcome, string)) {
	c := &r.body.Control
	c.Outcome, c.Why = receipt.Invalid, "a limit ended the control"
	if x.finished() {
		c.Outcome, c.Why = judge()
	}
	switch c.Outcome {
	case receipt.FailedAsRequired:
		x.fact.Judgement = receipt.Fail
	case receipt.DidNotFail:
		x.fact.Judgement = receipt.Pass
		r.show("the negative control did not fail", c.Why)
		c.Why = ""
	case receipt.Invalid, receipt.NotReached:
		x.fact.Judgement = receipt.Inconclusive
	}
	c.Execution = &x.fact
}

// judged appends an execution with the check's word on it.
func (r *run) judged(x *execution, j gocheck.Judged) {
	x.fact.Judgement, x.fact.Reasons = j.Judgement, j.Reasons
	x.fact.ResultSHA256 = j.Results.SHA256()
	r.body.Executions = append(r.body.Executions, x.fact)
	for _, f := range j.Findings {
		if !r.hasFinding(f) {
			r.body.Findings = append(r.body.Findings, f)
		}
	}
}

func (r *run) hasFinding(f receipt.Finding) bool {
	return slices.Contains(r.body.Findings, f)
}

// note writes the body to the journal once an execution has failed, so that no
// kill can turn that into something milder. A rehearsal has no number to note
// it for.
func (r *run) note(j receipt.Judgement) error {
	if j != receipt.Fail || r.number == nil {
		return nil
	}
	return r.number.Note(r.body)
}

// drop removes a volume; what goes wrong is an infrastructure matter of its
// own, which the engine's Close reports.
func (r *run) drop(v sandbox.Volume) {
	if err := v.Remove(); err != nil {
		r.lane.cfg.Log.Warn("volume was not removed", slog.String("check_id", r.check.CheckID()), slog.String("error", err.Error()))
	}
}

func discard(boxes []sandbox.Sandbox) {
	for _, b := range boxes {
		if b != nil {
			b.Discard()
		}
	}
}

// prepareBoxes makes n sandboxes for spec at the same time.
func (r *run) prepareBoxes(ctx context.Context, specs ...sandbox.Spec) (boxes []sandbox.Sandbox, err error) {
	boxes = make([]sandbox.Sandbox, len(specs))
	complete := false
	defer func() {
		if !complete {
			discard(boxes)
		}
	}()
	errs := make([]error, len(specs))
	var all crew.Group
	for i, spec := range specs {
		all.Go(func() {
			box, err := r.engine.Prepare(ctx, spec)
			if errs[i] = err; err == nil {
				boxes[i] = box
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	complete = true
	return boxes, nil
}

// Builtins returns the ids of the checks that can be run, sorted.
func Builtins() []string { return slices.Sorted(maps.Keys(registry())) }
