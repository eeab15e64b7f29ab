package sqlite_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"striatum/eventlog"
	"striatum/store"
	"striatum/store/storetest"
)

// BenchmarkIngest holds receipts, one for each durable transaction, against
// prepared inserts of the same rows: at least 0.7 times as fast.
func BenchmarkIngest(b *testing.B) {
	path := filepath.Join(b.TempDir(), "plain.db")
	open(b, path) // for the schema
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{"_txlock": {"immediate"}, "_pragma": {"synchronous(FULL)", "foreign_keys(1)"}}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	db.SetMaxOpenConns(1)
	prepare := func(query string) *sql.Stmt {
		s, err := db.Prepare(query)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
		return s
	}
	blob := prepare(`INSERT INTO blobs VALUES (?, ?)`)
	log := prepare(`INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)`)
	receipt := prepare(`INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?)`)
	storetest.Ingest(b, open(b, filepath.Join(b.TempDir(), "store.db")), func(ctx context.Context, envelope []byte, e eventlog.Entry, record []byte, r store.Receipt) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // it is over
		for _, row := range []struct {
			stmt *sql.Stmt
			args []any
		}{
			{blob, []any{r.EnvelopeSHA256, envelope}},
			{log, []any{e.Position, e.Kind, e.RecordedAt, e.Digest, e.PrevHash, e.Hash, string(record)}},
			{receipt, []any{e.Position, r.Seal, r.PrevSeal, r.RepositoryID, r.RunID, r.CheckDigest, r.EnvelopeSHA256}},
		} {
			if _, err := tx.StmtContext(ctx, row.stmt).ExecContext(ctx, row.args...); err != nil { //nolint:sqlclosecheck // the transaction closes it
				return err
			}
		}
		return tx.Commit()
	})
}
