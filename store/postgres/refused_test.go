//go:build unix

package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"striatum/internal/problem"
	"striatum/internal/testenv"
	"striatum/store"
	"striatum/store/postgres"
	"striatum/store/storetest"
)

func testRoles(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	for role, url := range map[string]string{"owner": d.owner(), "superuser": s.URL("postgres", d.name)} {
		_, err := postgres.Open(t.Context(), url, clock)
		if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Refused || p.Hint == "" {
			t.Errorf("%s: got %v, want it refused", role, err)
		}
	}
	for _, grant := range []string{"UPDATE", "DELETE", "TRUNCATE"} {
		d.sql(t, "GRANT "+grant+" ON receipts TO striatum_writer")
		_, err := postgres.Open(t.Context(), d.writer(), clock)
		if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Refused || !strings.Contains(p.Why, "receipts") {
			t.Errorf("with %s: got %v, want it refused", grant, err)
		}
		d.sql(t, "REVOKE "+grant+" ON receipts FROM striatum_writer")
	}
	s.SQL(t, "postgres", "CREATE ROLE member LOGIN NOINHERIT IN ROLE striatum_owner, striatum_reader; GRANT CONNECT ON DATABASE "+d.name+" TO member")
	d.sql(t, "GRANT USAGE ON SCHEMA striatum TO member; GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA striatum TO member")
	_, err := postgres.Open(t.Context(), s.URL("member", d.name), clock)
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Refused {
		t.Errorf("a role that may become the owner: got %v, want it refused", err)
	}
}

func testReaderRole(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	want := int64(len(storetest.Populate(t, open(t, d.writer()))))
	r := open(t, d.reader())
	if got := verified(t, r); got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
	if err := r.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("got %v, want ErrReadOnly", err)
	}
}

func testViewCannotWrite(t *testing.T, s *testenv.PostgresServer) {
	err := open(t, migrated(t, s).writer()).View(t.Context(), func(r store.Reader) error {
		return add(t.Context(), r.(store.Writer), 1)
	})
	if !errors.Is(err, store.ErrReadOnly) {
		t.Fatalf("got %v, want ErrReadOnly", err)
	}
}

func testReadOnlyDatabase(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	d.sql(t, "ALTER DATABASE "+d.name+" SET default_transaction_read_only = on")
	st := open(t, d.writer())
	if got := verified(t, st); got != 0 {
		t.Errorf("got %d rows", got)
	}
	if err := st.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("got %v, want ErrReadOnly", err)
	}
	if err := postgres.Migrate(t.Context(), empty(t, s).owner()); err != nil {
		t.Errorf("another database: %v", err)
	}
}

func testNewerSchema(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	d.sql(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)")
	if _, err := postgres.Open(t.Context(), d.writer(), clock); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("open: got %v, want ErrNewerSchema", err)
	}
	if err := postgres.Migrate(t.Context(), d.owner()); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("migrate: got %v, want ErrNewerSchema", err)
	}
}

func testOlderSchema(t *testing.T, s *testenv.PostgresServer) {
	d := empty(t, s)
	_, err := postgres.Open(t.Context(), d.writer(), clock)
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Missing || p.Hint == "" {
		t.Fatalf("got %v, want a problem with a hint", err)
	}
	if got := d.sql(t, "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'striatum'"); got != "0" {
		t.Errorf("open made %s tables", got)
	}
	if err := postgres.Migrate(t.Context(), d.writer()); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("migrate as the writer: got %v, want ErrReadOnly", err)
	}
}

func testNoSchema(t *testing.T, s *testenv.PostgresServer) {
	d := empty(t, s)
	d.sql(t, "DROP SCHEMA striatum CASCADE")
	err := postgres.Migrate(t.Context(), d.owner())
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Missing || p.Hint == "" {
		t.Errorf("got %v, want a problem with a hint", err)
	}
}

func testEncoding(t *testing.T, s *testenv.PostgresServer) {
	s.SQL(t, "postgres", "CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1'; GRANT CONNECT ON DATABASE latin1 TO striatum_writer")
	_, err := postgres.Open(t.Context(), s.URL("striatum_writer", "latin1"), clock)
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Missing || !strings.Contains(p.Why, "LATIN1") {
		t.Errorf("got %v, want the encoding named", err)
	}
}

func testNoDatabase(t *testing.T, s *testenv.PostgresServer) {
	_, err := postgres.Open(t.Context(), s.URL("striatum_writer", "nowhere"), clock)
	if err == nil || !strings.Contains(err.Error(), "nowhere") || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	_, err = postgres.Open(t.Context(), "postgres://u:secret@/?host=/nowhere", clock)
	if !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want ErrUnavailable without the password", err)
	}
	_, err = postgres.Open(t.Context(), "postgres://u:secret@:x/?sslmode=y", clock)
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.Usage || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want it refused without the password", err)
	}
}
