package embedded_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
)

const intent = `{"schema_version": "striatum.verifier_allowlist_intent.v1", "checks": [{
  "id": "schema", "argv": ["/usr/bin/check-schema", "{target}/schema"], "pass_when": "exit_zero",
  "backs_claim": "schema-is-valid", "agreement": "stdout",
  "negative_control": {"mutation_of": "fixtures/good", "fails_with": "unknown type .strnig.",
    "mutation": {"file": "schema/user.json", "find": "string", "replace": "strnig"}}}]}`

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for path, data := range files {
		full := filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func TestPolicyFilesAreTheClosedSet(t *testing.T) {
	top := tree(t, map[string]string{
		"verification/workflow.json":         "not a workflow, and read all the same",
		"verification/allowlist.intent.json": intent,
		"verification/anchors.json":          "{}",
		"verification/roles/agent.md":        "no part of the policy",
		"fixtures/good/schema/user.json":     "string",
		"fixtures/other":                     "no part of it",
		"main.go":                            "package main",
	})
	if err := os.Symlink("schema/user.json", filepath.Join(top, "fixtures/good/link")); err != nil {
		t.Fatal(err)
	}
	files, err := embedded.PolicyFiles(top)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"fixtures/good/link", "fixtures/good/schema/user.json",
		"verification/allowlist.intent.json", "verification/anchors.json", "verification/workflow.json",
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(files)), want); diff != "" {
		t.Error(diff)
	}
	if got := string(files["fixtures/good/link"]); got != "schema/user.json" {
		t.Errorf("a link's content is %q, want its target", got)
	}
}

func TestPolicyFilesOfATreeWithoutAny(t *testing.T) {
	for _, files := range []map[string]string{{}, {"verification": "a file"}, {"verification/other": ""}} {
		got, err := embedded.PolicyFiles(tree(t, files))
		if err != nil || len(got) != 0 {
			t.Errorf("%v: got %v, %v", files, got, err)
		}
	}
}

func TestPlantedPolicyFilesAreRefused(t *testing.T) {
	for name, plant := range map[string]func(top string) error{
		"folder is a link": func(top string) error {
			return os.Symlink("/etc", filepath.Join(top, "verification"))
		},
		"file is a link": func(top string) error {
			return errors.Join(os.Mkdir(filepath.Join(top, "verification"), 0o755),
				os.Symlink("/etc/passwd", filepath.Join(top, "verification/workflow.json")))
		},
		"file is a FIFO": func(top string) error {
			return errors.Join(os.Mkdir(filepath.Join(top, "verification"), 0o755),
				syscall.Mkfifo(filepath.Join(top, "verification/workflow.json"), 0o644))
		},
		"file is a folder": func(top string) error {
			return os.MkdirAll(filepath.Join(top, "verification/workflow.json"), 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			if err := plant(top); err != nil {
				t.Fatal(err)
			}
			_, err := embedded.PolicyFiles(top)
			if p := problem.Of(err); p == nil || p.Kind != problem.Refused || p.Hint == "" {
				t.Errorf("got %v, want kind Refused with a hint", err)
			}
		})
	}
}

func TestHugePolicyFileIsInvalid(t *testing.T) {
	_, err := embedded.PolicyFiles(tree(t, map[string]string{"verification/workflow.json": strings.Repeat(" ", 1<<20+1)}))
	if p := problem.Of(err); p == nil || p.Kind != problem.Invalid {
		t.Errorf("got %v, want kind Invalid", err)
	}
}

func TestReadFileTakesARegularFileUpToTheLimit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := embedded.ReadFile(path, 5); err != nil || string(got) != "12345" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := embedded.ReadFile(path, 4); err == nil {
		t.Error("a longer file was read")
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.ReadFile(fifo, 5); err == nil {
		t.Error("a FIFO was read")
	}
}
