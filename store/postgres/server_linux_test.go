package postgres_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/problem"
	"striatum/internal/testenv"
	"striatum/store"
	"striatum/store/postgres"
	"striatum/store/storetest"
)

func TestServerThatIsStartedAgainInTheMidst(t *testing.T) {
	s := server(t)
	d := migrated(t, s)
	st := open(t, d.writer())
	up := make(chan struct{})
	again := func() { // crashes, and comes back while the store already tries again
		s.Stop(t, syscall.SIGQUIT)
		go func() {
			defer func() { up <- struct{}{} }()
			time.Sleep(500 * time.Millisecond)
			s.Start(t)
		}()
	}
	runs := 0
	err := st.Update(t.Context(), func(w store.Writer) error {
		runs++
		if err := add(t.Context(), w, runs); err != nil {
			return err
		}
		if runs == 1 {
			again()
		}
		return add(t.Context(), w, 10)
	})
	<-up
	if err != nil || runs != 2 {
		t.Errorf("update: got %v after %d runs, want 2", err, runs)
	}
	runs = 0
	err = st.Update(t.Context(), func(w store.Writer) error {
		if runs++; runs == 1 {
			defer again() // the commit finds nobody
		}
		return add(t.Context(), w, runs)
	})
	<-up
	if err != nil || runs != 2 {
		t.Errorf("commit: got %v after %d runs, want 2", err, runs)
	}
	runs = 0
	err = st.View(t.Context(), func(r store.Reader) error {
		if runs++; runs == 1 {
			again()
		}
		_, err := r.Head(t.Context())
		return err
	})
	<-up
	if err != nil || runs != 2 {
		t.Errorf("view: got %v after %d runs, want 2", err, runs)
	}
	if got := verified(t, st); got != 3 {
		t.Errorf("got %d rows, want 3", got)
	}
}

func TestCrashOfTheServerLosesNothingThatWasCommitted(t *testing.T) {
	s := server(t)
	d := migrated(t, s)
	var committed int64
	for round := range 3 {
		cmd := child(t, "1000000 "+d.writer())
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n <= 5*round && lines.Scan(); n++ {
			if committed, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		s.Stop(t, syscall.SIGQUIT)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it still said before it died
			if committed, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // it was killed
		s.Start(t)
		got := verified(t, open(t, d.writer()))
		if got < committed || got == 0 {
			t.Fatalf("round %d: row %d was committed, and the last is %d", round, committed, got)
		}
		committed = got
	}
}

func TestStandbyIsReadOnly(t *testing.T) {
	s := server(t)
	d := migrated(t, s)
	want := int64(len(storetest.Populate(t, open(t, d.writer()))))
	s.Stop(t, syscall.SIGINT)
	if err := os.WriteFile(filepath.Join(s.Dir, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	st := open(t, d.writer())
	if got := verified(t, st); got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
	if err := st.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("got %v, want ErrReadOnly", err)
	}
	if err := postgres.Migrate(t.Context(), d.owner()); err != nil {
		t.Errorf("migrate what is up to date: %v", err)
	}
}

func TestDamagedPageIsCorrupt(t *testing.T) {
	s := server(t)
	d := migrated(t, s)
	storetest.Populate(t, open(t, d.writer()))
	file := d.sql(t, "SELECT pg_relation_filepath('log')")
	s.Stop(t, syscall.SIGINT)
	f, err := os.OpenFile(filepath.Join(s.Dir, "data", file), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 8000); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	err = open(t, d.writer()).View(t.Context(), func(r store.Reader) error {
		_, err := r.Log(t.Context(), store.Page{})
		return err
	})
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

func TestServerWithoutFsyncIsRefused(t *testing.T) {
	s := testenv.Postgres(t, "fsync=off")
	_, err := postgres.Open(t.Context(), s.URL("postgres", "postgres"), clock)
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Missing || !strings.Contains(p.Why, "fsync") {
		t.Errorf("got %v, want fsync named", err)
	}
}

func TestServerWithoutAFreeConnectionIsBusy(t *testing.T) {
	s := server(t, "max_connections=4", "superuser_reserved_connections=1")
	d := migrated(t, s)
	open(t, d.writer()) // keeps two of three
	if _, err := postgres.Open(t.Context(), d.writer(), clock); !errors.Is(err, store.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
}

func TestFullDiskLosesNothingAndIsNamed(t *testing.T) {
	s := server(t)
	dir := filepath.Join(s.Dir, "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		s.Stop(t, syscall.SIGINT)
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if out, err := exec.CommandContext(t.Context(), "chown", "--reference", s.Dir, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.SQL(t, "postgres", fmt.Sprintf("CREATE TABLESPACE small LOCATION '%s'", dir))
	d := migrated(t, s)
	s.SQL(t, "postgres", "ALTER DATABASE "+d.name+" SET TABLESPACE small")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	st := open(t, d.writer())
	rows := int64(len(storetest.Populate(t, st)))
	random := rand.NewChaCha8([32]byte{})
	put := func() error {
		data := make([]byte, 500_000) // does not compress
		if _, err := random.Read(data); err != nil {
			t.Fatal(err)
		}
		return st.Update(t.Context(), func(w store.Writer) error {
			blob, err := w.PutBlob(t.Context(), data)
			if err != nil {
				return err
			}
			_, err = w.AddPolicy(t.Context(), store.Policy{RepositoryID: "repo-1", DocumentSHA256: blob})
			return err
		})
	}
	var err error
	for n := 0; n < 100 && err == nil; n++ {
		if err = put(); err == nil {
			rows++
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("after %d rows: got %v, want ErrFull", rows, err)
	}
	if got := verified(t, st); got != rows {
		t.Errorf("on a full disk: got %d rows, want %d", got, rows)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if got := verified(t, st); got != rows+1 {
		t.Errorf("got %d rows, want %d", got, rows+1)
	}
}
