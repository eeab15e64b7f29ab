package storetest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/store"
)

// expiry is when the requests of the suite expire, before the second before it,
// after the second after it.
const before, expiry = "2026-05-04T03:02:00Z", "2026-05-04T03:02:01Z"

func testRequests(t *testing.T, s store.Store) {
	// Each request with whether it is taken and ended.
	for _, r := range []struct {
		id           string
		taken, ended bool
	}{{"waiting", false, false}, {"taken", true, false}, {"done", true, true}, {"cancelled", false, true}, {"another", false, false}} {
		update(t, s, func(ctx context.Context, w store.Writer) error {
			if _, err := w.AddCheckRequest(ctx, store.CheckRequest{ID: r.id, RepositoryID: "repo-1", ExpiresAt: expiry}); err != nil {
				return err
			}
			if r.taken {
				if _, err := w.AddCheckRequestTaken(ctx, store.CheckRequestTaken{ID: r.id, LaneID: "lane-1"}); err != nil {
					return err
				}
			}
			if !r.ended {
				return nil
			}
			_, err := w.AddCheckRequestEnd(ctx, store.CheckRequestEnd{ID: r.id, Outcome: "done"})
			return err
		})
	}
	for now, want := range map[string][]string{before: {"waiting", "taken", "another"}, expiry: {"taken"}} {
		view(t, s, func(ctx context.Context, r store.Reader) error {
			var got []string
			for page := (store.Page{Limit: 1}); ; {
				rows, err := r.OpenCheckRequests(ctx, now, page)
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					break
				}
				got, page.After = append(got, rows[0].Value.ID), rows[0].Position
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("at %s: %s", now, diff)
			}
			return nil
		})
	}
}
