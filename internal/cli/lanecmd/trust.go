package lanecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/durable"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/internal/trust"
	"striatum/seal"
)

// How long a trust file is good.
const (
	defaultTrustTTL = 90 * 24 * time.Hour
	minTrustTTL     = time.Hour
	maxTrustTTL     = 366 * 24 * time.Hour
)

func newTrust(f *cli.Factory) *cobra.Command {
	o := Options{TTL: defaultTrustTTL}
	cmd := &cobra.Command{
		Use:   "trust --out FILE",
		Short: "Publish which lanes to trust, for readers without the store (operator)",
		Long: `Trust writes a signed file with the key, class and end of every lane, for
"receipt verify --trust" on other machines. Of a retired or compromised lane it
names the receipts that the store has from before its end, the newest 10,000 of all
such lanes: they keep counting, and nothing else that the key signed does.

The root key keys/root.pem of the home signs it and is made by the first call.
Readers get its public half, keys/root.pub, once and by another way than the file.
Each file has a higher version than the last, and a reader who has seen one refuses
older ones. Publish a new file after every change of a lane, and before --ttl ends.`,
		Example: "  striatum lane trust --out trust.json --token-file ~/striatum-operator.token\n  striatum receipt verify SEAL.receipt.json --trust trust.json --trust-root root.pub",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return publish(cmd.Context(), f, o) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Out, "out", "", "the trust `file` to write; one that is there is replaced")
	fl.DurationVar(&o.TTL, "ttl", o.TTL, "how long it is good, from 1h to 8784h")
	o.addTokenFile(cmd)
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func publish(ctx context.Context, f *cli.Factory, o Options) error {
	const what = "publish the trust file"
	if o.TTL < minTrustTTL || o.TTL > maxTrustTTL {
		return problem.New(problem.Usage, what, fmt.Sprintf("it would be good for %s", o.TTL), "it may be good for an hour to 366 days")
	}
	return with(ctx, f, o, func(c service.Service) error {
		lanes, err := c.TrustedLanes(ctx, trust.MaxReceipts)
		if err != nil {
			return err
		}
		h, root, err := rootKey(ctx, f)
		if err != nil {
			return err
		}
		file := trust.File{ExpiresAt: f.Now().Add(o.TTL).UTC().Format(time.RFC3339), Keys: entries(lanes)}
		// The version is taken first: whatever ends this, no other file has it.
		if file.Version, err = nextVersion(ctx, h, root, o.Out); err != nil {
			return err
		}
		signed, err := trust.Sign(file, root)
		if err != nil {
			return problem.Wrap(problem.Refused, err, what, "")
		}
		if err := durable.WriteFile(o.Out, signed, 0o644); err != nil {
			return problem.Wrap(problem.Usage, err, fmt.Sprintf("write %q", o.Out), "--out names a file in a folder that is there")
		}
		f.Streams.Notef("wrote %s: version %d, lanes: %d, good until %s", cli.Escape(o.Out), file.Version, len(lanes), file.ExpiresAt)
		f.Streams.Notef("readers need %s too, by another way", cli.Escape(h.PublicKeyPath("root")))
		for _, l := range lanes {
			if l.Left > 0 {
				f.Streams.Notef("of lane %s, %s, the oldest %d receipts had no room and do not count for its readers", cli.Escape(l.LaneID), l.Revoked, l.Left)
			}
		}
		return nil
	})
}

func entries(lanes []daemon.TrustedLane) []trust.Entry {
	out := []trust.Entry{}
	for _, l := range lanes {
		out = append(out, trust.Entry{
			PublicKey: l.PublicKey, Role: seal.RoleLane, Class: l.CountsAlways(), LaneID: l.LaneID, Repositories: []string{},
			Revoked: trust.Revocation(l.Revoked), Since: l.Since, Receipts: l.Receipts,
		})
	}
	return out
}

// rootKey returns the root key of the user's own home.
func rootKey(ctx context.Context, f *cli.Factory) (*home.Home, *seal.PrivateKey, error) {
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return nil, nil, err
	}
	h, created, err := home.Open(ctx, dir, f.Rand)
	if err != nil {
		return nil, nil, err
	}
	root, made, err := h.RootKey(ctx, f.Rand)
	if made {
		created = append(created, "root key "+h.KeyPath("root"))
	}
	embedded.Say(f, created)
	return h, root, err
}

// nextVersion takes a version that is above every one that this home has seen of
// root, and above that of the file in path, if root signed that: a home that was
// restored from a backup goes on from there.
func nextVersion(ctx context.Context, h *home.Home, root *seal.PrivateKey, path string) (version int64, err error) {
	data, err := embedded.ReadFile(path, trust.MaxBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, problem.Wrap(problem.Usage, err, fmt.Sprintf("read %q", path), "--out names a trust file, or none yet")
	}
	if last, err := trust.Open(data, root.Public(), time.Time{}); err == nil {
		version = last.Version
	}
	err = h.SeenTrust(ctx, func(seen *trust.Seen) (bool, error) {
		version = max(version, seen.Versions[root.Public().ID()]) + 1
		return seen.Admit(root.Public(), version)
	})
	return version, err
}
