// Package gatecmd is `striatum gate`: what each claim has earned.
//
// Both commands execute nothing, write nothing into the worktree and never wait
// for the lane. Without RUN they hash the worktree, every byte read now, and
// judge that tree; --commit judges a commit's tree, named as for `verifier run`
// and recorded by its full id. `read` exits 0 when it
// printed a report; `check` alone judges: 0 only if every required claim is
// green.
package gatecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"striatum/claim"
	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/durable"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/snapshot"
	"striatum/workflow"
)

// Options are the flags of both commands.
type Options struct {
	Run             string
	Worktree        string
	Exact           bool
	Commit          string
	Floor           string
	RequireIsolated bool
	VSA             string
	All             bool
	Output          cli.Output
}

// New returns the command with its two children.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("gate", "Say what each claim has earned",
		"  striatum gate read\n  striatum gate check --floor asserted", newRead(f), newCheck(f))
}

func newRead(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "read [RUN]",
		Short: "Print what each claim has earned, and why no more",
		Long: `Read prints, for each claim that the policy (or, before any was accepted, the
workflow) requires: what was authored, what is in effect, the signal, and the
first basis (why it reads no higher) with its fix. It exits 0 when it printed.`,
		Example: "  striatum gate read\n  striatum gate read -v\n  striatum gate read --output json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.take(args)
			report, err := judge(cmd.Context(), f, o)
			if err == nil && len(report.Claims) == 0 {
				f.Streams.Notef("%s; %s", noClaim, o.require(f))
			}
			return err
		},
	}
	o.addFlags(cmd)
	return cmd
}

func newCheck(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "check [RUN]",
		Short: "Exit 0 only if every required claim is green",
		Long: `Check prints the same report as read, and exits 0 only if every required claim is
green: nothing speaks against it, nothing is missing, and it is at or above the
floor, the higher of the policy's and --floor. Otherwise, also when nothing was
checked, it exits 1.`,
		Example: "  striatum gate check\n  striatum gate check --floor verified --require-isolated\n  striatum gate check --commit HEAD --vsa summary.dsse.json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.take(args)
			report, err := judge(cmd.Context(), f, o)
			if err != nil {
				return err
			}
			return verdict(report, o.require(f))
		},
	}
	o.addFlags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.Floor, "floor", "", `the least status that is green: "asserted" (default) or "verified"`)
	cli.Values(cmd, "floor", "asserted", "verified")
	fl.BoolVar(&o.RequireIsolated, "require-isolated", false, "a shared lane or store is not green")
	fl.StringVar(&o.VSA, "vsa", "", "write the report as a signed SLSA verification summary to this `file`")
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&o.Worktree, "worktree", "", "a `folder` of the worktree (default: the working directory)")
	fl.BoolVar(&o.Exact, "worktree-exact", false, "take the folder itself as the top of the worktree")
	fl.StringVar(&o.Commit, "commit", "", "judge the tree of this `revision` (full id, HEAD, branch or tag); the report names the commit by its full id")
	fl.BoolVarP(&o.All, "verbose", "v", false, "print every basis of each claim")
	cli.AddOutput(cmd, &o.Output)
}

func (o *Options) take(args []string) {
	if len(args) > 0 {
		o.Run = args[0]
	}
}

// judge prints the report and writes the summary.
func judge(ctx context.Context, f *cli.Factory, o Options) (report gate.Report, err error) {
	q := daemon.GateQuery{RunID: o.Run, RequireIsolated: o.RequireIsolated}
	if o.Floor != "" {
		if q.Floor, err = claim.ParseStatus(o.Floor); err != nil || q.Floor == claim.Designed {
			return gate.Report{}, problem.New(problem.Usage, fmt.Sprintf("--floor is %q", o.Floor), "", `want "asserted" or "verified"`)
		}
	}
	top, err := o.top(f)
	if err != nil {
		return gate.Report{}, err
	}
	wt, err := home.Worktree(top)
	if err != nil {
		return gate.Report{}, err
	}
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return gate.Report{}, err
	}
	settings, err := (&home.Home{Dir: dir}).Settings()
	if err != nil {
		return gate.Report{}, err
	}
	subject := subject{top: wt.Path, options: snapshot.Options{
		Limits: snapshot.Limits{Files: settings.SnapshotFiles, Bytes: settings.SnapshotBytes},
	}}
	s, err := openBeside(ctx, f, func(ctx context.Context) (err error) {
		q.Tree, q.Files, err = subject.read(ctx, o)
		return err
	})
	if err != nil {
		return gate.Report{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	repo, _, err := s.FindRepository(ctx, wt)
	if err != nil {
		return gate.Report{}, err
	}
	q.RepositoryID = repo.ID
	if report, err = s.Gate(ctx, q); err != nil {
		return gate.Report{}, err
	}
	if err := show(f.Streams, o, report); err != nil {
		return gate.Report{}, err
	}
	if o.VSA != "" {
		err = summarise(ctx, f, s, q, report, o.VSA, wt.Path)
	}
	return report, err
}

// openBeside opens the service while read, which is cut short if that fails, reads
// what is to be judged: neither needs the other.
func openBeside(ctx context.Context, f *cli.Factory, read func(context.Context) error) (*service.Session, error) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- read(reading) }()
	s, err := service.Open(ctx, f, "")
	if err != nil {
		stop()
	}
	unread := <-done
	switch {
	case err != nil:
		return nil, err
	case unread != nil:
		return nil, errors.Join(unread, s.Close())
	}
	return s, nil
}

// summarise has the service judge again and sign, and writes the summary if it
// says what was shown.
func summarise(ctx context.Context, f *cli.Factory, s service.Service, q daemon.GateQuery, shown gate.Report, path, top string) error {
	signed, envelope, err := s.Summary(ctx, q)
	if err != nil {
		return err
	}
	a, err := shown.Encode()
	if err != nil {
		return err
	}
	if b, err := signed.Encode(); err != nil || !bytes.Equal(a, b) {
		return problem.New(problem.Indeterminate, "sign the verification summary", "the store has changed since the report was read", "run it again")
	}
	return writeSummary(f, path, top, envelope)
}

func (o *Options) top(f *cli.Factory) (string, error) {
	dir := o.Worktree
	if dir == "" {
		var err error
		if dir, err = f.Getwd(); err != nil {
			return "", problem.Wrap(problem.Usage, err, "find the worktree", "name it with --worktree")
		}
	}
	if o.Exact {
		return dir, nil
	}
	return snapshot.FindTop(dir)
}

// noClaim says of a report that it is about nothing.
const noClaim = "no claim is required here"

// require says what makes a claim be required: in a commit, what the worktree has
// and the commit does not.
func (o *Options) require(f *cli.Factory) string {
	const generate = "run: striatum workflow generate --shape verification_gate --write"
	if o.Commit == "" {
		return generate
	}
	if top, err := o.top(f); err == nil {
		if _, err := os.Lstat(filepath.Join(top, workflow.DefaultPath)); err == nil {
			return fmt.Sprintf("the worktree has %s and the commit does not: commit the folder verification, and judge that commit", workflow.DefaultPath)
		}
	}
	return generate + ", and commit what it wrote"
}

// verdict is the exit of `gate check`: nil only for green. require is the hint
// where no claim is required.
func verdict(r gate.Report, require string) error {
	if r.Green() && !r.NothingChecked() {
		return nil
	}
	hint := "`striatum gate read -v` names every basis, with the command that mends it where there is one"
	why := ""
	if r.NothingChecked() {
		why = "no required claim rests on a receipt"
		hint = "run: striatum verifier run --all"
		if len(r.Claims) == 0 {
			why, hint = noClaim, require
		}
	}
	return problem.New(problem.No, r.Verdict, why, hint)
}

// writeSummary writes a signed verification summary. A file in the worktree at top
// is written past no link.
func writeSummary(f *cli.Factory, path, top string, envelope []byte) error {
	what := fmt.Sprintf("write the verification summary %q", path)
	if err := writeFile(f, path, top, envelope); err != nil {
		if _, ok := errors.AsType[*problem.Problem](err); ok {
			return err
		}
		return problem.Wrap(problem.Usage, err, what, "name a file in a folder that can be written")
	}
	return nil
}

// writeFile replaces path. Where that lies in the worktree it goes through
// package worktree, as every write there must.
func writeFile(f *cli.Factory, path, top string, data []byte) (err error) {
	if !filepath.IsAbs(path) {
		dir, err := f.Getwd()
		if err != nil {
			return err
		}
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return err
		}
		path = filepath.Join(dir, path)
	}
	rel, err := filepath.Rel(top, path)
	if err != nil || !filepath.IsLocal(rel) {
		return durable.WriteFile(path, data, 0o644)
	}
	root, err := worktree.Open(top)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return root.WriteFile(rel, data, 0o644)
}
