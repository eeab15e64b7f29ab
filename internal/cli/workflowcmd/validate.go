package workflowcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/internal/beneath"
	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/hostid"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/workflow"
)

type validateOptions struct {
	factory *cli.Factory
	path    string
	output  cli.Output
	// machineID is the file with the host's machine id.
	machineID string
}

func newValidate(f *cli.Factory) *cobra.Command {
	o := &validateOptions{factory: f, machineID: hostid.MachineIDFile}
	cmd := &cobra.Command{
		Use:   "validate PATH",
		Short: "Check a workflow, its intent, and this host's pins",
		Long: `Validate applies the JSON Schema and every rule that a schema cannot say to a
workflow, to the intent that it names (intent_path, relative to the top of the
worktree), and to this host's pins if there are any. Every finding has a JSON
pointer. It executes nothing.

It exits 0 when the workflow is valid, 8 when all that is left is to fill or pin
external checks, 3 when a file is a link or no regular file, else 6.`,
		Example: "  striatum workflow validate verification/workflow.json\n  striatum workflow validate verification/workflow.json --output json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			return o.run(cmd.Context())
		},
	}
	cli.AddOutput(cmd, &o.output)
	return cmd
}

// validation is what --output json prints.
type validation struct {
	SchemaVersion string             `json:"schema_version"`
	Path          string             `json:"path"`
	Valid         bool               `json:"valid"`
	Findings      []workflow.Finding `json:"findings"`
}

// PinsRefused is the code of pins that this host's lanes did not sign, or that
// say something impossible.
const PinsRefused workflow.Code = "pins_refused"

func (o *validateOptions) run(ctx context.Context) error {
	root, data, err := o.read()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is pending in it
	findings, err := o.validate(ctx, root, data)
	if err != nil {
		return err
	}
	if err := o.print(findings); err != nil {
		return err
	}
	return o.verdict(findings)
}

// read opens the worktree that the workflow lies in and reads the workflow. As
// everywhere below a worktree's top, a link in the way is refused.
func (o *validateOptions) read() (root *worktree.Root, data []byte, err error) {
	const what = "read the workflow"
	hint := "name the file, mostly " + workflow.DefaultPath
	abs, err := filepath.Abs(o.path)
	var st fs.FileInfo
	if err == nil {
		st, err = os.Lstat(abs)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, problem.New(problem.Usage, what, fmt.Sprintf("there is no file %q", o.path), hint+"; where there is none, run: striatum workflow generate --shape verification_gate --write")
		}
		return nil, nil, problem.Wrap(problem.Usage, err, what, hint)
	}
	if st.IsDir() {
		return nil, nil, problem.New(problem.Refused, what, fmt.Sprintf("%q is a folder", o.path), fmt.Sprintf("name the file in it: %s", o.inFolder(abs)))
	}
	top := topOf(abs)
	rel, err := filepath.Rel(top, abs)
	if err != nil {
		return nil, nil, problem.Wrap(problem.Usage, err, what, hint)
	}
	if root, err = worktree.Open(top); err != nil {
		return nil, nil, err
	}
	data, err = root.ReadFile(filepath.ToSlash(rel), workflow.MaxBytes)
	if errors.Is(err, beneath.ErrTooLong) {
		err = problem.New(problem.Invalid, what, fmt.Sprintf("%q has more than %d bytes", o.path, workflow.MaxBytes), "")
	}
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return root, data, nil
}

// inFolder names the workflow in a folder, or below it where it lies mostly.
func (o *validateOptions) inFolder(abs string) string {
	for _, rel := range []string{path.Base(workflow.DefaultPath), workflow.DefaultPath} {
		if st, err := os.Lstat(filepath.Join(abs, rel)); err == nil && st.Mode().IsRegular() {
			return filepath.Join(o.path, rel)
		}
	}
	return "mostly " + workflow.DefaultPath
}

// topOf returns the top of the worktree that the file at abs is named in, as
// snapshot.FindTop finds it, but by the path as it was written, so that links
// below the top are still to be seen.
func topOf(abs string) string {
	for at := filepath.Dir(abs); ; at = filepath.Dir(at) {
		for _, mark := range []string{".git", workflow.DefaultPath} {
			if _, err := os.Lstat(filepath.Join(at, mark)); err == nil {
				return at
			}
		}
		if at == filepath.Dir(at) {
			return filepath.Dir(abs)
		}
	}
}

// validate joins the workflow with the intent beside it and this host's pins.
func (o *validateOptions) validate(ctx context.Context, root *worktree.Root, data []byte) ([]workflow.Finding, error) {
	w, findings := workflow.Read(data)
	if findings != nil {
		return findings, nil
	}
	view, extra, err := o.view(ctx, root, w)
	if err != nil {
		return nil, err
	}
	return append(extra, workflow.Validate(data, view)...), nil
}

// view reads the intent and the pins. What is wrong with them are findings.
func (o *validateOptions) view(ctx context.Context, root *worktree.Root, w workflow.Workflow) (view workflow.View, extra []workflow.Finding, err error) {
	intent, found, extra, err := readIntent(root, w.IntentPath)
	if err != nil || extra != nil {
		return workflow.View{IntentInvalid: true}, extra, err
	}
	pinned := slices.ContainsFunc(w.Checks(), func(c workflow.JobCheck) bool { return workflow.ToolchainBuiltin(c.Uses) })
	var pins *allowlist.Pins
	fingerprint := ""
	if pinned || len(intent.Checks) > 0 {
		if pins, fingerprint, extra, err = o.pins(ctx, root, w.IntentPath); err != nil {
			return workflow.View{}, nil, err
		}
	}
	if found {
		rows, err := allowlist.Join(intent, pins, nil, fingerprint)
		if err != nil {
			return workflow.View{}, nil, err
		}
		view = allowlist.View(rows)
	}
	view.PinCommand, view.Unpinned = allowlist.PinCommand, map[string]string{}
	for _, c := range w.Checks() {
		if !workflow.ToolchainBuiltin(c.Uses) {
			continue
		}
		if _, view.Unpinned[c.CheckID()], err = allowlist.ToolchainPin(c.CheckRef, pins, fingerprint); err != nil {
			return workflow.View{}, nil, err
		}
	}
	return view, extra, nil
}

// readIntent reads the intent; found is false without one. What is wrong with
// it are findings.
func readIntent(root *worktree.Root, path string) (intent allowlist.Intent, found bool, wrong []workflow.Finding, err error) {
	if !workflow.CleanPath(path) || path == "." {
		return intent, false, nil, nil
	}
	data, err := root.ReadFile(path, allowlist.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return intent, false, nil, nil
	}
	if errors.Is(err, beneath.ErrTooLong) {
		return intent, false, []workflow.Finding{{File: path, Code: workflow.Malformed, What: err.Error()}}, nil
	}
	if err != nil {
		return intent, false, nil, err
	}
	intent, err = allowlist.ParseIntent(data)
	if invalid, ok := errors.AsType[*allowlist.InvalidError](err); ok {
		for _, f := range invalid.Findings {
			wrong = append(wrong, workflow.Finding{File: path, Pointer: f.Pointer, Code: workflow.Code(f.Code), What: f.What, Hint: f.Hint})
		}
		return intent, false, wrong, nil
	}
	return intent, err == nil, nil, err
}

// pins reads this host's pins, nil if there are none. The home is opened only
// for them: a worktree without pins validates anywhere.
func (o *validateOptions) pins(ctx context.Context, root *worktree.Root, intentPath string) (*allowlist.Pins, string, []workflow.Finding, error) {
	fingerprint, err := hostid.Fingerprint(o.machineID)
	if err != nil { // a host without a name has no pins
		return nil, fingerprint, nil, nil
	}
	path := allowlist.PinsPath(intentPath, fingerprint)
	refused := func(err error) []workflow.Finding {
		return []workflow.Finding{{
			File: path, Code: PinsRefused, What: err.Error(),
			Hint: "pins are never written by hand: remove the file and run: " + allowlist.PinCommand,
		}}
	}
	envelope, err := root.ReadFile(path, allowlist.MaxPinsBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fingerprint, nil, nil
	case err != nil:
		return nil, fingerprint, refused(err), nil
	}
	session, err := service.Open(ctx, o.factory, "")
	if err != nil {
		return nil, "", nil, err
	}
	ring, err := session.Keyring(ctx)
	if err = errors.Join(err, session.Close()); err != nil {
		return nil, "", nil, err
	}
	pins, err := allowlist.ParsePins(envelope, ring)
	if err != nil {
		return nil, fingerprint, refused(err), nil
	}
	return &pins, fingerprint, nil, nil
}

// place writes where a finding is: FILE#POINTER.
func (o *validateOptions) place(f workflow.Finding) string {
	file := f.File
	if file == "" {
		file = o.path
	}
	return file + "#" + f.Pointer
}

func (o *validateOptions) print(findings []workflow.Finding) error {
	s := o.factory.Streams
	if o.output == cli.JSON {
		out := validation{SchemaVersion: "striatum.workflow_validation.v1", Path: o.path, Valid: len(findings) == 0, Findings: findings}
		if findings == nil {
			out.Findings = []workflow.Finding{}
		}
		return s.WriteJSON(out)
	}
	var b strings.Builder
	if len(findings) == 0 {
		fmt.Fprintf(&b, "%s: valid\n", cli.Escape(o.path))
	}
	for _, f := range findings {
		fmt.Fprintf(&b, "%s: %s: %s\n", cli.Escape(o.place(f)), f.Code, cli.Escape(f.What))
		if f.Hint != "" {
			fmt.Fprintf(&b, "    hint: %s\n", cli.Escape(f.Hint))
		}
	}
	_, err := fmt.Fprint(s.Out, b.String())
	return err
}

// verdict is the error that the findings amount to, about the first of the
// worse kind.
func (o *validateOptions) verdict(findings []workflow.Finding) error {
	if len(findings) == 0 {
		return nil
	}
	kind, first, count := problem.Unfilled, findings[0], 0
	for _, f := range findings {
		if f.Unfilled {
			continue
		}
		if count++; count == 1 {
			kind, first = problem.Invalid, f
		}
	}
	what := "the workflow is not valid"
	if kind == problem.Unfilled {
		what = "the workflow names external checks that are not ready"
	}
	if n := len(findings) - 1; n > 0 {
		what += fmt.Sprintf(" (%d findings)", n+1)
	}
	return problem.New(kind, what, o.place(first)+": "+first.What, first.Hint)
}
