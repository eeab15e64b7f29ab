// Package migrations holds the schema of the store, one folder for each
// database, as files NNNN_name.sql for goose. Numbers are the same in every
// folder. Migrations only go forward: a released file never changes, and each
// release opens the database of the one before it.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// SQLite returns the migrations for SQLite.
func SQLite() fs.FS { return folder("sqlite") }

// Postgres returns the migrations for PostgreSQL.
func Postgres() fs.FS { return folder("postgres") }

func folder(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return sub
}
