package verifier_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"striatum/internal/testenv"
)

// TestExternalCheckFromTemplateToGreen walks an entry of the intent through the
// command that people run: refused while it is unfilled or unpinned, pinned, run,
// and read; then with an edited script and an edited pins file.
func TestExternalCheckFromTemplateToGreen(t *testing.T) {
	c := buildCommand(t)
	root := testenv.Tree(t, checkSchema)
	step := func(want int, says string, args ...string) {
		t.Helper()
		out, said, code := c.run(t, root, args...)
		if code != want || !strings.Contains(out+said, says) {
			t.Fatalf("striatum %s: exit %d, want %d and %q:\n%s%s", strings.Join(args, " "), code, want, says, out, said)
		}
	}
	pin := []string{"verifier", "pin", "--host-here"}
	step(0, "", "workflow", "generate", "--shape", "verification_gate", "--check", "schema", "--write")
	step(8, "/checks/0/argv", pin...)
	step(8, "unfilled template", "verifier", "run", "--check", "schema")
	intent := `{"schema_version": "striatum.verifier_allowlist_intent.v1", "checks": [` +
		schemaEntry("schema-is-valid", "schema-holds") + `]}`
	put(t, root, "verification/allowlist.intent.json", intent)
	step(8, "striatum verifier pin --host-here", "verifier", "run", "--check", "schema")
	step(1, "+ schema", append(pin, "--diff-only")...)
	step(8, "not pinned", "verifier", "run", "--check", "schema")
	step(0, "wrote", pin...)
	step(0, "as they were", pin...)
	step(0, "valid", "workflow", "validate", "verification/workflow.json")
	step(0, "verified_eligible", "verifier", "run", "--check", "schema")
	step(0, "ASSERTED   green", "gate", "read")

	script, err := os.ReadFile(filepath.Join(root, "tools/check.py"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "tools/check.py", string(script)+"# edited\n")
	step(4, "toolchain_drift", "verifier", "run", "--check", "schema")
	step(1, "", "gate", "check")
	step(3, "the definition in the tree was", pin...)
	step(0, "wrote", append(pin, "--force")...)
	step(0, "verified_eligible", "verifier", "run", "--check", "schema")

	files, err := filepath.Glob(filepath.Join(root, "verification/allowlist.pins.*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %q, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "verification/"+filepath.Base(files[0]), strings.Replace(string(data), "ey", "eX", 1))
	step(3, "never written by hand", "verifier", "run", "--check", "schema")
	step(3, "never written by hand", pin...)
	step(0, "wrote", append(pin, "--force")...)
	put(t, root, "verification/allowlist.intent.json", strings.Replace(intent, "python3", "no-such-tool", 1))
	step(7, "no such program", pin...)
}
