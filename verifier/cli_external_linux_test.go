package verifier_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/internal/testenv"
)

// TestExternalCheckFromTemplateToGreen walks an entry of the intent through the
// command that people run: refused while it is unfilled or unpinned, pinned, run,
// read and attested; then with an edited script and an edited pins file.
func TestExternalCheckFromTemplateToGreen(t *testing.T) {
	c := buildCommand(t)
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("../examples/schema")); err != nil {
		t.Fatal(err)
	}
	step := func(want int, says string, args ...string) string {
		t.Helper()
		return c.step(t, root, want, says, args...)
	}
	digest := func(out string) string { t.Helper(); return digestIn(t, out) }
	pin := []string{"verifier", "pin", "--host-here"}
	step(0, "", "workflow", "generate", "--shape", "verification_gate", "--check", "schema", "--write")
	step(8, "/checks/0/argv", pin...)
	step(8, "unfilled template", "verifier", "run", "--check", "schema")
	example, err := os.ReadFile("../examples/schema/allowlist.intent.json")
	if err != nil {
		t.Fatal(err)
	}
	intent := string(example)
	put(t, root, "verification/allowlist.intent.json", intent)
	step(8, "striatum verifier pin --host-here", "workflow", "validate", "verification/workflow.json")
	step(8, "striatum verifier pin --host-here", "verifier", "run", "--check", "schema")
	step(1, "+ schema", append(pin, "--diff-only")...)
	put(t, root, "verification/allowlist.intent.json", strings.Replace(intent, "tools/check.py", "tools/chek.py", 1))
	step(1, `argv has "tools/chek.py", which is no file`, append(pin, "--diff-only")...)
	put(t, root, "verification/allowlist.intent.json", intent)
	step(8, "not pinned", "verifier", "run", "--check", "schema")
	step(0, "wrote", pin...)
	step(0, "as they were", pin...)
	step(0, "valid", "workflow", "validate", "verification/workflow.json")
	step(0, "verified_eligible", "verifier", "run", "--check", "schema")
	step(0, "ASSERTED   green", "gate", "read")

	operator := func(args ...string) []string { return slices.Concat(args, []string{"--token-file", c.token()}) }
	read, attest := []string{"gate", "read", "-v"}, []string{"verifier", "attest", "--pin", "schema"}
	policy := digest(step(0, "", "policy", "show", "--output", "json"))
	step(0, "accepted policy", operator("policy", "accept", "--digest", policy)...)
	step(0, "attestation_missing", read...)
	step(2, "--digest", attest...)
	attest = append(attest, "--digest", digest(step(2, "", append(attest, "--output", "json")...)))
	step(3, "may not do that", attest...)
	step(0, "attested schema", operator(attest...)...)
	if out := step(0, "ASSERTED   green", read...); strings.Contains(out, "attestation_") || !strings.Contains(out, "store_not_isolated") {
		t.Errorf("attested:\n%s", out)
	}
	step(0, "revoked", operator("verifier", "attest", "--revoke", "schema")...)
	step(0, "attestation_revoked", read...)
	step(0, "attested schema", operator(attest...)...)

	script, err := os.ReadFile(filepath.Join(root, "tools/check.py"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "tools/check.py", string(script)+"# edited\n")
	step(4, "toolchain_drift", "verifier", "run", "--check", "schema")
	step(1, "", "gate", "check")
	step(3, "tools/check.py was 100644", pin...)
	step(0, "wrote", append(pin, "--force")...)
	step(0, "verified_eligible", "verifier", "run", "--check", "schema")
	step(0, "attestation_missing", read...)
	step(2, "tools/check.py was 100644", "verifier", "attest", "--pin", "schema")
	step(3, "not "+attest[len(attest)-1], operator(attest...)...)

	files, err := filepath.Glob(filepath.Join(root, "verification/allowlist.pins.*.json"))
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".attest.json") })
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

// TestToolchainFromTemplateToAttested walks a builtin+toolchain check through the
// command: refused while it is unpinned, pinned, run, attested and read.
func TestToolchainFromTemplateToAttested(t *testing.T) {
	c := buildCommand(t)
	root := testenv.Tree(t, good)
	const id = "builtin+toolchain:go-build"
	step := func(want int, says string, args ...string) string {
		t.Helper()
		return c.step(t, root, want, says, args...)
	}
	step(0, "", "workflow", "generate", "--shape", "verification_gate", "--check", id, "--write")
	step(8, "striatum verifier pin --host-here", "workflow", "validate", "verification/workflow.json")
	step(8, "striatum verifier pin --host-here", "verifier", "run", "--all")
	step(0, "wrote", "verifier", "pin", "--host-here")
	step(0, "as they were", "verifier", "pin", "--host-here")
	step(0, "valid", "workflow", "validate", "verification/workflow.json")
	step(0, "verified_eligible", "verifier", "run", "--all")
	policy := digestIn(t, step(0, "", "policy", "show", "--output", "json"))
	step(0, "accepted policy", "policy", "accept", "--digest", policy, "--token-file", c.token())
	read := []string{"gate", "read", "-v"}
	step(0, "attestation_missing", read...)
	attest := []string{"verifier", "attest", "--pin", id}
	attest = append(attest, "--digest", digestIn(t, step(2, `"uses": "`+id+`"`, append(attest, "--output", "json")...)))
	step(0, "attested "+id, append(attest, "--token-file", c.token())...)
	if out := step(0, "ASSERTED   green", read...); strings.Contains(out, "attestation_") || strings.Contains(out, "builtin_cap") || !strings.Contains(out, "store_not_isolated") {
		t.Errorf("attested:\n%s", out)
	}
}
