package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"striatum/eventlog"
	"striatum/seal"
	"striatum/store"
)

// tries is how often an Update runs at most.
const tries = 3

// tx is one transaction. at is its one time.
type tx struct {
	*sql.Tx
	at time.Time
}

var _ store.Writer = (*tx)(nil)

// View implements store.Store.
func (s *Store) View(ctx context.Context, fn func(store.Reader) error) (err error) {
	t, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return wrap(err, "begin to read store")
	}
	defer func() { err = errors.Join(err, rollback(t)) }()
	return fn(&tx{Tx: t})
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, fn func(store.Writer) error) error {
	var err error
	for range tries {
		if err = s.update(ctx, fn); !errors.Is(err, store.ErrBusy) {
			return err
		}
	}
	return err
}

func (s *Store) update(ctx context.Context, fn func(store.Writer) error) (err error) {
	t, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrap(err, "begin to write store")
	}
	defer func() { err = errors.Join(err, rollback(t)) }()
	if err := fn(&tx{Tx: t, at: s.now()}); err != nil {
		return err
	}
	return wrap(t.Commit(), "write store")
}

// rollback ends t if it is not over. A transaction whose context ended was
// rolled back already.
func rollback(t *sql.Tx) error {
	if err := t.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return wrap(err, "end transaction")
	}
	return nil
}

const sqlHead = `SELECT position, kind, recorded_at, digest, prev_hash, hash FROM log ORDER BY position DESC LIMIT 1`

// Head implements store.Reader.
func (t *tx) Head(ctx context.Context) (eventlog.Entry, error) {
	var e eventlog.Entry
	err := t.QueryRowContext(ctx, sqlHead).Scan(&e.Position, &e.Kind, &e.RecordedAt, &e.Digest, &e.PrevHash, &e.Hash)
	if errors.Is(err, sql.ErrNoRows) {
		return eventlog.Entry{}, nil
	}
	return e, wrap(err, "read log")
}

const sqlAppend = `INSERT INTO log (position, kind, recorded_at, digest, prev_hash, hash, record) VALUES (?, ?, ?, ?, ?, ?, ?)`

// add appends row to the log, then its index row: insert with the position and
// args.
func (t *tx) add(ctx context.Context, kind store.Kind, row any, insert string, args ...any) (int64, error) {
	record, err := seal.Canonical(row)
	if err != nil {
		return 0, fmt.Errorf("record %s: %w", kind, err)
	}
	head, err := t.Head(ctx)
	if err != nil {
		return 0, err
	}
	e := eventlog.Next(head, string(kind), t.at, record)
	if _, err := t.ExecContext(ctx, sqlAppend, e.Position, e.Kind, e.RecordedAt, e.Digest, e.PrevHash, e.Hash, string(record)); err != nil {
		return 0, wrap(err, "append to log")
	}
	if _, err := t.ExecContext(ctx, insert, append([]any{e.Position}, args...)...); err != nil {
		return 0, wrap(err, fmt.Sprintf("record %s", kind))
	}
	return e.Position, nil
}

// recordLimits bound what is read back from the log. The store wrote it, so
// they only stop a damaged file.
var recordLimits = seal.Limits{Bytes: 1 << 20, Depth: 8}

type scanner interface{ Scan(dest ...any) error }

// scan reads a row that has columns position, recorded_at and record.
func scan[T any](from scanner) (store.Row[T], error) {
	var (
		row    store.Row[T]
		record []byte
	)
	if err := from.Scan(&row.Position, &row.RecordedAt, &record); err != nil {
		return store.Row[T]{}, err
	}
	if err := seal.Decode(record, &row.Value, recordLimits); err != nil {
		return store.Row[T]{}, fmt.Errorf("log entry %d: %w: %w", row.Position, store.ErrCorrupt, err)
	}
	return row, nil
}

func one[T any](ctx context.Context, t *tx, query string, args ...any) (store.Row[T], error) {
	row, err := scan[T](t.QueryRowContext(ctx, query, args...))
	return row, wrap(err, "read store")
}

// list runs a query whose last two arguments are the page.
func list[T any](ctx context.Context, t *tx, page store.Page, query string, args ...any) (out []store.Row[T], err error) {
	rows, err := t.QueryContext(ctx, query, append(args, page.After, page.Size())...)
	if err != nil {
		return nil, wrap(err, "read store")
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		row, err := scan[T](rows)
		if err != nil {
			return nil, wrap(err, "read store")
		}
		out = append(out, row)
	}
	return out, wrap(rows.Err(), "read store")
}
