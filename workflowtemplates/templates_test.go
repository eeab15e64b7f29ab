package workflowtemplates

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/workflow"
)

var update = flag.Bool("update", false, "write the generated page again")

func load(t *testing.T) Catalog {
	t.Helper()
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCatalogPageIsCurrent(t *testing.T) {
	path := filepath.Join("..", "docs", "reference", "workflow-catalog.md")
	want := load(t).Page()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what catalog.json says; run: go generate ./workflowtemplates", path)
	}
}

func TestCatalogUsesOnlyKnownTiersAndTypes(t *testing.T) {
	c := load(t)
	if c.SchemaVersion != SchemaVersion {
		t.Errorf("schema_version %q, want %q", c.SchemaVersion, SchemaVersion)
	}
	for _, s := range c.Shapes {
		if s.Tier != Experimental && s.Tier != Supported {
			t.Errorf("shape %q has tier %q", s.ID, s.Tier)
		}
		for _, f := range s.Files {
			if !strings.HasPrefix(f.Path, "verification/") || !workflow.CleanPath(f.Path) {
				t.Errorf("shape %q generates %q, outside verification/", s.ID, f.Path)
			}
		}
	}
}

func TestVerificationGateIsExperimental(t *testing.T) {
	s, ok := load(t).Shape("verification_gate")
	if !ok || s.Tier != Experimental {
		t.Errorf("tier %q (found %v), want %q", s.Tier, ok, Experimental)
	}
}

func TestCatalogNamesAClaimForEveryBuiltinAndNoOther(t *testing.T) {
	for _, s := range load(t).Shapes {
		var used []string
		for _, id := range workflow.Builtins() {
			c, ok := s.Check(id)
			if !ok {
				t.Errorf("shape %q has no claim for %s", s.ID, id)
			}
			used = append(used, c.ID)
		}
		for _, c := range s.Checks {
			if !slices.Contains(used, c.ID) {
				t.Errorf("shape %q has a claim for %q, which is no builtin", s.ID, c.ID)
			}
		}
	}
}

func TestEveryTemplateIsInTheCatalog(t *testing.T) {
	for _, s := range load(t).Shapes {
		listed := map[string]bool{}
		for _, f := range s.Files {
			listed[f.Template] = true
		}
		root := s.ID
		err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if rel, _ := filepath.Rel(root, p); !listed[filepath.ToSlash(rel)] {
					t.Errorf("template %q is in no shape's files", p)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
