// Package testenv gives tests the services that they need from the machine. A
// missing one skips the test with the reason, unless the environment variable
// STRIATUM_REQUIRE, a comma-separated list, names it: then the test fails.
package testenv

import (
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
	path, failure string
}{}

// Init returns the path of a striatum-init built from this module, in a folder
// of its own below the temporary one.
func Init(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		dir, err := os.MkdirTemp("", "striatum-init-")
		if err != nil {
			built.failure = err.Error()
			return
		}
		built.path = filepath.Join(dir, "striatum-init")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", built.path, "striatum/cmd/striatum-init")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.failure = err.Error() + "\n" + string(out)
		}
	})
	if built.failure != "" {
		t.Fatalf("build striatum-init: %s", built.failure)
	}
	return built.path
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

// containerd2 is the folder, in the tool cache, of the newest containerd that
// the lane is tested with (see scripts/build-tools).
const containerd2 = "containerd-v2.4.2"

// Containerd2 is Containerd with a daemon and a shim of version 2, built into
// $STRIATUM_TOOL_CACHE; without them the service "containerd2" is missing.
func Containerd2(t testing.TB) containerdengine.Config {
	t.Helper()
	cfg := Containerd(t)
	dir := filepath.Join(os.Getenv("STRIATUM_TOOL_CACHE"), containerd2)
	cfg.ContainerdPath = filepath.Join(dir, "containerd")
	cfg.ShimPath = filepath.Join(dir, "containerd-shim-runc-v2")
	for _, p := range []string{cfg.ContainerdPath, cfg.ShimPath} {
		if _, err := os.Stat(p); err != nil || !filepath.IsAbs(p) {
			Missing(t, "containerd2", "STRIATUM_TOOL_CACHE has no "+containerd2+"; scripts/build-tools makes it")
		}
	}
	return cfg
}
