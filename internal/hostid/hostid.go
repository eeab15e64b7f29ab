// Package hostid names the host that this process runs on, for pins and
// receipts: the fingerprint of allowlist.HostFingerprint over the machine id.
package hostid

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"striatum/allowlist"
)

// MachineIDFile holds the machine id on Linux.
const MachineIDFile = "/etc/machine-id"

// ErrNoMachineID means that the host has no machine id to be named by.
var ErrNoMachineID = errors.New("the host has no machine id")

// Fingerprint returns the fingerprint of the host whose machine id stands in
// file. The error is ErrNoMachineID if the file is absent, empty, or longer than
// 128 bytes.
func Fingerprint(file string) (fp string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoMachineID, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, 129))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoMachineID, err)
	}
	id := strings.TrimSpace(string(data))
	if id == "" || len(data) > 128 {
		return "", fmt.Errorf("%w: %q holds none", ErrNoMachineID, file)
	}
	return allowlist.HostFingerprint(id, runtime.GOOS, runtime.GOARCH), nil
}
