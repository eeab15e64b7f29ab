package gocheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"striatum/receipt"
)

// diagnostics reads what go vet wrote on standard error.
func (l *ToolLog) diagnostics(m Module) []Diagnostic { return diagnosticsOf(m, l.text) }

// diagnosticsOf reads diagnostics from lines, sorted, without duplicates.
// Warnings of a C compiler are none.
func diagnosticsOf(m Module, text []string) []Diagnostic {
	var all []Diagnostic
	last := -1
	for _, t := range text {
		d, ok := parseDiagnostic(m.Dir, t)
		switch {
		case ok && strings.HasSuffix(d.Path, ".go") && !cWarning(d.Message):
			all = append(all, d)
			last = len(all) - 1
		case !ok && last >= 0 && (strings.HasPrefix(t, "\t") || strings.HasPrefix(t, "    ")):
			all[last].Message += "\n" + t
		default:
			last = -1
		}
	}
	slices.SortStableFunc(all, func(a, b Diagnostic) int { return strings.Compare(a.String(), b.String()) })
	var once []Diagnostic
	for _, d := range all {
		if last := len(once) - 1; last >= 0 && once[last].String() == d.String() {
			once[last].typeError = once[last].typeError || d.typeError // the compiler and vet both said it
			continue
		}
		once = append(once, d)
	}
	return once
}

func cWarning(message string) bool {
	for _, p := range []string{"warning: ", "note: ", "In function ", "In file included "} {
		if strings.HasPrefix(message, p) {
			return true
		}
	}
	return false
}

// JudgeVet judges a call of Vet: failed if it exits with a status that is not
// 0, prints a diagnostic all the same, or there is no package. The results are
// the diagnostics, which are also returned.
func JudgeVet(d Discovery, log *ToolLog, end End) (Judged, []Diagnostic) {
	j := judging{discovery: d}
	diagnostics := log.diagnostics(d.Module)
	for _, diag := range diagnostics {
		j.results = append(j.results, Result{Outcome: diag.String()})
	}
	unsure := log.unsure(end)
	switch {
	case unsure != nil:
		j.unsures = append(j.unsures, *unsure)
		return j.word(), diagnostics
	case len(d.Packages) == 0:
		j.bad("nothing_to_check", "no package matches")
	}
	for _, diag := range diagnostics {
		j.bad("vet_reported", cutText(diag.String()))
	}
	if len(diagnostics) == 0 && (end.ExitCode != 0 || end.Signal != "") {
		j.bad("vet_failed", fmt.Sprintf("go vet ended with %s: %s", end, cutText(log.lastLine())))
	}
	return j.word(), diagnostics
}

// JudgeVetControl judges a call of Vet on a tree with the files of planted.
// Each must be reported at its line, except in a package behind an error: one
// that does not compile or imports one that does not.
func JudgeVetControl(d Discovery, planted []Planted, log *ToolLog, end End) (receipt.ControlOutcome, string) {
	if unsure := log.unsure(end); unsure != nil {
		return receipt.Invalid, unsure.Code + ": " + unsure.Detail
	}
	if end.Signal != "" {
		return receipt.Invalid, "go vet was ended by " + end.Signal
	}
	if end.ExitCode == 0 {
		return receipt.DidNotFail, "go vet exited with status 0"
	}
	reported := log.reported(d.Module)
	behind := d.behind(log.brokenPackages(d), true)
	var missed []string
	seen := 0
	for _, p := range planted {
		switch {
		case reported[place{p.Path, p.Line}]:
			seen++
		case !behind[p.ImportPath]:
			missed = append(missed, p.ImportPath+" was not reported for the planted error")
		}
	}
	if seen == 0 {
		return receipt.Invalid, "go vet stopped before any planted error: " + cutText(log.lastLine())
	}
	return controlOutcome(seen, missed, nil)
}

type place struct {
	path string
	line int
}

// reported is the places that vet's analyzers complained about.
func (l *ToolLog) reported(m Module) map[place]bool {
	all := map[place]bool{}
	for _, d := range l.diagnostics(m) {
		if !d.typeError {
			all[place{d.Path, d.Line}] = true
		}
	}
	return all
}

// brokenPackages is the packages that vet could not type-check. A header
// "# path" without a header "# [path]" after it comes from the compiler.
func (l *ToolLog) brokenPackages(d Discovery) map[string]bool {
	broken := map[string]bool{}
	pending := ""
	for _, t := range l.text {
		header, ok := strings.CutPrefix(t, "# ")
		if pending != "" && !strings.HasPrefix(header, "[") {
			broken[pending] = true
		}
		pending = ""
		if ok && !strings.HasPrefix(header, "[") {
			pending, _, _ = strings.Cut(header, " ")
		}
	}
	byDir := map[string]string{}
	for _, p := range d.Packages {
		byDir[p.Dir] = p.ImportPath
	}
	for _, diag := range l.diagnostics(d.Module) {
		if p, ok := byDir[path.Dir(diag.Path)]; ok && diag.typeError {
			broken[p] = true
		}
	}
	return broken
}

// behind is broken and every package of d that imports one of them, however far.
func (d Discovery) behind(broken map[string]bool, withTests bool) map[string]bool {
	importers := map[string][]string{}
	for _, p := range d.Packages {
		for _, i := range p.Imports {
			importers[i] = append(importers[i], p.ImportPath)
		}
		if withTests {
			for _, i := range p.TestImports {
				importers[i] = append(importers[i], p.ImportPath)
			}
		}
	}
	all := map[string]bool{}
	queue := sortedKeys(broken)
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if !all[p] {
			all[p] = true
			queue = append(queue, importers[p]...)
		}
	}
	return all
}
