package verifier

import (
	"context"
	"fmt"
	"io"

	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
)

// source is a check that runs one go command on the sources: vet or build.
// judge returns what to show people beside its word.
type source struct {
	command func(gocheck.Module, gocheck.Params) gocheck.Command
	plant   func(gocheck.Discovery, io.Reader) ([]gocheck.Planted, error)
	judge   func(gocheck.Discovery, *gocheck.ToolLog, gocheck.End) (gocheck.Judged, []Failing)
	control func(gocheck.Discovery, []gocheck.Planted, *gocheck.ToolLog, gocheck.End) (receipt.ControlOutcome, string)
}

// runVet is go-vet: the control on the tree with planted errors, then the tree
// itself twice.
func runVet(ctx context.Context, r *run) error {
	return r.runSource(ctx, source{gocheck.Vet, gocheck.PlantVet, judgeVet, gocheck.JudgeVetControl})
}

func judgeVet(d gocheck.Discovery, log *gocheck.ToolLog, end gocheck.End) (gocheck.Judged, []Failing) {
	judged, diagnostics := gocheck.JudgeVet(d, log, end)
	var shown []Failing
	for _, d := range diagnostics {
		shown = append(shown, Failing{Name: d.String()})
	}
	if len(shown) == 0 && judged.Judgement != receipt.Pass {
		shown = []Failing{{Name: "go vet", Tail: log.Tail()}}
	}
	return judged, shown
}

// runBuild is go-build, in the same steps as runVet.
func runBuild(ctx context.Context, r *run) error {
	return r.runSource(ctx, source{gocheck.Build, gocheck.PlantBuild, judgeBuild, gocheck.JudgeBuildControl})
}

func judgeBuild(d gocheck.Discovery, log *gocheck.ToolLog, end gocheck.End) (gocheck.Judged, []Failing) {
	judged, said := gocheck.JudgeBuild(d, log, end)
	if judged.Judgement == receipt.Pass {
		return judged, nil
	}
	return judged, []Failing{{Name: "go build", Tail: said}}
}

func (r *run) runSource(ctx context.Context, s source) error {
	cache, err := r.goCache(ctx)
	if err != nil {
		return err
	}
	planted, err := s.plant(r.source.discovery, r.lane.cfg.Rand)
	if err != nil {
		return err
	}
	if len(planted) == 0 {
		r.incident("nothing_to_check", receipt.MakesFailed, "there is no package for this check in the module")
		return errConcluded
	}
	r.plant(planted)
	spec := sandbox.Spec{Limits: r.limits, Mounts: r.goMounts(cache)}
	boxes, err := r.prepareBoxes(ctx, spec, spec, spec)
	if err != nil {
		return err
	}
	defer discard(boxes)
	command := r.program(s.command(r.source.module, r.source.params))

	r.step("negative control")
	bad := command
	bad.Files = append([]sandbox.File{telemetryOff}, plantedFiles(planted)...)
	x, log, err := r.sourceRun(ctx, boxes[0], bad)
	if err != nil {
		return err
	}
	r.controlled(x, func() (receipt.ControlOutcome, string) { return s.control(r.source.discovery, planted, log, x.end(0)) })
	for i, box := range boxes[1:] {
		r.step(fmt.Sprintf("run %d of 2", i+1))
		x, log, err := r.sourceRun(ctx, box, command)
		if err != nil {
			return err
		}
		judged, shown := s.judge(r.source.discovery, log, x.end(0))
		for _, f := range shown {
			r.show(f.Name, f.Tail)
		}
		r.judged(x, judged)
		if err := r.note(judged.Judgement); err != nil {
			return err
		}
	}
	return nil
}

// sourceRun executes one command and returns what it said.
func (r *run) sourceRun(ctx context.Context, box sandbox.Sandbox, p sandbox.Program) (*execution, *gocheck.ToolLog, error) {
	log := gocheck.NewToolLog()
	x, err := r.execute(ctx, []sandbox.Sandbox{box}, []sandbox.Program{p}, func(int) (io.Writer, io.Writer) {
		return log.StdoutWriter(), log.StderrWriter()
	})
	box.Discard()
	if err != nil {
		return nil, nil, err
	}
	log.Close()
	return x, log, nil
}
