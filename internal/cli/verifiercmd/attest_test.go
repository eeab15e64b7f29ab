package verifiercmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/gatecmd"
	"striatum/internal/cli/initcmd"
	"striatum/internal/cli/policycmd"
	"striatum/internal/cli/tokencmd"
	"striatum/internal/cli/workflowcmd"
	"striatum/internal/schemacheck"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/verifier"
	"striatum/verifier/rehearsal"
	"striatum/workflow"
)

func commands(f *cli.Factory) []*cobra.Command {
	return []*cobra.Command{New(f), gatecmd.New(f), initcmd.New(f), policycmd.New(f), tokencmd.New(f), workflowcmd.New(f)}
}

func TestMain(m *testing.M) { clitest.Main(m, commands) }

func TestScripts(t *testing.T) {
	clitest.Run(t, map[string]func(*testscript.TestScript, bool, []string){
		"pin": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(pinFor(ts.Getenv("STRIATUM_HOME"), ts.MkAbs(args[0]), args[1]))
		},
		"rehearse": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(rehearseFor(ts.Getenv("STRIATUM_HOME"), ts.MkAbs(args[0]), args[1], args[2], args[3]))
		},
		"edit": func(ts *testscript.TestScript, _ bool, args []string) {
			before := ts.ReadFile(args[0])
			after := strings.Replace(before, args[1], args[2], 1)
			if after == before {
				ts.Fatalf("%s does not hold %q", args[0], args[1])
			}
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(after), 0o644))
		},
		"schema": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(fits(ts.ReadFile("stdout"), args[0]))
		},
		"tested": func(ts *testscript.TestScript, _ bool, args []string) {
			copied, err := recordTested(context.Background(), ts.Getenv("STRIATUM_HOME"), ts.MkAbs(args[0]), args[1:])
			ts.Check(err)
			ts.Setenv("CENSUS", copied)
		},
		"edited": func(ts *testscript.TestScript, _ bool, _ []string) {
			ts.Check(os.WriteFile(ts.Getenv("CENSUS"), []byte("{}\n"), 0o644))
		},
		"sidecar": func(ts *testscript.TestScript, _ bool, args []string) {
			paths, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "verification", "*.attest.json"))
			ts.Check(err)
			if len(paths) != 1 {
				ts.Fatalf("got the sidecars %q", paths)
			}
			ts.Setenv("SIDECAR", paths[0])
		},
	})
}

// fits says where a document breaks the schema of its outputs with that name, and
// whether that is one that anything fits.
func fits(doc, name string) error {
	schema, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "schemas", name+".v1.json"))
	if err != nil {
		return err
	}
	if bad, err := schemacheck.Check(schema, []byte(doc)); err != nil || len(bad) > 0 {
		return fmt.Errorf("%v, %w in\n%s", bad, err, doc)
	}
	more := strings.Replace(doc, "{", `{"more": 1, `, 1)
	if bad, err := schemacheck.Check(schema, []byte(more)); err != nil || len(bad) == 0 {
		return fmt.Errorf("an unknown field fits: %w", err)
	}
	return nil
}

// pinFor does what `verifier pin` does where there is no sandbox: the home's lane
// signs pins of every entry, whose command has the given bytes.
func pinFor(home, tree, content string) error {
	pem, err := os.ReadFile(filepath.Join(home, "keys", "lane.pem"))
	if err != nil {
		return err
	}
	key, err := seal.ParsePrivateKey(pem)
	if err != nil {
		return err
	}
	fingerprint, err := hostFingerprint(filepath.Join(home, "lane"), rand.Reader)
	if err != nil {
		return err
	}
	files, err := embedded.PolicyFiles(tree)
	if err != nil {
		return err
	}
	intent, path, err := files.Intent()
	if err != nil {
		return err
	}
	pins := allowlist.Pins{SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: fingerprint, Checks: []allowlist.Pin{}}
	for _, e := range intent.Checks {
		digest, err := e.Digest()
		if err != nil {
			return err
		}
		p := allowlist.Pin{
			ID: e.ID, CheckDigest: digest, Argv: e.Argv.Words, ResolvedPath: "/usr/bin/python3", BinarySHA256: seal.SHA256Hex([]byte(content)),
			Closure: []allowlist.ClosurePart{
				{Path: "/usr/bin/python3", SHA256: seal.SHA256Hex([]byte(content)), Size: new(int64(len(content)))},
				{Path: "/usr/lib/evil\u202e\x1b[2J\nx", SHA256: seal.SHA256Hex(nil), Size: new(int64)},
				{Root: "/usr/lib/python3", TreeSHA256: seal.SHA256Hex(nil), Files: new(int64(2)), Bytes: new(int64(9))},
				{Tree: "definition", SHA256: seal.SHA256Hex([]byte("definition"))},
			},
			ObservedAt: "2026-05-04T03:02:01Z", ObservedBy: key.Public().ID(), Posture: receipt.Posture{Facets: []receipt.Facet{}},
		}
		if p.ClosureSHA256, err = allowlist.ClosureDigest(p.Closure); err != nil {
			return err
		}
		pins.Checks = append(pins.Checks, p)
	}
	envelope, err := allowlist.SignPins(pins, key)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(tree, allowlist.PinsPath(path, fingerprint)), envelope, 0o644)
}

// rehearseFor does what `verifier rehearse` does where there is no sandbox: what the
// first entry, as pinned, came to is signed by a key and kept in the home. by is
// "lane", or anything else for a key that is nobody's.
func rehearseFor(home, tree, repositoryID, outcome, by string) error {
	pem, err := os.ReadFile(filepath.Join(home, "keys", "lane.pem"))
	if err != nil {
		return err
	}
	key, err := seal.ParsePrivateKey(pem)
	if err != nil {
		return err
	}
	lane := daemon.LaneID(key.Public())
	if by != "lane" {
		if key, err = seal.GenerateKey(rand.Reader); err != nil {
			return err
		}
	}
	files, err := embedded.PolicyFiles(tree)
	if err != nil {
		return err
	}
	intent, path, err := files.Intent()
	if err != nil {
		return err
	}
	fingerprint, err := hostFingerprint(filepath.Join(home, "lane"), rand.Reader)
	if err != nil {
		return err
	}
	envelope, err := os.ReadFile(filepath.Join(tree, allowlist.PinsPath(path, fingerprint)))
	if err != nil {
		return err
	}
	u, err := seal.Peek(envelope, allowlist.PinsPayloadType)
	if err != nil {
		return err
	}
	var pins allowlist.Pins
	if err := seal.Decode(u.Payload, &pins, seal.Limits{}); err != nil {
		return err
	}
	digest, err := intent.Checks[0].Digest()
	if err != nil {
		return err
	}
	failing := receipttest.Execution(receipt.Fail)
	red := failing
	if outcome == "refused" {
		red = receipttest.Execution(receipt.Pass)
	}
	facts := receipttest.Facts()
	facts.Check.ID, facts.Check.Kind, facts.Check.Digest, facts.Check.Agreement = intent.Checks[0].ID, receipt.External, digest, "stdout"
	control := rehearsal.Control{Mutation: 1, File: "a.json", Control: receipt.Control{Kind: receipt.ControlWorktree, MutationOf: ".", Execution: &failing, Outcome: receipt.FailedAsRequired}}
	facts.Lane.LaneID = lane
	record, r, err := rehearsal.Sign(rehearsal.Rehearsal{
		Subject: rehearsal.Subject{RepositoryID: repositoryID, CheckDigest: digest, ClosureSHA256: pins.Checks[0].ClosureSHA256},
		Check:   facts.Check, TreeSHA256: facts.Inputs.TreeSHA256, Mutations: 1,
		Runs: facts.Executions, Controls: []rehearsal.Control{control, control, control},
		Reds:    []rehearsal.Red{{Input: rehearsal.EmptyWorktree, Execution: red}},
		Posture: facts.Posture, Limits: facts.Limits, Lane: facts.Lane, RehearsedAt: "2026-05-04T03:02:09Z",
	}, key)
	if err != nil {
		return err
	}
	return rehearsal.Keep(verifier.RehearsalsDir(filepath.Join(home, "lane")), r.Subject, record)
}

// TestAttestAsksOnATerminal types at the question; nobody without the token is
// asked.
func TestAttestAsksOnATerminal(t *testing.T) {
	dir := t.TempDir()
	home, tree, token := filepath.Join(dir, "home"), filepath.Join(dir, "tree"), filepath.Join(dir, "token")
	run := func(typed string, terminal bool, args ...string) (out, said string, code int) {
		t.Helper()
		var stdout, stderr strings.Builder
		env := map[string]string{"STRIATUM_HOME": home}
		f := &cli.Factory{
			Streams: cli.Streams{In: strings.NewReader(typed), Out: &stdout, Err: &stderr, InIsTerminal: terminal, ErrIsTerminal: terminal},
			Getenv:  func(name string) string { return env[name] }, Getwd: func() (string, error) { return tree, nil },
			Now: time.Now, Rand: rand.Reader,
		}
		root := cli.Parent("striatum", "test", "", commands(f)...)
		root.SetArgs(args)
		code = cli.Run(t.Context(), root, f.Streams)
		return stdout.String(), stderr.String(), code
	}
	must := func(out, said string, code int) string {
		t.Helper()
		if code != 0 {
			t.Fatalf("exit %d: %s%s", code, out, said)
		}
		return out
	}
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := must(run("", false, "init"))
	must(run("", false, "workflow", "generate", "--shape", "verification_gate", "--check", "schema", "--write", "--dir", tree))
	intent := `{"schema_version": "striatum.verifier_allowlist_intent.v1", "checks": [{"id": "schema", "argv": ["/usr/bin/check"],
		"pass_when": "exit_zero", "backs_claim": "schema-holds", "agreement": "stdout", "negative_control": {"mutation_of": ".",
		"fails_with": "unknown type", "mutation": {"file": "a.json", "find": "string", "replace": "strnig"}}}]}`
	err := errors.Join(
		os.WriteFile(token, []byte(secret), 0o600),
		os.WriteFile(filepath.Join(tree, workflow.DefaultIntentPath), []byte(intent), 0o600),
		pinFor(home, tree, "check"),
	)
	if err != nil {
		t.Fatal(err)
	}
	files, err := embedded.PolicyFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	_, digest, err := files.Document()
	if err != nil {
		t.Fatal(err)
	}
	must(run("", false, "policy", "accept", "--digest", digest, "--token-file", token))

	attest := []string{"verifier", "attest", "--pin", "schema", "--token-file", token}
	for name, tt := range map[string]struct {
		typed    string
		terminal bool
		args     []string
		code     int
		asks     bool
	}{
		"no terminal": {"schema\n", false, attest, 2, false},
		"no token":    {"schema\n", true, attest[:4], 2, false},
		"yes":         {"yes\n", true, attest, 3, true},
		"nothing":     {"", true, attest, 3, true},
		"another id":  {"schemas\n", true, attest, 3, true},
	} {
		_, said, code := run(tt.typed, tt.terminal, tt.args...)
		if code != tt.code || strings.Contains(said, "type schema: ") != tt.asks {
			t.Errorf("%s: exit %d, want %d, asks %t:\n%s", name, code, tt.code, tt.asks, said)
		}
	}
	if out := must(run("", false, "verifier", "attest", "--list")); out != "nothing is attested\n" {
		t.Errorf("got %s", out)
	}
	if _, said, code := run("schema\n", true, attest...); code != 0 || !strings.Contains(said, "attested schema for repository") {
		t.Errorf("exit %d: %s", code, said)
	}
}
