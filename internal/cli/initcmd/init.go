// Package initcmd is `striatum init`: the home, and the operator token; with
// --system, the daemon and the lane of a host.
//
// The first init mints the operator token and shows it, once: in the new file
// that --token-out names, else alone on stdout, or as operator_token with
// --output json. Only its hash is kept, and only after the token was written: a
// kill in between leaves a token that is good nowhere, never a good one that
// nobody has. While that token is good, a later init without it is refused and
// prints nothing; with the token it mints another, and enrols the home's lane
// where a lost key was replaced. Nothing else mints one, so no command that is
// run out of habit hands the operator's rights to whoever runs it.
package initcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/tokenfile"
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
	TokenOut  string
	Output    cli.Output

	// System sets up the host instead, or with Print shows how.
	System, Print     bool
	Agents, Operators []string
}

// Result is what `striatum init --output json` prints. OperatorToken is empty
// when none was minted or it went to TokenOut. It is printed before the token
// counts: whatever it says holds if the command exits 0.
type Result struct {
	SchemaVersion string   `json:"schema_version"` // striatum.init.v1
	Home          string   `json:"home"`
	Created       []string `json:"created"`
	LaneID        string   `json:"lane_id"`
	Trust         string   `json:"trust"`
	OperatorToken string   `json:"operator_token"`
	TokenOut      string   `json:"token_out"`
	Worktree      string   `json:"worktree"`
	RepositoryID  string   `json:"repository_id"`
}

// New returns the command.
func New(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the home and mint the operator token",
		Long: `Init makes the home with its store, keys and shared lane where they are missing,
and mints the operator token: what accepts policies and explains failures. It is
shown once, in the new file that --token-out names, else alone on stdout, and is
good for 90 days; only its hash is kept. Keep it in a file that no agent can read,
outside the home and every worktree.

While a token is good, init mints another only with that token, and exits 3
without it. --token-out replaces no file; a shell that sends stdout to the file of
the first token has emptied it before init can refuse. A lost token is replaced by a
new home: move the old one away; its receipts stay good for whoever keeps
keys/lane.pub.

With --worktree and --id, init makes a worktree (a clone, or one that was moved)
count as the repository with that id. That takes the operator token, unless it
is minted by this very call.

With --system, as root, init sets up the host instead: the user striatumd and the
group striatum, whose members may connect; configuration, folders and systemd units
of daemon and lane; the operator's and the lane's token, in files of root's; and the
lane, which counts as isolated if "lane probe" finds it so. --agent names the users of
sessions and --operator those that may call as operators, and lets both connect. It
starts the daemon: by systemd where that runs, else only for the moment, and prints
the commands that start both. What is there is left alone, and a file that was edited
is refused (exit 3), so it may be run again at any time. --print shows every file and
every command, and changes nothing. docs/striatumd.md has more.`,
		Example: `  striatum init --token-out ~/striatum-operator.token
  striatum init --worktree . --id my-project --token-file ~/striatum-operator.token
  striatum init --system --agent alice --print`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.System {
				return system(cmd.Context(), f, o)
			}
			if o.Print || len(o.Agents)+len(o.Operators) > 0 {
				return problem.New(problem.Usage, "--print, --agent and --operator set up a host", "", "give --system too")
			}
			return run(cmd.Context(), f, o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Worktree, "worktree", "", "bind the worktree that this `folder` lies in to --id")
	fl.StringVar(&o.ID, "id", "", "the repository `id` for --worktree")
	fl.StringVar(&o.TokenFile, "token-file", "", "`file` with the operator token (default: STRIATUM_TOKEN_FILE)")
	fl.StringVar(&o.TokenOut, "token-out", "", "write the minted token to this new `file`, readable by you alone, instead of stdout")
	fl.BoolVar(&o.System, "system", false, "set up daemon and lane on this host (root)")
	fl.BoolVar(&o.Print, "print", false, "with --system: show every file and command, and change nothing")
	fl.StringSliceVar(&o.Agents, "agent", nil, "with --system: a `user` that sessions run as; may be repeated")
	fl.StringSliceVar(&o.Operators, "operator", nil, "with --system: a `user` that may call as an operator; may be repeated")
	cmd.MarkFlagsRequiredTogether("worktree", "id")
	for _, name := range []string{"worktree", "token-file", "token-out"} {
		cmd.MarkFlagsMutuallyExclusive("system", name)
	}
	cli.AddOutput(cmd, &o.Output)
	return cmd
}

func run(ctx context.Context, f *cli.Factory, o Options) (err error) {
	var wt daemon.Worktree
	if o.Worktree != "" {
		if err := daemon.CheckRepositoryID(o.ID); err != nil {
			return err
		}
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
	r := Result{
		SchemaVersion: "striatum.init.v1", Home: s.Home.Dir, Created: append([]string{}, s.Created...),
		LaneID: s.Home.LaneID(), Trust: string(s.Service.StoreClass()), Worktree: wt.Path, RepositoryID: o.ID,
	}
	if p.Kind == daemon.Operator {
		spec := daemon.LaneSpec{LaneID: r.LaneID, PublicKey: s.Home.LaneKey.Public(), Class: seal.ClassShared}
		if err := s.Service.EnrolLane(ctx, p, spec); err != nil {
			return err
		}
	}
	if o.Worktree == "" || o.TokenOut != "" || p.Kind != daemon.Operator { // else it came to bind
		if p, err = mint(ctx, f, s, p, o, &r); err != nil {
			return err
		}
	}
	if o.Worktree != "" {
		if err := s.Service.BindRepository(ctx, p, wt, o.ID); err != nil {
			return err
		}
	}
	return conclude(f.Streams, o.Output, r)
}

// mint mints the operator token where that is due, and returns its operator.
// Where one is good already and was not given, it is refused, unless the binding
// of a worktree is to be.
func mint(ctx context.Context, f *cli.Factory, s *embedded.Session, p daemon.Principal, o Options, r *Result) (daemon.Principal, error) {
	name, until, live, err := s.Service.OperatorToken(ctx)
	if err != nil {
		return p, err
	}
	if live && p.Kind != daemon.Operator {
		if o.Worktree != "" {
			return p, nil
		}
		return p, problem.New(problem.Refused, "mint an operator token",
			fmt.Sprintf("%q is initialised: its operator token %s is good until %s, and was shown once", s.Home.Dir, name, until),
			fmt.Sprintf("to get another, run: striatum init --token-file FILE --token-out NEW-FILE; if it is lost, move %s away and run init again", s.Home.Dir))
	}
	handed := false
	minted, err := s.Service.MintOperator(ctx, p, tokenTTL, func(token string) error {
		err := hand(f.Streams, o, r, token)
		handed = err == nil
		return err
	})
	if err != nil && handed && o.TokenOut != "" {
		err = errors.Join(err, os.Remove(o.TokenOut)) // its token was not recorded
	}
	return minted, err
}

// hand shows the token, once. On stdout it is the whole of what is printed there.
func hand(s cli.Streams, o Options, r *Result, token string) error {
	if o.TokenOut != "" {
		r.TokenOut = o.TokenOut
		return tokenfile.Write(o.TokenOut, token)
	}
	r.OperatorToken = token
	show := func() error { return s.WriteJSON(*r) }
	if o.Output == cli.Table {
		show = func() error { _, err := fmt.Fprintln(s.Out, token); return err }
	}
	if err := show(); err != nil {
		return problem.Wrap(problem.Indeterminate, err, "show the operator token", "none was minted; run init again")
	}
	return nil
}

// conclude prints what is left to say.
func conclude(s cli.Streams, out cli.Output, r Result) error {
	if out == cli.JSON {
		if r.OperatorToken != "" {
			return nil // printed with the token
		}
		return s.WriteJSON(r)
	}
	s.Notef("home %s, lane %s, trust: %s", cli.Escape(r.Home), r.LaneID, r.Trust)
	if r.RepositoryID != "" {
		s.Notef("%s is repository %s", cli.Escape(r.Worktree), r.RepositoryID)
	}
	if r.TokenOut != "" {
		s.Notef("the operator token is in %s", cli.Escape(r.TokenOut))
	}
	if r.OperatorToken != "" || r.TokenOut != "" {
		s.Notef("it is shown once; keep the token where no agent can read it, and name the file with --token-file or STRIATUM_TOKEN_FILE")
	}
	return nil
}
