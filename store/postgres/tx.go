package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"striatum/eventlog"
	"striatum/store"
	"striatum/store/internal/sqlrows"
)

const (
	// patience is how long a transaction is tried again, firstWait and lastWait
	// how long the first and the longest pause between two tries are.
	patience  = 15 * time.Second
	firstWait = 10 * time.Millisecond
	lastWait  = time.Second

	// answerTimeout is how long an answer is waited for, when the server did not
	// even say that the statement timed out.
	answerTimeout = statementTimeout + 5*time.Second
)

// writeLock is the advisory lock of whoever writes: the head of the log.
const writeLock = 0x7374726961 // "stria"

var (
	beginView   = "begin isolation level repeatable read read only"
	beginUpdate = fmt.Sprintf("begin isolation level read committed; select pg_advisory_xact_lock(%d)", writeLock)
)

// View implements store.Store.
func (s *Store) View(ctx context.Context, fn func(store.Reader) error) error {
	return retry(ctx, func() error {
		return transact(ctx, s.read, beginView, func(t pgx.Tx) error {
			return fn(sqlrows.New(conn{t}, time.Time{}))
		})
	})
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, fn func(store.Writer) error) error {
	var doubt eventlog.Entry // the last entry of a try whose commit got no answer
	err := retry(ctx, func() error {
		return transact(ctx, s.write, beginUpdate, func(t pgx.Tx) error {
			there, err := has(ctx, t, doubt)
			if there || err != nil {
				return err
			}
			doubt = eventlog.Entry{}
			w := sqlrows.New(conn{t}, s.now())
			if err := fn(w); err != nil {
				return err
			}
			known, err := commit(ctx, t)
			if !known {
				doubt = w.Last()
			}
			return err
		})
	})
	if err != nil && doubt.Position > 0 {
		return fmt.Errorf("%w: whether log entry %d was written is not known", err, doubt.Position)
	}
	return err
}

const sqlHas = `SELECT 1 FROM log WHERE position = $1 AND hash = $2`

// has tells whether the log has that entry. The transaction that may have
// written it held the lock that t holds now, so it is over.
func has(ctx context.Context, t pgx.Tx, e eventlog.Entry) (bool, error) {
	if e.Position == 0 {
		return false, nil
	}
	err := conn{t}.One(ctx, "read log", sqlHas, []any{e.Position, e.Hash}, func(row sqlrows.Scanner) error {
		var one int
		return row.Scan(&one)
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// commit ends t. known is false when it may have been written although there is
// an error. A context that ended before stops it; one that ends meanwhile does
// not.
func commit(ctx context.Context, t pgx.Tx) (known bool, err error) {
	if err := ctx.Err(); err != nil {
		return true, err
	}
	answer, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	err = t.Commit(answer)
	var coded *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback):
		return true, err
	case errors.As(err, &coded) && coded.SeverityUnlocalized == "ERROR":
		return true, wrap(ctx, err, "write store", false)
	}
	return false, &databaseError{op: "write store", err: err, kind: store.ErrUnavailable, again: true}
}

// retry runs try until its error is not one that asks for another try, with
// growing pauses.
func retry(ctx context.Context, try func() error) error {
	patient, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := try()
		f, ok := errors.AsType[*databaseError](err)
		if !ok || !f.again {
			return err
		}
		select {
		case <-time.After(wait):
		case <-patient.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// transact runs fn in a transaction that begins with the statements given, and
// rolls it back unless fn ended it.
func transact(ctx context.Context, pool *pgxpool.Pool, begin string, fn func(pgx.Tx) error) error {
	c, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer c.Release() // a connection that is broken or inside a transaction is closed
	starting, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	t, err := c.BeginTx(starting, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return wrap(ctx, err, "begin", c.Conn().IsClosed())
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		_ = t.Rollback(ending) // it is over already, or the server ends it with the connection
	}()
	return fn(t)
}

// acquire takes a connection, which others of this process may hold for at most
// BusyTimeout.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	waiting, cancel := context.WithTimeout(ctx, BusyTimeout)
	defer cancel()
	c, err := pool.Acquire(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nil, &databaseError{op: "wait for a connection", err: err, kind: store.ErrBusy}
	}
	return c, wrap(ctx, err, "connect", false)
}

// conn is a transaction as sqlrows wants it.
type conn struct{ tx pgx.Tx }

// Exec implements sqlrows.Conn.
func (c conn) Exec(ctx context.Context, op, query string, args ...any) error {
	answer, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := c.tx.Exec(answer, query, args...)
	return c.wrap(ctx, err, op)
}

// One implements sqlrows.Conn.
func (c conn) One(ctx context.Context, op, query string, args []any, scan func(sqlrows.Scanner) error) error {
	if !storable(args) {
		return wrap(ctx, pgx.ErrNoRows, op, false)
	}
	answer, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return c.wrap(ctx, scan(c.tx.QueryRow(answer, query, args...)), op)
}

// Each implements sqlrows.Conn.
func (c conn) Each(ctx context.Context, op, query string, args []any, scan func(sqlrows.Scanner) error) error {
	if !storable(args) {
		return nil
	}
	answer, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	rows, err := c.tx.Query(answer, query, args...)
	if err != nil {
		return c.wrap(ctx, err, op)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return c.wrap(ctx, err, op)
		}
	}
	return c.wrap(ctx, rows.Err(), op)
}

func (c conn) wrap(ctx context.Context, err error, op string) error {
	return wrap(ctx, err, op, c.tx.Conn().IsClosed())
}

// storable tells whether PostgreSQL can hold the texts of args. No row has one
// that it cannot, and to ask for it would end the transaction.
func storable(args []any) bool {
	for _, arg := range args {
		if text, ok := arg.(string); ok && (strings.ContainsRune(text, 0) || !utf8.ValidString(text)) {
			return false
		}
	}
	return true
}
