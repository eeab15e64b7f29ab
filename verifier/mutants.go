package verifier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"sync"
	"time"

	"striatum/internal/collector"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
)

const (
	// DefaultMutants is how many mutants of the product a go-test plants, unless
	// the check or the request says more.
	DefaultMutants = 3
	// maxUnkilled bounds those that are tried until one is killed.
	maxUnkilled = 24
	// maxUndecided bounds those that do not compile or are cut short.
	maxUndecided = 24
	// maxRound bounds those that are compiled in one sandbox.
	maxRound = 8
)

// mutants plants defects in the product, each in a tree of its own, and runs the
// tests that have the package in their binary. At least one must be killed: its
// tests fail. The first ones are run with the tests of their own package, if it
// has any; if all of those survive, more are tried, with all tests that have
// their package. One that a limit ends is neither killed nor survives.
func (r *run) mutants(ctx context.Context, cache string) error {
	r.step("look for mutants of the product")
	found, sources, err := r.findMutants()
	if err != nil || found == nil {
		return err
	}
	m := r.body.Mutants
	for tried, round := 0, 0; tried < len(found); round++ {
		decided, undecided := m.Killed+m.Survived, m.NotCompiled+m.CutShort
		need := m.Asked - decided
		if need <= 0 && m.Killed == 0 {
			need = maxUnkilled - decided
		}
		if need <= 0 || undecided >= maxUndecided+m.Asked {
			return nil
		}
		batch := found[tried:min(int64(len(found)), int64(tried)+min(need, maxRound))]
		tried += len(batch)
		r.step(fmt.Sprintf("mutants of the product: %d tried, %d killed", tried-len(batch), m.Killed))
		if err := r.tryMutants(ctx, cache, batch, sources, decided < m.Asked); err != nil {
			return err
		}
	}
	return nil
}

// findMutants notes in the body what can be mutated and returns the candidates,
// with the files that have them; none if that is all there is to say.
func (r *run) findMutants() ([]gocheck.Mutant, map[string][]byte, error) {
	root, err := os.OpenRoot(r.snap.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open the frozen tree: %w", err)
	}
	defer func() { _ = root.Close() }() // a read-only handle
	tree := root.FS()
	found, err := gocheck.FindMutants(tree, r.source.discovery, r.body.Nonce)
	if err != nil {
		return nil, nil, err
	}
	asked := max(cmp.Or(r.check.Mutants, DefaultMutants), r.req.Mutants)
	r.body.Mutants = &receipt.Mutants{Asked: int64(asked), Statements: found.Statements, Reached: found.Reached, Survivors: []receipt.Survivor{}}
	for i, file := range found.Skipped {
		if i == maxSourceFindings {
			r.body.Findings = append(r.body.Findings, receipt.FindingsLeftOut("file_not_mutated", int64(len(found.Skipped)-i)))
			break
		}
		r.finding("file_not_mutated", file, "no mutant is planted in it: it is a link or too long")
	}
	switch {
	case len(found.Candidates) > 0:
	case len(found.Skipped) > 0:
		r.incident("mutants_undecided", receipt.MakesIndeterminate, "no mutant could be planted: every product file is a link or too long")
	default:
		r.finding("nothing_to_mutate", r.source.module.Dir, "the check's packages have no statement in which a mutant could be planted")
	}
	sources := map[string][]byte{}
	for _, c := range found.Candidates {
		if sources[c.Path] == nil {
			if sources[c.Path], err = gocheck.ReadFile(tree, c.Path, gocheck.MaxSourceBytes); err != nil {
				return nil, nil, err
			}
		}
	}
	return found.Candidates, sources, nil
}

// trialMutant is one mutant on its way.
type trialMutant struct {
	gocheck.Mutant
	tests    gocheck.Discovery // whose packages are those that run
	volume   sandbox.Volume
	binaries []gocheck.Binary // none: there is nothing to run
}

// tryMutants compiles the tests with each mutant, runs them, and adds to the body
// what came of it.
func (r *run) tryMutants(ctx context.Context, cache string, batch []gocheck.Mutant, sources map[string][]byte, near bool) error {
	trials := make([]*trialMutant, len(batch))
	for i, m := range batch {
		tests := r.source.discovery
		tests.Packages = tests.Testers(m.ImportPath, near)
		volume, err := r.engine.NewVolume(ctx, testVolumeBytes)
		if err != nil {
			return err
		}
		defer r.drop(volume)
		trials[i] = &trialMutant{Mutant: m, tests: tests, volume: volume}
	}
	if err := r.compileMutants(ctx, cache, trials, sources); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slots := make(chan struct{}, min(runtime.NumCPU(), maxWidth))
	var all sync.WaitGroup
	for _, t := range trials {
		if len(t.binaries) == 0 {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := r.runMutant(ctx, cache, t); err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// compileMutants compiles the tests of each mutant, one after the other in one
// sandbox, so that each takes from the one before what is the same. No code of the
// repository runs there. The mutated file is there only when they are compiled, so
// that the folder in which they run is that of a real run.
func (r *run) compileMutants(ctx context.Context, cache string, trials []*trialMutant, sources map[string][]byte) error {
	spec := sandbox.Spec{Limits: r.limits, Mounts: r.goMounts(cache)}
	programs := make([]sandbox.Program, len(trials))
	logs := make([]*gocheck.ToolLog, len(trials))
	for i, t := range trials {
		out := fmt.Sprintf("/out/%d", i+1)
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Kind: sandbox.Output, Volume: t.volume, Target: out})
		params := r.source.params
		params.Packages = nil
		for _, p := range t.tests.Packages {
			params.Packages = append(params.Packages, p.Pattern(r.source.module))
		}
		c, err := gocheck.TestCompile(r.source.module, params, []string{sandbox.InitPath, "collect", out, "--"}, r.limits.WallClock)
		if err != nil {
			return err
		}
		data, err := t.Apply(sources[t.Path])
		if err != nil {
			return err
		}
		programs[i], logs[i] = r.program(c), gocheck.NewToolLog()
		programs[i].Files = append(programs[i].Files, sandbox.File{Path: path.Join(gocheck.WorkDir, t.Path), Mode: 0o644, Data: data})
		for _, p := range t.tests.Packages {
			programs[i].Collect = append(programs[i].Collect, path.Join(out, collector.RecordName(workPath(p))))
		}
		programs[i].CollectBytes = collector.MaxRecordBytes
	}
	boxes, err := r.prepareBoxes(ctx, spec)
	if err != nil {
		return err
	}
	defer discard(boxes)
	res, err := boxes[0].Run(ctx, programs, func(i int) (io.Writer, io.Writer) {
		return logs[i].StdoutWriter(), logs[i].StderrWriter()
	})
	if err != nil {
		return err
	}
	r.mergePosture(res.Posture)
	for i, t := range trials {
		logs[i].Close()
		if i >= len(res.Programs) || i == len(res.Programs)-1 && res.Hit != sandbox.HitNone {
			r.body.Mutants.CutShort++
			continue
		}
		p := res.Programs[i]
		switch gocheck.JudgeCompile(t.tests, logs[i], gocheck.End{ExitCode: p.ExitCode, Signal: p.Signal, Cut: p.StartError}).Outcome {
		case receipt.Compiled:
			if t.binaries, err = r.collectedFor(t.tests, p); err != nil {
				return err
			}
		case receipt.CompileFailed:
			r.body.Mutants.NotCompiled++
		case receipt.CompileInconclusive:
			r.body.Mutants.CutShort++
		}
	}
	return nil
}

// errKilled ends a sandbox in which a test has failed.
var errKilled = errors.New("a test noticed the mutant")

// noticing is a tally that ends the run with the first test that fails.
type noticing struct{ *gocheck.Tally }

func (n noticing) Write(p []byte) (int, error) {
	_, _ = n.Tally.Write(p) // it never fails
	if n.Failed() {
		return 0, errKilled
	}
	return len(p), nil
}

// runMutant runs the tests of one mutant in a sandbox like that of a run.
func (r *run) runMutant(ctx context.Context, cache string, t *trialMutant) error {
	spec := r.runSpec(cache, t.volume)
	spec.Limits.WallClock = r.mutantTime()
	boxes, err := r.prepareBoxes(ctx, spec)
	if err != nil {
		return err
	}
	defer discard(boxes)
	x := newTestRun(t.binaries, nil, 1)
	res, err := boxes[0].Run(ctx, r.testPrograms(t.binaries), func(i int) (io.Writer, io.Writer) {
		out, _ := x.sink(i)
		return noticing{out.(*gocheck.Tally)}, nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.body.Mutants
	if errors.Is(err, errKilled) {
		m.Killed++
		return nil
	}
	if err != nil {
		return err
	}
	r.mergePosture(res.Posture)
	switch gocheck.JudgeMutant(t.tests, x.runs(programsOf(res, len(t.binaries)))) {
	case receipt.Fail:
		m.Killed++
	case receipt.Pass:
		m.Survived++
		m.Survivors = append(m.Survivors, receipt.Survivor{Path: t.Path, Line: int64(t.Line), Operator: string(t.Operator)})
	case receipt.Inconclusive:
		m.CutShort++
	}
	return nil
}

// mutantTime is how long the tests of a mutant may take: a multiple of what the
// real ones took, for a mutant may be endless.
func (r *run) mutantTime() time.Duration {
	var longest int64
	for _, e := range r.body.Executions {
		longest = max(longest, e.DurationMS)
	}
	return min(r.limits.WallClock, 10*time.Second+4*time.Duration(longest)*time.Millisecond)
}
