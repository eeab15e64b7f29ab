package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// tools are the folders of third-party programs, as scripts/build-tools names them.
var tools = map[string]string{
	"containerd2":   "containerd-v2.4.2",
	"cosign":        "cosign-v3.1.3",
	"slsa-verifier": "slsa-verifier-v2.7.1",
}

// ToolDir returns the folder, below $STRIATUM_TOOL_CACHE (by default
// striatum-tools in the user's cache), that scripts/build-tools made for a
// third-party program. Without it that service is missing.
func ToolDir(t testing.TB, name string) string {
	t.Helper()
	cache := os.Getenv("STRIATUM_TOOL_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			Missing(t, name, err.Error())
		}
		cache = filepath.Join(user, "striatum-tools")
	}
	dir := filepath.Join(cache, tools[name])
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err != nil {
		Missing(t, name, err.Error()+"; scripts/build-tools makes it")
	}
	return dir
}
