package gocheck

import (
	"path"
	"strings"

	"striatum/receipt"
)

// JudgeBuild judges a call of Build: failed if it exits with a status that is
// not 0, reports a failed build, or there is no package. The results are the
// packages, each "built", "failed", "behind_error" (it imports one that failed)
// or "not_built" (the go command stopped before). The string is what the tools
// said of the first failures, for people.
func JudgeBuild(d Discovery, log *ToolLog, end End) (Judged, string) {
	j := judging{discovery: d}
	if unsure := log.unsure(end); unsure != nil {
		j.unsures = append(j.unsures, *unsure)
		return j.word(), log.Tail()
	}
	packages := d.Buildable()
	if len(packages) == 0 {
		j.bad("nothing_to_check", "no package has files to build")
	}
	failed, stopped := log.failedPackages(d)
	ok := end.ExitCode == 0 && end.Signal == "" && len(log.failed) == 0
	behind := d.behind(failed, false)
	for _, p := range packages {
		outcome := "built"
		switch {
		case failed[p.ImportPath]:
			outcome = "failed"
		case behind[p.ImportPath]:
			outcome = "behind_error"
		case !ok && (stopped || len(failed) == 0):
			outcome = "not_built"
		}
		j.results = append(j.results, Result{Package: p.ImportPath, Outcome: outcome})
	}
	tail := ""
	if !ok {
		c := log.compileFailed(d, "build_failed", end)
		j.bads, tail = append(j.bads, c.Reasons...), c.Tail
	}
	return j.word(), tail
}

// failedPackages is the packages of d with a failed build. The go command names
// a package that cannot be loaded by the import that failed: then it is found
// by the file, and nothing at all was compiled (stopped).
func (l *ToolLog) failedPackages(d Discovery) (failed map[string]bool, stopped bool) {
	own, byDir := map[string]bool{}, map[string]string{}
	for _, p := range d.Packages {
		own[p.ImportPath], byDir[p.Dir] = true, p.ImportPath
	}
	failed = map[string]bool{}
	for _, id := range l.failed {
		id, _, _ := strings.Cut(id, " ")
		if own[id] {
			failed[id] = true
			continue
		}
		for _, diag := range diagnosticsOf(d.Module, l.output[id]) {
			if p, ok := byDir[path.Dir(diag.Path)]; ok {
				failed[p], stopped = true, true
			}
		}
	}
	return failed, stopped
}

// JudgeBuildControl judges a call of Build on a tree with the files of planted.
// Each must be reported at its line, except in a package that imports one that
// failed, and in one whose own errors fill what the compiler prints.
func JudgeBuildControl(d Discovery, planted []Planted, log *ToolLog, end End) (receipt.ControlOutcome, string) {
	if unsure := log.unsure(end); unsure != nil {
		return receipt.Invalid, unsure.Code + ": " + unsure.Detail
	}
	if end.Signal != "" {
		return receipt.Invalid, "go build was ended by " + end.Signal
	}
	if end.ExitCode == 0 {
		return receipt.DidNotFail, "go build exited with status 0"
	}
	failed, _ := log.failedPackages(d)
	behind := d.behind(failed, false)
	reported := map[place]bool{}
	for _, id := range log.failed {
		for _, diag := range diagnosticsOf(d.Module, log.output[id]) {
			reported[place{diag.Path, diag.Line}] = true
		}
	}
	var missed []string
	seen := 0
	for _, p := range planted {
		switch {
		case reported[place{p.Path, p.Line}]:
			seen++
		case failed[p.ImportPath] || behind[p.ImportPath]:
		default:
			missed = append(missed, p.ImportPath+" was not reported for the planted error")
		}
	}
	if seen == 0 {
		return receipt.Invalid, "go build stopped before any planted error: " + cutText(log.lastLine())
	}
	return controlOutcome(seen, missed, nil)
}
