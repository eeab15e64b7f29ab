package servecmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"striatum/internal/cli/probe"
)

// closed returns a folder that no agent can reach, with a short path.
func closed(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root takes the identity of others")
	}
	dir, err := os.MkdirTemp("/var/lib", "striatum-test-") //nolint:usetesting // no folder above is writable by others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestALaneIsProbedThroughTheDaemon(t *testing.T) {
	dir := closed(t)
	p := start(t, dir, "--store-class", "isolated", "--socket-group", "tape")
	lane := filepath.Join(dir, "lane")
	u := &user{TB: t, dir: dir, worktree: dir, env: map[string]string{"STRIATUM_HOME": lane, "STRIATUM_SOCKET": p.socket}}
	if _, notes := u.run(7, "lane", "probe"); !strings.Contains(notes, "STRIATUM_HOME") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_SOCKET"] = ""
	u.run(2, "lane", "probe")
	u.run(0, "init", "--token-out", filepath.Join(dir, "embedded.token")) // makes its key
	u.env["STRIATUM_SOCKET"] = p.socket
	op, la := filepath.Join(dir, "op.token"), filepath.Join(dir, "lane.token")
	u.run(0, "token", "mint", "--kind", "operator", "--token-out", op)
	if _, notes := u.run(3, "lane", "probe", "--token-file", op); !strings.Contains(notes, "is not enrolled") {
		t.Errorf("got %s", notes)
	}
	u.env["STRIATUM_TOKEN_FILE"] = op
	u.run(0, "lane", "enrol", "--key", filepath.Join(lane, "keys", "lane.pub"), "--class", "isolated", "--id", "lane-1")
	u.run(0, "token", "mint", "--kind", "lane", "--lane", "lane-1", "--token-out", la)
	u.env["STRIATUM_TOKEN_FILE"] = la

	look := func(code int, verdict string, args ...string) (got probe.Found) {
		t.Helper()
		out, _ := u.run(code, append([]string{"lane", "probe", "--output", "json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Verdict != verdict || got.LaneID != "lane-1" {
			t.Errorf("got %s, %v, want %s", out, err, verdict)
		}
		return got
	}
	lowered := func(words string) {
		t.Helper()
		out, _ := u.run(0, "lane", "list")
		if has := strings.Contains(out, "counts as shared"); has != (words != "") || !strings.Contains(out, words) {
			t.Errorf("got %s, want %q", out, words)
		}
	}
	if got := look(0, "isolated", "--user", "nobody"); len(got.Users) != 1 || got.Users[0] != "nobody" || len(got.Findings) != 0 {
		t.Errorf("got %+v", got)
	}
	lowered("")
	look(7, "cannot_tell")
	lowered("no_user_known")
	look(7, "cannot_tell", "--user", "4000000001") // of whom nothing is known
	lowered("user_unknown by 4000000001")

	// Each part of the way is opened; then the lane is shared, and says why.
	for path, mode := range map[string]os.FileMode{dir: 0o711, lane: 0o711, filepath.Join(lane, "keys"): 0o711, filepath.Join(lane, "keys", "lane.pem"): 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	got := look(1, "not_isolated", "--user", "nobody")
	if len(got.Findings) != 1 || got.Findings[0].Code != "secret_readable" || !strings.Contains(got.Findings[0].What, "lane.pem") {
		t.Errorf("got %+v", got.Findings)
	}
	lowered("secret_readable by nobody: \"" + filepath.Join(lane, "keys", "lane.pem"))
	if out, _ := u.run(1, "lane", "probe", "--user", "nobody"); !strings.Contains(out, "fix: chmod go= ") {
		t.Errorf("got %s", out)
	}
	if err := os.Chmod(lane, 0o700); err != nil {
		t.Fatal(err)
	}
	look(0, "isolated", "--user", "nobody")
	lowered("it passed, but one before found secret_readable by nobody")
	u.env["STRIATUM_TOKEN_FILE"] = op
	look(0, "isolated", "--user", "nobody")
	lowered("")
	u.env["STRIATUM_TOKEN_FILE"] = la
	if got := look(1, "not_isolated", "--user", "root"); got.Findings[0].Code != "user_is_root" {
		t.Errorf("got %+v", got.Findings)
	}
	u.run(2, "lane", "probe", "--user", "no-such-user")
	if code, log := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d: %s", code, log)
	}
}
