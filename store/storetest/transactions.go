package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/eventlog"
	"striatum/store"
)

func testPaging(t *testing.T, s store.Store) {
	const first, size = 7, 3
	update(t, s, func(ctx context.Context, w store.Writer) error {
		for n := range first {
			if err := addBinding(ctx, w, n); err != nil {
				return err
			}
		}
		return nil
	})
	var got []int64
	page := store.Page{Limit: size}
	for n := first; ; n++ {
		var rows []store.LogRow
		view(t, s, func(ctx context.Context, r store.Reader) (err error) {
			rows, err = r.Log(ctx, page)
			return err
		})
		for _, row := range rows {
			got = append(got, row.Entry.Position)
			page.After = row.Entry.Position
		}
		if len(rows) < size {
			break
		}
		if n < first+2 { // rows that come while somebody pages
			update(t, s, func(ctx context.Context, w store.Writer) error { return addBinding(ctx, w, n) })
		}
	}
	if diff := cmp.Diff(got, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}); diff != "" {
		t.Error(diff)
	}

	// All walks more than one page of the greatest size.
	const many = store.MaxPage + 2
	update(t, s, func(ctx context.Context, w store.Writer) error {
		for n := range many {
			if _, err := w.AddAttestation(ctx, store.Attestation{RepositoryID: "repo-1", ClosureSHA256: digest(n), By: digest(n)}); err != nil {
				return err
			}
		}
		return nil
	})
	view(t, s, func(ctx context.Context, r store.Reader) error {
		list := func(p store.Page) ([]store.Row[store.Attestation], error) { return r.Attestations(ctx, "repo-1", p) }
		all, err := store.All(list)
		if len(all) != many {
			t.Errorf("got %d rows, want %d", len(all), many)
		}
		for i, row := range all {
			if row.Value.By != digest(i) {
				t.Fatalf("row %d is %s", i, row.Value.By)
			}
		}
		stop := errors.New("stop")
		if err := store.Each(list, func(store.Row[store.Attestation]) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("Each: got %v, want the closure's error", err)
		}
		return err
	})
}

func testRollback(t *testing.T, s store.Store) {
	update(t, s, func(ctx context.Context, w store.Writer) error { return addBinding(ctx, w, 1) })
	stop := errors.New("stop")
	refused(t, s, stop, func(ctx context.Context, w store.Writer) error {
		if _, err := w.PutBlob(ctx, []byte("lost")); err != nil {
			return err
		}
		return errors.Join(addBinding(ctx, w, 2), stop)
	})
	view(t, s, func(ctx context.Context, r store.Reader) error {
		if _, err := r.RepositoryAt(ctx, store.Place{Path: "/src/2", Device: "1", Inode: "18446744073709551615"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the row of a failed update: got %v, want ErrNotFound", err)
		}
		return nil
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the closure's panic was swallowed")
			}
		}()
		_ = s.Update(t.Context(), func(w store.Writer) error {
			if err := addBinding(t.Context(), w, 3); err != nil {
				return err
			}
			panic("bug")
		})
	}()
	update(t, s, func(ctx context.Context, w store.Writer) error { return addBinding(ctx, w, 4) })
	if got := head(t, s).Position; got != 2 {
		t.Errorf("got %d rows, want 2", got)
	}
}

func testCancel(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Update(ctx, func(w store.Writer) error {
		if err := addBinding(ctx, w, 1); err != nil {
			return err
		}
		cancel()
		return addBinding(ctx, w, 2)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := s.View(ctx, func(store.Reader) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("view: got %v, want context.Canceled", err)
	}
	update(t, s, func(ctx context.Context, w store.Writer) error { return addBinding(ctx, w, 3) })
	if got := head(t, s).Position; got != 1 {
		t.Errorf("got %d rows, want 1", got)
	}
}

func testOwnWrites(t *testing.T, s store.Store) {
	update(t, s, func(ctx context.Context, w store.Writer) error {
		if err := addBinding(ctx, w, 1); err != nil {
			return err
		}
		e, err := w.Head(ctx)
		if e.Position != 1 {
			t.Errorf("got head %d inside the update, want 1", e.Position)
		}
		return err
	})
}

func testConcurrent(t *testing.T, s store.Store) {
	const writers, each = 8, 10
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				if err := s.Update(t.Context(), func(w store.Writer) error { return addBinding(t.Context(), w, i*each+j) }); err != nil {
					t.Errorf("update: %v", err)
				}
			}
		})
	}
	wg.Wait()
	view(t, s, func(ctx context.Context, r store.Reader) error {
		rows, err := r.Log(ctx, store.Page{})
		var last eventlog.Entry
		seen := map[string]bool{}
		for _, row := range rows {
			if err := eventlog.Verify(last, row.Entry, row.Record); err != nil {
				t.Error(err)
			}
			last = row.Entry
			seen[string(row.Record)] = true
		}
		if len(seen) != writers*each {
			t.Errorf("got %d rows, want %d", len(seen), writers*each)
		}
		return err
	})
}

// testView holds an Update open while a View runs, then commits it inside
// another View.
func testView(t *testing.T, s store.Store) {
	update(t, s, func(ctx context.Context, w store.Writer) error { return addBinding(ctx, w, 1) })
	wrote, commit := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		var once sync.Once
		done <- s.Update(t.Context(), func(w store.Writer) error {
			err := addBinding(t.Context(), w, 2)
			once.Do(func() { close(wrote) })
			<-commit
			return err
		})
	}()
	<-wrote
	if got := head(t, s).Position; got != 1 {
		t.Errorf("a view saw an update that is not committed: head %d", got)
	}
	view(t, s, func(ctx context.Context, r store.Reader) error {
		before, err := r.Head(ctx)
		if err != nil {
			return err
		}
		close(commit)
		if err := <-done; err != nil {
			t.Errorf("update: %v", err)
		}
		after, err := r.Head(ctx)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the state changed under a view: %s", diff)
		}
		return err
	})
	if got := head(t, s).Position; got != 2 {
		t.Errorf("got head %d after the commit, want 2", got)
	}
}
