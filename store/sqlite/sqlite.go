// Package sqlite keeps the store in one SQLite file, for one machine.
//
// The file and its neighbours (-wal, -shm, .lock) are 0600 and refused when
// others may open them. Writers wait for each other for at most BusyTimeout;
// readers see one state and wait for nobody (write-ahead log). Every commit is
// synced to disk before Update returns, and a process that is killed at any
// point leaves a file that opens again. Readers use a handle that SQLite itself
// holds read-only.
//
// The file must lie on a local disk: locks of network file systems are not
// to be relied on.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the database/sql driver "sqlite"

	"striatum/internal/filelock"
	"striatum/migrations"
	"striatum/store"
)

// BusyTimeout is how long one writer waits for another.
const BusyTimeout = 10 * time.Second

// readers is the number of Views of one process that may run at once.
const readers = 8

// ErrNotRegular says that a link, folder or device lies where a file is to be.
var ErrNotRegular = errors.New("it is not a regular file")

// PermissionError says that others than the owner may open the store.
type PermissionError struct {
	Path string
	Mode fs.FileMode
}

// Error implements error.
func (e *PermissionError) Error() string {
	return fmt.Sprintf("store %q has mode %04o, and must be open to its owner only", e.Path, e.Mode.Perm())
}

// Store is a store.Store in a SQLite file.
type Store struct {
	write, read *sql.DB
	now         func() time.Time
}

var _ store.Store = (*Store)(nil)

// Open opens the store at path, in a folder that exists. It makes the file and
// brings its schema up to date where needed; several processes may do so at
// once. The clock stamps the log. Errors: store.ErrNewerSchema for a file that
// this program is too old for, store.ErrReadOnly, ErrFull and ErrCorrupt,
// ErrNotRegular and *PermissionError.
func Open(ctx context.Context, path string, now func() time.Time) (s *Store, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := checkFile(path); errors.Is(err, fs.ErrNotExist) {
		err = createFile(path)
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	write, err := handle(path, "rw", 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, write.Close())
		}
	}()
	if err := migrate(ctx, write, path); err != nil {
		return nil, err
	}
	read, err := handle(path, "ro", readers)
	if err != nil {
		return nil, err
	}
	return &Store{write: write, read: read, now: now}, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	return errors.Join(s.read.Close(), s.write.Close())
}

// handle opens the file with one of SQLite's modes. Every transaction of a
// writing handle takes the write lock when it begins, so it never has to give
// up half way.
func handle(path, mode string, conns int) (*sql.DB, error) {
	query := url.Values{
		"mode": {mode},
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", BusyTimeout.Milliseconds()),
			"synchronous(FULL)",
			"foreign_keys(1)",
			"recursive_triggers(1)",
			"trusted_schema(0)",
		},
	}
	if mode == "rw" {
		query.Set("_txlock", "immediate")
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", path, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func checkFile(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("open store %q: %w", path, ErrNotRegular)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return &PermissionError{Path: path, Mode: st.Mode()}
	}
	return nil
}

// createFile makes an empty file, which SQLite takes for an empty database and
// whose mode its neighbours inherit. It never opens a file that exists: closing
// it again would drop the locks that SQLite holds on it in this process.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return checkFile(path)
	}
	if err != nil {
		return wrap(err, "make store")
	}
	if err := f.Close(); err != nil {
		return wrap(err, "make store")
	}
	return nil
}

// migrate brings the schema up to date, under a lock between processes. Where
// it is up to date already, nothing is locked.
func migrate(ctx context.Context, db *sql.DB, path string) (err error) {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations.SQLite(), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	sources := provider.ListSources()
	newest := sources[len(sources)-1].Version
	current, err := schemaVersion(ctx, db)
	if err != nil {
		return err
	}
	if current < newest {
		release, err := filelock.Lock(ctx, path+".lock")
		if err != nil {
			return wrap(err, "update store")
		}
		defer func() { err = errors.Join(err, release()) }()
		// The journal mode is a property of the file; changing it does not wait
		// for others, so it is done under the lock.
		if _, err := db.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
			return wrap(err, "update store")
		}
		if _, err := provider.Up(ctx); err != nil {
			return wrap(err, "update store")
		}
		if current, err = schemaVersion(ctx, db); err != nil {
			return err
		}
	}
	if current != newest {
		return fmt.Errorf("open store %q: %w: its schema is %d, and this program knows %d", path, store.ErrNewerSchema, current, newest)
	}
	return nil
}

const sqlSchemaVersion = `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`

const sqlSchemaTable = `SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'goose_db_version'`

func schemaVersion(ctx context.Context, db *sql.DB) (version int64, err error) {
	var tables int
	if err := db.QueryRowContext(ctx, sqlSchemaTable).Scan(&tables); err != nil {
		return 0, wrap(err, "read schema of store")
	}
	if tables == 0 {
		return 0, nil
	}
	if err := db.QueryRowContext(ctx, sqlSchemaVersion).Scan(&version); err != nil {
		return 0, wrap(err, "read schema of store")
	}
	return version, nil
}
