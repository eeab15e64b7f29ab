package daemon

import (
	"context"
	"fmt"

	"striatum/eventlog"
	"striatum/store"
)

// VerifyLog walks the whole log, a page at a time, and checks that each entry
// follows from the one before and from its record. It returns how many entries
// hold; the error wraps an *eventlog.BrokenError and store.ErrCorrupt if the
// chain does not.
func (s *Service) VerifyLog(ctx context.Context) (entries int64, err error) {
	err = s.view(ctx, "verify the log", func(r store.Reader) error {
		entries, err = verifyLog(ctx, r)
		return err
	})
	return entries, err
}

func verifyLog(ctx context.Context, r store.Reader) (entries int64, err error) {
	var head eventlog.Entry
	err = eachEntry(ctx, r, 0, func(row store.LogRow) error {
		if err := eventlog.Verify(head, row.Entry, row.Record); err != nil {
			return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
		head = row.Entry
		return nil
	})
	return head.Position, err
}

// eachEntry calls fn for every entry of the log after a place, a page at a time. It
// stops at the first error and returns it.
func eachEntry(ctx context.Context, r store.Reader, after int64, fn func(store.LogRow) error) error {
	page := store.Page{After: after}
	for {
		rows, err := r.Log(ctx, page)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if err := fn(row); err != nil {
				return err
			}
			page.After = row.Entry.Position
		}
	}
}
