//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"striatum/eventlog"
	"striatum/internal/testenv"
	"striatum/store"
	"striatum/store/postgres"
	"striatum/store/storetest"
)

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC) }

// database is one database of a server, made as docs/store.md says.
type database struct {
	server *testenv.PostgresServer
	name   string
}

func (d database) owner() string  { return d.server.URL("striatum_owner", d.name) }
func (d database) writer() string { return d.server.URL("striatum_writer", d.name) }
func (d database) reader() string { return d.server.URL("striatum_reader", d.name) }

// sql runs statements past the adapter, as the superuser.
func (d database) sql(t testing.TB, script string) string {
	t.Helper()
	return d.server.SQL(t, d.name, "SET search_path = striatum;\n"+script)
}

// blocks returns the SQL of docs/store.md: the roles, then the database.
func blocks(t testing.TB) (roles, database string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/store.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(page), "```sql\n")
	if len(parts) != 3 {
		t.Fatalf("docs/store.md has %d blocks of SQL, want 2", len(parts)-1)
	}
	roles, _, _ = strings.Cut(parts[1], "```")
	database, _, _ = strings.Cut(parts[2], "```")
	return roles, database
}

func server(t testing.TB, settings ...string) *testenv.PostgresServer {
	t.Helper()
	s := testenv.Postgres(t, settings...)
	roles, _ := blocks(t)
	s.SQL(t, "postgres", roles)
	return s
}

var databases atomic.Int64

// empty returns a new database without tables.
func empty(t testing.TB, s *testenv.PostgresServer) database {
	t.Helper()
	d := database{s, fmt.Sprintf("striatum%d", databases.Add(1))}
	_, script := blocks(t)
	s.SQL(t, "postgres", strings.NewReplacer("DATABASE striatum", "DATABASE "+d.name, `\connect striatum`, `\connect `+d.name).Replace(script))
	return d
}

func migrated(t testing.TB, s *testenv.PostgresServer) database {
	t.Helper()
	d := empty(t, s)
	if err := postgres.Migrate(t.Context(), d.owner()); err != nil {
		t.Fatal(err)
	}
	return d
}

func open(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// add writes a row of its own.
func add(ctx context.Context, w store.Writer, n int) error {
	blob, err := w.PutBlob(ctx, fmt.Appendf(nil, "document %d", n))
	if err != nil {
		return err
	}
	_, err = w.AddPolicy(ctx, store.Policy{RepositoryID: fmt.Sprintf("repo-%d", n), DocumentSHA256: blob})
	return err
}

// verified walks the log and returns its last position.
func verified(t testing.TB, s store.Store) int64 {
	t.Helper()
	var last eventlog.Entry
	err := s.View(t.Context(), func(r store.Reader) error {
		last = eventlog.Entry{}
		for {
			rows, err := r.Log(t.Context(), store.Page{After: last.Position})
			if err != nil || len(rows) == 0 {
				return err
			}
			for _, row := range rows {
				if err := eventlog.Verify(last, row.Entry, row.Record); err != nil {
					return err
				}
				last = row.Entry
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return last.Position
}

func TestPostgresKeepsTheContract(t *testing.T) {
	s := server(t)
	storetest.Run(t, func(t testing.TB) store.Store { return open(t, migrated(t, s).writer()) })
}

// TestOneServer holds what needs no server of its own.
func TestOneServer(t *testing.T) {
	s := server(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *testenv.PostgresServer)
	}{
		{"EveryTableIsAppendOnly", testAppendOnly},
		{"OneAttestationIsActivePastTheAdapter", testAttestations},
		{"RoleThatMayChangeEvidenceIsRefused", testRoles},
		{"ReaderRoleReadsOnly", testReaderRole},
		{"ViewCannotWrite", testViewCannotWrite},
		{"ReadOnlyDatabaseIsNamed", testReadOnlyDatabase},
		{"NewerSchemaIsRefused", testNewerSchema},
		{"OlderSchemaIsRefused", testOlderSchema},
		{"DatabaseWithoutSchemaIsRefused", testNoSchema},
		{"OtherEncodingIsRefused", testEncoding},
		{"DatabaseThatIsNotThereIsNamed", testNoDatabase},
		{"StrangeTextIsNotFound", testStrangeText},
		{"LongPathIsFound", testLongPath},
		{"WriterWaitsNoLongerThanItShould", testBusy},
		{"HiddenFailureIsNotWritten", testHiddenFailure},
		{"CommitsAreSyncedWhateverTheDatabaseSays", testSynchronous},
		{"SearchPathIsOurs", testSearchPath},
		{"ProcessesMigrateAtOnce", testMigrateAtOnce},
		{"ProcessesFormOneChain", testProcesses},
		{"KilledWriterLosesNothingThatWasCommitted", testKilledWriter},
		{"KilledConnectionRunsAgain", testKilledConnection},
		{"LostAnswerToACommit", testLostAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, s) })
	}
}

func testAppendOnly(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	storetest.Populate(t, open(t, d.writer()))
	tables := strings.Fields(d.sql(t, `SELECT tablename FROM pg_tables WHERE schemaname = 'striatum' AND tablename NOT LIKE 'goose%'`))
	if len(tables) != 18 {
		t.Errorf("got %d tables, want 18: %v", len(tables), tables)
	}
	for role, url := range map[string]string{"writer": d.writer(), "owner": d.owner(), "superuser": s.URL("postgres", d.name)} {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			for _, statement := range []string{
				"UPDATE striatum.%[1]s SET %[2]s = %[2]s", "DELETE FROM striatum.%[1]s", "TRUNCATE striatum.%[1]s CASCADE",
				"INSERT INTO striatum.%[1]s SELECT * FROM striatum.%[1]s LIMIT 1 ON CONFLICT (%[2]s) DO UPDATE SET %[2]s = EXCLUDED.%[2]s",
				"MERGE INTO striatum.%[1]s USING striatum.%[1]s s ON TRUE WHEN MATCHED THEN DELETE",
				"ALTER TABLE striatum.%[1]s DISABLE TRIGGER append_only; DELETE FROM striatum.%[1]s",
				"SET session_replication_role = replica; DELETE FROM striatum.%[1]s",
			} {
				if role != "writer" && strings.HasPrefix(statement, "ALTER") {
					continue // docs/store.md says that these two could
				}
				key := "position"
				if table == "blobs" {
					key = "sha256"
				}
				statement = fmt.Sprintf(statement, table, key)
				if _, err := c.Exec(t.Context(), statement); err == nil {
					t.Errorf("%s: %s succeeded", role, statement)
				}
			}
		}
		if role == "writer" {
			if _, err := c.Exec(t.Context(), "DROP TABLE striatum.log CASCADE"); err == nil {
				t.Error("the writer dropped a table")
			}
		}
		for _, table := range tables {
			if n := d.sql(t, "SELECT COUNT(*) > 0 FROM "+table); n != "t" {
				t.Errorf("%s: %s has no rows", role, table)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// testAttestations goes past the adapter, at any isolation: a first one, one
// that replaces the active one, one that was replaced, or one of other bytes.
func testAttestations(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	st := open(t, d.writer())
	write := func(fn func(w store.Writer) (int64, error)) (position int64) {
		t.Helper()
		err := st.Update(t.Context(), func(w store.Writer) (err error) {
			position, err = fn(w)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	attest := func(closure string) int64 {
		t.Helper()
		return write(func(w store.Writer) (int64, error) {
			return w.AddAttestation(t.Context(), store.Attestation{RepositoryID: "repo-1", CheckDigest: "check", ClosureSHA256: closure})
		})
	}
	revoke := func(position int64) {
		t.Helper()
		write(func(w store.Writer) (int64, error) {
			return w.AddAttestationRevocation(t.Context(), store.AttestationRevocation{RepositoryID: "repo-1", Attestation: position})
		})
	}
	replaced := attest("closure")
	revoke(replaced)
	active := attest("closure")
	other := attest("other")
	revoke(other)
	d.sql(t, "INSERT INTO log VALUES (1000, 'x', '', '', 'p', 'h', '')")
	c, err := pgx.Connect(t.Context(), d.writer())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	for _, replaces := range []string{"NULL", fmt.Sprint(active), fmt.Sprint(replaced), fmt.Sprint(other)} {
		for _, isolation := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
			statement := fmt.Sprintf("BEGIN ISOLATION LEVEL %s; INSERT INTO striatum.attestations VALUES (1000, 'repo-1', 'check', 'closure', %s); COMMIT", isolation, replaces)
			if _, err := c.Exec(t.Context(), statement); err == nil {
				t.Errorf("%s succeeded", statement)
			}
			if _, err := c.Exec(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func testStrangeText(t *testing.T, s *testenv.PostgresServer) {
	st := open(t, migrated(t, s).writer())
	err := st.View(t.Context(), func(r store.Reader) error {
		for _, text := range []string{"a\x00b", "\xff"} {
			if _, err := r.RepositoryOf(t.Context(), text); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("RepositoryOf %q: got %v, want ErrNotFound", text, err)
			}
			if rows, err := r.Receipts(t.Context(), text, "", store.Page{}); err != nil || len(rows) != 0 {
				t.Errorf("Receipts %q: got %v, %v", text, rows, err)
			}
		}
		_, err := r.Head(t.Context())
		return err
	})
	if err != nil {
		t.Errorf("the view did not go on: %v", err)
	}
	err = st.Update(t.Context(), func(w store.Writer) error {
		_, err := w.AddExplanation(t.Context(), store.Explanation{RepositoryID: "repo-1", Reason: "a\x00b"}) // escaped in the record
		return err
	})
	if err != nil {
		t.Error(err)
	}
	err = st.Update(t.Context(), func(w store.Writer) error {
		_, err := w.AddRepository(t.Context(), store.Repository{Place: store.Place{Path: "/a\x00b"}}) // no path has one
		return err
	})
	if err == nil || verified(t, st) != 1 {
		t.Errorf("got %v, want an error and no row", err)
	}
}

func testLongPath(t *testing.T, s *testenv.PostgresServer) {
	st := open(t, migrated(t, s).writer())
	var long strings.Builder
	for i := range 2000 { // does not compress to what fits a B-tree
		fmt.Fprintf(&long, "/%x", i*i*7919)
	}
	place := store.Place{Path: long.String(), Device: "1", Inode: "2"}
	err := st.Update(t.Context(), func(w store.Writer) error {
		if _, err := w.AddRepository(t.Context(), store.Repository{RepositoryID: "repo-1", Place: place}); err != nil {
			return err
		}
		_, err := w.RepositoryAt(t.Context(), place)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func testBusy(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	first, second := open(t, d.writer()), open(t, d.writer())
	err := first.Update(t.Context(), func(store.Writer) error {
		return second.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }) // a process of its own
	})
	if !errors.Is(err, store.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if err := second.Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func testHiddenFailure(t *testing.T, s *testenv.PostgresServer) {
	st := open(t, migrated(t, s).writer())
	runs := 0
	err := st.Update(t.Context(), func(w store.Writer) error {
		runs++
		_, _ = w.AddPolicy(t.Context(), store.Policy{DocumentSHA256: "not there"})
		return nil
	})
	if err == nil || runs != 1 || verified(t, st) != 0 {
		t.Errorf("got %v after %d runs, want an error and no row", err, runs)
	}
}

func testSynchronous(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	d.sql(t, "ALTER DATABASE "+d.name+" SET synchronous_commit = off")
	d.sql(t, `CREATE TABLE seen (value TEXT);
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO striatum.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
		CREATE TRIGGER see BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION see()`)
	if err := open(t, d.writer()).Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }); err != nil {
		t.Fatal(err)
	}
	if got := d.sql(t, "SELECT value FROM seen"); got != "on" {
		t.Errorf("synchronous_commit was %q, want on", got)
	}
}

func testSearchPath(t *testing.T, s *testenv.PostgresServer) {
	d := migrated(t, s)
	s.SQL(t, d.name, "CREATE SCHEMA evil; CREATE TABLE evil.log AS SELECT * FROM striatum.log; GRANT ALL ON SCHEMA evil TO PUBLIC; GRANT ALL ON evil.log TO PUBLIC;"+
		"ALTER DATABASE "+d.name+" SET search_path = evil, striatum")
	for _, url := range []string{d.writer(), d.writer() + "&search_path=evil"} {
		if err := open(t, url).Update(t.Context(), func(w store.Writer) error { return add(t.Context(), w, 1) }); err != nil {
			t.Error(err)
		}
	}
	if got := s.SQL(t, d.name, "SELECT COUNT(*) FROM striatum.log; SELECT COUNT(*) FROM evil.log"); got != "2\n0" {
		t.Errorf("got %q rows, want 2 and 0", got)
	}
}
