package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"striatum/store"
)

// wrap names the operation and, where SQLite's code or the system's error says
// so, adds one of the errors of package store.
func wrap(err error, op string) error {
	if err == nil {
		return nil
	}
	if cause := classify(err); cause != nil {
		return fmt.Errorf("%s: %w: %w", op, cause, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func classify(err error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.ErrNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return store.ErrFull
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return store.ErrReadOnly
	}
	var coded *sqlite.Error
	if !errors.As(err, &coded) {
		return nil
	}
	switch coded.Code() & 0xff {
	case lib.SQLITE_CONSTRAINT:
		return store.ErrConflict
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return store.ErrBusy
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return store.ErrReadOnly
	case lib.SQLITE_FULL:
		return store.ErrFull
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return store.ErrCorrupt
	}
	return nil
}
