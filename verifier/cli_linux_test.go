package verifier_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"striatum/internal/testenv"
)

// command is the striatum that people run, with striatum-init beside it, in a
// home of its own.
type command struct{ path, home string }

// buildCommand has the lab's cache layer in the home.
func buildCommand(t *testing.T) command {
	t.Helper()
	l := open(t)
	l.receiptOf(t, testenv.Tree(t, good), goTest) // the cache layer is there
	c := commandWithoutCache(t)
	if out, err := exec.CommandContext(t.Context(), "cp", "-al", filepath.Join(l.dir, "cache"), filepath.Join(c.home, "lane")).CombinedOutput(); err != nil {
		t.Fatalf("copy the cache layer: %v: %s", err, out)
	}
	return c
}

// commandWithoutCache is for checks that compile no Go.
func commandWithoutCache(t *testing.T) command {
	t.Helper()
	testenv.Containerd(t)
	dir := t.TempDir()
	c := command{filepath.Join(dir, "striatum"), filepath.Join(dir, "home")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", c.path, "striatum/cmd/striatum")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Link(testenv.Init(t), filepath.Join(dir, "striatum-init")); err != nil {
		t.Fatal(err)
	}
	token, said, code := c.run(t, dir, "init")
	if code != 0 {
		t.Fatalf("init: %d: %s", code, said)
	}
	if err := os.WriteFile(c.token(), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// token is the file with the operator token.
func (c command) token() string { return filepath.Join(filepath.Dir(c.path), "token") }

func (c command) run(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.path, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "STRIATUM_HOME="+c.home, "STRIATUM_TOKEN_FILE=")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Exited() {
			t.Fatalf("striatum %v: %v", args, err)
		}
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

// step runs the command, which must end with a code and say something.
func (c command) step(t *testing.T, dir string, want int, says string, args ...string) (stdout string) {
	t.Helper()
	out, said, code := c.run(t, dir, args...)
	if code != want || !strings.Contains(out+said, says) {
		t.Fatalf("striatum %s: exit %d, want %d and %q:\n%s%s", strings.Join(args, " "), code, want, says, out, said)
	}
	return out
}

// digestIn is the digest of a JSON object that the command printed.
func digestIn(t *testing.T, out string) string {
	t.Helper()
	var object struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal([]byte(out), &object); err != nil {
		t.Fatal(err)
	}
	return object.Digest
}

// TestHostileTestsLeaveNothingBehindTheCommand runs the command on tests that
// stop their own children, and on a fork bomb. Each ends by itself, with the exit
// code of its verdict, and leaves nothing on the machine.
func TestHostileTestsLeaveNothingBehindTheCommand(t *testing.T) {
	c := buildCommand(t)
	test := func(body string) string {
		return good + "-- h_test.go --\npackage m\n\nimport (\n\t\"os\"\n\t\"os/exec\"\n\t\"syscall\"\n\t\"testing\"\n)\n\nfunc TestHostile(t *testing.T) {\n" + body + "\n}\n"
	}
	for name, h := range map[string]struct {
		body, limits string
		code         int
		says         string
	}{
		"stopped children": {`	for range 8 {
		child := exec.Command("sleep", "1000")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr // it holds the pipes, stopped
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}`, `"wall_clock": "10m"`, 0, "asserted"},
		"fork bomb": {`	if syscall.Getuid() == 0 || len(os.Args) == 0 {
		t.Fatal("not in a sandbox")
	}
	bomb := exec.Command("sh", "-c", "b() { b | b & }; b; sleep 60")
	if err := bomb.Run(); err != nil {
		t.Fatal(err)
	}`, `"wall_clock": "10m", "pids": 256`, 5, "pids"},
	} {
		t.Run(name, func(t *testing.T) {
			root := testenv.Tree(t, test(h.body))
			if _, said, code := c.run(t, root, "workflow", "generate", "--shape", "verification_gate", "--write"); code != 0 {
				t.Fatalf("generate: %d: %s", code, said)
			}
			limit(t, filepath.Join(root, "verification", "workflow.json"), h.limits)
			out, said, code := c.run(t, root, "verifier", "run", "--check", "builtin:go-test")
			if code != h.code || !strings.Contains(out+said, h.says) {
				t.Errorf("exit %d, want %d and %q\n%s\n%s", code, h.code, h.says, out, said)
			}
			if left := leftovers(c.home); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// limit gives the go-test check of a workflow limits of its own.
func limit(t *testing.T, file, limits string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	old := `"uses": "builtin:go-test"`
	if strings.Count(string(data), old) != 1 {
		t.Fatalf("%s does not name go-test once: %s", file, data)
	}
	data = bytes.Replace(data, []byte(old), []byte(old+`, "limits": {`+limits+`}`), 1)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestATreeOfTooManyFilesIsRefusedWithTheFigure has 300,000 files.
func TestATreeOfTooManyFilesIsRefusedWithTheFigure(t *testing.T) {
	c := buildCommand(t)
	root := testenv.Tree(t, good)
	for d := range 300 {
		dir := filepath.Join(root, fmt.Sprint("d", d))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range 1000 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", f)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, said, code := c.run(t, root, "verifier", "run", "--worktree-exact", "--worktree", root, "--check", "builtin:go-build")
	if code != 3 || !strings.Contains(said, "250000 files") || !strings.Contains(said, "hint: ") {
		t.Errorf("exit %d, want 3\n%s\n%s", code, out, said)
	}
	if left := leftovers(c.home); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestTheCommandKeepsTheTestsThatAnOperatorAccepted goes from a run to a baseline, to
// a green with it, to the amber of a suite that lost a test.
func TestTheCommandKeepsTheTestsThatAnOperatorAccepted(t *testing.T) {
	c := buildCommand(t)
	root := testenv.Tree(t, baselined)
	run := []string{"verifier", "run", "--check", "builtin:go-test"}
	accept := []string{"verifier", "baseline", "accept", "--token-file", c.token()}
	c.step(t, root, 0, "", "workflow", "generate", "--shape", "verification_gate", "--check", "builtin:go-test", "--write")
	digest := digestIn(t, c.step(t, root, 0, "", "policy", "show", "--output", "json"))
	c.step(t, root, 0, "accepted policy", "policy", "accept", "--digest", digest, "--token-file", c.token())
	c.step(t, root, 3, "no_receipt_ref", accept...)
	c.step(t, root, 0, "asserted", run...)
	digest = digestIn(t, c.step(t, root, 2, "", append(accept, "--output", "json")...))
	c.step(t, root, 0, "wrote verification/baseline.json", append(accept, "--digest", digest)...)
	c.step(t, root, 1, "stale_tree", "gate", "check")
	c.step(t, root, 0, "asserted", run...)
	c.step(t, root, 0, "1 of 1 claim green", "gate", "check")

	move(t, root, "sub_test.go", "sub.txt")
	c.step(t, root, 0, "tests_removed: since the baseline: example.test/m TestSub", run...)
	c.step(t, root, 1, "tests_removed", "gate", "check")
	c.step(t, root, 2, "example.test/m TestSub", accept...)
}
