package gocheck

import (
	"os"
	"path/filepath"
	"testing"

	"striatum/internal/testenv"
)

// unpack writes the files of testdata/name into a new folder.
func unpack(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Tree(t, string(text))
}
