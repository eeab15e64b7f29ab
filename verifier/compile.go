package verifier

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"

	"striatum/internal/collector"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
)

// compileTests builds every test of the tree, and again with the planted files,
// in one sandbox in which no code of the repository runs. errConcluded: the
// tree does not compile, or nothing can be said.
func (r *run) compileTests(ctx context.Context, cache string, volumes [2]sandbox.Volume, planted []gocheck.Planted) (tests, control []gocheck.Binary, err error) {
	r.step("compile the tests, and again with planted failures")
	spec := sandbox.Spec{Limits: r.limits, Mounts: append(r.goMounts(cache),
		sandbox.Mount{Kind: sandbox.Output, Volume: volumes[0], Target: outReal},
		sandbox.Mount{Kind: sandbox.Output, Volume: volumes[1], Target: outControl},
	)}
	boxes, err := r.prepareBoxes(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	defer discard(boxes)
	packages := withTests(r.source.discovery)
	programs := make([]sandbox.Program, 2)
	logs := [2]*gocheck.ToolLog{gocheck.NewToolLog(), gocheck.NewToolLog()}
	for i, out := range []string{outReal, outControl} {
		c, err := gocheck.TestCompile(r.source.module, r.source.params, []string{sandbox.InitPath, "collect", out, "--"}, r.limits.WallClock)
		if err != nil {
			return nil, nil, err
		}
		programs[i] = r.program(c)
		for _, pkg := range packages {
			programs[i].Collect = append(programs[i].Collect, path.Join(out, collector.RecordName(workPath(pkg))))
		}
		programs[i].CollectBytes = collector.MaxRecordBytes
	}
	programs[1].Files = append(programs[1].Files, plantedFiles(planted)...)
	x, err := r.execute(ctx, boxes, programs, func(i int) (io.Writer, io.Writer) {
		return logs[i].StdoutWriter(), logs[i].StderrWriter()
	})
	if err != nil {
		return nil, nil, err
	}
	return r.compiled(x, logs, packages)
}

// compiled judges the compile step and reads what it collected.
func (r *run) compiled(x *execution, logs [2]*gocheck.ToolLog, packages []gocheck.Package) (tests, control []gocheck.Binary, err error) {
	judged := gocheck.JudgeCompile(r.source.discovery, logs[0], x.end(0))
	outcome := judged.Outcome
	x.fact.Reasons = judged.Reasons
	switch outcome {
	case receipt.CompileFailed:
		x.fact.Judgement = receipt.Fail
		r.show("compile", judged.Tail)
	case receipt.CompileInconclusive:
		x.fact.Judgement = receipt.Inconclusive
		r.show("compile", judged.Tail)
	case receipt.Compiled:
		x.fact.Judgement = receipt.Pass
	}
	r.body.Compile = &receipt.Compile{Outcome: outcome, Execution: &x.fact}
	if outcome != receipt.Compiled {
		return nil, nil, errConcluded
	}
	if len(packages) == 0 {
		r.incident("nothing_to_check", receipt.MakesFailed, "no package of the check has tests")
		return nil, nil, errConcluded
	}
	if tests, err = r.collected(x.programs[0].ProgramResult); err != nil {
		return nil, nil, err
	}
	if bad := gocheck.JudgeCompile(r.source.discovery, logs[1], x.end(1)); bad.Outcome != receipt.Compiled {
		r.body.Control.Outcome, r.body.Control.Why = receipt.Invalid, "the tests with planted failures did not compile"
		r.show("compile with planted failures", bad.Tail)
		return nil, nil, errConcluded
	}
	if control, err = r.collected(x.programs[1].ProgramResult); err != nil {
		return nil, nil, err
	}
	return tests, control, nil
}

// collected returns the binaries that one compile left, each matched with its
// package. A record that does not fit means that collector and census saw
// different packages; nothing follows from such a run.
func (r *run) collected(p sandbox.ProgramResult) ([]gocheck.Binary, error) {
	return r.collectedFor(r.source.discovery, p)
}

// collectedFor is collected for some of the packages.
func (r *run) collectedFor(d gocheck.Discovery, p sandbox.ProgramResult) ([]gocheck.Binary, error) {
	records := make([]collector.Record, len(p.Collected))
	for i, c := range p.Collected {
		rec, err := collector.ParseRecord(c.Data)
		if err != nil {
			return nil, fmt.Errorf("collect the compiled tests: %q: %w", c.Path, err)
		}
		records[i] = rec
	}
	return gocheck.MatchRecords(d, records, r.limits.WallClock)
}

// testPrograms are the binaries as programs of a run, in the folder and with the
// arguments that the go command would have used.
func (r *run) testPrograms(binaries []gocheck.Binary) []sandbox.Program {
	programs := make([]sandbox.Program, len(binaries))
	for i, b := range binaries {
		programs[i] = program(path.Join(checkDir, b.File), b.Args, b.Dir, r.source.env.In(b.Dir))
	}
	return programs
}

// prepareRuns makes side sandboxes for the control and for each of the two runs,
// in this order. They differ in nothing but which tests lie in checkDir.
func (r *run) prepareRuns(ctx context.Context, cache string, volumes [2]sandbox.Volume, side int) ([]sandbox.Sandbox, error) {
	var specs []sandbox.Spec
	for _, v := range []sandbox.Volume{volumes[1], volumes[0], volumes[0]} {
		specs = append(specs, slices.Repeat([]sandbox.Spec{r.runSpec(cache, v)}, side)...)
	}
	return r.prepareBoxes(ctx, specs...)
}

// runSpec is a sandbox that runs the compiled tests in v.
func (r *run) runSpec(cache string, v sandbox.Volume) sandbox.Spec {
	mounts := r.goMounts(cache)
	for i := range mounts {
		mounts[i].Shared = false
	}
	return sandbox.Spec{Limits: r.limits, Mounts: append(mounts, sandbox.Mount{Kind: sandbox.ReadOnly, Volume: v, Target: checkDir})}
}

func withTests(d gocheck.Discovery) []gocheck.Package {
	var all []gocheck.Package
	for _, p := range d.Packages {
		if p.HasTests() {
			all = append(all, p)
		}
	}
	return all
}

// workPath is a package's folder in the sandbox.
func workPath(p gocheck.Package) string { return path.Join(gocheck.WorkDir, p.Dir) }

// digest is SHA-256 over fields as netstrings ("3:abc,").
type digest struct{ h hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

func (d digest) field(s string) {
	_, _ = fmt.Fprintf(d.h, "%d:%s,", len(s), s) // a hash never fails
}

func (d digest) sum() string { return hex.EncodeToString(d.h.Sum(nil)) }
