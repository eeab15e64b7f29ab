// Package lanecmd is `striatum lane`: whose receipts count.
//
// A lane is known by its public key. What it signs counts from the place in the
// log where an operator enrolled it up to the place where an operator ended it;
// nothing that was recorded is ever taken away.
package lanecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/cli/verifiercmd"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
)

// maxKeyFile bounds a public key file, in bytes.
const maxKeyFile = 16 << 10

// New returns the command with its children.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("lane", "Enrol, list, probe, revoke and serve lanes, and publish which to trust",
		"  striatum lane enrol --key lane.pub --class shared --token-file ~/striatum-operator.token\n  striatum lane list\n  striatum lane revoke lane-1 --retired\n  striatum lane trust --out trust.json",
		newEnrol(f), newList(f), newProbe(f), newRevoke(f), newTrust(f), verifiercmd.NewServe(f))
}

// Options are the flags of the commands but serve and probe.
type Options struct {
	Key, ID, Class       string
	Retired, Compromised bool
	Since                int64
	Out                  string
	TTL                  time.Duration
	TokenFile            string
	Output               cli.Output
}

func newEnrol(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "enrol --key FILE --class shared|isolated",
		Short: "Make the receipts of a lane's key count (operator)",
		Long: `Enrol takes a lane's public key (PEM, as in keys/lane.pub of its home) and makes
what that key signs from now on count. Isolated means that no agent can reach the
key; a store that whoever runs striatum can write takes no isolated lane.`,
		Example: "  striatum lane enrol --key lane.pub --class shared --token-file ~/striatum-operator.token",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return enrol(cmd.Context(), f, o) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Key, "key", "", "the `file` with the lane's public key")
	fl.StringVar(&o.Class, "class", "", `"shared" or "isolated"`)
	cli.Values(cmd, "class", "shared", "isolated")
	fl.StringVar(&o.ID, "id", "", "the lane's `id` (default: one made from its key)")
	o.addTokenFile(cmd)
	for _, name := range []string{"key", "class"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return cmd
}

func (o *Options) addTokenFile(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.TokenFile, "token-file", "", "`file` with the operator token (default: STRIATUM_TOKEN_FILE)")
}

func enrol(ctx context.Context, f *cli.Factory, o Options) (err error) {
	what := fmt.Sprintf("read the public key %q", o.Key)
	data, err := embedded.ReadFile(o.Key, maxKeyFile)
	if err != nil {
		return problem.Wrap(problem.Usage, err, what, "--key names a file with the lane's public key")
	}
	key, err := seal.ParsePublicKey(data)
	if err != nil {
		return problem.Wrap(problem.Invalid, err, what, "it is the .pub file of the lane's key, never the private one")
	}
	spec := daemon.LaneSpec{LaneID: o.ID, PublicKey: key, Class: seal.Class(o.Class)}
	if spec.LaneID == "" {
		spec.LaneID = daemon.LaneID(key)
	}
	return with(ctx, f, o, func(c service.Service) error {
		if err := c.EnrolLane(ctx, spec); err != nil {
			return err
		}
		f.Streams.Notef("enrolled lane %s, %s, key %s", spec.LaneID, spec.Class, key.ID())
		return nil
	})
}

// with opens the service and calls fn as whoever asks.
func with(ctx context.Context, f *cli.Factory, o Options, fn func(service.Service) error) (err error) {
	s, err := service.Open(ctx, f, o.TokenFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return fn(s)
}

// Listed is a lane in what `striatum lane list --output json` prints. Revoked is
// empty, "retired" or "compromised"; from Since on, a place in the log, nothing
// that the key signed counts. ProbedAt is the time of the newest probe since the
// enrolment, empty where there is none; Lowered says what one that failed found,
// and makes the lane count as shared. What was recorded at the places of Reached
// stays shared.
type Listed struct {
	LaneID     string `json:"lane_id"`
	KeyID      string `json:"key_id"`
	Class      string `json:"class"`
	Position   int64  `json:"position"`
	EnrolledAt string `json:"enrolled_at"`
	By         string `json:"by"`
	Revoked    string `json:"revoked"`
	Since      int64  `json:"since"`
	ProbedAt   string `json:"probed_at"`
	Lowered    string `json:"lowered"`

	Reached []store.LogSpan `json:"reached"`
}

func newList(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List all lanes that were ever enrolled",
		Example: "  striatum lane list\n  striatum lane list --output json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), f, o) },
	}
	o.addTokenFile(cmd)
	cli.AddOutput(cmd, &o.Output)
	return cmd
}

func list(ctx context.Context, f *cli.Factory, o Options) error {
	return with(ctx, f, o, func(c service.Service) error {
		all, err := c.Lanes(ctx)
		if err != nil {
			return err
		}
		lanes := []Listed{}
		for _, l := range all {
			lanes = append(lanes, Listed{
				LaneID: l.LaneID, KeyID: l.KeyID, Class: l.Class, Position: l.Position, EnrolledAt: l.RecordedAt,
				By: l.By, Revoked: l.Revoked, Since: l.Since, ProbedAt: l.ProbedAt, Lowered: l.Lowered,
				Reached: append([]store.LogSpan{}, l.Probe.Spans...),
			})
		}
		if o.Output == cli.JSON {
			return f.Streams.WriteJSON(struct {
				SchemaVersion string   `json:"schema_version"`
				Lanes         []Listed `json:"lanes"`
			}{"striatum.lanes.v1", lanes})
		}
		var b strings.Builder
		for _, l := range lanes {
			b.WriteString(cli.Escape(l.line()) + "\n")
		}
		_, err = fmt.Fprint(f.Streams.Out, b.String())
		return err
	})
}

func (l Listed) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  key %s, enrolled at log entry %d by %s", l.LaneID, l.Class, l.KeyID, l.Position, l.By)
	if l.Revoked != "" {
		fmt.Fprintf(&b, "; %s, nothing counts from log entry %d on", l.Revoked, l.Since)
	}
	if l.Lowered != "" {
		fmt.Fprintf(&b, "; counts as shared: its probe of %s found %s", l.ProbedAt, l.Lowered)
	}
	for _, r := range l.Reached {
		fmt.Fprintf(&b, "; what was recorded from log entry %d to %d stays shared, because a user reached it", r.From, r.To-1)
	}
	return b.String()
}

func newRevoke(f *cli.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "revoke LANE --retired|--compromised",
		Short: "End a lane's key (operator)",
		Long: `Revoke ends every key of a lane. A retired key was put out of use in good order:
what it signed before this moment keeps counting. A compromised one may have been
in other hands: nothing that it signed counts from the log entry --since on or,
without --since, at all. Places in the log decide, never times.`,
		Example: "  striatum lane revoke lane-1 --retired\n  striatum lane revoke lane-1 --compromised --since 1200",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return revoke(cmd.Context(), f, args[0], o) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&o.Retired, "retired", false, "the key was put out of use in good order")
	fl.BoolVar(&o.Compromised, "compromised", false, "the key may have been in other hands")
	fl.Int64Var(&o.Since, "since", 0, "with --compromised: the log `entry` from which on nothing counts (default: its enrolment)")
	cmd.MarkFlagsOneRequired("retired", "compromised")
	cmd.MarkFlagsMutuallyExclusive("retired", "compromised")
	o.addTokenFile(cmd)
	return cmd
}

func revoke(ctx context.Context, f *cli.Factory, id string, o Options) error {
	kind := daemon.RevokedRetired
	if o.Compromised {
		kind = daemon.RevokedCompromised
	}
	return with(ctx, f, o, func(c service.Service) error {
		ended, err := c.RevokeLane(ctx, id, kind, o.Since)
		if err != nil {
			return err
		}
		for _, l := range ended {
			f.Streams.Notef("lane %s, key %s: %s, nothing counts from log entry %d on", cli.Escape(l.LaneID), l.KeyID, l.Revoked, l.Since)
		}
		return nil
	})
}
