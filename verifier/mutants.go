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
	"time"

	"striatum/internal/collector"
	"striatum/internal/crew"
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
	// timesKilled is how often a kill is seen again before it stands.
	timesKilled = 2
	// maxFallen bounds the kills that do not stand until no more is tried.
	maxFallen = 3
	// maxRound bounds those that are compiled in one sandbox.
	maxRound = 8
)

// mutants plants defects in the product, each in a tree of its own, and runs the
// tests that have the package in their binary. At least one must be killed: its
// tests fail. The first ones are run with the tests of their own package, if it
// has any; if all of those survive, they and more are tried, with all tests that
// have their package, and in sight of them, for tests that build the product
// themselves. One that a limit ends is neither killed nor survives. The first kill
// must stand.
func (r *run) mutants(ctx context.Context, cache string) error {
	r.step("look for mutants of the product")
	found, sources, err := r.findMutants()
	if err != nil || found == nil {
		return err
	}
	m := r.body.Mutants
	defer func() {
		slices.SortFunc(m.Survivors, func(a, b receipt.Survivor) int {
			return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Operator, b.Operator))
		})
	}()
	if r.everyMutant > 0 {
		found = found[:min(len(found), r.everyMutant)]
		m.Asked = int64(len(found))
		return r.tryEvery(ctx, cache, found, sources)
	}
	fallen := 0 // kills that did not stand
	try := func(want int64, inSight bool) error {
		for tried := 0; tried < len(found); {
			need := min(want-m.Killed-m.Survived, maxRound)
			if need <= 0 || inSight && m.Killed > 0 || fallen >= maxFallen || m.NotCompiled+m.CutShort >= maxUndecided+want {
				return nil
			}
			batch := found[tried:min(len(found), tried+int(need))]
			r.step(fmt.Sprintf("mutants of the product: %d tried, %d killed", tried, m.Killed))
			trials, err := r.trialsOf(batch, sources, inSight)
			if err == nil {
				err = r.tryMutants(ctx, cache, trials)
			}
			if err != nil {
				return err
			}
			for _, t := range trials {
				if t.came == killed && m.Killed == 0 {
					if err := r.confirm(ctx, cache, t, &fallen); err != nil {
						return err
					}
				}
				r.count(t)
			}
			tried += len(batch)
		}
		return nil
	}
	if err := try(m.Asked, false); err != nil || m.Killed > 0 || m.Survived == 0 || fallen >= maxFallen {
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
		r.finding("file_not_mutated", file, "no mutant is planted in it: it is a link, too long, or not Go that can be read")
	}
	switch {
	case len(found.Candidates) > 0:
	case len(found.Skipped) > 0:
		r.incident("mutants_undecided", receipt.MakesIndeterminate, "no mutant could be planted: every product file is a link, too long, or not Go that can be read")
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

// fate is what comes of a mutant.
type fate uint8

const (
	cutShort fate = iota
	notCompiled
	killed
	survived
)

// mutated is one mutant on its way.
type mutated struct {
	gocheck.Mutant
	tests    gocheck.Discovery // whose packages are those that run
	source   []byte            // of its file, unchanged
	data     []byte            // the same, changed
	inSight  bool              // it is there when the tests run
	volume   sandbox.Volume
	binaries []gocheck.Binary // none: there is nothing to run
	came     fate
}

// trialsOf are mutants before they are compiled.
func (r *run) trialsOf(batch []gocheck.Mutant, sources map[string][]byte, inSight bool) ([]*mutated, error) {
	trials := make([]*mutated, len(batch))
	for i, m := range batch {
		t := &mutated{Mutant: m, tests: r.source.discovery, source: sources[m.Path], inSight: inSight}
		t.tests.Packages = t.tests.Testers(m.ImportPath, !inSight)
		var err error
		if t.data, err = m.Apply(t.source); err != nil {
			return nil, err
		}
		trials[i] = t
	}
	return trials, nil
}

// file is the changed file, for a sandbox.
func (t *mutated) file() sandbox.File {
	return sandbox.File{Path: path.Join(gocheck.WorkDir, t.Path), Mode: 0o644, Data: t.data}
}

// count adds what came of a mutant to the body.
func (r *run) count(t *mutated) {
	m := r.body.Mutants
	switch t.came {
	case killed:
		m.Killed++
	case survived:
		m.Survived++
		m.Survivors = append(m.Survivors, receipt.Survivor{Path: t.Path, Line: int64(t.Line), Operator: string(t.Operator)})
	case cutShort:
		m.CutShort++
	case notCompiled:
		m.NotCompiled++
	}
}

// tryMutants compiles the tests with each mutant, runs them, and notes what came
// of it.
func (r *run) tryMutants(ctx context.Context, cache string, trials []*mutated) error {
	drop, err := r.volumes(ctx, trials)
	defer drop()
	if err == nil {
		err = r.compileMutants(ctx, cache, trials)
	}
	if err != nil {
		return err
	}
	return r.runMutants(ctx, cache, trials)
}

// volumes makes a volume for each mutant. The caller must call drop, also after
// an error.
func (r *run) volumes(ctx context.Context, trials []*mutated) (drop func(), err error) {
	for _, t := range trials {
		if t.volume, err = r.engine.NewVolume(ctx, testVolumeBytes); err != nil {
			t.volume = nil
			break
		}
	}
	return func() {
		for _, t := range trials {
			if t.volume != nil {
				r.drop(t.volume)
			}
		}
	}, err
}

// confirm looks again at a mutant that was killed, beside its neutral twin: the
// same file with another change, of code and not of what it does. Both are
// compiled and run in the same way at the same time, so that tests which know a
// mutant by its time, its place, its bytes or their source fail with both, or
// guess. A kill stands if each time the one fails and the other does not. Each
// kill before that fell asks for one time more.
func (r *run) confirm(ctx context.Context, cache string, t *mutated, fallen *int) error {
	r.step("mutants of the product: look again at one that was killed")
	mutant, twin := *t, *t
	var err error
	if twin.data, err = t.Neutral(t.source, r.lane.cfg.Rand); err != nil {
		return err
	}
	both := []*mutated{&mutant, &twin}
	drop, err := r.volumes(ctx, both)
	defer drop()
	if err != nil {
		return err
	}
	var errs [2]error
	var all crew.Group
	for i := range both {
		all.Go(func() { errs[i] = r.compileMutants(ctx, cache, both[i:i+1]) })
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for range timesKilled + *fallen {
		if err := r.runMutants(ctx, cache, both); err != nil {
			return err
		}
		switch {
		case mutant.came == killed && twin.came == survived:
			continue
		case twin.came == killed:
			r.finding("kill_fell", t.Path, fmt.Sprintf("line %d, %s: tests fail too where the code is changed and not what it does", t.Line, t.Operator))
		case mutant.came == survived:
			r.finding("kill_fell", t.Path, fmt.Sprintf("line %d, %s: tests that failed pass when they run again", t.Line, t.Operator))
		case mutant.came == notCompiled || twin.came == notCompiled:
			t.came = notCompiled
			return nil
		default:
			t.came = cutShort
			return nil
		}
		*fallen++
		t.came = survived
		return nil
	}
	return nil
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
		programs[i], logs[i] = r.program(c), gocheck.NewToolLog()
		programs[i].Files = append(programs[i].Files, t.file())
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
	r.mu.Lock()
	r.mergePosture(res.Posture)
	r.mu.Unlock()
	for i, t := range trials {
		logs[i].Close()
		t.came, t.binaries = cutShort, nil
		if i >= len(res.Programs) || i == len(res.Programs)-1 && res.Hit != sandbox.HitNone {
			continue
		}
		p := res.Programs[i]
		switch gocheck.JudgeCompile(t.tests, logs[i], gocheck.End{ExitCode: p.ExitCode, Signal: p.Signal, Cut: p.StartError}).Outcome {
		case receipt.Compiled:
			if t.binaries, err = r.collectedFor(t.tests, p); err != nil {
				return err
			}
		case receipt.CompileFailed:
			t.came = notCompiled
		case receipt.CompileInconclusive:
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

// runMutants runs the tests of those mutants that were compiled, side by side, and
// notes what came of each.
func (r *run) runMutants(ctx context.Context, cache string, trials []*mutated) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slots := make(chan struct{}, max(2, min(runtime.NumCPU(), maxWidth))) // a mutant and its twin are never one after the other
	all := crew.Group{Stop: func() { stop(context.Canceled) }}
	for _, t := range trials {
		if len(t.binaries) == 0 {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			judged, err := r.runMutant(ctx, cache, t)
			switch {
			case err != nil:
				stop(err)
			case judged == receipt.Fail:
				t.came = killed
			case judged == receipt.Pass:
				t.came = survived
			default:
				t.came = cutShort
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// runMutant runs compiled tests in a sandbox like that of a run. It ends with the
// first test that fails. The changed file is not there, so that their folder is
// that of a real run, unless it is in sight of them.
func (r *run) runMutant(ctx context.Context, cache string, t *mutated) (receipt.Judgement, error) {
	spec := r.runSpec(cache, t.volume)
	spec.Limits.WallClock = r.mutantTime()
	boxes, err := r.prepareBoxes(ctx, spec)
	if err != nil {
		return "", err
	}
	defer discard(boxes)
	programs := r.testPrograms(t.binaries)
	for i := range programs {
		if t.inSight {
			programs[i].Files = []sandbox.File{t.file()}
		}
	}
	x := newTestRun(t.binaries, nil, 1)
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
	return gocheck.JudgeMutant(t.tests, x.runs(programsOf(res, len(t.binaries)))), nil
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
