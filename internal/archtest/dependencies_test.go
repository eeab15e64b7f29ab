package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// documentedModules returns the modules that docs/dependencies.md has a row for.
func documentedModules(t *testing.T) []string {
	t.Helper()
	var modules []string
	for row := range strings.Lines(read(t, "docs/dependencies.md")) {
		cells := strings.Split(row, "|")
		if len(cells) != 6 || strings.HasPrefix(cells[1], " ---") || strings.TrimSpace(cells[1]) == "module" {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			modules = append(modules, strings.TrimSpace(name))
		}
	}
	return modules
}

// read returns a file of the repository by its path from the top.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestEveryDirectDependencyIsDocumented(t *testing.T) {
	mod, err := modfile.Parse("go.mod", []byte(read(t, "go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	documented := documentedModules(t)
	var direct []string
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		direct = append(direct, r.Mod.Path)
		if !slices.Contains(documented, r.Mod.Path) {
			t.Errorf("docs/dependencies.md has no row for %s", r.Mod.Path)
		}
	}
	for _, name := range documented {
		if !slices.Contains(direct, name) {
			t.Errorf("docs/dependencies.md has a row for %s, which is no direct requirement", name)
		}
	}
}
