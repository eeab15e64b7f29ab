package initcmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestASystemIsSetUp runs testdata/system.sh in namespaces of its own for mounts and
// processes, with the real programs.
func TestASystemIsSetUp(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root sets up a system")
	}
	for _, tool := range []string{"unshare", "useradd", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "striatum/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script, err := filepath.Abs(filepath.Join("testdata", "system.sh"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "bash", script, bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
