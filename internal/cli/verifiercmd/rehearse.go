package verifiercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
	"striatum/internal/shellquote"
	"striatum/receipt"
	"striatum/verifier"
	"striatum/verifier/rehearsal"
	"striatum/workflow"
)

// rehearseOptions are the flags of `verifier rehearse`.
type rehearseOptions struct {
	worktree string
	mutants  string
	wait     time.Duration
	output   cli.Output
}

func newRehearse(f *cli.Factory) *cobra.Command {
	var o rehearseOptions
	cmd := &cobra.Command{
		Use:   "rehearse [ID]...",
		Short: "Try pinned checks on all that must pass and all that must not",
		Long: `Rehearse is the dry run before an operator stands behind a check of the intent. It
freezes the worktree and, in the sandboxes of a run, tries the check on the tree,
which must pass; on each mutation of the negative control, three times; on a tree
that has nothing but the check's own definition; and, where the check is compared
by a format of test output, on a tree whose test files are empty. A check that
passes on one of those is refused, and so is a control that ends now so and now so.

The result is signed by the lane and kept in its home; "verifier attest" shows it.
It makes no receipt, and no claim reads higher for it. Without an ID every check of
the intent is rehearsed. Builtins are not: each of their runs plants its own control.

With --mutants it is the checks by builtin:go-test that are rehearsed, the workflow's
or those named: they are run as by "verifier run", then mutants of the product are
planted, all of them or as many as said, and every one that no test notices is named.
That may take long, signs nothing and is kept nowhere.

Exit codes: 0 every check graduates; 1 one fails on the tree; 5 one passes where
it must not, or its negative control does not do its work; 4 one could not be
judged; 2 no such check; 3 refused; 6 a document is invalid; 7 this machine lacks
something; 8 a check is unfilled or unpinned. Of several checks the worst counts:
3, 6, 7, 1, 5, 4.`,
		Example: `  striatum verifier rehearse
  striatum verifier rehearse schema --output json
  striatum verifier rehearse --mutants all builtin:go-test`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return o.execute(cmd.Context(), f, args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.worktree, "worktree", "", "the worktree, or a folder in it (default: the working directory)")
	fl.StringVar(&o.mutants, "mutants", "", `try this `+"`number`"+` of mutants of the product, or "all", with the checks by builtin:go-test`)
	fl.DurationVar(&o.wait, "wait", 10*time.Minute, "how long to wait for the lane while another process holds it")
	cli.AddOutput(cmd, &o.output)
	return cmd
}

func (o *rehearseOptions) execute(ctx context.Context, f *cli.Factory, ids []string) (err error) {
	if o.wait < 0 {
		return problem.New(problem.Usage, "--wait is negative", "", "give a duration such as 10m")
	}
	most, err := mostMutants(o.mutants)
	if err != nil {
		return err
	}
	top, err := (&runOptions{worktree: o.worktree}).top(f)
	if err != nil {
		return err
	}
	s, err := open(ctx, f, top, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if most > 0 {
		return o.tryMutants(ctx, f, s, ids, most)
	}
	done, err := s.lane.Rehearse(ctx, verifier.Request{
		RepositoryID: s.repo.ID, Requester: s.Is.Principal.String(), Root: s.worktree.Path, Wait: o.wait,
		Select: func(tree string) (verifier.Selection, error) {
			files, err := embedded.PolicyFiles(tree)
			if err != nil {
				return verifier.Selection{}, err
			}
			sel, err := rehearsable(files, ids)
			if err != nil {
				return sel, err
			}
			return sel, pinned(&sel, files, func(intentPath string) (*allowlist.Pins, string, error) {
				return s.pins(ctx, intentPath)
			}, s.fingerprint)
		},
	})
	for _, x := range done {
		s.progress.rehearsed(x)
	}
	s.progress.end()
	if perr := o.print(f.Streams, s.repo.ID, done); perr != nil {
		return errors.Join(err, perr)
	}
	if err != nil {
		return err
	}
	if kind, bad := worstRehearsed(done); bad {
		return cli.SilentError{Kind: kind}
	}
	return nil
}

// rehearsable selects the entries of the intent with these ids; without ids, all.
func rehearsable(files daemon.Files, ids []string) (verifier.Selection, error) {
	intent, path, err := files.Intent()
	if err != nil {
		return verifier.Selection{}, err
	}
	sel := verifier.Selection{IntentSHA256: digestOf(files[path])}
	var known []string
	for _, e := range intent.Checks {
		known = append(known, e.ID)
		if len(ids) == 0 || slices.Contains(ids, e.ID) {
			sel.Checks = append(sel.Checks, workflow.CheckRef{ID: e.ID, BacksClaim: e.BacksClaim})
		}
	}
	for _, id := range ids {
		what := fmt.Sprintf("rehearse the check %q", id)
		if _, ok := workflow.LookupBuiltin(id); ok {
			return sel, problem.New(problem.Usage, what, "it is a builtin: each of its runs plants its own control, so there is nothing to rehearse", "run: striatum verifier run --check "+shellquote.Word(id)+"; --mutants rehearses "+goTest)
		}
		if !slices.Contains(known, id) {
			hint := "name one of: " + strings.Join(known, ", ")
			if len(known) == 0 {
				hint = "add an entry to " + path
			}
			return sel, problem.New(problem.Usage, what, fmt.Sprintf("the intent %q has no such entry", path), hint)
		}
	}
	if len(sel.Checks) == 0 {
		return sel, problem.New(problem.Usage, "rehearse the intent's checks", "the intent names no external check",
			"builtins need no rehearsal; add a check with: striatum workflow generate --shape verification_gate --check ID --write")
	}
	return sel, nil
}

// worstRehearsed returns the kind of the worst rehearsal.
func worstRehearsed(done []verifier.Rehearsed) (problem.Kind, bool) {
	kinds := []problem.Kind{0, problem.Indeterminate, problem.Void, problem.No}
	top := 0
	for _, x := range done {
		switch {
		case x.Verdict == rehearsal.Refused && x.Failed():
			top = max(top, 3)
		case x.Verdict == rehearsal.Refused:
			top = max(top, 2)
		case x.Verdict != rehearsal.Graduates:
			top = max(top, 1)
		}
	}
	return kinds[top], top > 0
}

// rehearseJSON is what `verifier rehearse --output json` prints.
type rehearseJSON struct {
	SchemaVersion string                `json:"schema_version"` // striatum.verifier_rehearse.v1
	RepositoryID  string                `json:"repository_id"`
	Rehearsals    []rehearsal.Rehearsal `json:"rehearsals"` // as they were signed
}

// print writes what each check came to on each input, or the records themselves.
func (o *rehearseOptions) print(s cli.Streams, repositoryID string, done []verifier.Rehearsed) error {
	if o.output == cli.JSON {
		out := rehearseJSON{SchemaVersion: "striatum.verifier_rehearse.v1", RepositoryID: repositoryID, Rehearsals: []rehearsal.Rehearsal{}}
		for _, x := range done {
			out.Rehearsals = append(out.Rehearsals, x.Rehearsal)
		}
		return s.WriteJSON(out)
	}
	if len(done) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tINPUT\tOUTCOME")
	for _, x := range done {
		id := cli.Escape(x.Check.ID)
		for _, l := range rehearsalLines(x.Rehearsal) {
			fmt.Fprintf(w, "%s\t%s\t%s\n", id, cli.Escape(l[0]), cli.Escape(l[1]))
		}
		fmt.Fprintf(w, "%s\tverdict\t%s\n", id, strings.ToUpper(string(x.Verdict)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range done {
		for _, why := range x.Reasons {
			if _, err := fmt.Fprintf(s.Out, "\n%s: %s: %s", cli.Escape(x.Check.ID), why.Code, cli.Escape(why.Detail)); err != nil {
				return err
			}
		}
		if len(x.Reasons) > 0 {
			fmt.Fprintln(s.Out)
		}
	}
	return nil
}

// rehearsalLines are the inputs of a rehearsal with what came of each.
func rehearsalLines(r rehearsal.Rehearsal) [][2]string {
	var lines [][2]string
	add := func(input, outcome string) {
		if n := len(lines) - 1; n >= 0 && lines[n][0] == input {
			lines[n][1] += ", " + outcome
			return
		}
		lines = append(lines, [2]string{input, outcome})
	}
	for _, x := range r.Runs {
		add("worktree", string(x.Judgement))
	}
	for _, c := range r.Controls {
		add(fmt.Sprintf("mutation %d of %s", c.Mutation, c.File), string(c.Control.Outcome))
	}
	for _, x := range r.Reds {
		add(string(x.Input), string(x.Execution.Judgement))
	}
	return lines
}

// rehearseCommand is the literal command that rehearses a check.
func rehearseCommand(id string) string { return "striatum verifier rehearse " + shellquote.Word(id) }

// rehearsalJSON is what `verifier attest --pin` says of the newest rehearsal.
type rehearsalJSON struct {
	Verdict     rehearsal.Verdict `json:"verdict"`
	Reasons     []receipt.Reason  `json:"reasons"`
	TreeSHA256  string            `json:"tree_sha256"`
	RehearsedAt string            `json:"rehearsed_at"`
	RehearsedBy string            `json:"rehearsed_by"` // the lane's key id
}

// rehearsal finds the newest rehearsal of exactly what would be attested, by the
// lane that pinned it; nil if there is none. A record that nobody in good standing
// signed counts for nothing, and says so.
func (a *attester) rehearsal(ctx context.Context, seen daemon.Attestable) (*rehearsalJSON, error) {
	ring, err := a.session.Keyring(ctx)
	if err != nil {
		return nil, err
	}
	d := seen.Document
	r, by, err := rehearsal.Find(verifier.RehearsalsDir(a.session.UserHome.LaneDir()), rehearsal.Subject{
		RepositoryID: d.RepositoryID, CheckDigest: d.CheckDigest, ClosureSHA256: d.ClosureSHA256,
	}, ring)
	if err == nil && by.Public.ID() != seen.Pin.ObservedBy {
		err = fmt.Errorf("it was signed by %s, and not by the lane that pinned the check", by.Public.ID())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		a.streams.Notef("a rehearsal that is kept of this check counts for nothing: %s", cli.Escape(err.Error()))
		return nil, nil
	}
	if r.Verdict == rehearsal.Refused {
		a.streams.Notef("WARNING: the newest rehearsal REFUSED this check")
	}
	return &rehearsalJSON{r.Verdict, r.Reasons, r.TreeSHA256, r.RehearsedAt, by.Public.ID()}, nil
}
