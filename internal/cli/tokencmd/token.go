// Package tokencmd is `striatum token`: who is let in, and for how long.
//
// A token is shown once, in a new file or alone on stdout, and counts only after
// it was written there; the store keeps its hash. The three commands are for
// operators, except for the first operator token of a store, which a local user
// mints.
package tokencmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/cli/tokenfile"
	"striatum/internal/problem"
)

// New returns the command with its children.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("token", "Mint, list and revoke tokens (operator)",
		"  striatum token mint --kind session --repository my-project --token-out session.token\n  striatum token list\n  striatum token revoke se-0123abcd",
		newMint(f), newList(f), newRevoke(f))
}

// defaultTTL is how long a token is good unless --ttl says more.
func defaultTTL(k daemon.Kind) time.Duration {
	if k == daemon.Session {
		return 24 * time.Hour
	}
	return 90 * 24 * time.Hour
}

// Options are the flags of `striatum token mint`.
type Options struct {
	Kind       string
	TTL        time.Duration
	Repository string
	Run        string
	Jobs       []string
	Lane       string
	TokenFile  string
	TokenOut   string
	Output     cli.Output
}

// Minted is what `striatum token mint --output json` prints, before the token
// counts: whatever it says holds if the command exits 0. Token is empty where it
// went to TokenOut.
type Minted struct {
	SchemaVersion string `json:"schema_version"` // striatum.token.v1
	Kind          string `json:"kind"`
	Token         string `json:"token"`
	TokenOut      string `json:"token_out"`
}

func newMint(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "mint --kind operator|session|lane",
		Short: "Mint a token and show it once (operator)",
		Long: `Mint makes a token and shows it, once: in the new file that --token-out names,
else alone on stdout. Only its hash is kept.

An operator's accepts, attests, enrols and mints. A session's is for an agent: it
is bound to one repository and, with --run, to one run (without it, to what is
outside any run), reads its gate, and asserts claims of the jobs that --job names.
A lane's brings what the lane with that id signed. A token is good for --ttl: 24
hours for a session, else 90 days, unless it says otherwise; 366 days at most.`,
		Example: `  striatum token mint --kind session --repository my-project --token-out session.token
  striatum token mint --kind lane --lane lane-1 --token-out lane.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return mint(cmd.Context(), f, o) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Kind, "kind", "", `whose: "operator", "session" or "lane"`)
	cli.Values(cmd, "kind", "operator", "session", "lane")
	fl.DurationVar(&o.TTL, "ttl", 0, "how long it is good, such as 8h (default: 24h for a session, else 2160h)")
	fl.StringVar(&o.Repository, "repository", "", "the `id` of the session's repository")
	fl.StringVar(&o.Run, "run", "", "the session's `run` (default: what is outside any run)")
	fl.StringSliceVar(&o.Jobs, "job", nil, "a `job` that the session holds; may be repeated")
	fl.StringVar(&o.Lane, "lane", "", "the `id` of the lane")
	fl.StringVar(&o.TokenOut, "token-out", "", "write the token to this new `file`, readable by you alone, instead of stdout")
	addTokenFile(cmd, &o.TokenFile)
	if err := cmd.MarkFlagRequired("kind"); err != nil {
		panic(err) // the flag is defined above
	}
	cli.AddOutput(cmd, &o.Output)
	return cmd
}

func addTokenFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "token-file", "", "`file` with the operator token (default: STRIATUM_TOKEN_FILE)")
}

func (o Options) spec() (daemon.TokenSpec, error) {
	spec := daemon.TokenSpec{RepositoryID: o.Repository, RunID: o.Run, Jobs: o.Jobs, LaneID: o.Lane, TTL: o.TTL}
	for _, k := range []daemon.Kind{daemon.Operator, daemon.Session, daemon.Lane} {
		if o.Kind == k.String() {
			spec.Kind = k
		}
	}
	if spec.Kind == 0 {
		return spec, problem.New(problem.Usage, fmt.Sprintf("--kind is %q", o.Kind), "", `want "operator", "session" or "lane"`)
	}
	if spec.TTL == 0 {
		spec.TTL = defaultTTL(spec.Kind)
	}
	return spec, nil
}

func mint(ctx context.Context, f *cli.Factory, o Options) (err error) {
	spec, err := o.spec()
	if err != nil {
		return err
	}
	s, err := service.Open(ctx, f, o.TokenFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.CheckMint(ctx, spec); err != nil {
		return err
	}
	token, hash, err := daemon.DrawToken(f.Rand, spec.Kind)
	if err != nil {
		return err
	}
	if err := hand(f.Streams, o, token); err != nil {
		return err
	}
	info, err := s.RecordToken(ctx, spec, hash)
	if err != nil {
		if o.TokenOut != "" {
			err = errors.Join(err, os.Remove(o.TokenOut)) // its token was not recorded
		}
		return err
	}
	f.Streams.Notef("%s token %s is good until %s; it is shown once", info.Kind, info.ID, info.ExpiresAt)
	return nil
}

// hand shows the token, once. On stdout it is the whole of what is printed.
func hand(s cli.Streams, o Options, token string) error {
	m := Minted{SchemaVersion: "striatum.token.v1", Kind: o.Kind, Token: token, TokenOut: o.TokenOut}
	if o.TokenOut != "" {
		m.Token = ""
		if err := tokenfile.Write(o.TokenOut, token); err != nil {
			return err
		}
	}
	var err error
	switch {
	case o.Output == cli.JSON:
		err = s.WriteJSON(m)
	case o.TokenOut == "":
		_, err = fmt.Fprintln(s.Out, token)
	}
	if err != nil {
		return problem.Wrap(problem.Indeterminate, err, "show the token", "none was minted; run the command again")
	}
	return nil
}

// Listed is a token in what `striatum token list --output json` prints.
type Listed struct {
	ID           string   `json:"id"`
	Kind         string   `json:"kind"`
	Name         string   `json:"name"`
	RepositoryID string   `json:"repository_id"`
	RunID        string   `json:"run_id"`
	Jobs         []string `json:"jobs"`
	State        string   `json:"state"` // good, expired or revoked
	ExpiresAt    string   `json:"expires_at"`
	MintedAt     string   `json:"minted_at"`
	By           string   `json:"by"`
	Position     int64    `json:"position"`
}

func newList(f *cli.Factory) *cobra.Command {
	var tokenFile string
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List all tokens, none with its text (operator)",
		Example: "  striatum token list --token-file ~/striatum-operator.token",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), f, tokenFile, out) },
	}
	addTokenFile(cmd, &tokenFile)
	cli.AddOutput(cmd, &out)
	return cmd
}

func list(ctx context.Context, f *cli.Factory, tokenFile string, out cli.Output) (err error) {
	s, err := service.Open(ctx, f, tokenFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	all, err := s.Tokens(ctx)
	if err != nil {
		return err
	}
	tokens := []Listed{}
	for _, t := range all {
		state := "good"
		switch {
		case t.Revoked:
			state = "revoked"
		case t.Expired:
			state = "expired"
		}
		tokens = append(tokens, Listed{
			ID: t.ID, Kind: t.Kind, Name: t.Name, RepositoryID: t.RepositoryID, RunID: t.RunID, Jobs: append([]string{}, t.Jobs...),
			State: state, ExpiresAt: t.ExpiresAt, MintedAt: t.RecordedAt, By: t.By, Position: t.Position,
		})
	}
	if out == cli.JSON {
		return f.Streams.WriteJSON(struct {
			SchemaVersion string   `json:"schema_version"`
			Tokens        []Listed `json:"tokens"`
		}{"striatum.tokens.v1", tokens})
	}
	var b strings.Builder
	for _, t := range tokens {
		state := t.State
		switch state {
		case "good":
			state += " until " + t.ExpiresAt
		case "expired":
			state += " at " + t.ExpiresAt
		}
		line := fmt.Sprintf("%s  %s  %s, by %s", t.ID, t.Kind, state, t.By)
		switch t.Kind {
		case daemon.Session.String():
			line += "; repository " + t.RepositoryID
			if t.RunID != "" {
				line += fmt.Sprintf(", run %q", t.RunID)
			}
			if len(t.Jobs) > 0 {
				line += ", jobs " + strings.Join(t.Jobs, " ")
			}
		case daemon.Lane.String():
			line += "; lane " + t.Name
		}
		b.WriteString(cli.Escape(line) + "\n")
	}
	_, err = fmt.Fprint(f.Streams.Out, b.String())
	return err
}

func newRevoke(f *cli.Factory) *cobra.Command {
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token, from the next request on (operator)",
		Long: `Revoke ends the token that "token list" lists with this ID, from the next request
on. The last operator token may be revoked too: whoever may mint the first one then
mints the next.`,
		Example: "  striatum token revoke se-0123abcd --token-file ~/striatum-operator.token",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return revoke(cmd.Context(), f, args[0], tokenFile) },
	}
	addTokenFile(cmd, &tokenFile)
	return cmd
}

func revoke(ctx context.Context, f *cli.Factory, id, tokenFile string) (err error) {
	s, err := service.Open(ctx, f, tokenFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n, err := s.RevokeToken(ctx, id)
	if err != nil {
		return err
	}
	if n == 0 {
		f.Streams.Notef("token %s was revoked before", cli.Escape(id))
		return nil
	}
	f.Streams.Notef("revoked token %s", cli.Escape(id))
	return nil
}
