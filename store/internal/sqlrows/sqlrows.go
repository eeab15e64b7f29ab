// Package sqlrows is what the SQL databases share: the statements behind
// store.Reader and store.Writer, the record of each row, and its place in the
// chain. An adapter brings the connection, the transaction and the schema.
//
// Parameters are $1, $2 and so on, which both databases understand.
package sqlrows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"striatum/eventlog"
	"striatum/seal"
	"striatum/store"
)

// Scanner reads the columns of a row.
type Scanner interface{ Scan(dest ...any) error }

// Conn runs the statements of one transaction. Errors say what op is and, where
// the database tells, which of package store's errors it is.
type Conn interface {
	// Exec runs a statement without result.
	Exec(ctx context.Context, op, query string, args ...any) error
	// One scans the first row; store.ErrNotFound if there is none.
	One(ctx context.Context, op, query string, args []any, scan func(Scanner) error) error
	// Each scans every row.
	Each(ctx context.Context, op, query string, args []any, scan func(Scanner) error) error
}

// Tx is one transaction on conn.
type Tx struct {
	conn Conn
	at   time.Time
	last eventlog.Entry
}

var _ store.Writer = (*Tx)(nil)

// New returns a transaction whose one time is at. From the first Add on, nobody
// else may write until it ends.
func New(conn Conn, at time.Time) *Tx { return &Tx{conn: conn, at: at} }

// Last returns the last entry that this transaction appended; the zero Entry
// if it appended none.
func (t *Tx) Last() eventlog.Entry { return t.last }

const sqlHead = `SELECT position, kind, recorded_at, digest, prev_hash, hash FROM log ORDER BY position DESC LIMIT 1`

// Head implements store.Reader.
func (t *Tx) Head(ctx context.Context) (eventlog.Entry, error) {
	if t.last.Position > 0 {
		return t.last, nil
	}
	var e eventlog.Entry
	err := t.conn.One(ctx, "read log", sqlHead, nil, func(row Scanner) error {
		return row.Scan(&e.Position, &e.Kind, &e.RecordedAt, &e.Digest, &e.PrevHash, &e.Hash)
	})
	if errors.Is(err, store.ErrNotFound) {
		return eventlog.Entry{}, nil
	}
	return e, err
}

const sqlAppend = `INSERT INTO log (position, kind, recorded_at, digest, prev_hash, hash, record) VALUES ($1, $2, $3, $4, $5, $6, $7)`

// add appends row to the log, then its index row: insert with the position and
// args.
func (t *Tx) add(ctx context.Context, kind store.Kind, row any, insert string, args ...any) (int64, error) {
	record, err := seal.Canonical(row)
	if err != nil {
		return 0, fmt.Errorf("record %s: %w", kind, err)
	}
	head, err := t.Head(ctx)
	if err != nil {
		return 0, err
	}
	e := eventlog.Next(head, string(kind), t.at, record)
	if err := t.conn.Exec(ctx, "append to log", sqlAppend, e.Position, e.Kind, e.RecordedAt, e.Digest, e.PrevHash, e.Hash, string(record)); err != nil {
		return 0, err
	}
	if err := t.conn.Exec(ctx, fmt.Sprintf("record %s", kind), insert, append([]any{e.Position}, args...)...); err != nil {
		return 0, err
	}
	t.last = e
	return e.Position, nil
}

// recordLimits bound what is read back from the log. The store wrote it, so
// they only stop a damaged one.
var recordLimits = seal.Limits{Bytes: 1 << 20, Depth: 8}

// scan reads a row that has columns position, recorded_at and record.
func scan[T any](from Scanner) (store.Row[T], error) {
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

func one[T any](ctx context.Context, t *Tx, query string, args ...any) (row store.Row[T], err error) {
	err = t.conn.One(ctx, "read store", query, args, func(from Scanner) (err error) {
		row, err = scan[T](from)
		return err
	})
	return row, err
}

// list runs a query whose first two parameters are the page.
func list[T any](ctx context.Context, t *Tx, page store.Page, query string, args ...any) (out []store.Row[T], err error) {
	err = t.conn.Each(ctx, "read store", query, append([]any{page.After, page.Size()}, args...), func(from Scanner) error {
		row, err := scan[T](from)
		out = append(out, row)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
