package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentsAreCurrent(t *testing.T) {
	docs := os.DirFS(filepath.Join("..", "..", "docs"))
	files, err := documents(docs)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", "..", "docs", filepath.FromSlash(name)))
		if err != nil {
			t.Errorf("%v; run make generate", err)
			continue
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("docs/%s is not current; run make generate (-want +got):\n%s", name, diff)
		}
	}
	old, err := pages(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if _, ok := files[name]; !ok {
			t.Errorf("docs/%s belongs to no command; run make generate", name)
		}
	}
}

func TestDocumentsAreTheSameOnEveryMachine(t *testing.T) {
	docs := os.DirFS(filepath.Join("..", "..", "docs"))
	first, err := documents(docs)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", "/home/somebody-else")
	t.Setenv("STRIATUM_HOME", "/home/somebody-else/striatum")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	second, err := documents(docs)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(first, second, bytes.Equal) {
		t.Error("documents differ with the environment")
	}
	for name, data := range second {
		if bytes.Contains(data, []byte("somebody-else")) {
			t.Errorf("%s holds a path of this machine", name)
		}
	}
}

func TestWriteRemovesPagesOfCommandsThatAreGone(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "cli"), 0o755); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "cli", "striatum_gone.md")
	for path, data := range map[string]string{stale: "x", filepath.Join(dir, goChecks): "a\n" + blockStart + "old\n" + blockEnd + "b\n"} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("stale page: %v, want it removed", err)
	}
	names, err := pages(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cli/striatum.md", "cli/striatum_completion_bash.md", "man/striatum-verifier-run.1"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
}
