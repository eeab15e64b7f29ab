package receipt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

func TestCosignAcceptsAReceiptForItsManifestOnly(t *testing.T) {
	bin := filepath.Join(testenv.ToolDir(t, "cosign"), "cosign")
	k, other := receipttest.Key(t, 1), receipttest.Key(t, 2)
	manifest := []byte("100644 " + receipttest.Digest("file") + " 12 main.go\n")
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	facts := receipttest.Facts()
	facts.Inputs.ManifestSHA256 = seal.SHA256Hex(manifest)
	facts.Inputs.GitCommit = strings.Repeat("ab", 20)
	env, _ := receipttest.Sign(t, facts, k)
	bundle, err := receipt.Bundle(env, k.Public())
	if err != nil {
		t.Fatal(err)
	}
	tampered := slices.Clone(env)
	tampered[len(`{"payload":"`)+40] ^= 1
	var (
		good     = write("manifest", manifest)
		wrong    = write("other-manifest", append(slices.Clone(manifest), "100644 x\n"...))
		pub      = write("lane.pub", k.Public().PEM())
		otherPub = write("other.pub", other.Public().PEM())
		envelope = write("receipt.json", env)
		bad      = write("tampered.json", tampered)
		bundled  = write("bundle.json", bundle)
	)
	run := func(key, how, file, blob string) error {
		cmd := exec.CommandContext(t.Context(), bin, "verify-blob-attestation", "--key", key, "--insecure-ignore-tlog",
			"--type", receipt.PredicateType, how, file, blob)
		cmd.Env = append(os.Environ(), "HOME="+dir, "TUF_ROOT="+filepath.Join(dir, "tuf"))
		out, err := cmd.CombinedOutput()
		t.Logf("cosign %s: %v: %s", strings.Join(cmd.Args[2:], " "), err, out)
		if err == nil && !strings.Contains(string(out), "Verified OK") {
			t.Errorf("cosign exits 0 without saying Verified OK")
		}
		return err
	}
	for _, tt := range []struct {
		name, key, how, file, blob string
		accept                     bool
	}{
		{"envelope", pub, "--signature", envelope, good, true},
		{"envelope, another manifest", pub, "--signature", envelope, wrong, false},
		{"envelope, another key", otherPub, "--signature", envelope, good, false},
		{"envelope, tampered", pub, "--signature", bad, good, false},
		{"bundle", pub, "--bundle", bundled, good, true},
		{"bundle, another manifest", pub, "--bundle", bundled, wrong, false},
		{"bundle, another key", otherPub, "--bundle", bundled, good, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := run(tt.key, tt.how, tt.file, tt.blob); (err == nil) != tt.accept {
				t.Errorf("got %v, want accepted: %t", err, tt.accept)
			}
		})
	}
}
