//go:build unix

package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/store"
	"striatum/store/postgres"
)

// childEnv makes this test binary a process of its own: "migrate URL", or "N
// URL" to add N rows. It prints the position of each row after its commit.
const childEnv = "STRIATUM_POSTGRES_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := work(context.Background(), job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func work(ctx context.Context, job string) error {
	what, url, _ := strings.Cut(job, " ")
	if what == "migrate" {
		return postgres.Migrate(ctx, url)
	}
	n, err := strconv.Atoi(what)
	if err != nil {
		return err
	}
	s, err := postgres.Open(ctx, url, time.Now)
	if err != nil {
		return err
	}
	for i := range n {
		var position int64
		err := s.Update(ctx, func(w store.Writer) error {
			if err := add(ctx, w, os.Getpid()*1000+i); err != nil {
				return err
			}
			head, err := w.Head(ctx)
			position = head.Position
			return err
		})
		if err != nil {
			return err
		}
		fmt.Println(position)
	}
	return s.Close()
}

func child(t *testing.T, job string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+job)
	cmd.Stderr = os.Stderr
	return cmd
}

// together runs n children with the same job and expects that all succeed.
func together(t *testing.T, n int, job string) {
	t.Helper()
	var running []*exec.Cmd
	for range n {
		cmd := child(t, job)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a process failed: %v", err)
		}
	}
}

func testMigrateAtOnce(t *testing.T, s *testenv.PostgresServer) {
	d := empty(t, s)
	together(t, 5, "migrate "+d.owner())
	if got := d.sql(t, "SELECT COUNT(*) > 0 AND COUNT(*) = COUNT(DISTINCT version_id) FROM goose_db_version"); got != "t" {
		t.Errorf("each version once: got %q", got)
	}
	open(t, d.writer())
}

func testProcesses(t *testing.T, s *testenv.PostgresServer) {
	const processes, rows = 8, 50
	d := migrated(t, s)
	together(t, processes, fmt.Sprintf("%d %s", rows, d.writer()))
	if got := verified(t, open(t, d.writer())); got != processes*rows {
		t.Errorf("got %d rows, want %d", got, processes*rows)
	}
}

func testKilledWriter(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	st := open(t, d.writer())
	var committed int64
	for round := range 8 {
		cmd := child(t, "1000000 "+d.writer())
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n <= round*2 && lines.Scan(); n++ {
			if committed, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it still said before it died
			if committed, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // it was killed
		if got := verified(t, st); got < committed {
			t.Fatalf("round %d: row %d was committed, and the last is %d", round, committed, got)
		}
	}
	if err := st.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }); err != nil {
		t.Errorf("the lock of a killed writer is still held: %v", err)
	}
}
