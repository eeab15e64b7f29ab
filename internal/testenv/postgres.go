//go:build unix

package testenv

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PostgresServer is a PostgreSQL server of a test's own: a new cluster in a
// temporary folder, whose socket is there too, and which trusts whoever reaches
// it. It syncs to disk.
type PostgresServer struct {
	Dir string // the socket's folder; the cluster is in data

	bin        string
	credential *syscall.Credential // nil: the caller's own
	settings   []string
	process    *exec.Cmd
	ended      chan struct{}
}

// Postgres starts a server with the settings given ("name=value") and removes
// it when t ends. It needs PostgreSQL, and as root the OS user postgres or
// nobody, because PostgreSQL refuses root; what lacks is the service
// "postgres".
func Postgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	s := &PostgresServer{bin: postgresBin(t), settings: settings}
	var err error
	if s.Dir, err = os.MkdirTemp("", "striatum-postgres-"); err != nil { // t's own folder is closed to other users
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(s.Dir); err != nil {
			t.Error(err)
		}
	})
	if os.Geteuid() == 0 {
		s.credential = unprivileged(t)
		if err := os.Chown(s.Dir, int(s.credential.Uid), int(s.credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	initdb := s.command(context.Background(), "initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-k", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	t.Cleanup(func() { s.Stop(t, syscall.SIGINT) })
	s.Start(t)
	return s
}

func postgresBin(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian keeps them out of PATH
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		return filepath.Dir(slices.Max(found))
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		Missing(t, "postgres", err.Error()+"; apt-get install postgresql")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(path)
}

func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	Missing(t, "postgres", "neither of the OS users postgres and nobody is here")
	return nil
}

func (s *PostgresServer) data() string { return filepath.Join(s.Dir, "data") }

// command is a program of PostgreSQL as the server's user.
func (s *PostgresServer) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.Dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential}
	return cmd
}

// Start starts the server, which does not run, and waits until it answers.
func (s *PostgresServer) Start(t testing.TB) {
	t.Helper()
	args := []string{"-D", s.data(), "-k", s.Dir, "-c", "listen_addresses="}
	for _, setting := range append([]string{"shared_buffers=16MB", "log_destination=stderr"}, s.settings...) {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the server has its own
	cmd := s.command(context.Background(), "postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	endWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	s.process, s.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it ended does not matter
	}()
	for range 3000 {
		if s.ready() {
			return
		}
		select {
		case <-ended:
			t.Fatalf("PostgreSQL ended:\n%s", s.log())
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatalf("PostgreSQL is not ready after a minute:\n%s", s.log())
}

// ready reads the last line of the server's lock file, its state.
func (s *PostgresServer) ready() bool {
	data, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	lines := strings.Split(string(data), "\n")
	return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(s.process.Process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

func (s *PostgresServer) log() string {
	data, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Stop ends the server, if it runs, by a signal: SIGINT rolls back what is
// under way, SIGQUIT leaves the recovery of a crash to the next start.
func (s *PostgresServer) Stop(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if s.process == nil {
		return
	}
	select {
	case <-s.ended:
		return
	default:
	}
	if err := s.process.Process.Signal(signal); err != nil {
		t.Error(err)
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Errorf("PostgreSQL does not end:\n%s", s.log())
		if err := s.process.Process.Kill(); err != nil {
			t.Error(err)
		}
		<-s.ended
	}
}

// URL names a database of the server to a client.
func (s *PostgresServer) URL(role, database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: url.Values{"host": {s.Dir}}.Encode()}).String()
}

// SQL runs a script with psql, as the superuser, and returns what it prints:
// values without decoration.
func (s *PostgresServer) SQL(t testing.TB, database, script string) string {
	t.Helper()
	cmd := s.command(t.Context(), "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", s.Dir, "-U", "postgres", "-d", database)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s\n%s", err, script, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}
