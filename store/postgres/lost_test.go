//go:build unix

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/store"
)

func testKilledConnection(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	st := open(t, d.writer())
	kill := func() {
		d.sql(t, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'striatum_writer' AND datname = current_database()")
	}
	runs := 0
	if err := st.Update(t.Context(), func(w store.Writer) error {
		runs++
		if err := add(t.Context(), w, runs); err != nil {
			return err
		}
		if runs == 1 {
			kill()
		}
		return add(t.Context(), w, 10+runs)
	}); err != nil || runs != 2 {
		t.Errorf("update: got %v after %d runs, want 2", err, runs)
	}
	runs = 0
	if err := st.Update(t.Context(), func(w store.Writer) error {
		if runs++; runs == 1 {
			defer kill() // nothing is asked any more but to commit
		}
		return add(t.Context(), w, 20+runs)
	}); err != nil || runs != 2 {
		t.Errorf("update killed before its commit: got %v after %d runs, want 2", err, runs)
	}
	runs = 0
	var head int64
	if err := st.View(t.Context(), func(r store.Reader) error {
		if runs++; runs == 1 {
			kill()
		}
		e, err := r.Head(t.Context())
		head = e.Position
		return err
	}); err != nil || runs != 2 || head != 3 {
		t.Errorf("view: got head %d, %v after %d runs, want 3 after 2", head, err, runs)
	}
	kill() // those that nobody uses
	if got := verified(t, st); got != 3 {
		t.Errorf("got %d rows, want 3", got)
	}
	kill()
	if err := st.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 30) }); err != nil {
		t.Error(err)
	}
}

// wire stands between a client and the server. At a client's commit it calls
// atCommit, which says whether the server gets it; the client gets no answer.
type wire struct {
	server   string
	listener net.Listener
	mu       sync.Mutex
	atCommit func() (deliver bool)
	down     bool // refuse connections
	wg       sync.WaitGroup
}

const socket = ".s.PGSQL.5432"

func newWire(t *testing.T, s *testenv.PostgresServer) (w *wire, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "striatum-wire-") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	w = &wire{server: filepath.Join(s.Dir, socket), listener: l}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.wg.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return w, dir
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		down := w.down
		w.mu.Unlock()
		if down {
			_ = client.Close()
			continue
		}
		w.wg.Go(func() { w.serve(client) })
	}
}

func (w *wire) serve(client net.Conn) {
	defer client.Close() // it may be closed already
	server, err := net.Dial("unix", w.server)
	if err != nil {
		return
	}
	defer server.Close()            // it may be closed already
	answered := make(chan struct{}) // the server ended, or its answer found nobody
	w.wg.Go(func() {
		defer close(answered)
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if bytes.HasSuffix(buffer[:n], []byte("commit\x00")) {
			w.mu.Lock()
			act := w.atCommit
			w.atCommit = nil
			w.mu.Unlock()
			if act != nil {
				_ = client.Close()
				if act() {
					_, _ = server.Write(buffer[:n])
					<-answered
				}
				return
			}
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) next(atCommit func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atCommit = atCommit
}

func (w *wire) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

func testLostAnswer(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	w, dir := newWire(t, s)
	st := open(t, (&url.URL{Scheme: "postgres", User: url.User("striatum_writer"), Path: "/" + d.name, RawQuery: "host=" + url.QueryEscape(dir)}).String())
	direct := open(t, d.writer())
	written := func(deliver bool) func() bool { return func() bool { return deliver } }
	runs := 0
	update := func(ctx context.Context) error {
		runs = 0
		return st.Update(ctx, func(w store.Writer) error {
			runs++
			return add(ctx, w, 1)
		})
	}

	w.next(written(true))
	if err := update(t.Context()); err != nil || runs != 1 {
		t.Errorf("written: got %v after %d runs, want 1", err, runs)
	}
	if got := verified(t, direct); got != 1 {
		t.Errorf("written: got %d rows, want 1", got)
	}

	w.next(written(false))
	if err := update(t.Context()); err != nil || runs != 2 {
		t.Errorf("not written: got %v after %d runs, want 2", err, runs)
	}
	if got := verified(t, direct); got != 2 {
		t.Errorf("not written: got %d rows, want 2", got)
	}

	// The server gets the commit late, when the client has long asked again:
	// the lock makes it wait for the outcome.
	w.next(func() bool { time.Sleep(500 * time.Millisecond); return true })
	if err := update(t.Context()); err != nil || runs != 1 {
		t.Errorf("written late: got %v after %d runs, want 1", err, runs)
	}
	if got := verified(t, direct); got != 3 {
		t.Errorf("written late: got %d rows, want 3", got)
	}

	// Another writes before it is asked.
	var other error
	w.next(func() bool {
		w.setDown(true)
		w.wg.Go(func() {
			defer w.setDown(false)
			other = direct.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 2) })
		})
		return true
	})
	if err := update(t.Context()); err != nil || other != nil || runs != 1 {
		t.Errorf("written, then another: got %v and %v after %d runs, want 1", err, other, runs)
	}

	// Nobody can be asked.
	for _, deliver := range []bool{true, false} {
		w.next(func() bool { w.setDown(true); return deliver })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := update(ctx)
		cancel()
		if !errors.Is(err, store.ErrUnavailable) || !bytes.Contains([]byte(err.Error()), []byte("not known")) || runs != 1 {
			t.Errorf("nobody to ask: got %v after %d runs, want an unknown outcome", err, runs)
		}
		w.setDown(false)
	}
	if got := verified(t, direct); got != 6 {
		t.Errorf("got %d rows, want 6", got)
	}
}
