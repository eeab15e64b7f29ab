package home

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"striatum/internal/durable"
	"striatum/internal/filelock"
	"striatum/internal/problem"
	"striatum/internal/trust"
	"striatum/seal"
)

// seenFile holds the versions of trust files seen, maxSeenFile its bytes.
const (
	seenFile    = "trust_seen.json"
	maxSeenFile = 1 << 20
)

// RootKey returns the key that signs trust files, and makes it where there is
// none. Only whoever publishes trust files has one.
func (h *Home) RootKey(ctx context.Context, random io.Reader) (key *seal.PrivateKey, made bool, err error) {
	release, err := filelock.Lock(ctx, filepath.Join(h.Dir, ".lock"))
	if err != nil {
		return nil, false, fault(err, h.Dir)
	}
	defer func() { err = errors.Join(err, release()) }()
	if made, err = h.makeKey("root", random); err != nil {
		return nil, false, err
	}
	if key, err = h.readPair("root"); err != nil {
		return nil, false, fault(err, h.Dir)
	}
	return key, made, nil
}

// SeenTrust calls change with the versions of trust files that this home has
// seen, and keeps what it changed. It returns change's error as it is.
func (h *Home) SeenTrust(ctx context.Context, change func(*trust.Seen) (changed bool, err error)) (err error) {
	path := filepath.Join(h.Dir, seenFile)
	what := fmt.Sprintf("remember the version in %q", path)
	release, err := filelock.Lock(ctx, path+".lock")
	if err != nil {
		return problem.Wrap(problem.Indeterminate, err, what, "")
	}
	defer func() { err = errors.Join(err, release()) }()
	data, err := readSeen(path)
	if err != nil {
		return problem.Wrap(problem.Indeterminate, err, what, "")
	}
	seen, err := trust.ParseSeen(data)
	if err != nil {
		return problem.Wrap(problem.Invalid, err, what, "restore the file from a backup; moving it away forgets every version seen")
	}
	changed, err := change(&seen)
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

// readSeen returns nothing where there is no file.
func readSeen(path string) (data []byte, err error) {
	file, err := os.Open(path) // in our own folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err = io.ReadAll(io.LimitReader(file, maxSeenFile+1))
	if err == nil && len(data) > maxSeenFile {
		err = fmt.Errorf("it has more than %d bytes", maxSeenFile)
	}
	return data, err
}
