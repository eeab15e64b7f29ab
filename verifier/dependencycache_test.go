package verifier

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAssemblyMayIncludeItsOwnFilesOnly(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("own.h", "#include \"textflag.h\"\n#include \"deep.inc\"\n")
	put("deep.inc", "#include \"own.h\"\n")
	put("bad_windows.h", "#include \"/workspace/a.h\"\n")
	put("behind.h", "#include \"bad_windows.h\"\n")
	for source, want := range map[string]bool{
		"":                          true,
		"TEXT ·f(SB),0,$0\n\tRET\n": true,
		"#include \"textflag.h\"\n": true,
		"# include\t\"go_asm.h\"\n": true,
		"#include \"own.h\"\n#include \"funcdata.h\"": true,
		"#include \"bad_windows.h\"":                  false,
		"#include \"behind.h\"":                       false,
		"#include \"absent.h\"":                       false,
		"#include \"/workspace/a.h\"":                 false,
		"#include \"../a.h\"":                         false,
		"#include \"..\"":                             false,
		"#include <textflag.h>":                       false,
		"#include\\\n\"/a.h\"":                        false,
		"#include/**/\"/workspace/a.h\"":              false,
		"#include \"own.h\"\n#include \"/a.h\"":       false,
		"// this may include anything":                false,
	} {
		put("f.s", source)
		if got := includesOwn(dir, "f.s", map[string]bool{}); got != want {
			t.Errorf("%q: got %v", source, got)
		}
	}
}

func TestPruneDropsTheLayersUsedLongestAgo(t *testing.T) {
	dir := t.TempDir()
	layer := func(name string, age int, links ...string) string {
		p := filepath.Join(dir, name)
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, name), []byte(strings.Repeat("x", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if err := os.Link(filepath.Join(dir, l, l), filepath.Join(p, l)); err != nil {
				t.Fatal(err)
			}
		}
		used := time.Now().Add(-time.Duration(age) * time.Hour)
		if err := os.Chtimes(p, used, used); err != nil {
			t.Fatal(err)
		}
		return p
	}
	std := layer("std-1", 9)
	layer("std-0", 8)
	layer("deps-1", 3, "std-1")
	layer("deps-2", 2, "std-1")
	layer("deps-3"+unfinished, 0)
	made := layer("deps-4", 0, "std-1")
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	for _, c := range []struct {
		quota int64
		want  []string
	}{
		{500, []string{"deps-1", "deps-2", "deps-4", "std-0", "std-1"}}, // what two layers share counts once
		{499, []string{"deps-1", "deps-2", "deps-4", "std-1"}},
		{300, []string{"deps-2", "deps-4", "std-1"}},
		{0, []string{"deps-4", "std-1"}},
	} {
		if err := pruneLayers(dir, c.quota, made, std); err != nil || !slices.Equal(left(), c.want) {
			t.Errorf("quota %d: left %q, %v; want %q", c.quota, left(), err, c.want)
		}
	}
}
