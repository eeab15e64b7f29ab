package receipt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

const (
	cosignVersion = "v3.1.3"
	cosignPackage = "github.com/sigstore/cosign/v3/cmd/cosign"
)

// cosign returns the path of the real cosign, kept in the folder of
// scripts/build-tools. Where it is missing the test is skipped, unless
// STRIATUM_REQUIRE names cosign: then it is built from the module proxy, which
// takes some minutes once.
func cosign(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("STRIATUM_TOOL_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("no cache folder for cosign: %v", err)
		}
		cache = filepath.Join(user, "striatum-tools")
	}
	dir := filepath.Join(cache, "cosign-"+cosignVersion)
	bin, done := filepath.Join(dir, "cosign"), filepath.Join(dir, ".complete")
	if _, err := os.Stat(done); err == nil {
		return bin
	}
	if !slices.Contains(strings.Split(os.Getenv("STRIATUM_REQUIRE"), ","), "cosign") {
		t.Skipf("cosign %s is not in %s; STRIATUM_REQUIRE=cosign builds it", cosignVersion, cache)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "install", cosignPackage+"@"+cosignVersion)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build cosign: %v\n%s", err, out)
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestCosignAcceptsAReceiptForItsManifestOnly(t *testing.T) {
	bin := cosign(t)
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
