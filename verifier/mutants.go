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
	"slices"
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
// has any; if all of those survive, they and more are tried, with all tests that
// have their package, and in sight of them, for tests that build the product
// themselves. One that a limit ends is neither killed nor survives. The unchanged
// tests, compiled in v, are real.
func (r *run) mutants(ctx context.Context, cache string, v sandbox.Volume, real []gocheck.Binary) error {
	r.step("look for mutants of the product")
	found, sources, err := r.findMutants()
	if err != nil || found == nil {
		return err
	}
	m := r.body.Mutants
	try := func(want int64, inSight bool) error {
		for tried := 0; tried < len(found); {
			need := min(want-m.Killed-m.Survived, maxRound)
			if need <= 0 || inSight && m.Killed > 0 || m.NotCompiled+m.CutShort >= maxUndecided+want {
				return nil
			}
			batch := found[tried:min(len(found), tried+int(need))]
			r.step(fmt.Sprintf("mutants of the product: %d tried, %d killed", tried, m.Killed))
			if err := r.tryMutants(ctx, cache, r.trialsOf(batch, sources, inSight, v, real)); err != nil {
				return err
			}
			tried += len(batch)
		}
		return nil
	}
	if err := try(m.Asked, false); err != nil || m.Killed > 0 || m.Survived == 0 {
		return err
	}
	m.Survived, m.CutShort, m.NotCompiled, m.Survivors = 0, 0, 0, []receipt.Survivor{}
	return try(max(m.Asked, maxUnkilled), true)
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

// mutated is one mutant on its way.
type mutated struct {
	gocheck.Mutant
	tests    gocheck.Discovery // whose packages are those that run
	source   []byte            // of its file, unchanged
	volume   sandbox.Volume
	binaries []gocheck.Binary // none: there is nothing to run
	// Of one in sight of its tests: those without it, and where they lie.
	inSight bool
	real    []gocheck.Binary
	without sandbox.Volume
}

// trialsOf are mutants before they are compiled.
func (r *run) trialsOf(batch []gocheck.Mutant, sources map[string][]byte, inSight bool, v sandbox.Volume, real []gocheck.Binary) []*mutated {
	trials := make([]*mutated, len(batch))
	for i, m := range batch {
		t := &mutated{Mutant: m, tests: r.source.discovery, source: sources[m.Path], inSight: inSight, without: v}
		t.tests.Packages = t.tests.Testers(m.ImportPath, !inSight)
		for _, b := range real {
			if slices.ContainsFunc(t.tests.Packages, func(p gocheck.Package) bool { return p.ImportPath == b.ImportPath }) {
				t.real = append(t.real, b)
			}
		}
		trials[i] = t
	}
	return trials
}

// file is the mutant's file with these bytes, for a sandbox.
func (t *mutated) file(data []byte) sandbox.File {
	return sandbox.File{Path: path.Join(gocheck.WorkDir, t.Path), Mode: 0o644, Data: data}
}

// tryMutants compiles the tests with each mutant, runs them, and adds to the body
// what came of it.
func (r *run) tryMutants(ctx context.Context, cache string, trials []*mutated) error {
	for _, t := range trials {
		var err error
		if t.volume, err = r.engine.NewVolume(ctx, testVolumeBytes); err != nil {
			return err
		}
		defer r.drop(t.volume)
	}
	if err := r.compileMutants(ctx, cache, trials); err != nil {
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
			if err := r.tryMutant(ctx, cache, t); err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	slices.SortStableFunc(r.body.Mutants.Survivors, func(a, b receipt.Survivor) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Operator, b.Operator))
	})
	return context.Cause(ctx)
}

// compileMutants compiles the tests of each mutant, one after the other in one
// sandbox, so that each takes from the one before what is the same. No code of the
// repository runs there.
func (r *run) compileMutants(ctx context.Context, cache string, trials []*mutated) error {
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
		data, err := t.Apply(t.source)
		if err != nil {
			return err
		}
		programs[i], logs[i] = r.program(c), gocheck.NewToolLog()
		programs[i].Files = append(programs[i].Files, t.file(data))
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

// tryMutant adds one mutant to the body. The mutated file is not there when the tests
// run, so that their folder is that of a real run, unless it is in sight of them. Then tests
// that fail for any change of the file, such as one of a comment, have not
// noticed the defect.
func (r *run) tryMutant(ctx context.Context, cache string, t *mutated) error {
	var changed []sandbox.File
	if t.inSight {
		data, err := t.Apply(t.source)
		if err != nil {
			return err
		}
		changed = append(changed, t.file(data))
	}
	judged, err := r.runMutant(ctx, cache, t.volume, t.tests, t.binaries, changed)
	if err == nil && t.inSight && judged == receipt.Fail {
		harmless := t.file(fmt.Appendf(slices.Clip(t.source), "\n// %.13s\n", r.body.Nonce))
		var without receipt.Judgement
		if without, err = r.runMutant(ctx, cache, t.without, t.tests, t.real, []sandbox.File{harmless}); without == receipt.Fail {
			judged = receipt.Pass
		} else if without == receipt.Inconclusive {
			judged = without
		}
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.body.Mutants
	switch judged {
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

// runMutant runs compiled tests in a sandbox like that of a run, with changed files
// in it. It ends with the first test that fails.
func (r *run) runMutant(ctx context.Context, cache string, v sandbox.Volume, tests gocheck.Discovery, binaries []gocheck.Binary, changed []sandbox.File) (receipt.Judgement, error) {
	spec := r.runSpec(cache, v)
	spec.Limits.WallClock = r.mutantTime()
	boxes, err := r.prepareBoxes(ctx, spec)
	if err != nil {
		return "", err
	}
	defer discard(boxes)
	programs := r.testPrograms(binaries)
	for i := range programs {
		programs[i].Files = changed
	}
	x := newTestRun(binaries, nil, 1)
	res, err := boxes[0].Run(ctx, programs, func(i int) (io.Writer, io.Writer) {
		_, _ = x.sink(i)
		return noticing{x.tallies[i]}, nil
	})
	if errors.Is(err, errKilled) {
		return receipt.Fail, nil
	}
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	r.mergePosture(res.Posture)
	r.mu.Unlock()
	return gocheck.JudgeMutant(tests, x.runs(programsOf(res, len(binaries)))), nil
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
