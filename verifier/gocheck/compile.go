package gocheck

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"striatum/internal/collector"
	"striatum/receipt"
)

// Compiled is the word on a compile step, or on a go build.
type Compiled struct {
	Outcome receipt.CompileOutcome
	Reasons []receipt.Reason
	Tail    string // what the tools said of the first failures, for people
}

// JudgeCompile judges a call of TestCompile. The snapshot compiles if the go
// command exits with 0 and reports each package with tests as passed, which
// means collected, and no other. A cut command, output that is not understood or
// that speaks of other packages, a cached result, a dependency that is in no
// cache and a module that needs a newer Go are indeterminate.
func JudgeCompile(d Discovery, log *ToolLog, end End) Compiled {
	if unsure := log.unsure(end); unsure != nil {
		return Compiled{Outcome: receipt.CompileInconclusive, Reasons: []receipt.Reason{*unsure}, Tail: log.Tail()}
	}
	if end.ExitCode != 0 || end.Signal != "" || len(log.failed) > 0 {
		return log.compileFailed(d, "compile_failed", end)
	}
	var collected, declared []string
	for p, outcome := range log.outcome {
		if outcome == "pass" {
			collected = append(collected, p)
		}
	}
	for _, p := range d.Packages {
		if p.HasTests() {
			declared = append(declared, p.ImportPath)
		}
	}
	slices.Sort(collected)
	slices.Sort(declared)
	if !slices.Equal(collected, declared) {
		return Compiled{Outcome: receipt.CompileInconclusive, Reasons: []receipt.Reason{{
			Code: "census_mismatch", Detail: fmt.Sprintf("the go command tests %s; the sources have tests in %s", nameSome(collected), nameSome(declared)),
		}}}
	}
	return Compiled{Outcome: receipt.Compiled}
}

// unsure is the reason for which nothing follows from the call, if there is one.
func (l *ToolLog) unsure(end End) *receipt.Reason {
	if end.Cut != "" {
		return &receipt.Reason{Code: "command_cut_short", Detail: end.Cut}
	}
	if l.cached {
		return &receipt.Reason{Code: "cached_result", Detail: "the go command used a cached test result"}
	}
	if text, ok := l.missingDependency(); ok {
		return &receipt.Reason{Code: "dependency_missing", Detail: text}
	}
	if text, ok := l.newerGo(); ok {
		return &receipt.Reason{Code: "toolchain_too_old", Detail: text}
	}
	if l.unclear != "" {
		return &receipt.Reason{Code: "output_not_understood", Detail: l.unclear}
	}
	return nil
}

// compileFailed names each failed build with its first line of output.
func (l *ToolLog) compileFailed(d Discovery, code string, end End) Compiled {
	c := Compiled{Outcome: receipt.CompileFailed}
	var tail strings.Builder
	for _, id := range l.failed {
		first := "no output"
		for _, text := range l.output[id] {
			if !strings.HasPrefix(text, "# ") {
				first = text
				break
			}
		}
		c.Reasons = append(c.Reasons, receipt.Reason{Code: code, Detail: fmt.Sprintf("%s: %s", id, cutText(first))})
		for _, text := range l.output[id] {
			if tail.Len() < tailBytes {
				tail.WriteString(text + "\n")
			}
		}
	}
	if len(l.failed) == 0 {
		c.Reasons = append(c.Reasons, receipt.Reason{Code: code, Detail: fmt.Sprintf("the go command ended with %s: %s", end, cutText(l.lastLine()))})
		for _, p := range d.Packages {
			if l.outcome[p.ImportPath] == "fail" {
				c.Reasons = append(c.Reasons, receipt.Reason{Code: code, Detail: p.ImportPath})
			}
		}
	}
	c.Reasons = boundReasons(c.Reasons)
	c.Tail = tail.String() + l.Tail()
	return c
}

// String says how a command ended, in words.
func (e End) String() string {
	switch {
	case e.Cut != "":
		return e.Cut
	case e.Signal != "":
		return e.Signal
	}
	return fmt.Sprintf("exit status %d", e.ExitCode)
}

func (l *ToolLog) lastLine() string {
	if len(l.text) == 0 {
		return "no message"
	}
	return l.text[len(l.text)-1]
}

// cutText bounds a detail that quotes foreign text.
func cutText(s string) string {
	const most = 300
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "..."
}

// Binary is one collected test binary, to be run in Dir with Args.
type Binary struct {
	ImportPath string
	Dir        string // absolute, inside the sandbox
	Args       []string
	File       string // its name among the collected files
}

// MatchRecords returns the binary of each package with tests, in the order of
// the discovery. Every such package must have exactly one record, with the
// arguments that TestCompile asks for, and every record such a package. The
// error means that collector and discovery see different packages, so that
// nothing follows from a run (census_mismatch).
func MatchRecords(d Discovery, records []collector.Record, timeout time.Duration) ([]Binary, error) {
	want := binaryArgs(timeout)
	slices.Sort(want)
	byDir := map[string]collector.Record{}
	for _, r := range records {
		if _, ok := byDir[r.Dir]; ok {
			return nil, fmt.Errorf("match test binaries: two for %q", r.Dir)
		}
		byDir[r.Dir] = r
	}
	var binaries []Binary
	for _, p := range d.Packages {
		if !p.HasTests() {
			continue
		}
		dir := path.Join(WorkDir, p.Dir)
		r, ok := byDir[dir]
		if !ok {
			return nil, fmt.Errorf("match test binaries: none for package %q", p.ImportPath)
		}
		delete(byDir, dir)
		got := slices.Clone(r.Args)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return nil, fmt.Errorf("match test binaries: package %q would run with %q, want %q", p.ImportPath, r.Args, binaryArgs(timeout))
		}
		binaries = append(binaries, Binary{ImportPath: p.ImportPath, Dir: dir, Args: r.Args, File: r.Binary})
	}
	if len(byDir) > 0 {
		return nil, fmt.Errorf("match test binaries: there is one for %q, where the sources have no test", sortedKeys(byDir)[0])
	}
	return binaries, nil
}
