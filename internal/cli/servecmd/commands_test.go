package servecmd_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"striatum/internal/cli"
	"striatum/internal/cli/rootcmd"
)

// user runs commands of striatum in a worktree.
type user struct {
	testing.TB
	dir, worktree string
	env           map[string]string
}

// run runs a command, which must exit with code, and returns what it printed.
func (u *user) run(code int, args ...string) (out, notes string) {
	u.Helper()
	var stdout, stderr bytes.Buffer
	f := &cli.Factory{
		Streams: cli.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr},
		Getenv:  func(k string) string { return u.env[k] },
		Getwd:   func() (string, error) { return u.worktree, nil },
		Now:     time.Now, Rand: rand.Reader,
	}
	root := rootcmd.New(f)
	root.SetArgs(args)
	if got := cli.Run(u.Context(), root, f.Streams); got != code {
		u.Errorf("striatum %s: exit %d, want %d: %s", strings.Join(args, " "), got, code, stderr.String())
	}
	return stdout.String(), stderr.String()
}

var policyDigest = regexp.MustCompile(`"digest": "([0-9a-f]{64})"`)

func TestCommandsWorkThroughTheDaemon(t *testing.T) {
	dir := place(t)
	p := start(t, dir, "--operator-uid", strconv.Itoa(os.Getuid()))
	u := &user{TB: t, dir: dir, worktree: filepath.Join(dir, "worktree"), env: map[string]string{
		"STRIATUM_HOME": filepath.Join(dir, "user"), "STRIATUM_SOCKET": p.socket,
	}}
	op, se := filepath.Join(dir, "op.token"), filepath.Join(dir, "se.token")
	if err := os.Mkdir(u.worktree, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.worktree, "go.mod"), []byte("module example.org/m\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.run(0, "workflow", "generate", "--shape", "verification_gate", "--check", "builtin:go-test", "--write", "--dir", u.worktree)

	// The first operator token is minted without one, and the next is not.
	u.run(3, "token", "mint", "--kind", "session", "--repository", "r", "--token-out", se)
	u.run(0, "token", "mint", "--kind", "operator", "--token-out", op)
	if _, notes := u.run(3, "token", "mint", "--kind", "operator", "--token-out", se); !strings.Contains(notes, "is good until") {
		t.Errorf("got %s", notes)
	}

	// A local user is not the operator, and an operator is.
	out, _ := u.run(0, "policy", "show", "--output", "json")
	digest := policyDigest.FindStringSubmatch(out)
	if digest == nil || !strings.Contains(out, `"store": "sqlite"`) || !strings.Contains(out, filepath.Join(dir, "home")) {
		t.Fatalf("got %s", out)
	}
	if _, notes := u.run(3, "policy", "accept", "--digest", digest[1]); !strings.Contains(notes, "no operator token was given") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_TOKEN_FILE"] = op
	if _, notes := u.run(0, "policy", "accept", "--digest", digest[1]); !strings.Contains(notes, "as operator:op-") {
		t.Errorf("got %s", notes)
	}
	out, _ = u.run(0, "policy", "show", "--output", "json")
	repo := regexp.MustCompile(`"repository_id": "(repo-[0-9a-f]+)"`).FindStringSubmatch(out)
	if repo == nil || !strings.Contains(out, `"accepted_by": "operator:op-`) {
		t.Fatalf("got %s", out)
	}

	// The gate's exit codes are those of the embedded store.
	if out, _ := u.run(0, "gate", "read", "--output", "json"); !strings.Contains(out, `"name":"sqlite"`) || !strings.Contains(out, `"trust":"shared"`) {
		t.Errorf("got %s", out)
	}
	if _, notes := u.run(1, "gate", "check"); !strings.Contains(notes, "nothing was checked") {
		t.Errorf("got %s", notes)
	}
	vsa := filepath.Join(dir, "vsa.json")
	u.run(1, "gate", "check", "--vsa", vsa)
	if data, err := os.ReadFile(vsa); err != nil || !bytes.Contains(data, []byte("payloadType")) {
		t.Errorf("got %s, %v", data, err)
	}
	u.run(0, "verifier", "attest", "--list")
	if _, notes := u.run(3, "verifier", "attest", "--pin", "schema"); !strings.Contains(notes, "no such external") {
		t.Errorf("got %s", notes)
	}
	u.run(2, "receipt", "explain", strings.Repeat("a", 64), "--reason", "x")
	u.run(0, "lane", "list")
	u.run(0, "token", "list")
	u.run(2, "token", "revoke", "se-00000000")
	ended, good := filepath.Join(dir, "ended.token"), u.env["STRIATUM_TOKEN_FILE"]
	_, minted := u.run(0, "token", "mint", "--kind", "session", "--repository", "r", "--token-out", ended)
	id := regexp.MustCompile(`se-[0-9a-f]+`).FindString(minted)
	u.run(0, "token", "revoke", id)
	if out, _ := u.run(0, "token", "list"); !strings.Contains(out, id+"  session  revoked, by ") {
		t.Errorf("got %s", out)
	}
	u.env["STRIATUM_TOKEN_FILE"] = ended
	if _, notes := u.run(3, "token", "list"); !strings.Contains(notes, "an operator mints another") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_TOKEN_FILE"] = good

	// What only works with the store in the home does not fall back on it.
	if _, notes := u.run(2, "init"); !strings.Contains(notes, "STRIATUM_SOCKET") {
		t.Errorf("got %s", notes)
	}

	// A lane runs nothing before its key is enrolled, nor after it was revoked, nor
	// with another lane's token.
	lane := filepath.Join(dir, "lane")
	u.env["STRIATUM_HOME"] = lane
	for _, args := range [][]string{{"verifier", "run", "--all"}, {"verifier", "pin", "--host-here"}} {
		if _, notes := u.run(3, args...); !strings.Contains(notes, "its key is not enrolled") || !strings.Contains(notes, "striatum lane enrol --key "+lane) || strings.Contains(notes, "STRIATUM_HOME") {
			t.Errorf("%v: got %s", args, notes)
		}
	}
	u.run(3, "lane", "enrol", "--key", filepath.Join(lane, "keys", "lane.pub"), "--class", "isolated")
	u.run(0, "lane", "enrol", "--key", filepath.Join(lane, "keys", "lane.pub"), "--class", "shared", "--id", "lane-1")
	u.run(0, "lane", "enrol", "--key", filepath.Join(u.dir, "home", "keys", "report.pub"), "--class", "shared", "--id", "lane-2")
	other := filepath.Join(dir, "lane-2.token")
	u.run(0, "token", "mint", "--kind", "lane", "--lane", "lane-2", "--token-out", other)
	if _, notes := u.run(3, "verifier", "run", "--all", "--token-file", other); !strings.Contains(notes, `the token is that of the lane "lane-2"`) {
		t.Errorf("got %s", notes)
	}
	u.run(0, "lane", "revoke", "lane-1", "--retired")
	if _, notes := u.run(3, "verifier", "run", "--all"); !strings.Contains(notes, "its key was revoked (retired)") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_HOME"] = filepath.Join(dir, "lane-3")
	if _, notes := u.run(3, "verifier", "pin", "--host-here"); !strings.Contains(notes, "or name the home of a lane that is enrolled with STRIATUM_HOME") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_HOME"] = filepath.Join(dir, "user")

	// A session reads its gate and nothing else, and ends its uid's days as operator.
	u.run(0, "token", "mint", "--kind", "session", "--repository", repo[1], "--token-out", se)
	u.env["STRIATUM_TOKEN_FILE"] = se
	u.run(0, "gate", "read")
	u.run(1, "gate", "check")
	u.run(3, "gate", "check", "--vsa", vsa)
	for _, args := range [][]string{
		{"policy", "accept", "--digest", digest[1]},
		{"verifier", "attest", "--revoke", "schema"},
		{"receipt", "explain", strings.Repeat("a", 64), "--reason", "x"},
		{"token", "mint", "--kind", "operator", "--token-out", filepath.Join(dir, "no.token")},
		{"token", "list"},
		{"lane", "revoke", "lane-1", "--retired"},
	} {
		if _, notes := u.run(3, args...); !strings.Contains(notes, "a session principal may not do that") {
			t.Errorf("%v: got %s", args, notes)
		}
	}
	u.env["STRIATUM_LANE_SOCKET"] = filepath.Join(dir, "no-lane.sock")
	if _, notes := u.run(7, "verifier", "run", "--all"); !strings.Contains(notes, "nothing was asked for") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_TOKEN_FILE"] = op
	if _, notes := u.run(3, "token", "list"); !strings.Contains(notes, "holds a session's token too") {
		t.Errorf("got %s", notes)
	}

	// Without the daemon nothing is read, judged or accepted.
	if code, log := p.end(syscall.SIGTERM); code != 0 || strings.Contains(log, "striatum_op_") {
		t.Errorf("exit %d: %s", code, log)
	}
	for _, args := range [][]string{
		{"gate", "read"},
		{"gate", "check"},
		{"policy", "show"},
		{"policy", "accept", "--digest", digest[1]},
		{"lane", "list"},
		{"token", "list"},
		{"receipt", "explain", strings.Repeat("a", 64), "--reason", "x"},
	} {
		if out, notes := u.run(7, args...); out != "" || !strings.Contains(notes, "call the daemon on") || strings.Contains(notes, "http://") {
			t.Errorf("%v: got %q, %s", args, out, notes)
		}
	}
	if _, notes := u.run(7, "verifier", "attest", "--pin", "schema"); !strings.Contains(notes, "WARNING: the store did not answer") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_SOCKET"] = "run/s"
	u.run(2, "gate", "read")
	if _, err := os.Stat(u.env["STRIATUM_HOME"]); !os.IsNotExist(err) {
		t.Errorf("a home was made: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "no.token")); !os.IsNotExist(err) {
		t.Errorf("a token that was not minted was left: %v", err)
	}
}

func TestASessionRunsNoLaneOfItsOwn(t *testing.T) {
	dir := place(t)
	u := &user{TB: t, dir: dir, worktree: dir, env: map[string]string{"STRIATUM_HOME": filepath.Join(dir, "home")}}
	op, se := filepath.Join(dir, "op.token"), filepath.Join(dir, "se.token")
	u.run(0, "init", "--token-out", op)
	u.run(0, "token", "mint", "--kind", "session", "--repository", "r", "--token-file", op, "--token-out", se)
	u.env["STRIATUM_TOKEN_FILE"] = se
	if _, notes := u.run(3, "verifier", "run", "--check", "builtin:go-test"); !strings.Contains(notes, "a session names checks, and runs none") {
		t.Errorf("got %s", notes)
	}
}
