package receiptcmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/shellquote"
	"striatum/receipt"
)

// maxShown is how many entries of each list are shown.
const maxShown = 20

func newShow(f *cli.Factory) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "show FILE|SEAL",
		Short: "Print a receipt for people, without trusting it",
		Long: `Print what a receipt says, of a file or, by the first 8 digits or more of its seal, of the
copy in the worktree. The signature is not looked at: "receipt verify"
does that. A receipt that contradicts itself is refused (exit 3), a file that is
no receipt is invalid (exit 6), a missing file is a mistake of usage (exit 2).`,
		Example: "  striatum receipt show SEAL\n  striatum receipt show SEAL.receipt.json --output json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return show(f, args[0], out)
		},
	}
	cli.AddOutput(cmd, &out)
	return cmd
}

func show(f *cli.Factory, path string, out cli.Output) error {
	const what = "show the receipt"
	path, err := find(f, what, path)
	if err != nil {
		return err
	}
	data, err := readFile(what, path)
	if err != nil {
		return err
	}
	r, err := receipt.Parse(data)
	if err != nil {
		return refused(err, what, path)
	}
	if out == cli.JSON {
		return f.Streams.WriteJSON(r)
	}
	f.Streams.Notef("the signature was not checked; run: striatum receipt verify %s", cli.Escape(path))
	return printReceipt(f.Streams.Out, r)
}

// rows collects labelled lines.
type rows struct{ b strings.Builder }

func (p *rows) add(label, format string, args ...any) {
	fmt.Fprintf(&p.b, "%-11s %s\n", label, cli.Escape(fmt.Sprintf(format, args...)))
}

func (p *rows) reasons(label string, reasons []receipt.Reason) {
	for i, r := range reasons {
		if i == maxShown {
			p.add(label, "and %d more", len(reasons)-maxShown)
			return
		}
		p.add(label, "%s: %s", r.Code, r.Detail)
	}
}

func (p *rows) list(label string, l receipt.List) {
	shown := l.Names[:min(len(l.Names), maxShown)]
	for _, n := range shown {
		p.add(label, "%s", n)
	}
	if more := l.Count - int64(len(shown)); more > 0 && l.Count > 0 {
		p.add(label, "and %d more", more)
	}
}

func (p *rows) execution(label string, e *receipt.Execution) {
	if e == nil {
		return
	}
	end := fmt.Sprintf("exit code %d", e.ExitCode)
	if e.Signal != "" {
		end = e.Signal
	}
	for _, mark := range []struct {
		set  bool
		text string
	}{{e.TimedOut, ", timed out"}, {e.OOM, ", out of memory"}, {e.OutputTruncated, ", output cut"}} {
		if mark.set {
			end += mark.text
		}
	}
	p.add(label, "%s: %s, %s, %d MiB at most, %d bytes of output", e.Judgement, end,
		time.Duration(e.DurationMS)*time.Millisecond, e.MaxRSSBytes>>20, e.StdoutBytes+e.StderrBytes)
}

// origins says how the origin of the modules is known.
func origins(d *receipt.Dependencies) string {
	var parts []string
	for _, o := range []struct {
		n    int64
		text string
	}{{d.SumDB, "from the checksum database"}, {d.Accepted, "accepted"}, {d.FirstSeen, "first seen"}, {d.Self, "of its own"}} {
		if o.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", o.n, o.text))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func printReceipt(w io.Writer, r receipt.Receipt) error {
	p := &rows{}
	p.add("receipt", "%s", r.SealDigest)
	p.add("classified", "%s", r.Classification)
	p.reasons("because", r.Explained())
	p.add("check", "%s (%s)", r.Check.ID, r.Check.Kind)
	if r.Check.BacksClaim != "" {
		p.add("claim", "%s", r.Check.BacksClaim)
	}
	p.add("command", "%s", shellquote.Line(r.Check.Argv))
	p.add("passes when", "%s; agreement over %s", r.Check.PassWhen, r.Check.Agreement)
	p.add("tree", "%s (%d files, %d bytes)", r.Inputs.TreeSHA256, r.Inputs.Files, r.Inputs.Bytes)
	if r.Inputs.GitCommit != "" {
		p.add("commit", "%s", r.Inputs.GitCommit)
	}
	if x := r.Inputs.Protected; x != nil {
		printProtected(p, x)
	}
	if d := r.Inputs.Dependencies; d != nil {
		p.add("modules", "%s", origins(d))
	}
	if r.Compile != nil {
		p.add("compile", "%s", r.Compile.Outcome)
		p.execution("", r.Compile.Execution)
	}
	printControl(p, r.Control)
	for i := range r.Executions {
		p.execution(fmt.Sprintf("run %d", i+1), &r.Executions[i])
	}
	p.add("agreement", "%s", r.Agreement)
	if c := r.Census; c != nil {
		p.add("tests", "%d discovered, %d run, %d passed, %d failed, %d skipped, %d subtests", c.Discovered, c.Run, c.Passed, c.Failed, c.Skipped, c.Subtests)
		p.list("failed", c.FailedTests)
		p.list("skipped", c.SkippedTests)
		p.list("not run", c.NotRun)
	}
	if m := r.Mutants; m != nil {
		p.add("mutants", "%d killed, %d survived, %d cut short, %d did not compile; of %d statements tests reach %d", m.Killed, m.Survived, m.CutShort, m.NotCompiled, m.Statements, m.Reached)
		for _, s := range m.Survivors {
			p.add("survivor", "%s:%d %s", s.Path, s.Line, s.Operator)
		}
	}
	if b := r.Baseline; b != nil && b.SHA256 != "" {
		p.add("baseline", "%s, which has the check: %t", b.SHA256, b.Entry)
		p.list("removed", b.TestsRemoved)
		p.list("now skipped", b.TestsNewlySkipped)
		p.list("changed", b.TestInputsChanged)
	}
	for i, f := range r.Findings {
		if i == maxShown {
			p.add("finding", "and %d more", len(r.Findings)-maxShown)
			break
		}
		p.add("finding", "%s %q %s", f.Code, f.Path, f.Detail)
	}
	printPosture(p, r)
	p.add("lane", "%s on %s, %s/%s, striatum %s", r.Lane.LaneID, r.Lane.HostFingerprint, r.Lane.OS, r.Lane.Arch, r.Tools.StriatumVersion)
	p.add("number", "%d of epoch %s in repository %s, after %s", r.Sequence, r.LaneEpoch, r.RepositoryID, r.PrevSeal)
	if r.RunID != "" {
		p.add("run", "%s, job %s", r.RunID, r.JobID)
	}
	p.add("created", "%s", r.CreatedAt)
	_, err := io.WriteString(w, p.b.String())
	return err
}

func printProtected(p *rows, x *receipt.Protected) {
	p.add("ran on", "tree %s", x.TreeSHA256)
	p.add("protected", "%d files of commit %s that match %s", x.Files, x.Commit, strings.Join(x.Paths, " "))
	for _, l := range []struct {
		label, why string
		list       receipt.List
	}{
		{"restored", "the tree has them otherwise, and its own did not count", x.Restored},
		{"added", "the tree does not have them", x.Added},
		{"removed", "the commit does not have them, so they did not count", x.Removed},
	} {
		p.add(l.label, "%d: %s", l.list.Count, l.why)
		p.list("", l.list)
	}
}

func printControl(p *rows, c receipt.Control) {
	p.add("control", "%s: %s", c.Kind, c.Outcome)
	if c.Why != "" {
		p.add("", "%s", c.Why)
	}
	for _, x := range []struct {
		label string
		e     *receipt.Execution
	}{{"baseline", c.Baseline}, {"known bad", c.Execution}, {"emptied", c.Emptied}} {
		p.execution(x.label, x.e)
		if x.e != nil {
			p.reasons("", x.e.Reasons)
		}
	}
}

func printPosture(p *rows, r receipt.Receipt) {
	strict := "not strict"
	if r.Posture.Strict {
		strict = "strict"
	}
	p.add("posture", "%s, %d facets; %s %s, %s %s", strict, len(r.Posture.Facets),
		r.Posture.Engine, r.Posture.EngineVersion, r.Posture.Runtime, r.Posture.RuntimeVersion)
	for _, f := range r.Posture.Facets {
		if !f.OK {
			p.add("", "%s: %s observed %q where %q is required", f.Name, f.Observer, f.Observed, f.Required)
		}
	}
	l := r.Limits
	p.add("limits", "%s, %d MiB memory, %d pids, %d.%03d cpus, %d MiB output, %d MiB disk", time.Duration(l.WallClockMS)*time.Millisecond,
		l.MemoryBytes>>20, l.Pids, l.MilliCPUs/1000, l.MilliCPUs%1000, l.OutputBytes>>20, l.DiskBytes>>20)
}
