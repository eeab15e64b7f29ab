package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"striatum/store"
	"striatum/store/sqlite"
	"striatum/store/storetest"
)

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC) }

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, clock)
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

// raw opens the file past the adapter, as anybody with the file could.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestSQLiteKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) store.Store { return open(t, filepath.Join(t.TempDir(), "store.db")) })
}

func TestEveryTableIsAppendOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	storetest.Populate(t, open(t, path))
	db := raw(t, path)
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'goose%' AND name NOT LIKE 'sqlite%'`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(tables) != 18 {
		t.Errorf("got %d tables, want 18: %v", len(tables), tables)
	}
	for _, table := range tables {
		t.Run(table, func(t *testing.T) {
			var column string
			if err := db.QueryRow(`SELECT name FROM pragma_table_info(?) WHERE pk = 1`, table).Scan(&column); err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{
				fmt.Sprintf(`UPDATE %s SET %s = %s`, table, column, column),
				fmt.Sprintf(`DELETE FROM %s`, table),
				fmt.Sprintf(`INSERT OR REPLACE INTO %s SELECT * FROM %s LIMIT 1`, table, table),
			} {
				if _, err := db.Exec(statement); err == nil {
					t.Errorf("%s succeeded", statement)
				}
			}
			var n int
			if err := db.QueryRow(fmt.Sprintf(`SELECT COUNT(*) FROM %s`, table)).Scan(&n); err != nil || n == 0 {
				t.Errorf("got %d rows, %v", n, err)
			}
		})
	}
}

// TestOneAttestationIsActivePastTheAdapter: as a first one, one that replaces
// the active one, one that was replaced, or one of other bytes.
func TestOneAttestationIsActivePastTheAdapter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	attest := func(closure string, revoke bool) (position int64) {
		t.Helper()
		err := s.Update(t.Context(), func(w store.Writer) (err error) {
			position, err = w.AddAttestation(t.Context(), store.Attestation{RepositoryID: "repo-1", CheckDigest: "check", ClosureSHA256: closure})
			if err == nil && revoke {
				_, err = w.AddAttestationRevocation(t.Context(), store.AttestationRevocation{RepositoryID: "repo-1", Attestation: position})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	replaced, active, other := attest("closure", true), attest("closure", false), attest("other", true)
	db := raw(t, path)
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`PRAGMA foreign_keys = ON; INSERT INTO log VALUES (1000, 'x', '', '', 'p', 'h', '')`); err != nil {
		t.Fatal(err)
	}
	for _, replaces := range []any{nil, active, replaced, other} {
		for _, verb := range []string{"INSERT", "INSERT OR REPLACE"} {
			if _, err := db.Exec(verb+` INTO attestations VALUES (1000, 'repo-1', 'check', 'closure', ?)`, replaces); err == nil {
				t.Errorf("%s of one that replaces %v succeeded", verb, replaces)
			}
		}
	}
	if _, err := db.Exec(`INSERT OR REPLACE INTO attestation_revocations VALUES (1000, 'repo-1', ?)`, replaced); err == nil {
		t.Error("a second revocation succeeded")
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	storetest.Populate(t, open(t, filepath.Join(dir, "store.db")))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 { // store.db, -wal, -shm, .lock
		t.Errorf("got %v", entries)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", e.Name(), got)
		}
	}
}

func TestFileThatOthersMayOpenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), path, clock)
	if _, ok := errors.AsType[*sqlite.PermissionError](err); !ok {
		t.Fatalf("got %v, want a PermissionError", err)
	}
}

func TestLinkIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "store.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(dir, "store.db"), clock); !errors.Is(err, sqlite.ErrNotRegular) {
		t.Fatalf("got %v, want ErrNotRegular", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere")); err == nil {
		t.Error("the link's target was made")
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	storetest.Populate(t, open(t, path))
	if _, err := raw(t, path).Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path, clock); !errors.Is(err, store.ErrNewerSchema) {
		t.Fatalf("got %v, want ErrNewerSchema", err)
	}
}

func TestDamagedFileIsCorrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, []byte("this is not a database, but long enough to look at; it goes on and on for a while\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path, clock); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
}

func TestOddPathsAreTakenLiterally(t *testing.T) {
	for _, name := range []string{"a?mode=memory", "a#b", "a%41", "a b", "ä", "a&_pragma=x"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, name)
			storetest.Populate(t, open(t, path))
			if st, err := os.Stat(path); err != nil || st.Size() == 0 {
				t.Errorf("got %v, %v", st, err)
			}
		})
	}
}

func TestReadingHandleCannotWrite(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	err := s.View(t.Context(), func(r store.Reader) error {
		w, ok := r.(store.Writer)
		if !ok {
			return nil
		}
		_, err := w.AddRepository(t.Context(), store.Repository{RepositoryID: "repo-1"})
		return err
	})
	if err != nil && !errors.Is(err, store.ErrReadOnly) {
		t.Fatalf("got %v, want ErrReadOnly", err)
	}
	if err == nil {
		t.Fatal("a view wrote")
	}
}
