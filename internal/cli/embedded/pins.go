package embedded

import (
	"errors"
	"fmt"
	"io/fs"

	"striatum/allowlist"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/seal"
)

// Pins reads a host's pins in the worktree at top, and the digest of their file;
// nil if there are none. What no lane of the ring signed is refused.
func Pins(top, intentPath, fingerprint string, ring seal.Keyring) (_ *allowlist.Pins, sha256 string, err error) {
	root, err := worktree.Open(top)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = root.Close() }() // nothing is pending in it
	return PinsIn(root, intentPath, fingerprint, ring)
}

// PinsIn is Pins for an open worktree.
func PinsIn(root *worktree.Root, intentPath, fingerprint string, ring seal.Keyring) (_ *allowlist.Pins, sha256 string, err error) {
	envelope, err := pinsFile(root, intentPath, fingerprint)
	if envelope == nil || err != nil {
		return nil, "", err
	}
	pins, err := allowlist.ParsePins(envelope, ring)
	if err != nil {
		return nil, "", PinsRefused(allowlist.PinsPath(intentPath, fingerprint), err)
	}
	return &pins, seal.SHA256Hex(envelope), nil
}

// PinsFile reads the file of a host's pins, which nobody has opened yet; nil if
// there is none.
func PinsFile(top, intentPath, fingerprint string) ([]byte, error) {
	root, err := worktree.Open(top)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // nothing is pending in it
	return pinsFile(root, intentPath, fingerprint)
}

func pinsFile(root *worktree.Root, intentPath, fingerprint string) ([]byte, error) {
	path := allowlist.PinsPath(intentPath, fingerprint)
	envelope, err := root.ReadFile(path, allowlist.MaxPinsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, PinsRefused(path, err)
	}
	return envelope, nil
}

// PinsRefused is the problem of pins that cannot be trusted.
func PinsRefused(path string, err error) error {
	return problem.Wrap(problem.Refused, err, fmt.Sprintf("read the pins %q", path),
		"pins are never written by hand: remove the file and run: "+allowlist.PinCommand)
}
