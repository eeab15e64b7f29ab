package receiptcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/durable"
	"striatum/internal/filelock"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/internal/trust"
	"striatum/seal"
)

// seenFile, in the home, holds the versions of trust files seen.
const seenFile = "trust_seen.json"

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
func admitVersion(ctx context.Context, f *cli.Factory, root seal.PublicKey, version int64) (err error) {
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
	path := filepath.Join(h.Dir, seenFile)
	what := fmt.Sprintf("remember the version in %q", path)
	release, err := filelock.Lock(ctx, path+".lock")
	if err != nil {
		return problem.Wrap(problem.Indeterminate, err, what, "")
	}
	defer func() { err = errors.Join(err, release()) }()
	data, err := embedded.ReadFile(path, 1<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return problem.Wrap(problem.Indeterminate, err, what, "")
	}
	seen, err := trust.ParseSeen(data)
	if err != nil {
		return problem.Wrap(problem.Invalid, err, what, "restore the file from a backup; moving it away forgets every version seen")
	}
	changed, err := seen.Admit(root, version)
	if err != nil || !changed {
		return err
	}
	if data, err = seen.Encode(); err != nil {
		return err
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return problem.Wrap(problem.Indeterminate, err, what, "make the home writable")
	}
	return nil
}
