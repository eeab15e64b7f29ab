package receiptcmd

import (
	"context"
	"errors"
	"fmt"

	"striatum/internal/cli"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/internal/trust"
	"striatum/seal"
)

// trustKeys opens the trust file and refuses it if the home has seen a newer one.
func trustKeys(ctx context.Context, f *cli.Factory, o verifyOptions) (keys, error) {
	what := fmt.Sprintf("read the trust file %q", o.trust)
	root, err := readPublicKey(o.trustRoot)
	if err != nil {
		return keys{}, err
	}
	data, err := readFile(what, o.trust)
	if err != nil {
		return keys{}, err
	}
	file, err := trust.Open(data, root, f.Now())
	switch {
	case errors.Is(err, trust.ErrInvalid):
		return keys{}, problem.Wrap(problem.Invalid, err, what, "")
	case err != nil:
		return keys{}, problem.Wrap(problem.Refused, err, what, "get the newest trust file from its operator, and the root key by another way")
	}
	if err := admitVersion(ctx, f, root, file.Version); err != nil {
		if errors.Is(err, trust.ErrOlder) {
			return keys{}, problem.Wrap(problem.Refused, err, what, "get the newest trust file from its operator")
		}
		return keys{}, err
	}
	return keys{
		ring: file.Keyring(), source: sourceTrust, admits: file.Admits,
		origin: fmt.Sprintf("version %d of the trust file %s", file.Version, o.trust),
	}, nil
}

// admitVersion compares a version with the highest that the home has seen and
// remembers it.
func admitVersion(ctx context.Context, f *cli.Factory, root seal.PublicKey, version int64) error {
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return err
	}
	h, created, err := home.Open(ctx, dir, f.Rand)
	if err != nil {
		return err
	}
	for _, c := range created {
		f.Streams.Notef("created %s", cli.Escape(c))
	}
	return h.SeenTrust(ctx, func(seen *trust.Seen) (changed bool, err error) { return seen.Admit(root, version) })
}
