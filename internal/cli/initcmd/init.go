// Package initcmd is `striatum init`: the home, and the operator token.
//
// The first init mints the operator token and prints it, once: alone on stdout,
// or as operator_token with --output json. Only its hash is kept. While that
// token is good, a later init says so and prints none; with the token it mints
// another, and enrols the home's lane where a lost key was replaced. Nothing
// else mints one, so no command that is run out of habit hands the operator's
// rights to whoever runs it.
package initcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/snapshot"
)

// tokenTTL is how long an operator token is good.
const tokenTTL = 90 * 24 * time.Hour

// Options are the flags of `striatum init`.
type Options struct {
	Worktree  string
	ID        string
	TokenFile string
	Output    cli.Output
}

// Result is what `striatum init --output json` prints. OperatorToken is empty
// when none was minted.
type Result struct {
	Home          string   `json:"home"`
	Created       []string `json:"created"`
	LaneID        string   `json:"lane_id"`
	Trust         string   `json:"trust"`
	OperatorToken string   `json:"operator_token"`
	Worktree      string   `json:"worktree,omitempty"`
	RepositoryID  string   `json:"repository_id,omitempty"`
}

// New returns the command.
func New(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the home and mint the operator token",
		Long: `Init makes the home with its store, keys and shared lane where they are missing,
and mints the operator token: what accepts policies and explains failures. It is
printed once, alone on stdout, and good for 90 days; only its hash is kept. Keep
it in a file that no agent can read, outside the home and every worktree.

While a token is good, init mints another only with that token. A lost one is
replaced by a new home: move the old one away; its receipts stay good for
whoever keeps keys/lane.pub.

With --worktree and --id, init makes a worktree (a clone, or one that was moved)
count as the repository with that id. That takes the operator token, unless it
is minted by this very call.`,
		Example: `  (umask 077; striatum init > ~/striatum-operator.token)
  striatum init --worktree . --id my-project --token-file ~/striatum-operator.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, o) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Worktree, "worktree", "", "bind the worktree that this `folder` lies in to --id")
	fl.StringVar(&o.ID, "id", "", "the repository `id` for --worktree")
	fl.StringVar(&o.TokenFile, "token-file", "", "`file` with the operator token (default: STRIATUM_TOKEN_FILE)")
	cmd.MarkFlagsRequiredTogether("worktree", "id")
	cli.AddOutput(cmd, &o.Output)
	return cmd
}

func run(ctx context.Context, f *cli.Factory, o Options) (err error) {
	var wt daemon.Worktree
	if o.Worktree != "" {
		top, err := snapshot.FindTop(o.Worktree)
		if err != nil {
			return err
		}
		if wt, err = home.Worktree(top); err != nil {
			return err
		}
	}
	s, err := embedded.Open(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := s.Principal(ctx, f, o.TokenFile)
	if err != nil {
		return err
	}
	r := Result{Home: s.Home.Dir, Created: append([]string{}, s.Created...), LaneID: s.Home.LaneID(), Trust: string(s.Service.StoreClass())}
	if p.Kind == daemon.Operator {
		spec := daemon.LaneSpec{LaneID: r.LaneID, PublicKey: s.Home.LaneKey.Public(), Class: seal.ClassShared}
		if err := s.Service.EnrolLane(ctx, p, spec); err != nil {
			return err
		}
	}
	if r.OperatorToken, err = mint(ctx, f, s, &p, o); err != nil {
		return err
	}
	bindErr := bind(ctx, s.Service, p, wt, o, &r)
	if bindErr != nil && r.OperatorToken == "" {
		return bindErr
	}
	if err := show(f.Streams, o.Output, r); err != nil {
		if r.OperatorToken == "" {
			return err
		}
		// Nobody saw the token: take it back, so that the next init mints one.
		revokeErr := s.Service.RevokeToken(context.WithoutCancel(ctx), p, r.OperatorToken)
		return problem.Wrap(problem.Indeterminate, errors.Join(err, revokeErr), "show the operator token", "nothing was kept of it; run init again")
	}
	return bindErr
}

// mint mints the operator token where that is due, and makes p its operator. It
// returns "" where a token is good already, and says so.
func mint(ctx context.Context, f *cli.Factory, s *embedded.Session, p *daemon.Principal, o Options) (string, error) {
	if p.Kind == daemon.Operator && o.Worktree != "" {
		return "", nil // it came to bind
	}
	name, until, live, err := s.Service.OperatorToken(ctx)
	if err != nil {
		return "", err
	}
	if live && p.Kind != daemon.Operator {
		f.Streams.Notef("already initialised: the operator token %s is good until %s, and was shown once", name, until)
		f.Streams.Notef("hint: to get another, give it with --token-file; if it is lost, move %s away and run init again", cli.Escape(s.Home.Dir))
		return "", nil
	}
	token, err := s.Service.MintOperator(ctx, *p, tokenTTL)
	if err != nil {
		return "", err
	}
	*p, err = s.Service.Authenticate(ctx, token)
	return token, err
}

// bind makes the worktree count as the repository with the given id.
func bind(ctx context.Context, svc *daemon.Service, p daemon.Principal, wt daemon.Worktree, o Options, r *Result) error {
	if o.Worktree == "" {
		return nil
	}
	if err := svc.BindRepository(ctx, p, wt, o.ID); err != nil {
		return err
	}
	r.Worktree, r.RepositoryID = wt.Path, o.ID
	return nil
}

// show prints the result: as a table the token alone, the rest as notes.
func show(s cli.Streams, out cli.Output, r Result) error {
	if out == cli.JSON {
		return s.WriteJSON(r)
	}
	s.Notef("home %s, lane %s, trust: %s", cli.Escape(r.Home), r.LaneID, r.Trust)
	if r.RepositoryID != "" {
		s.Notef("%s is repository %s", cli.Escape(r.Worktree), r.RepositoryID)
	}
	if r.OperatorToken == "" {
		return nil
	}
	s.Notef("the operator token is printed once; keep it where no agent can read it, and name the file with --token-file or STRIATUM_TOKEN_FILE")
	_, err := fmt.Fprintln(s.Out, r.OperatorToken)
	return err
}
