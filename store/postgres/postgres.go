// Package postgres keeps the store in a PostgreSQL database, for a team.
//
// # One chain
//
// An Update takes one lock of the database before it reads anything, and keeps
// it until its commit is on disk, so that one writer at a time extends the log.
// The alternative, transactions that PostgreSQL serializes, makes all but one
// of those that run at once start again, since each reads the head of the log
// and writes the next: for 8 writers of 50 rows it ran closures 839 times instead of 400,
// took four times as long, and 6 writers gave up. Whoever writes without the lock meets the unique columns
// of the log and cannot fork the chain.
//
// A View is a read-only transaction on one snapshot. It takes no lock, and its
// connections are apart from those that write.
//
// # Connections that end
//
// What PostgreSQL asks to run again, and what loses its connection before the
// commit, runs again, for at most 15 seconds. When it is the answer to a commit
// that got lost, the next connection takes the lock, which the lost transaction
// holds while it lives, and looks for the entries in the log: they are there, or
// they never will be. If that cannot be asked either, the error says that the
// outcome is not known.
//
// # Roles
//
// One role owns the schema and runs Migrate. The program runs as another, which
// may only select and insert; Open refuses one that may do more. docs/store.md
// has the statements that make them. Triggers refuse UPDATE, DELETE and TRUNCATE
// to the owner too.
//
// Connections are sessions: a pooler in between must not share one among
// transactions.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"striatum/internal/problem"
	"striatum/migrations"
	"striatum/store"
)

// BusyTimeout is how long one writer waits for another.
const BusyTimeout = 10 * time.Second

const (
	readers          = 8 // Views of one process that may run at once
	connectTimeout   = 5 * time.Second
	statementTimeout = 60 * time.Second
	idleTimeout      = 60 * time.Second // a closure between two statements
	migrateTimeout   = 10 * time.Minute
)

// Schema is the schema of the database that holds the tables.
const Schema = "striatum"

// Store is a store.Store in a PostgreSQL database.
type Store struct {
	write, read *pgxpool.Pool
	now         func() time.Time
}

var _ store.Store = (*Store)(nil)

// Open opens the store in the database that url names, as a URL
// (postgres://USER@HOST/DATABASE) or as keywords and values; what it leaves out
// comes from the PG* environment variables and the password file, as for psql.
// The schema must be there: see Migrate. The clock stamps the log. Errors:
// store.ErrNewerSchema, ErrUnavailable and ErrCorrupt, and a *problem.Problem
// for a database or role that the store must not use.
func Open(ctx context.Context, url string, now func() time.Time) (s *Store, err error) {
	read, err := connect(ctx, url, readers, statementTimeout)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			read.Close()
		}
	}()
	version, newest, err := schemaVersion(ctx, read)
	switch {
	case err != nil:
		return nil, err
	case version > newest:
		return nil, newer(version, newest)
	case version < newest:
		return nil, problem.New(problem.Missing, "open store", fmt.Sprintf("the schema of the database is %d, and this program needs %d", version, newest),
			"migrate the database as the role that owns it")
	}
	if err := checkRole(ctx, read); err != nil {
		return nil, err
	}
	write, err := connect(ctx, url, 1, statementTimeout)
	if err != nil {
		return nil, err
	}
	return &Store{write: write, read: read, now: now}, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.read.Close()
	s.write.Close()
	return nil
}

// Migrate brings the schema of the database up to date. url names the role that
// owns it. Several processes may do so at once. Errors: store.ErrNewerSchema
// and ErrUnavailable.
func Migrate(ctx context.Context, url string) (err error) {
	pool, err := connect(ctx, url, 2, migrateTimeout)
	if err != nil {
		return err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := migrator(db)
	if err != nil {
		return err
	}
	lock, err := pool.Acquire(ctx)
	if err != nil {
		return wrap(ctx, err, "migrate", false)
	}
	defer lock.Release()
	// The transaction does nothing but hold the lock, until it is rolled back.
	t, err := lock.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginMigrate})
	if err != nil {
		return wrap(ctx, err, "wait for another migration", lock.Conn().IsClosed())
	}
	defer func() { _ = t.Rollback(context.WithoutCancel(ctx)) }()
	version, newest, err := schemaVersion(ctx, pool)
	switch {
	case err != nil:
		return err
	case version > newest:
		return newer(version, newest)
	case version == newest:
		return nil
	}
	var there bool
	if err := pool.QueryRow(ctx, sqlSchema, Schema).Scan(&there); err != nil {
		return wrap(ctx, err, "read schema of store", false)
	}
	if !there { // tables would be temporary
		return problem.New(problem.Missing, "migrate", fmt.Sprintf("the database has no schema %q", Schema), "make it with the statements in docs/store.md")
	}
	_, err = provider.Up(ctx)
	return wrap(ctx, err, "migrate", false)
}

// beginMigrate waits for another migration as long as that may take.
var beginMigrate = fmt.Sprintf("begin; set local lock_timeout = 0; set local idle_in_transaction_session_timeout = 0; select pg_advisory_xact_lock(%d)", writeLock+1)

func migrator(db *sql.DB) (*goose.Provider, error) {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Postgres(), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return provider, nil
}

func newer(version, newest int64) error {
	return fmt.Errorf("open store: %w: its schema is %d, and this program knows %d", store.ErrNewerSchema, version, newest)
}

// connect returns a pool of at most conns connections and makes the first.
func connect(ctx context.Context, url string, conns int32, statement time.Duration) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, problem.Wrap(problem.Usage, err, "open store", "") // the error has no password
	}
	cfg.MaxConns = conns
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	params := cfg.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "striatum"
	}
	params["client_encoding"] = "UTF8"
	params["search_path"] = Schema + ", pg_temp"
	params["statement_timeout"] = milliseconds(statement)
	params["lock_timeout"] = milliseconds(BusyTimeout)
	params["idle_in_transaction_session_timeout"] = milliseconds(idleTimeout)
	cfg.AfterConnect = checkServer
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	c, err := acquire(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	c.Release()
	return pool, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

const sqlServer = `SELECT current_setting('fsync'), current_setting('server_encoding'),
	CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) ELSE '' END`

// checkServer holds each new connection to what Update promises: that a commit
// which was reported is on disk, and that text is kept exactly.
func checkServer(ctx context.Context, c *pgx.Conn) error {
	var fsync, encoding, set string
	if err := c.QueryRow(ctx, sqlServer).Scan(&fsync, &encoding, &set); err != nil {
		return err
	}
	if fsync != "on" {
		return problem.New(problem.Missing, "open store", "the server runs with fsync off, so that it may lose what it reported as written",
			"set fsync = on in the server's configuration")
	}
	if encoding != "UTF8" {
		return problem.New(problem.Missing, "open store", fmt.Sprintf("the encoding of the database is %s", encoding), "make the database with ENCODING 'UTF8'")
	}
	return nil
}

const (
	sqlSchema        = `SELECT to_regnamespace($1) IS NOT NULL`
	sqlSchemaTable   = `SELECT to_regclass('goose_db_version') IS NOT NULL`
	sqlSchemaVersion = `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`
)

// schemaVersion returns the version of the database's schema, 0 if it has none,
// and the newest that this program knows.
func schemaVersion(ctx context.Context, pool *pgxpool.Pool) (version, newest int64, err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := migrator(db)
	if err != nil {
		return 0, 0, err
	}
	sources := provider.ListSources()
	newest = sources[len(sources)-1].Version
	var there bool
	if err := pool.QueryRow(ctx, sqlSchemaTable).Scan(&there); err != nil || !there {
		return 0, newest, wrap(ctx, err, "read schema of store", false)
	}
	err = pool.QueryRow(ctx, sqlSchemaVersion).Scan(&version)
	return version, newest, wrap(ctx, err, "read schema of store", false)
}

const sqlRole = `SELECT current_user, COALESCE(string_agg(tablename, ', ' ORDER BY tablename), '') FROM pg_tables
	WHERE schemaname = current_schema()
	AND (pg_has_role(tableowner, 'MEMBER') OR has_table_privilege(format('%I.%I', schemaname, tablename), 'UPDATE, DELETE, TRUNCATE'))`

// checkRole refuses a role that may do more than select and insert.
func checkRole(ctx context.Context, pool *pgxpool.Pool) error {
	var role, tables string
	if err := pool.QueryRow(ctx, sqlRole).Scan(&role, &tables); err != nil {
		return wrap(ctx, err, "read privileges", false)
	}
	if tables != "" {
		return problem.New(problem.Refused, "open store", fmt.Sprintf("role %q may change or delete what %s have", role, tables),
			"use a role that may only select and insert; the one that owns the tables is for migrations")
	}
	return nil
}
