//go:build unix

package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"striatum/eventlog"
	"striatum/store"
	"striatum/store/storetest"
)

// BenchmarkIngest holds receipts, one for each durable transaction, against
// prepared inserts of the same rows: at least 0.7 times as fast.
func BenchmarkIngest(b *testing.B) {
	s := server(b)
	c, err := pgx.Connect(b.Context(), migrated(b, s).writer()+"&search_path=striatum")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	for name, query := range map[string]string{
		"blob":    `INSERT INTO blobs VALUES ($1, $2)`,
		"log":     `INSERT INTO log VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		"receipt": `INSERT INTO receipts VALUES ($1, $2, $3, $4, $5, $6, $7)`,
	} {
		if _, err := c.Prepare(b.Context(), name, query); err != nil {
			b.Fatal(err)
		}
	}
	storetest.Ingest(b, open(b, migrated(b, s).writer()), func(ctx context.Context, envelope []byte, e eventlog.Entry, record []byte, r store.Receipt) error {
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // it is over
		if _, err := tx.Exec(ctx, "blob", r.EnvelopeSHA256, envelope); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "log", e.Position, e.Kind, e.RecordedAt, e.Digest, e.PrevHash, e.Hash, string(record)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "receipt", e.Position, r.Seal, r.PrevSeal, r.RepositoryID, r.RunID, r.CheckDigest, r.EnvelopeSHA256); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}
