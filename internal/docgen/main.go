// Docgen writes the documents that the code itself knows: docs/cli (one
// Markdown page per command), docs/man (one man page per command), the calls of
// striatumd in docs/reference/striatumd.yaml and the generated block of
// docs/go-checks.md. Equal code gives equal bytes: no date,
// no path and no setting of the machine is in them.
//
// Usage: docgen DOCS, which is the docs folder. `make generate` runs it, and
// its test fails when a document is not current.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
)

//go:generate go run . ../../docs

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: docgen DOCS")
	}
	if err := write(os.Args[1]); err != nil {
		log.Fatalf("docgen: %v", err)
	}
}

// write makes the documents in dir current and removes the pages of commands
// that are gone.
func write(dir string) error {
	files, err := documents(os.DirFS(dir))
	if err != nil {
		return err
	}
	old, err := pages(os.DirFS(dir))
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, kept := files[name]; !kept {
			if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
				return err
			}
		}
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // documents that everybody reads
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil { //nolint:gosec // documents that everybody reads
			return err
		}
	}
	return nil
}

// pages returns the names of the generated pages that docs holds.
func pages(docs fs.FS) ([]string, error) {
	var names []string
	for _, pattern := range []string{"cli/*.md", "man/*.1"} {
		found, err := fs.Glob(docs, pattern)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", pattern, err)
		}
		names = append(names, found...)
	}
	return names, nil
}

var errNoBlock = errors.New("the markers of the generated block are missing")
