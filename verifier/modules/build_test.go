package modules

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

// goCommand runs the go that runs this test, offline. work is GOWORK.
func goCommand(t *testing.T, dir, modCache, work string, args ...string) (string, error) {
	t.Helper()
	root := runtime.GOROOT() //nolint:staticcheck // the go that runs this test
	cmd := exec.Command(filepath.Join(root, "bin", "go"), args...)
	cmd.Dir = dir
	home := t.TempDir()
	cmd.Env = []string{
		"PATH=" + filepath.Join(root, "bin") + ":/usr/bin:/bin", "HOME=" + home, "GOCACHE=" + goEnv(t, "GOCACHE"), "GOMODCACHE=" + modCache,
		"GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=readonly", "GOENV=off", "GOTOOLCHAIN=local", "GOWORK=" + work, "CGO_ENABLED=0",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// readOnly shows dir where nobody can write to it.
func readOnly(t *testing.T, dir string) string {
	t.Helper()
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				t.Cleanup(func() { _ = os.Chmod(path, 0o755) })
				return os.Chmod(path, 0o555)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	return bindReadOnly(t, dir)
}

func TestTheGoCommandBuildsOfflineFromAReadOnlySet(t *testing.T) {
	cmp := fake{path: "github.com/google/go-cmp", version: "v0.7.0"}
	real := hostModules(t)
	sum := linesFor(t, cmp.path+" "+cmp.version)
	s := store(t, Config{DownloadCache: real})
	greet := fake{path: "example.test/Greet", version: "v1.2.3", files: map[string]string{
		"greet.go": "package greet\n\nimport \"github.com/google/go-cmp/cmp\"\n\nfunc Equal() bool { return cmp.Equal(1, 1) }\n",
	}, goMod: "module example.test/Greet\n\ngo 1.16\n\nrequire github.com/google/go-cmp v0.7.0\n"}
	both := store(t, Config{Dir: s.cfg.Dir, DownloadCache: cache(t, greet)})
	fetchSet(t, s, goMod(cmp), []byte(sum))
	mod, sums := goMod(cmp, greet), sum+greet.sum()
	set := fetchSet(t, both, mod, []byte(sums))
	if len(set.Missing)+len(set.Tampered) != 0 {
		t.Fatalf("set %+v", set)
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "go.mod"), mod)
	put(t, filepath.Join(dir, "go.sum"), []byte(sums))
	put(t, filepath.Join(dir, "main.go"), []byte("package main\n\nimport (\n\t\"example.test/Greet\"\n\t\"github.com/google/go-cmp/cmp\"\n)\n\nfunc main() { println(cmp.Equal(1, 2), greet.Equal()) }\n"))
	shown := readOnly(t, set.Dir)
	for _, args := range [][]string{
		{"list", "-deps", "-json", "./..."}, {"build", "-o", filepath.Join(t.TempDir(), "out"), "./..."}, {"vet", "./..."}, {"list", "-m", "all"}, {"mod", "verify"},
	} {
		out, err := goCommand(t, dir, shown, "off", args...)
		if args[0] == "mod" {
			// It wants the zips too, which a set leaves out; it must not find anything modified.
			if strings.Contains(out, "has been modified") {
				t.Errorf("go mod verify: %s", out)
			}
			continue
		}
		if err != nil {
			t.Errorf("go %v: %v\n%.2000s", args, err, out)
		}
	}
}

// TestTheGoCommandBuildsAWorkspaceOfflineFromOneSet: what only the workspace as a
// whole needs stands in go.work.sum and in no go.mod.
func TestTheGoCommandBuildsAWorkspaceOfflineFromOneSet(t *testing.T) {
	deep := fake{path: "example.test/deep", version: "v1.0.0", files: map[string]string{"d.go": "package deep\n"}}
	old := fake{path: "example.test/top", version: "v1.0.0", files: map[string]string{"x/x.go": "package x\n", "y/y.go": "package y\n"}}
	top := fake{path: "example.test/top", version: "v1.1.0", files: map[string]string{
		"x/x.go": "package x\n\nimport _ \"example.test/deep\"\n", "y/y.go": "package y\n",
	}, goMod: "module example.test/top\n\ngo 1.20\n\nrequire example.test/deep v1.0.0\n"}
	mod := func(name string, requires ...fake) []byte {
		return bytes.Replace(goMod(requires...), []byte("example.test/main"), []byte("example.test/"+name), 1)
	}
	deepModOnly := strings.SplitAfter(deep.sum(), "\n")[1]
	dir := t.TempDir()
	for name, data := range map[string]string{
		"go.work":     "go 1.21\n\nuse (\n\t./a\n\t./b\n)\n",
		"go.work.sum": strings.SplitAfter(deep.sum(), "\n")[0],
		"a/go.mod":    string(mod("a", old)), "a/go.sum": old.sum(),
		"a/a.go":   "package a\n\nimport _ \"example.test/top/x\"\n",
		"b/go.mod": string(mod("b", top)), "b/go.sum": top.sum() + deepModOnly,
		"b/b.go": "package b\n\nimport (\n\t_ \"example.test/a\"\n\t_ \"example.test/top/y\"\n)\n",
	} {
		put(t, filepath.Join(dir, name), []byte(data))
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	files := Files{
		Mods: [][]byte{read("a/go.mod"), read("b/go.mod")}, Sums: [][]byte{read("a/go.sum"), read("b/go.sum")},
		Work: read("go.work"), WorkSum: read("go.work.sum"),
	}
	set, err := store(t, Config{DownloadCache: cache(t, deep, old, top)}).Fetch(t.Context(), files)
	if err != nil || len(set.Missing)+len(set.Tampered) != 0 || set.FirstSeen != 3 {
		t.Fatalf("set %+v, error %v", set, err)
	}
	shown := readOnly(t, set.Dir)
	for _, module := range []string{"a", "b"} {
		if out, err := goCommand(t, filepath.Join(dir, module), shown, "", "build", "./..."); err != nil {
			t.Errorf("%s: %v\n%s", module, err, out)
		}
	}
	one := fetchSet(t, store(t, Config{DownloadCache: cache(t, deep, old, top)}), files.Mods[0], files.Sums[0])
	if out, err := goCommand(t, filepath.Join(dir, "a"), readOnly(t, one.Dir), "", "build", "./..."); err == nil {
		t.Errorf("one module's go.sum is enough for the workspace, so that this test shows nothing: %s", out)
	}
}

func TestABuildWithoutAMissingModuleFailsAndNamesIt(t *testing.T) {
	set := fetchSet(t, store(t, Config{}), goMod(other), goSum(other))
	dir := t.TempDir()
	put(t, filepath.Join(dir, "go.mod"), goMod(other))
	put(t, filepath.Join(dir, "go.sum"), goSum(other))
	put(t, filepath.Join(dir, "main.go"), []byte("package main\n\nimport _ \"example.test/other\"\n\nfunc main() {}\n"))
	out, err := goCommand(t, dir, readOnly(t, set.Dir), "off", "build", "./...")
	if err == nil || !strings.Contains(out, "go: downloading "+other.path) {
		t.Errorf("error %v: %s", err, out)
	}
}

// hostModules is the download cache that this module's own tests were built from.
func hostModules(t *testing.T) string {
	t.Helper()
	return filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(runtime.GOROOT(), "bin", "go"), "env", name).Output() //nolint:staticcheck // the go that runs this test
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// linesFor are the lines of this module's own go.sum that begin with prefix.
func linesFor(t *testing.T, prefix string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	var out string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, prefix) {
			out += line
		}
	}
	if out == "" {
		t.Fatal(fmt.Errorf("go.sum has no line %q", prefix))
	}
	return out
}
