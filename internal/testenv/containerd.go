// Package testenv gives tests the services that they need from the machine. A
// missing one skips the test with the reason, unless the environment variable
// STRIATUM_REQUIRE, a comma-separated list, names it: then the test fails.
package testenv

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"striatum/sandbox/containerdengine"
)

// Missing skips or fails t because service is not there.
func Missing(t testing.TB, service, reason string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("STRIATUM_REQUIRE"), ","), service) {
		t.Fatalf("%s is required: %s", service, reason)
	}
	t.Skipf("no %s: %s", service, reason)
}

// built is striatum-init, built once for a test program.
var built = struct {
	sync.Once
	path    string
	failure error
}{}

// Init returns the path of a striatum-init built from this module. It is named by
// its content, so that test programs share the file and leave one for a version.
func Init(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if built.path, built.failure = buildInit(); built.failure != nil {
			built.failure = fmt.Errorf("build striatum-init: %w", built.failure)
		}
	})
	if built.failure != nil {
		t.Fatal(built.failure)
	}
	return built.path
}

func buildInit() (path string, err error) {
	dir, err := os.MkdirTemp("", "striatum-init-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path = filepath.Join(dir, "striatum-init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "striatum/cmd/striatum-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	named := fmt.Sprintf("%s%x", filepath.Join(os.TempDir(), "striatum-test-init-"), sha256.Sum256(data))
	return named, os.Rename(path, named)
}

// Containerd returns the configuration of a sandbox engine with a private
// containerd and a home of the test's own. It needs root, containerd and runc;
// what they lack is the service "containerd".
func Containerd(t testing.TB) containerdengine.Config {
	t.Helper()
	if runtime.GOOS != "linux" {
		Missing(t, "containerd", "it needs Linux")
	}
	if os.Geteuid() != 0 {
		Missing(t, "containerd", "it needs root")
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			Missing(t, "containerd", err.Error()+"; apt-get install containerd runc")
		}
	}
	return containerdengine.Config{Home: t.TempDir(), InitPath: Init(t), Now: time.Now}
}

// Containerd2 is Containerd with a daemon and a shim of version 2, the newest that
// the lane is tested with; without them the service "containerd2" is missing.
func Containerd2(t testing.TB) containerdengine.Config {
	t.Helper()
	cfg := Containerd(t)
	dir := ToolDir(t, "containerd2")
	cfg.ContainerdPath = filepath.Join(dir, "containerd")
	cfg.ShimPath = filepath.Join(dir, "containerd-shim-runc-v2")
	return cfg
}
