package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"striatum/eventlog"
	"striatum/store"
	"striatum/store/sqlite"
)

// childEnv makes this test binary a writer: PATH, then the number of rows to
// add. It prints the position of each row after its commit.
const childEnv = "STRIATUM_SQLITE_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := appendRows(context.Background(), job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func appendRows(ctx context.Context, job string) error {
	count, path, _ := strings.Cut(job, ":")
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	s, err := sqlite.Open(ctx, path, time.Now)
	if err != nil {
		return err
	}
	for i := range n {
		var position int64
		err := s.Update(ctx, func(w store.Writer) (err error) {
			blob, err := w.PutBlob(ctx, fmt.Appendf(nil, "%d of %d: %s", i, os.Getpid(), strings.Repeat("x", 5000)))
			if err != nil {
				return err
			}
			position, err = w.AddPolicy(ctx, store.Policy{RepositoryID: "repo-1", DocumentSHA256: blob})
			return err
		})
		if err != nil {
			return err
		}
		fmt.Println(position)
	}
	return s.Close()
}

func child(t *testing.T, path string, rows int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", childEnv, rows, path))
	cmd.Stderr = os.Stderr
	return cmd
}

// verified walks the log and its blobs and returns the last position.
func verified(t *testing.T, path string) int64 {
	t.Helper()
	var last eventlog.Entry
	err := open(t, path).View(t.Context(), func(r store.Reader) error {
		var page store.Page
		for {
			rows, err := r.Log(t.Context(), page)
			if err != nil || len(rows) == 0 {
				return err
			}
			for _, row := range rows {
				if err := eventlog.Verify(last, row.Entry, row.Record); err != nil {
					return err
				}
				last = row.Entry
			}
			page.After = last.Position
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var verdict string
	if err := raw(t, path).QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Fatalf("integrity check: %q, %v", verdict, err)
	}
	return last.Position
}

func TestProcessesShareOneStoreFromItsFirstUse(t *testing.T) {
	const processes, rows = 5, 15
	path := filepath.Join(t.TempDir(), "store.db")
	var running []*exec.Cmd
	for range processes {
		cmd := child(t, path, rows)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a writer failed: %v", err)
		}
	}
	if got := verified(t, path); got != processes*rows {
		t.Errorf("got %d rows, want %d", got, processes*rows)
	}
}

func TestKilledWriterLosesNothingThatWasCommitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var committed int64
	for round := range 8 {
		cmd := child(t, path, 1_000_000)
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
		if got := verified(t, path); got < committed {
			t.Fatalf("round %d: row %d was committed, and the last is %d", round, committed, got)
		}
	}
}
