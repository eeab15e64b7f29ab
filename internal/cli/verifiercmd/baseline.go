package verifiercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"striatum/baseline"
	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/receipt"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/workflow"
)

// baselineOptions are the flags of `verifier baseline` and below.
type baselineOptions struct {
	checks    []string
	digest    string
	run       string
	worktree  string
	tokenFile string
	output    cli.Output
}

func newBaseline(f *cli.Factory) *cobra.Command {
	return cli.Parent("baseline", "Show or accept the tests that a check must keep",
		"  striatum verifier baseline show\n  striatum verifier baseline accept", newBaselineShow(f), newBaselineAccept(f))
}

func newBaselineShow(f *cli.Factory) *cobra.Command {
	var o baselineOptions
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print the accepted baseline",
		Example: "  striatum verifier baseline show\n  striatum verifier baseline show --output json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.show(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&o.worktree, "worktree", "", "the worktree, or a folder in it (default: the working directory)")
	cli.AddOutput(cmd, &o.output)
	return cmd
}

func newBaselineAccept(f *cli.Factory) *cobra.Command {
	var o baselineOptions
	cmd := &cobra.Command{
		Use:   "accept",
		Short: "Make the tests of the newest receipts the ones to keep (operator)",
		Long: `Accept takes the tests that go-test ran on the worktree as it is now, as the newest
receipt of each check has them, and shows how they differ from those that were
accepted before. It then wants the digest of what it showed: with --digest, or
"accept" typed in on a terminal. It accepts the policy with this baseline in it, and
writes verification/baseline.json. That changes the tree: run the checks again.

Each check must have passed, with nothing against its claim and nothing missing but
the acceptance. Where another file of the policy differs from the accepted one, it
is refused: run "striatum policy accept" first. --check keeps the entries of the
other checks.

Exit codes: 0 accepted; 2 the digest is yet to be given; 3 refused: no operator,
another digest, no passing receipt of this tree, or another policy.`,
		Example: `  striatum verifier baseline accept
  striatum verifier baseline accept --digest DIGEST --token-file ~/striatum-operator.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.accept(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&o.checks, "check", nil, "accept the tests of the check with this `id`; may be given several times (default: every go-test)")
	fl.StringVar(&o.digest, "digest", "", "the `digest` that it showed, 64 hex digits")
	fl.StringVar(&o.run, "run", "", "the run whose claims have the receipts (default: none)")
	fl.StringVar(&o.worktree, "worktree", "", "the worktree, or a folder in it (default: the working directory)")
	fl.StringVar(&o.tokenFile, "token-file", "", "`file` with the operator token (default: STRIATUM_TOKEN_FILE)")
	cli.AddOutput(cmd, &o.output)
	return cmd
}

// baseliner is a worktree with its accepted policy and the baseline in it.
type baseliner struct {
	session  *service.Session
	streams  cli.Streams
	worktree daemon.Worktree
	repo     daemon.Repository
	policy   daemon.AcceptedPolicy
	found    bool              // a policy was accepted
	accepted baseline.Baseline // without checks, if there is none
}

func (o *baselineOptions) open(ctx context.Context, f *cli.Factory) (b *baseliner, err error) {
	top, err := (&runOptions{worktree: o.worktree}).top(f)
	if err != nil {
		return nil, err
	}
	b = &baseliner{streams: f.Streams, accepted: baseline.Baseline{SchemaVersion: baseline.SchemaVersion}}
	if b.worktree, err = home.Worktree(top); err != nil {
		return nil, err
	}
	if b.session, err = service.Open(ctx, f, o.tokenFile); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.session.Close())
		}
	}()
	if b.repo, _, err = b.session.FindRepository(ctx, b.worktree); err != nil {
		return nil, err
	}
	if b.policy, b.found, err = b.session.Policy(ctx, b.repo.ID); err != nil {
		return nil, err
	}
	if data, ok := b.policy.Files[baseline.Path]; ok {
		if b.accepted, err = baseline.Parse(data); err != nil {
			return nil, problem.Wrap(problem.Invalid, err, "read the accepted baseline", "")
		}
	}
	return b, nil
}

func (o *baselineOptions) show(ctx context.Context, f *cli.Factory) (err error) {
	b, err := o.open(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.session.Close()) }()
	return b.print(o.output, b.policy.Digest, b.accepted, nil)
}

func (o *baselineOptions) accept(ctx context.Context, f *cli.Factory) (err error) {
	const what = "accept the baseline"
	if o.digest != "" && !seal.ValidDigest(o.digest) {
		return problem.New(problem.Usage, what, "--digest is not 64 lower-case hex digits", "take it whole from: striatum verifier baseline accept")
	}
	b, err := o.open(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.session.Close()) }()
	p := b.session.Is.Principal
	if p.Kind == daemon.Session || p.Kind == daemon.Lane {
		return problem.New(problem.Refused, what, fmt.Sprintf("this takes an operator, and the token is that of %s", p), "an operator runs it")
	}
	if !b.found {
		return problem.New(problem.Refused, what, "no policy is accepted here", "look at it with `striatum policy show`, and accept it first")
	}
	next, changes, err := b.next(ctx, o)
	if err != nil {
		return err
	}
	data, err := next.Encode()
	if err != nil {
		return problem.Wrap(problem.Invalid, err, what, "name some checks with --check")
	}
	files := maps.Clone(b.policy.Files)
	files[baseline.Path] = data
	_, digest, err := files.Document()
	if err != nil {
		return err
	}
	if err := b.print(o.output, digest, next, changes); err != nil {
		return err
	}
	if digest == b.policy.Digest {
		b.streams.Notef("it is accepted already")
	} else if err := b.confirm(ctx, o, what, digest, files); err != nil {
		return err
	}
	return b.write(data)
}

// confirm accepts the policy with those files, if that is what was confirmed.
func (b *baseliner) confirm(ctx context.Context, o *baselineOptions, what, digest string, files daemon.Files) error {
	p := b.session.Is.Principal
	switch {
	case o.digest != "" && o.digest != digest:
		return problem.New(problem.Refused, what, fmt.Sprintf("what is here has the digest %s, not %s", digest, o.digest), "read the above, then accept that digest")
	case o.digest != "":
	case p.Kind != daemon.Operator || !b.streams.InIsTerminal || !b.streams.ErrIsTerminal:
		return problem.New(problem.Usage, what, "its digest is not given", "read the above, then run: striatum verifier baseline accept --digest "+digest+" --token-file FILE")
	default:
		if err := typed(ctx, b.streams, what, "To make these the tests to keep type accept: ", "accept"); err != nil {
			return err
		}
	}
	if err := b.session.AcceptPolicy(ctx, b.repo.ID, files, digest); err != nil {
		return err
	}
	b.streams.Notef("accepted policy %s with this baseline for repository %s, as %s", digest, b.repo.ID, p)
	return nil
}

// write puts the accepted baseline into the worktree. After a kill before it, the
// same command writes it.
func (b *baseliner) write(data []byte) (err error) {
	root, err := worktree.Open(b.worktree.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := root.WriteFile(baseline.Path, data, 0o644); err != nil {
		return err
	}
	b.streams.Notef("wrote %s, which is part of the tree: commit it, and run the checks again", baseline.Path)
	return nil
}

// change is what accepting a check's tests changes.
type change struct {
	Check   string
	Receipt string
	New     bool // nothing of the check was accepted
	baseline.Difference
}

// next is the accepted baseline with the tests of each check that the options name,
// as its claim's receipt has them.
func (b *baseliner) next(ctx context.Context, o *baselineOptions) (baseline.Baseline, []change, error) {
	const what = "accept the baseline"
	checks, err := b.named(o.checks)
	if err != nil {
		return baseline.Baseline{}, nil, err
	}
	report, err := b.judge(ctx, o.run)
	if err != nil {
		return baseline.Baseline{}, nil, err
	}
	next := b.accepted
	var changes []change
	for _, id := range checks {
		i := slices.IndexFunc(report.Claims, func(c gate.Claim) bool { return c.CheckID == id })
		if i < 0 {
			return next, nil, problem.New(problem.Refused, what, fmt.Sprintf("no claim is backed by the check %q", id), "`striatum policy show` lists those that are")
		}
		now, err := b.census(ctx, report.Claims[i])
		if err != nil {
			return next, nil, err
		}
		was, ok := b.accepted.Find(id)
		next = next.With(now)
		changes = append(changes, change{id, report.Claims[i].Receipt, !ok, baseline.Compare(was, now)})
	}
	return next, changes, nil
}

// named are the ids of the go-test checks of the accepted policy that are asked for;
// all of them, if none is.
func (b *baseliner) named(ids []string) ([]string, error) {
	const what = "accept the baseline"
	w, _, err := b.policy.Files.Workflow()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, c := range w.Checks() {
		if u, _ := workflow.LookupBuiltin(c.Uses); u.Plain() == "builtin:go-test" {
			all = append(all, c.CheckID())
		}
	}
	for _, id := range ids {
		if !slices.Contains(all, id) {
			return nil, problem.New(problem.Usage, what, fmt.Sprintf("the accepted policy has no go-test with the id %q", id), "`striatum policy show` lists its checks")
		}
	}
	if len(ids) > 0 {
		all = ids
	}
	if len(all) == 0 {
		return nil, problem.New(problem.Refused, what, "the accepted policy has no go-test", "only the tests of go-test have a baseline")
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// judge reads the gate for the worktree as it is. It is refused if the policy's
// files there differ from the accepted ones, but for the baseline.
func (b *baseliner) judge(ctx context.Context, run string) (gate.Report, error) {
	settings, err := b.session.UserHome.Settings()
	if err != nil {
		return gate.Report{}, err
	}
	tree, files, err := embedded.Worktree(ctx, b.worktree.Path, snapshot.Options{
		Limits: snapshot.Limits{Files: settings.SnapshotFiles, Bytes: settings.SnapshotBytes},
	})
	if err != nil {
		return gate.Report{}, err
	}
	same := func(have, want daemon.Files) error {
		for path, data := range want {
			if other, ok := have[path]; path != baseline.Path && (!ok || string(other) != string(data)) {
				return problem.New(problem.Refused, "accept the baseline", fmt.Sprintf("the worktree's %q is not that of the accepted policy", path),
					"look at the difference with `striatum policy show`; accept it with `striatum policy accept`, or undo it")
			}
		}
		return nil
	}
	if err := errors.Join(same(files, b.policy.Files), same(b.policy.Files, files)); err != nil {
		return gate.Report{}, problem.Of(err)
	}
	return b.session.Gate(ctx, daemon.GateQuery{RepositoryID: b.repo.ID, RunID: run, Tree: tree, Files: files})
}

// accepting are the bases that acceptance mends.
var accepting = []gate.Code{gate.PolicyDrift, gate.BaselineNotCompared, gate.TestsRemoved, gate.TestsNewlySkipped, gate.TestInputsChanged}

// census reads the tests that the receipt of a claim names. The copy in the
// worktree has the digest that the lane signed.
func (b *baseliner) census(ctx context.Context, c gate.Claim) (baseline.Check, error) {
	what := fmt.Sprintf("accept the tests of %q", c.CheckID)
	again := "run: striatum verifier run --check " + c.CheckID
	for _, basis := range c.Bases {
		if basis.Effect != gate.Cap && !slices.Contains(accepting, basis.Code) {
			hint := "`striatum gate read -v` says what mends it"
			if basis.Fix != "" {
				hint = "run: " + basis.Fix
			}
			return baseline.Check{}, problem.New(problem.Refused, what, fmt.Sprintf("%s: %s", basis.Code, basis.Sentence), hint)
		}
	}
	ring, err := b.session.Keyring(ctx)
	if err != nil {
		return baseline.Check{}, err
	}
	envelope, err := b.session.Receipt(ctx, c.Receipt)
	if err != nil {
		return baseline.Check{}, err
	}
	v, err := receipt.Open(envelope, ring)
	if err != nil || v.Seal() != c.Receipt {
		return baseline.Check{}, problem.New(problem.Refused, what, "its receipt does not open", again)
	}
	r := v.Receipt()
	if r.Baseline == nil || r.Baseline.CensusSHA256 == "" {
		return baseline.Check{}, problem.New(problem.Refused, what, "its receipt names no tests to accept: there are too many, or an older version made it", again)
	}
	root, err := worktree.Open(b.worktree.Path)
	if err != nil {
		return baseline.Check{}, err
	}
	defer func() { _ = root.Close() }() // nothing is pending in it
	data, err := root.ReadFile(censusCopy(c.Receipt), baseline.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return baseline.Check{}, problem.New(problem.Refused, what, "this worktree has no copy of the tests that its receipt names", again)
	}
	if err != nil {
		return baseline.Check{}, err
	}
	if seal.SHA256Hex(data) != r.Baseline.CensusSHA256 {
		return baseline.Check{}, problem.New(problem.Refused, what, fmt.Sprintf("%s is not what its receipt names", censusCopy(c.Receipt)), again)
	}
	all, err := baseline.Parse(data)
	if err != nil {
		return baseline.Check{}, problem.Wrap(problem.Refused, err, what, again)
	}
	check, ok := all.Find(c.CheckID)
	if !ok || len(all.Checks) != 1 {
		return baseline.Check{}, problem.New(problem.Refused, what, "the tests that its receipt names are another check's", again)
	}
	return check, nil
}
