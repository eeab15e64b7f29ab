package lanecmd

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/probe"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/verifier/journal"
)

const what = "probe the lane's host"

func newProbe(f *cli.Factory) *cobra.Command {
	var users []string
	var tokenFile string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Try what the users of sessions reach, which the lane's class rests on (root)",
		Long: `Probe tries, as root on the lane's host and with each user's uid, gid and groups,
whether the users of sessions can read the lane's key, home and token, the daemon's
store, home and configuration, write to them, to the programs that run or to any
folder above, or connect to a container engine; and looks for groups and sudoers
that make them root. The users are those named, the members of the group of the
daemon's socket, and all that presented a session's token since the daemon started.

The daemon keeps what was found, for the lane whose key lies in the home. While the
newest probe found anything, or could not tell, the lane counts as shared; one that
found nothing makes it what it was enrolled as. It exits 0 if the lane is isolated,
1 if not, and 7 if that cannot be told. docs/striatumd.md explains each finding.`,
		Example: "  striatum lane probe --token-file /etc/striatum-lane/lane.token\n  striatum lane probe --user alice --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return probeHost(cmd.Context(), f, users, tokenFile, out)
		},
	}
	cmd.Flags().StringSliceVar(&users, "user", nil, "a session's `user`, by name or uid; may be repeated")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`file` with the lane's or the operator's token (default: STRIATUM_TOKEN_FILE)")
	cli.AddOutput(cmd, &out)
	return cmd
}

func probeHost(ctx context.Context, f *cli.Factory, users []string, tokenFile string, out cli.Output) (err error) {
	if f.DaemonSocket() == "" {
		return problem.New(problem.Usage, what, "no daemon is named, and a store in a home has no isolated lane", "name its socket with --socket or STRIATUM_SOCKET")
	}
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return err
	}
	key, err := laneKey(dir)
	if err != nil {
		return err
	}
	s, err := service.Open(ctx, f, tokenFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	lanes, err := s.Lanes(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(lanes, func(l daemon.LaneInfo) bool { return l.KeyID == key.ID() && l.Revoked == "" })
	if i < 0 {
		return problem.New(problem.Refused, what, "the key of the lane in "+dir+" is not enrolled", "set STRIATUM_HOME to the lane's home, or enrol its key: striatum lane enrol")
	}
	found, err := probe.Examine(ctx, f, s, dir, users, []string{tokenFile, f.Getenv("STRIATUM_TOKEN_FILE")})
	if err != nil {
		return err
	}
	found.LaneID = lanes[i].LaneID
	if lanes[i].Class != string(seal.ClassIsolated) {
		found.Shared()
	}
	if lanes[i].Probe.Reached != "" && found.Record().OK() {
		if err := settled(dir); err != nil {
			return err
		}
	}
	if err := s.RecordProbe(ctx, found.LaneID, found.Record()); err != nil {
		return err
	}
	if err := found.Show(f.Streams, out); err != nil {
		return err
	}
	return found.Exit()
}

// settled refuses to end the time of a reach while the lane in dir has receipts of that
// time on their way: what is recorded later would count.
func settled(dir string) error {
	busy, err := journal.Unsettled(filepath.Join((&home.Home{Dir: dir}).LaneDir(), "journal"))
	if err != nil {
		return problem.Wrap(problem.Indeterminate, err, what, "run it as root")
	}
	if busy != "" {
		return problem.New(problem.Indeterminate, what, "a user reached the lane, and not all that it did since is recorded: "+busy, "let the lane end and record it (striatum lane serve), then probe again")
	}
	return nil
}

// laneKey reads the public key of the lane in a home.
func laneKey(dir string) (seal.PublicKey, error) {
	path := (&home.Home{Dir: dir}).PublicKeyPath("lane")
	data, err := embedded.ReadFile(path, maxKeyFile)
	if err != nil {
		return seal.PublicKey{}, problem.Wrap(problem.Missing, err, what, "run it as root on the lane's host, with STRIATUM_HOME set to the lane's home")
	}
	key, err := seal.ParsePublicKey(data)
	if err != nil {
		return seal.PublicKey{}, problem.Wrap(problem.Invalid, err, what, "restore "+path+" from a backup")
	}
	return key, nil
}
