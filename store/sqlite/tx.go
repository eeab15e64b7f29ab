package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"striatum/store"
	"striatum/store/internal/sqlrows"
)

// tries is how often an Update runs at most.
const tries = 3

// View implements store.Store.
func (s *Store) View(ctx context.Context, fn func(store.Reader) error) (err error) {
	t, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return wrap(err, "begin to read store")
	}
	defer func() { err = errors.Join(err, rollback(t)) }()
	return fn(sqlrows.New(conn{t, map[string]*sql.Stmt{}}, time.Time{}))
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
	if err := fn(sqlrows.New(conn{t, map[string]*sql.Stmt{}}, s.now())); err != nil {
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

// conn is a transaction as sqlrows wants it. What it reads by is prepared once, and
// closed with the transaction.
type conn struct {
	tx       *sql.Tx
	prepared map[string]*sql.Stmt
}

func (c conn) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := c.prepared[query]; ok {
		return s, nil
	}
	s, err := c.tx.PrepareContext(ctx, query)
	if err == nil {
		c.prepared[query] = s
	}
	return s, err
}

// Exec implements sqlrows.Conn.
func (c conn) Exec(ctx context.Context, op, query string, args ...any) error {
	_, err := c.tx.ExecContext(ctx, query, args...)
	return wrap(err, op)
}

// One implements sqlrows.Conn.
func (c conn) One(ctx context.Context, op, query string, args []any, scan func(sqlrows.Scanner) error) error {
	s, err := c.prepare(ctx, query) //nolint:sqlclosecheck // the transaction closes it
	if err != nil {
		return wrap(err, op)
	}
	return wrap(scan(s.QueryRowContext(ctx, args...)), op)
}

// Each implements sqlrows.Conn.
func (c conn) Each(ctx context.Context, op, query string, args []any, scan func(sqlrows.Scanner) error) (err error) {
	s, err := c.prepare(ctx, query) //nolint:sqlclosecheck // the transaction closes it
	if err != nil {
		return wrap(err, op)
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return wrap(err, op)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return wrap(err, op)
		}
	}
	return wrap(rows.Err(), op)
}
