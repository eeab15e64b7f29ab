package modules

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// vendorTree is a module whose vendor folder the go command itself made, and the
// set of its modules.
func vendorTree(t *testing.T) (dir string, set Set) {
	t.Helper()
	big := strings.Repeat("// a line of a file that is longer than a buffer\n", 2000)
	lib := fake{path: "example.test/Lib", version: "v1.0.0", files: map[string]string{
		"LICENSE": "free", "lib.go": "package lib\n\nimport _ \"example.test/Lib/sub\"\n", "lib_test.go": "package lib\n", "lib_windows.go": "package lib\n",
		"gen.go": "/* licence */\n\n//go:build ignore\n\npackage main\n", "old.go": "// +build ignore\n\npackage main\n",
		"never.go": "//go:build !linux && ignore\n\npackage lib\n",
		"sub/s.go": "//go:build !ignore\n\npackage sub\n\nimport _ \"embed\"\n\n//go:embed data\nvar D string\n" + big, "sub/data": "x", "unused/u.go": "package unused\n",
	}}
	fork := fake{path: "example.test/fork", version: "v1.0.1", files: map[string]string{"o.go": "package other\n"}, goMod: "module example.test/other\n\ngo 1.20\n"}
	dir = t.TempDir()
	mod := string(goMod(lib, fake{path: "example.test/other", version: "v1.0.0"}, fake{path: "example.test/local", version: "v1.0.0"})) +
		"\nreplace example.test/other => example.test/fork v1.0.1\n\nreplace example.test/local => ./local\n"
	for name, data := range map[string]string{
		"go.mod": mod, "go.sum": string(goSum(lib, fork)),
		"m.go":         "package m\n\nimport (\n\t_ \"example.test/Lib\"\n\t_ \"example.test/local\"\n\t_ \"example.test/other\"\n)\n",
		"local/go.mod": "module example.test/local\n\ngo 1.20\n", "local/l.go": "package local\n",
	} {
		put(t, filepath.Join(dir, name), []byte(data))
	}
	set = fetchSet(t, store(t, Config{DownloadCache: cache(t, lib, fork)}), []byte(mod), goSum(lib, fork))
	if out, err := goCommand(t, dir, readOnly(t, set.Dir), "off", "mod", "vendor"); err != nil {
		t.Fatalf("go mod vendor: %v\n%s", err, out)
	}
	return filepath.Join(dir, "vendor"), set
}

func TestAVendorFolderIsHeldAgainstTheProvenModules(t *testing.T) {
	dir, set := vendorTree(t)
	sub := filepath.Join("example.test", "Lib", "sub", "s.go")
	for name, c := range map[string]struct {
		change func(dir string) error
		want   []string
	}{
		"as go made it": {func(string) error { return nil }, nil},
		"other bytes at the end": {func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, sub), os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("\n")
			return err
		}, []string{"example.test/Lib@v1.0.0: 1 files differ, first: example.test/Lib/sub/s.go has other bytes"}},
		"a shorter file": {
			func(dir string) error { return os.Truncate(filepath.Join(dir, sub), 40<<10) },
			[]string{"example.test/Lib@v1.0.0: 1 files differ, first: example.test/Lib/sub/s.go has other bytes"},
		},
		"two more files": {func(dir string) error {
			put(t, filepath.Join(dir, "example.test/Lib/a.go"), []byte("package lib\n"))
			put(t, filepath.Join(dir, "example.test/Lib/unused/v.go"), []byte("package unused\n"))
			return nil
		}, []string{"example.test/Lib@v1.0.0: 2 files differ, first: example.test/Lib/a.go is not in the module"}},
		"a file less": {
			func(dir string) error { return os.Remove(filepath.Join(dir, "example.test/Lib/lib_windows.go")) },
			[]string{"example.test/Lib@v1.0.0: 1 files differ, first: example.test/Lib/lib_windows.go is missing"},
		},
		"a link": {func(dir string) error {
			if err := os.Remove(filepath.Join(dir, "example.test/other/o.go")); err != nil {
				return err
			}
			return os.Symlink("../Lib/lib.go", filepath.Join(dir, "example.test/other/o.go"))
		}, []string{"example.test/fork@v1.0.1: 1 files differ, first: example.test/other/o.go is not a regular file"}},
		"a file of no module": {func(dir string) error {
			put(t, filepath.Join(dir, "example.test/new/n.go"), []byte("package n\n"))
			return nil
		}, []string{"no module of modules.txt: 1 files differ, first: example.test/new/n.go is of no module that modules.txt names"}},
		"no modules.txt": {
			func(dir string) error { return os.Remove(filepath.Join(dir, "modules.txt")) },
			[]string{"no module of modules.txt: 7 files differ, first: example.test/Lib/LICENSE is of no module that modules.txt names"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := t.TempDir()
			if err := os.CopyFS(tree, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := c.change(tree); err != nil {
				t.Fatal(err)
			}
			differs, unproven, err := set.Vendored(t.Context(), os.DirFS(tree))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range differs {
				got = append(got, d.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if name != "no modules.txt" && (len(unproven) != 1 || unproven[0].Path != "./local") {
				t.Errorf("unproven %v, want the folder", unproven)
			}
		})
	}
}

func TestAVendoredModuleThatTheSetLacksIsListed(t *testing.T) {
	dir, _ := vendorTree(t)
	differs, unproven, err := fetchSet(t, store(t, Config{}), goMod(), nil).Vendored(t.Context(), os.DirFS(dir))
	if err != nil || len(differs) != 0 || len(unproven) != 3 {
		t.Errorf("differs %v, unproven %v, error %v", differs, unproven, err)
	}
}

func FuzzReadVendorList(f *testing.F) {
	f.Add("# a.test/x v1.0.0 => ../y\n## explicit\na.test/x\n# a.test/z => ./z\n")
	f.Add("a.test/x\n# \n# ../x v1.0.0\n../x/..\n")
	set := Set{Dir: f.TempDir()}
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "modules.txt"), []byte(text))
		if differs, _, err := set.Vendored(t.Context(), os.DirFS(dir)); err != nil || len(differs) != 0 {
			t.Errorf("nothing is vendored: %v, %v", differs, err)
		}
	})
}
