package servecmd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"striatum/internal/testenv"
)

func TestTheStoreMayBeInPostgreSQL(t *testing.T) {
	server := testenv.Postgres(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "store.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "```sql\n")[1:] {
		script, _, _ := strings.Cut(part, "```")
		server.SQL(t, "postgres", script)
	}
	dir := place(t)
	dsn := func(role string) string {
		path := filepath.Join(dir, role)
		if err := os.WriteFile(path, []byte(server.URL(role, "striatum")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	owner, writer := dsn("striatum_owner"), dsn("striatum_writer")
	refuse(t, dir, 7, "migrate", "--postgres-dsn-file", writer)
	for range 2 { // the second time there is nothing to do
		cmd := command(t, dir)
		cmd.Args = []string{cmd.Args[0], "migrate", "--postgres-dsn-file", owner}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("up to date")) {
			t.Fatalf("%v: %s", err, out)
		}
	}
	refuse(t, dir, 3, "striatum_owner", "--postgres-dsn-file", owner) // it could change evidence
	p := start(t, dir, "--postgres-dsn-file", writer, "--operator-uid", strconv.Itoa(os.Getuid()))
	u := &user{TB: t, dir: dir, worktree: dir, env: map[string]string{
		"STRIATUM_HOME": filepath.Join(dir, "user"), "STRIATUM_SOCKET": p.socket,
	}}
	op := filepath.Join(dir, "op.token")
	u.run(0, "token", "mint", "--kind", "operator", "--token-out", op)
	u.env["STRIATUM_TOKEN_FILE"] = op
	if out, _ := u.run(0, "token", "list"); !strings.Contains(out, "good until") {
		t.Errorf("got %s", out)
	}
	if code, log := p.end(syscall.SIGTERM); code != 0 || !strings.Contains(log, "stopped") {
		t.Errorf("exit %d: %s", code, log)
	}
	if _, err := os.Stat(filepath.Join(dir, "home", "store.db")); !os.IsNotExist(err) {
		t.Errorf("a SQLite store was made as well: %v", err)
	}
}
