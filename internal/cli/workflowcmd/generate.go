package workflowcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/internal/cli"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/workflow"
	"striatum/workflowgenerate"
)

// maxExisting bounds a file that a generated one would replace, in bytes.
const maxExisting = 1 << 20

// maxLooked bounds the entries of the worktree that are looked at for a go.mod.
const maxLooked = 100_000

type generateOptions struct {
	factory *cli.Factory
	spec    workflowgenerate.Spec
	floor   string
	dir     string
	write   bool
	force   bool
	output  cli.Output
}

func newGenerate(f *cli.Factory) *cobra.Command {
	o := &generateOptions{factory: f}
	cmd := &cobra.Command{
		Use:   "generate --shape SHAPE",
		Short: "Print, or with --write make, the files of a workflow",
		Long: `Generate plans the files of one workflow, all below verification/, and compares
them with what is there. Without --write it writes nothing.

It never replaces a file that differs without --force, and then writes none of
the others either. Equal input gives equal bytes. Generated files count for
nothing until an operator accepts them (striatum policy accept); until then the
gate judges by the workflow and says policy_not_accepted.

The checks are the language's defaults, or exactly those that --check names: a
builtin, or any other id for an external check, which becomes an unfilled entry of
the intent. A plain builtin stops at ASSERTED, so --gate-floor verified is refused
where one is named.`,
		Example: `  striatum workflow generate --shape verification_gate
  striatum workflow generate --shape verification_gate --write
  striatum workflow generate --shape verification_gate --check builtin:go-test --check schema`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.spec.Shape, "shape", "", "the shape: workflow shapes lists them")
	fl.BoolVar(&o.write, "write", false, "write the files")
	fl.StringVar(&o.dir, "dir", ".", "the worktree, or a folder in it")
	fl.StringVar(&o.floor, "gate-floor", string(workflow.FloorAsserted), `what every claim must reach: "asserted" or "verified"`)
	cli.Values(cmd, "gate-floor", "asserted", "verified")
	fl.StringArrayVar(&o.spec.Checks, "check", nil, "name this check instead of the defaults (may be repeated)")
	fl.StringVar(&o.spec.Language, "lang", "go", "whose default checks to name")
	fl.BoolVar(&o.force, "force", false, "replace files that differ")
	cli.AddOutput(cmd, &o.output)
	return cmd
}

// fileState compares a planned file with what is there.
type fileState string

const (
	stateNew       fileState = "new"
	stateUnchanged fileState = "unchanged"
	stateDiffers   fileState = "differs"
)

// planned is one file as --output json prints it. Bytes is its size; Diff is a
// unified diff from what is there, for files that differ.
type planned struct {
	Path   string    `json:"path"`
	Bytes  int       `json:"bytes"`
	SHA256 string    `json:"sha256"`
	State  fileState `json:"state"`
	Diff   string    `json:"diff,omitempty"`
}

// planOutput is what --output json prints.
type planOutput struct {
	SchemaVersion string         `json:"schema_version"`
	Worktree      string         `json:"worktree"`
	Shape         string         `json:"shape"`
	GateFloor     workflow.Floor `json:"gate_floor"`
	Written       bool           `json:"written"`
	Files         []planned      `json:"files"`
}

func (o *generateOptions) run() error {
	if o.spec.Shape == "" {
		return problem.New(problem.Usage, "no shape was named", "", "name one with --shape; `striatum workflow shapes` lists them")
	}
	o.spec.Floor = workflow.Floor(o.floor)
	top, err := snapshot.FindTop(o.dir)
	if err != nil {
		return problem.Wrap(problem.Usage, err, "generate the workflow", "name a folder that exists with --dir")
	}
	root, err := worktree.Open(top)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is pending in it
	if o.spec.Entries, err = entries(root); err != nil {
		return err
	}
	plan, err := workflowgenerate.Generate(o.spec)
	if err != nil {
		return explainGenerate(err)
	}
	out := planOutput{
		SchemaVersion: "striatum.workflow_plan.v1", Worktree: top,
		Shape: plan.Workflow.Shape, GateFloor: plan.Workflow.GateFloor,
	}
	for _, f := range plan.Files {
		p, err := compare(root, f)
		if err != nil {
			return err
		}
		out.Files = append(out.Files, p)
	}
	if o.write {
		if err := o.writeAll(root, plan, out.Files); err != nil {
			return err
		}
		out.Written = true
	}
	if err := o.print(out); err != nil {
		return err
	}
	o.warn(top, plan.Workflow)
	return nil
}

// warn says of checks of Go that they will find nothing.
func (o *generateOptions) warn(top string, w workflow.Workflow) {
	if !slices.ContainsFunc(w.Checks(), func(c workflow.JobCheck) bool { return strings.Contains(c.Uses, ":go-") }) {
		return
	}
	found, looked := false, 0
	err := filepath.WalkDir(top, func(_ string, e fs.DirEntry, err error) error {
		if looked++; err == nil && e.Name() == "go.mod" {
			found = true
		}
		if found || looked > maxLooked {
			return fs.SkipAll
		}
		if err != nil && e != nil && e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err == nil && !found && looked <= maxLooked {
		o.factory.Streams.Notef("WARNING: there is no go.mod in %s, so its checks of Go have nothing to check and will fail; name others with --check", cli.Escape(top))
	}
}

// entries are those of the intent that is there; none of one that is not valid.
func entries(root *worktree.Root) ([]allowlist.Entry, error) {
	data, err := root.ReadFile(workflow.DefaultIntentPath, maxExisting)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, problem.Wrap(problem.Refused, err, fmt.Sprintf("compare %q", workflow.DefaultIntentPath), "move away what is there; nothing was written")
	}
	intent, err := allowlist.ParseIntent(data)
	if err != nil {
		return nil, nil //nolint:nilerr // the plan shows what it would be replaced with
	}
	return intent.Checks, nil
}

func explainGenerate(err error) error {
	var floor *workflowgenerate.FloorError
	var spec *workflowgenerate.SpecError
	switch {
	case errors.As(err, &floor):
		return problem.New(problem.Refused, "generate the workflow", floor.Error(), floor.Hint())
	case errors.As(err, &spec):
		return problem.New(problem.Usage, spec.What, "", spec.Hint)
	}
	return err
}

// compare reads what is at a planned path.
func compare(root *worktree.Root, f workflowgenerate.File) (planned, error) {
	p := planned{Path: f.Path, Bytes: len(f.Data), SHA256: seal.SHA256Hex(f.Data), State: stateNew}
	old, err := root.ReadFile(f.Path, maxExisting)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return planned{}, problem.Wrap(problem.Refused, err, fmt.Sprintf("compare %q", f.Path), "move away what is there; nothing was written")
	}
	p.Diff = string(diff.Diff(f.Path, old, f.Path+" (generated)", f.Data))
	p.State = stateDiffers
	if p.Diff == "" {
		p.State = stateUnchanged
	}
	return p, nil
}

// writeAll writes what is new or, by force, differs; the workflow last, since it
// marks the top of a worktree.
func (o *generateOptions) writeAll(root *worktree.Root, plan workflowgenerate.Plan, states []planned) error {
	var edited []string
	for _, p := range states {
		if p.State == stateDiffers {
			edited = append(edited, p.Path)
		}
	}
	if edited != nil && !o.force {
		return problem.New(problem.Refused, "write the workflow",
			fmt.Sprintf("nothing was written: %s differ from what would be generated", strings.Join(edited, ", ")),
			"run without --write to see the differences, or replace them with --force: checks that are not named by --check are then dropped")
	}
	order := make([]int, len(plan.Files))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		last := func(i int) int {
			if plan.Files[i].Path == workflow.DefaultPath {
				return 1
			}
			return 0
		}
		return last(a) - last(b)
	})
	for _, i := range order {
		f := plan.Files[i]
		if states[i].State == stateUnchanged {
			continue
		}
		if err := root.WriteFile(f.Path, f.Data, fs.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	return nil
}

func (o *generateOptions) print(out planOutput) error {
	s := o.factory.Streams
	if o.output == cli.JSON {
		return s.WriteJSON(out)
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FILE\tBYTES\tSTATE")
	for _, p := range out.Files {
		state := string(p.State)
		if out.Written && p.State != stateUnchanged {
			state = "written"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", p.Path, p.Bytes, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range out.Files {
		for line := range strings.Lines(p.Diff) {
			if _, err := fmt.Fprintln(s.Out, escapeKeepTabs(strings.TrimSuffix(line, "\n"))); err != nil {
				return err
			}
		}
	}
	if out.Written {
		s.Notef("wrote the workflow into %s; next: striatum workflow validate %s", cli.Escape(out.Worktree), workflow.DefaultPath)
	} else {
		s.Notef("this is a plan for %s and nothing was written; add --write to write it", cli.Escape(out.Worktree))
	}
	return nil
}

// escapeKeepTabs escapes a line of a file for a terminal; tabs are harmless.
func escapeKeepTabs(line string) string {
	parts := strings.Split(line, "\t")
	for i, p := range parts {
		parts[i] = cli.Escape(p)
	}
	return strings.Join(parts, "\t")
}
