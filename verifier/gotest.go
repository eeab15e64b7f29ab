package verifier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"striatum/internal/crew"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
)

// The folders of compiled tests: where the compile sandbox writes those of the
// tree and those with planted failures, and where a run sees its own. A run
// cannot tell which of the two it has.
const (
	outReal    = "/out/1"
	outControl = "/out/2"
	checkDir   = "/check"
)

// testVolumeBytes bounds the compiled tests of one tree.
const testVolumeBytes = 8 << 30

// runTests is go-test: compile twice, run the planted tests, run the real ones
// twice, compare them with the baseline, and plant mutants of the product.
func runTests(ctx context.Context, r *run) error {
	if err := r.readBaseline(); err != nil {
		return err
	}
	cache, err := r.goCache(ctx)
	if err != nil {
		return err
	}
	planted, err := gocheck.PlantTest(r.source.discovery, r.lane.cfg.Rand)
	if err != nil {
		return err
	}
	r.plant(planted)
	var volumes [2]sandbox.Volume
	for i := range volumes {
		if volumes[i], err = r.engine.NewVolume(ctx, testVolumeBytes); err != nil {
			return err
		}
		defer r.drop(volumes[i])
	}
	real, control, err := r.compileTests(ctx, cache, volumes, planted)
	if err != nil {
		return err
	}
	side := width(len(real))
	boxes, err := r.prepareRuns(ctx, cache, volumes, side)
	if err != nil {
		return err
	}
	defer discard(boxes)

	r.step("negative control")
	t := newTestRun(control, planted, side)
	x, err := r.execute(ctx, boxes[:side], r.testPrograms(control), t.sink)
	if err != nil {
		return err
	}
	discard(boxes[:side])
	first := t.runs(x)
	r.controlled(x, func() (receipt.ControlOutcome, string) {
		return gocheck.JudgeTestControl(planted, first)
	})
	results, err := r.realTests(ctx, boxes[side:], real)
	if err != nil || !r.passing() {
		return err
	}
	if err := r.compareBaseline(results[0]); err != nil {
		return err
	}
	if differs := gocheck.ControlDiffers(first, results[0], results[1]); len(differs) > 0 {
		return r.controlAgain(ctx, cache, volumes[1], control, planted, results, differs)
	}
	return r.mutants(ctx, cache)
}

// passing reports whether the control failed and both runs passed alike.
func (r *run) passing() bool {
	e := r.body.Executions
	return r.body.Control.Outcome == receipt.FailedAsRequired && len(e) == 2 &&
		e[0].Judgement == receipt.Pass && e[1].Judgement == receipt.Pass && e[0].ResultSHA256 == e[1].ResultSHA256
}

// controlAgain runs the control a second time, because tests ended otherwise in
// the first than in both runs. Those that do so again saw it (control_detected).
// Otherwise it was chance, and no runs agree (control_unsteady).
func (r *run) controlAgain(ctx context.Context, cache string, v sandbox.Volume, control []gocheck.Binary, planted []gocheck.Planted, results []gocheck.Results, differs []string) error {
	r.step("negative control again: tests ended otherwise in it")
	side := width(len(control))
	boxes, err := r.prepareBoxes(ctx, slices.Repeat([]sandbox.Spec{r.runSpec(cache, v)}, side)...)
	if err != nil {
		return err
	}
	defer discard(boxes)
	t := newTestRun(control, planted, side)
	x, err := r.execute(ctx, boxes, r.testPrograms(control), t.sink)
	if err != nil {
		return err
	}
	again := gocheck.ControlDiffers(t.runs(x), results[0], results[1])
	both := slices.DeleteFunc(slices.Clone(differs), func(name string) bool { return !slices.Contains(again, name) })
	if !x.finished() || len(both) == 0 {
		r.incident("control_unsteady", receipt.MakesIndeterminate, fmt.Sprintf(
			"%d tests ended otherwise in the first control than in both runs, and not in the second, first: %s", len(differs), differs[0]))
		return nil
	}
	list := receipt.NewList(both)
	r.body.Control.Differs = &list
	return nil
}

// maxWidth bounds the sandboxes of one execution.
const maxWidth = 8

// width is in how many sandboxes side by side the n test binaries of an execution
// run: as many as the go command would run at the same time. It is the
// same for the control and the runs, so that nothing tells one from the other.
func width(n int) int { return max(1, min(n, runtime.NumCPU(), maxWidth)) }

// testRun collects what the test binaries of one execution report.
type testRun struct {
	binaries []gocheck.Binary
	planted  map[string]string // of a control: the planted test of each package
	room     gocheck.Room
	tallies  []*gocheck.Tally
	side     int // sandboxes that share the binaries out by turns
}

func newTestRun(binaries []gocheck.Binary, planted []gocheck.Planted, side int) *testRun {
	t := &testRun{binaries: binaries, planted: map[string]string{}, tallies: make([]*gocheck.Tally, len(binaries)), side: side}
	for _, p := range planted {
		t.planted[p.ImportPath] = p.Test
	}
	return t
}

// sink closes the tally of the program before it in its sandbox, whose output is
// complete.
func (t *testRun) sink(i int) (io.Writer, io.Writer) {
	if before := i - t.side; before >= 0 {
		t.tallies[before].Close()
	}
	t.tallies[i] = gocheck.NewTally(&t.room)
	if test := t.planted[t.binaries[i].ImportPath]; test != "" {
		t.tallies[i] = gocheck.NewControlTally(test, &t.room)
	}
	return t.tallies[i], nil
}

// runs pairs each package with its binary's end and report. A binary that a
// limit kept from its end, or from starting, is cut.
func (t *testRun) runs(x *execution) []gocheck.PackageRun {
	runs := make([]gocheck.PackageRun, len(x.programs))
	for i := range x.programs {
		end := x.end(i)
		runs[i] = gocheck.PackageRun{
			ImportPath: t.binaries[i].ImportPath, ExitCode: end.ExitCode, Signal: end.Signal, Cut: end.Cut,
		}
		if t.tallies[i] != nil {
			t.tallies[i].Close()
			runs[i].Tally = t.tallies[i]
		}
	}
	return runs
}

// realTests runs the compiled tests twice and judges each run. The two go side
// by side where there are processors for both. It returns the results of each.
func (r *run) realTests(ctx context.Context, boxes []sandbox.Sandbox, binaries []gocheck.Binary) ([]gocheck.Results, error) {
	side := len(boxes) / 2
	var results []gocheck.Results // as the executions of the body
	once := func(i int) error {
		t := newTestRun(binaries, nil, side)
		mine := boxes[i*side : (i+1)*side]
		x, err := r.execute(ctx, mine, r.testPrograms(binaries), t.sink)
		discard(mine)
		if err != nil {
			return err
		}
		runs := t.runs(x)
		judged := gocheck.JudgeTests(r.source.discovery, runs)
		r.mu.Lock()
		defer r.mu.Unlock()
		results = append(results, judged.Results)
		return r.tested(x, runs, judged)
	}
	var errs [2]error
	if 2*side <= runtime.NumCPU() {
		r.step("both runs")
		var both crew.Group
		for i := range errs {
			both.Go(func() { errs[i] = once(i) })
		}
		both.Wait()
	} else {
		for i := range errs {
			r.step(fmt.Sprintf("run %d of 2", i+1))
			if errs[i] = once(i); errs[i] != nil {
				break
			}
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	a, b, findings := gocheck.CompareRuns(results[0], results[1])
	r.body.Executions[0].ResultSHA256, r.body.Executions[1].ResultSHA256 = a.SHA256(), b.SHA256()
	r.body.Findings = append(r.body.Findings, findings...)
	return results, nil
}

// tested adds one judged run to the body, and notes it at once if it failed.
// The caller holds the lock.
func (r *run) tested(x *execution, runs []gocheck.PackageRun, judged gocheck.Judged) error {
	r.judged(x, judged)
	r.census(judged.Census, judged.Judgement)
	for _, run := range runs {
		if run.Tally == nil {
			continue
		}
		for _, f := range run.Tally.Failures() {
			r.show(run.ImportPath+" "+f.Test, f.Tail)
		}
	}
	return r.note(judged.Judgement)
}

// census keeps the census of the first run, or of the first one that failed.
func (r *run) census(c receipt.Census, j receipt.Judgement) {
	first := len(r.body.Executions) == 1
	if first || j == receipt.Fail && r.body.Executions[0].Judgement != receipt.Fail {
		r.body.Census = &c
	}
}
