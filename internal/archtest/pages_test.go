package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	hostreach "striatum/internal/reach"
)

// The pages that name files and folders of the repository, or link to them.
var pages = []string{
	"README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md", "docs/claims.md", "docs/dependencies.md",
	"docs/formats.md", "docs/go-checks.md", "docs/limits.md", "docs/store.md", "docs/striatumd.md", "docs/threat-model.md",
}

var (
	link   = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	goFile = regexp.MustCompile("`((?:[a-z-]+/)+[a-z_]+\\.go)`")
)

func TestPagesLinkAndNameFilesThatExist(t *testing.T) {
	for _, page := range pages {
		text := read(t, page)
		var names []string
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			names = append(names, path.Join(path.Dir(page), m[1]))
		}
		for _, m := range goFile.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		for _, name := range names {
			if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(name))); err != nil {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
}

func TestArchitecturePageHasEveryPackage(t *testing.T) {
	text := read(t, "docs/architecture.md")
	for _, p := range list(t) {
		name := p.name()
		if strings.HasPrefix(name, "internal/cli/") || strings.HasPrefix(name, "snapshot/internal/") {
			continue // one per command; a package's own
		}
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/architecture.md does not name %s", name)
		}
	}
}

func TestStriatumdPageHasEveryFindingOfAProbe(t *testing.T) {
	text := read(t, "docs/striatumd.md")
	for _, code := range hostreach.Codes {
		if !strings.Contains(text, "`"+code+"`") {
			t.Errorf("docs/striatumd.md does not explain %s", code)
		}
	}
}

// findingCode matches where the lane, a Go check or a snapshot gives a finding
// its code.
var findingCode = regexp.MustCompile(`(?:\.(?:find|finding|outside)\([a-zA-Z.]*,? ?"|receipt\.Finding\{\s*Code: "|\s+Code = ")([a-z_]+)"`)

func TestGoChecksPageHasEveryFinding(t *testing.T) {
	text := read(t, "docs/go-checks.md")
	seen := map[string]bool{}
	for _, dir := range []string{"verifier", "verifier/gocheck", "snapshot"} {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range findingCode.FindAllSubmatch(source, -1) {
				code := string(m[1])
				if seen[code] = true; !strings.Contains(text, "`"+code+"`") {
					t.Errorf("docs/go-checks.md does not explain %s", code)
				}
			}
		}
	}
	for _, code := range []string{"go_file_ignored", "dependency_missing", "subtest_names_vary", "use_outside_tree", "bidi_name"} {
		if !seen[code] {
			t.Errorf("this test does not see %s", code)
		}
	}
}
