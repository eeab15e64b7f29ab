package gocheck

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// unpack writes the files of testdata/name into a new folder.
func unpack(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return tree(t, string(text))
}

var fileHeader = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

// tree writes files given as txtar: each after a line "-- name --". Text before
// the first is a comment.
func tree(t *testing.T, text string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	heads := fileHeader.FindAllStringSubmatchIndex(text, -1)
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		file := filepath.Join(dir, text[h[2]:h[3]])
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text[h[1]:end]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
