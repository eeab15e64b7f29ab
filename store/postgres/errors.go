package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"striatum/store"
)

// databaseError is an error of the database. kind is the error of package store that it
// is, or nil. again says that the transaction did nothing and may run again.
type databaseError struct {
	op    string
	err   error
	kind  error
	again bool
}

// Error implements error.
func (f *databaseError) Error() string {
	if f.kind == nil {
		return fmt.Sprintf("%s: %v", f.op, f.err)
	}
	return fmt.Sprintf("%s: %v: %v", f.op, f.kind, f.err)
}

// Unwrap makes errors.Is find both.
func (f *databaseError) Unwrap() []error {
	if f.kind == nil {
		return []error{f.err}
	}
	return []error{f.kind, f.err}
}

// wrap names the operation and says what err means. lost tells that the
// connection ended with it.
func wrap(ctx context.Context, err error, op string, lost bool) error {
	if err == nil {
		return nil
	}
	f := &databaseError{op: op, err: err}
	var coded *pgconn.PgError
	var connecting *pgconn.ConnectError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		f.kind = store.ErrNotFound
	case errors.As(err, &coded):
		f.kind, f.again = classify(coded.Code)
	case ctx.Err() != nil, errors.Is(err, context.Canceled): // the caller's own end
	case lost, errors.As(err, &connecting):
		f.kind, f.again = store.ErrUnavailable, true
	}
	return f
}

// classify looks up PostgreSQL's error codes:
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
func classify(code string) (kind error, again bool) {
	switch code {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return store.ErrBusy, true
	case "53300": // too_many_connections
		return store.ErrBusy, true
	case "55P03", "57014": // lock_not_available, query_canceled: the timeouts of the session
		return store.ErrBusy, false
	case "57P01", "57P02", "57P03": // admin_shutdown, crash_shutdown, cannot_connect_now
		return store.ErrUnavailable, true
	case "25006", "42501": // read_only_sql_transaction, insufficient_privilege
		return store.ErrReadOnly, false
	case "53100": // disk_full
		return store.ErrFull, false
	case "XX001", "XX002": // data_corrupted, index_corrupted
		return store.ErrCorrupt, false
	}
	switch {
	case strings.HasPrefix(code, "23"): // integrity_constraint_violation
		return store.ErrConflict, false
	case strings.HasPrefix(code, "08"): // connection_exception
		return store.ErrUnavailable, true
	}
	return nil, false
}
