package verifier

import (
	"context"
	"errors"
	"io"
	"sync"

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
// twice.
func runTests(ctx context.Context, r *run) error {
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
	boxes, err := r.prepareRuns(ctx, cache, volumes)
	if err != nil {
		return err
	}
	defer discard(boxes)

	r.step("negative control")
	t := &testRun{binaries: control, planted: map[string]string{}}
	for _, p := range planted {
		t.planted[p.ImportPath] = p.Test
	}
	programs := r.testPrograms(control)
	x, err := r.execute(ctx, boxes[0], programs, t.sink)
	if err != nil {
		return err
	}
	boxes[0].Discard()
	r.controlled(x, len(programs), func() (receipt.ControlOutcome, string) {
		return gocheck.JudgeTestControl(planted, t.runs(x))
	})
	return r.realTests(ctx, boxes[1:], real)
}

// testRun collects what the test binaries of one execution report.
type testRun struct {
	binaries []gocheck.Binary
	planted  map[string]string // of a control: the planted test of each package
	room     gocheck.Room
	tallies  []*gocheck.Tally
}

// sink closes the tally of the program before, whose output is complete.
func (t *testRun) sink(i int) (io.Writer, io.Writer) {
	t.closeLast()
	tally := gocheck.NewTally(&t.room)
	if test := t.planted[t.binaries[i].ImportPath]; test != "" {
		tally = gocheck.NewControlTally(test)
	}
	t.tallies = append(t.tallies, tally)
	return tally, nil
}

func (t *testRun) closeLast() {
	if n := len(t.tallies); n > 0 {
		t.tallies[n-1].Close()
	}
}

// runs pairs each package with its binary's end and report. A binary that a
// limit kept from its end, or from starting, is cut.
func (t *testRun) runs(x *execution) []gocheck.PackageRun {
	t.closeLast()
	runs := make([]gocheck.PackageRun, len(x.programs))
	for i := range x.programs {
		end := x.end(i)
		runs[i] = gocheck.PackageRun{
			ImportPath: t.binaries[i].ImportPath, ExitCode: end.ExitCode, Signal: end.Signal, Cut: end.Cut,
		}
		if i < len(t.tallies) {
			runs[i].Tally = t.tallies[i]
		}
	}
	return runs
}

// realTests runs the compiled tests twice and judges each run. The two run side
// by side: within a run the packages come one after the other, so that together
// they load the machine as the go command's own parallelism does.
func (r *run) realTests(ctx context.Context, boxes []sandbox.Sandbox, binaries []gocheck.Binary) error {
	r.step("both runs")
	errs := make([]error, len(boxes))
	var results []gocheck.Results
	var both sync.WaitGroup
	for i, sb := range boxes {
		both.Go(func() {
			t := &testRun{binaries: binaries}
			x, err := r.execute(ctx, sb, r.testPrograms(binaries), t.sink)
			sb.Discard()
			if err != nil {
				errs[i] = err
				return
			}
			runs := t.runs(x)
			judged := gocheck.JudgeTests(r.source.discovery, runs)
			r.mu.Lock()
			defer r.mu.Unlock()
			results = append(results, judged.Results)
			errs[i] = r.tested(x, runs, judged)
		})
	}
	both.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	a, b, findings := gocheck.CompareRuns(results[0], results[1])
	r.body.Executions[0].ResultSHA256, r.body.Executions[1].ResultSHA256 = a.SHA256(), b.SHA256()
	r.body.Findings = append(r.body.Findings, findings...)
	return nil
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
