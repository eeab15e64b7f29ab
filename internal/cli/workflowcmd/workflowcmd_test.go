package workflowcmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/hostid"
	"striatum/receipt"
	"striatum/seal"
)

func factory(getenv func(string) string, streams cli.Streams) *cli.Factory {
	return &cli.Factory{Streams: streams, Getenv: getenv, Getwd: os.Getwd, Now: time.Now, Rand: rand.Reader}
}

// root is striatum with this package's commands alone.
func root(f *cli.Factory) *cobra.Command { return cli.Parent("striatum", "test", "", New(f)) }

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"striatum": func() {
		f := factory(os.Getenv, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
		os.Exit(cli.Run(context.Background(), root(f), f.Streams))
	}})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("STRIATUM_HOME", filepath.Join(e.WorkDir, "home"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitcode},
	})
}

// exitcode N CMD…: the command must exit with N.
func exitcode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exitcode: %v", err)
	}
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("exitcode: %v", err)
	}
	if got != want {
		ts.Fatalf("exit %d, want %d", got, want)
	}
}

// run runs striatum in this process.
func run(t *testing.T, home string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	f := factory(func(key string) string {
		if key == "STRIATUM_HOME" {
			return home
		}
		return ""
	}, cli.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	cmd := root(f)
	cmd.SetArgs(args)
	code = cli.Run(context.Background(), cmd, f.Streams)
	return code, stdout.String(), stderr.String()
}

const filledIntent = `{
  "schema_version": "striatum.verifier_allowlist_intent.v1",
  "checks": [{
    "id": "schema", "argv": ["/usr/bin/checker", "{target}"], "pass_when": "exit_zero", "backs_claim": "schema-holds", "agreement": "exit_code",
    "negative_control": {"mutation_of": ".", "mutation": {"file": "a", "find": "b", "replace": "c"}, "fails_with": "no c"}
  }]
}
`

// pinnedWorktree makes a worktree whose external check is filled and pinned on
// this host by key.
func pinnedWorktree(t *testing.T, key *seal.PrivateKey) (dir, pinsPath string) {
	t.Helper()
	fp, err := hostid.Fingerprint(hostid.MachineIDFile)
	if err != nil {
		t.Skip(err)
	}
	dir = t.TempDir()
	if code, _, errs := run(t, "", "workflow", "generate", "--shape", "verification_gate", "--check", "schema", "--write", "--dir", dir); code != 0 {
		t.Fatal(errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "verification", "allowlist.intent.json"), []byte(filledIntent), 0o644); err != nil {
		t.Fatal(err)
	}
	intent, err := allowlist.ParseIntent([]byte(filledIntent))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := intent.Checks[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	size := int64(1)
	pin := allowlist.Pin{
		ID: "schema", CheckDigest: digest, Argv: intent.Checks[0].Argv.Words, ResolvedPath: "/usr/bin/checker",
		BinarySHA256: strings.Repeat("0", 64), ObservedAt: "2026-01-02T03:04:05Z", ObservedBy: key.Public().ID(),
		Closure: []allowlist.ClosurePart{{Path: "/usr/bin/checker", SHA256: strings.Repeat("0", 64), Size: &size}},
		Posture: receipt.Posture{Facets: []receipt.Facet{}},
	}
	if pin.ClosureSHA256, err = allowlist.ClosureDigest(pin.Closure); err != nil {
		t.Fatal(err)
	}
	data, err := allowlist.SignPins(allowlist.Pins{SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: fp, Checks: []allowlist.Pin{pin}}, key)
	if err != nil {
		t.Fatal(err)
	}
	pinsPath = filepath.Join(dir, allowlist.PinsPath("verification/allowlist.intent.json", fp))
	if err := os.WriteFile(pinsPath, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, pinsPath
}

func TestValidateAcceptsPinsOfTheHomesLane(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	f := factory(func(name string) string { return map[string]string{"STRIATUM_HOME": home}[name] }, cli.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
	session, err := embedded.Open(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	key := session.Home.LaneKey
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	dir, pinsPath := pinnedWorktree(t, key)
	path := filepath.Join(dir, "verification", "workflow.json")
	code, out, errs := run(t, home, "workflow", "validate", path)
	if code != 0 || !strings.HasSuffix(out, ": valid\n") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}

	// A byte of the pins changed: refused, and not merely unpinned.
	data, err := os.ReadFile(pinsPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pinsPath, bytes.Replace(data, []byte("ey"), []byte("eX"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, _ = run(t, home, "workflow", "validate", path); code != 6 || !strings.Contains(out, "#: pins_refused: ") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestValidateRefusesPinsOfAnotherKey(t *testing.T) {
	key, err := seal.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := pinnedWorktree(t, key)
	code, out, _ := run(t, filepath.Join(t.TempDir(), "home"), "workflow", "validate", filepath.Join(dir, "verification", "workflow.json"))
	if code != 6 || !strings.Contains(out, "#: pins_refused: ") || !strings.Contains(out, "striatum verifier pin --host-here") {
		t.Errorf("exit %d\n%s", code, out)
	}
}
