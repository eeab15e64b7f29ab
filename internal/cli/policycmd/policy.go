// Package policycmd is `striatum policy`: what counts here, and an operator's
// acceptance of it.
//
// A policy is a closed set of files, each by its digest: the workflow, the
// intent, the anchors, the baseline and the fixtures of negative controls, those
// that the worktree has. `show` compares what stands in the worktree with what
// was accepted; `accept` shows the same, then accepts, if the digest that the
// operator names is that of the files as they are now.
package policycmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/snapshot"
)

// New returns the command with its two children.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("policy", "Show or accept what counts here",
		"  striatum policy show\n  striatum policy accept --digest DIGEST --token-file ~/striatum-operator.token",
		newShow(f), newAccept(f))
}

// generate is the command that writes a first policy.
const generate = "striatum workflow generate --shape verification_gate --write"

// Options are the flags of both commands.
type Options struct {
	Worktree  string
	Digest    string
	TokenFile string
	Output    cli.Output
}

func newShow(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Compare the worktree's policy with the accepted one",
		Example: "  striatum policy show\n  striatum policy show --output json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return show(cmd.Context(), f, o) },
	}
	cmd.Flags().StringVar(&o.Worktree, "worktree", "", "a `folder` of the worktree (default: the working directory)")
	cli.AddOutput(cmd, &o.Output)
	return cmd
}

func newAccept(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "accept --digest DIGEST",
		Short: "Make the worktree's policy count (operator)",
		Long: `Accept makes exactly the files that "policy show" lists count for this
repository, and keeps their bytes. It first shows how they differ from what was
accepted before. DIGEST is the whole digest that "policy show" prints; if a file
has changed since, it is another one, and nothing is accepted.`,
		Example: "  striatum policy accept --digest DIGEST --token-file ~/striatum-operator.token",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return accept(cmd.Context(), f, o) },
	}
	cmd.Flags().StringVar(&o.Worktree, "worktree", "", "a `folder` of the worktree (default: the working directory)")
	cmd.Flags().StringVar(&o.Digest, "digest", "", "the `digest` of the policy, 64 hex digits")
	cmd.Flags().StringVar(&o.TokenFile, "token-file", "", "`file` with the operator token (default: STRIATUM_TOKEN_FILE)")
	if err := cmd.MarkFlagRequired("digest"); err != nil {
		panic(err) // the flag is defined above
	}
	cli.AddOutput(cmd, &o.Output)
	return cmd
}

// here is the worktree with its policy and what was accepted for it.
type here struct {
	session  *service.Session
	worktree daemon.Worktree
	repo     daemon.Repository
	known    bool // the store has met the worktree
	files    daemon.Files
	digest   string
	accepted daemon.AcceptedPolicy
	found    bool // a policy was accepted
}

func open(ctx context.Context, f *cli.Factory, o Options) (h *here, err error) {
	dir := o.Worktree
	if dir == "" {
		if dir, err = f.Getwd(); err != nil {
			return nil, problem.Wrap(problem.Usage, err, "find the worktree", "name it with --worktree")
		}
	}
	top, err := snapshot.FindTop(dir)
	if err != nil {
		return nil, err
	}
	h = &here{}
	if h.worktree, err = home.Worktree(top); err != nil {
		return nil, err
	}
	if h.files, err = embedded.PolicyFiles(h.worktree.Path); err != nil {
		return nil, err
	}
	if len(h.files) > 0 {
		if _, h.digest, err = h.files.Document(); err != nil {
			return nil, err
		}
	}
	if h.session, err = service.Open(ctx, f, o.TokenFile); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.session.Close())
		}
	}()
	if h.repo, h.known, err = h.session.FindRepository(ctx, h.worktree); err != nil || !h.known {
		return h, err
	}
	h.accepted, h.found, err = h.session.Policy(ctx, h.repo.ID)
	return h, err
}

func show(ctx context.Context, f *cli.Factory, o Options) (err error) {
	h, err := open(ctx, f, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.session.Close()) }()
	if err := h.print(f.Streams, o.Output, false); err != nil {
		return err
	}
	if len(h.files) == 0 && !h.found {
		f.Streams.Notef("there is no policy here; run: %s", generate)
	}
	if !h.known {
		f.Streams.Notef("the store does not know this worktree yet: policy accept, verifier pin and verifier run give it a repository id")
	}
	return nil
}

func accept(ctx context.Context, f *cli.Factory, o Options) (err error) {
	if !seal.ValidDigest(o.Digest) {
		return problem.New(problem.Usage, "accept the policy", "--digest is not 64 lower-case hex digits", "take it whole from `striatum policy show`")
	}
	h, err := open(ctx, f, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.session.Close()) }()
	if len(h.files) == 0 {
		return problem.New(problem.Invalid, "accept the policy", "the worktree has none of its files", "run: "+generate)
	}
	if err := h.print(f.Streams, o.Output, true); err != nil {
		return err
	}
	p := h.session.Is.Principal
	if p.Kind == daemon.Operator && !h.known {
		if h.repo, _, err = h.session.Repository(ctx, h.worktree); err != nil {
			return err
		}
	}
	if err := h.session.AcceptPolicy(ctx, h.repo.ID, h.files, o.Digest); err != nil {
		return err
	}
	f.Streams.Notef("accepted policy %s for repository %s, as %s", o.Digest, h.repo.ID, p)
	return nil
}
