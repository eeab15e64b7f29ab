package hostid

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"striatum/allowlist"
)

func TestFingerprintIsOfTheTrimmedMachineID(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine-id")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Fingerprint(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := allowlist.HostFingerprint("0123456789abcdef", runtime.GOOS, runtime.GOARCH); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAHostWithoutMachineIDHasNoFingerprint(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "\n", "long": strings.Repeat("a", 129)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"absent", "empty", "long"} {
		if fp, err := Fingerprint(filepath.Join(dir, name)); !errors.Is(err, ErrNoMachineID) || fp != "" {
			t.Errorf("%s: %q, error %v", name, fp, err)
		}
	}
}
