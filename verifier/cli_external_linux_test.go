package verifier_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/internal/schemacheck"
	"striatum/internal/testenv"
	"striatum/seal"
)

// TestExternalCheckFromTemplateToGreen walks an entry of the intent through the
// command that people run: refused while it is unfilled or unpinned, pinned, run,
// read and attested; then with an edited script and an edited pins file.
func TestExternalCheckFromTemplateToGreen(t *testing.T) {
	c := commandWithoutCache(t)
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
	step(0, "GRADUATES", "verifier", "rehearse", "schema")
	var ran struct{ Checks []struct{ Receipt string } }
	if err := json.Unmarshal([]byte(step(0, "verified_eligible", "verifier", "run", "--check", "schema", "--output", "json")), &ran); err != nil {
		t.Fatal(err)
	}
	byReceipt := slices.Concat(pin, []string{"--from-receipt", ran.Checks[0].Receipt})
	step(0, "schema has here the bytes of that receipt", byReceipt...)
	step(2, "no such receipt", slices.Concat(pin, []string{"--from-receipt", seal.SHA256Hex(nil)})...)
	step(2, "64 lower-case hex digits", append(pin, "--from-receipt", "abc")...)
	step(0, "ASSERTED   green", "gate", "read")

	operator := func(args ...string) []string { return slices.Concat(args, []string{"--token-file", c.token()}) }
	read, attest := []string{"gate", "read", "-v"}, []string{"verifier", "attest", "--pin", "schema"}
	policy := digest(step(0, "", "policy", "show", "--output", "json"))
	step(0, "accepted policy", operator("policy", "accept", "--digest", policy)...)
	step(0, "attestation_missing", read...)
	step(2, "--digest", attest...)
	attest = append(attest, "--digest", digest(step(2, "", append(attest, "--output", "json")...)))
	step(3, "this takes an operator", attest...)
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
	step(3, "tools/check.py was 100644", append(byReceipt, "--force")...)
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

// TestRehearseBeforeAttesting walks a check through the command: it graduates, then
// fails on the tree, then passes where nothing is; attest tells each time.
func TestRehearseBeforeAttesting(t *testing.T) {
	c := commandWithoutCache(t)
	root := testenv.Tree(t, shellTree(honestShell))
	step := func(want int, says string, args ...string) string {
		t.Helper()
		return c.step(t, root, want, says, args...)
	}
	intent := `{"schema_version": "striatum.verifier_allowlist_intent.v1", "checks": [` + shellEntry("exit_code", "") + `]}`
	step(0, "", "workflow", "generate", "--shape", "verification_gate", "--check", "x", "--write")
	workflowFile := filepath.Join(root, "verification/workflow.json")
	text, err := os.ReadFile(workflowFile)
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "verification/workflow.json", strings.ReplaceAll(string(text), `"x-holds"`, `"c"`))
	put(t, root, "verification/allowlist.intent.json", intent)
	step(8, "striatum verifier pin --host-here", "verifier", "rehearse")
	step(0, "wrote", "verifier", "pin", "--host-here")
	step(0, "GRADUATES", "verifier", "rehearse")
	out := step(0, "", "verifier", "rehearse", "x", "--output", "json")
	var printed struct {
		Rehearsals []json.RawMessage `json:"rehearsals"`
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || len(printed.Rehearsals) != 1 {
		t.Fatalf("%v in\n%s", err, out)
	}
	schema, err := os.ReadFile(filepath.Join("..", "docs", "schemas", "rehearsal.v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	if bad, err := schemacheck.Check(schema, printed.Rehearsals[0]); err != nil || len(bad) > 0 {
		t.Errorf("%v, %v in\n%s", bad, err, out)
	}
	policy := digestIn(t, step(0, "", "policy", "show", "--output", "json"))
	step(0, "accepted policy", "policy", "accept", "--digest", policy, "--token-file", c.token())
	attest := []string{"verifier", "attest", "--pin", "x"}
	step(2, "rehearsed  graduates, at ", attest...)
	put(t, root, "in.txt", "bad\n")
	step(1, "REFUSED", "verifier", "rehearse")
	step(2, "the newest rehearsal REFUSED this check", attest...)
	put(t, root, "in.txt", "good\n")
	put(t, root, "x.sh", "test -e $1/in.txt || exit 0\n"+honestShell+"\n")
	step(4, "toolchain_drift", "verifier", "rehearse")
	step(0, "wrote", "verifier", "pin", "--host-here", "--force")
	step(2, "rehearsed  indeterminate, at ", attest...)
	step(5, "passes_on_empty_worktree", "verifier", "rehearse")
	step(2, "the newest rehearsal REFUSED this check", attest...)
	if out := step(0, "", "verifier", "attest", "--list"); strings.Contains(out, "x, by") {
		t.Errorf("attested:\n%s", out)
	}
	if left := leftovers(c.home); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
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

// TestImageFromPinToAttested walks an entry whose tools come from an image through
// the command: refused while no source has it, pinned, run, attested and read; then
// with another image, and with a hostile one.
func TestImageFromPinToAttested(t *testing.T) {
	c := commandWithoutCache(t)
	layout := testenv.NewLayout(t)
	image, other := toolImage(t, layout), toolImage(t, layout, testenv.File("usr/other", ""))
	hostile := toolImage(t, layout, testenv.Link("usr/l", "/etc"), testenv.File("usr/l/x", ""))
	root := testenv.Tree(t, workTree)
	step := func(want int, says string, args ...string) string {
		t.Helper()
		return c.step(t, root, want, says, args...)
	}
	intent := func(image string) {
		put(t, root, "verification/allowlist.intent.json", `{"schema_version": "striatum.verifier_allowlist_intent.v1", "checks": [`+
			imageEntry(image, `"no-todo-in", "{target}"`)+`]}`)
	}
	pin, run := []string{"verifier", "pin", "--host-here"}, []string{"verifier", "run", "--check", "todo"}
	step(0, "", "workflow", "generate", "--shape", "verification_gate", "--check", "todo", "--write")
	intent("registry.test/tools:latest")
	step(6, "/checks/0/toolchain/image", pin...)
	intent(image)
	step(7, `in "images" in `, pin...)
	put(t, c.home, "config.json", `{"schema_version": "striatum.config.v1", "images": ["not/absolute"]}`)
	step(6, "neither an absolute folder nor a registry", pin...)
	put(t, c.home, "config.json", `{"schema_version": "striatum.config.v1", "images": ["`+layout.Dir+`"]}`)
	step(0, "wrote", pin...)
	step(0, "as they were", pin...)
	step(0, "GRADUATES", "verifier", "rehearse", "todo")
	var ran struct{ Checks []struct{ Receipt string } }
	if err := json.Unmarshal([]byte(step(0, "verified_eligible", append(run, "--output", "json")...)), &ran); err != nil {
		t.Fatal(err)
	}
	byReceipt := slices.Concat(pin, []string{"--from-receipt", ran.Checks[0].Receipt})
	step(0, "todo has here the bytes of that receipt", byReceipt...)
	policy := digestIn(t, step(0, "", "policy", "show", "--output", "json"))
	step(0, "accepted policy", "policy", "accept", "--digest", policy, "--token-file", c.token())
	read := []string{"gate", "read", "-v"}
	step(0, "attestation_missing", read...)
	attest := []string{"verifier", "attest", "--pin", "todo"}
	attest = append(attest, "--digest", digestIn(t, step(2, image, append(attest, "--output", "json")...)))
	step(0, "attested todo", append(attest, "--token-file", c.token())...)
	if out := step(0, "ASSERTED   green", read...); strings.Contains(out, "attestation_") || !strings.Contains(out, "store_not_isolated") {
		t.Errorf("attested:\n%s", out)
	}
	intent(other)
	step(8, "not pinned", run...)
	step(3, "is no longer part of it", pin...)
	step(0, "wrote", append(pin, "--force")...)
	step(3, "this host has other bytes", byReceipt...)
	step(0, "verified_eligible", run...)
	step(0, "attestation_missing", read...)
	intent(hostile)
	step(3, "is no folder", append(pin, "--force")...)
	if names, err := filepath.Glob(filepath.Join(c.home, "lane/images/spool/*")); err != nil || len(names) != 0 {
		t.Errorf("left: %q, %v", names, err)
	}
}
