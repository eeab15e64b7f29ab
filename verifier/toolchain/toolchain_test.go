package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/problem"
)

func hostGo(t testing.TB) Toolchain {
	t.Helper()
	tc, err := Find(t.Context(), Config{Path: os.Getenv("PATH") + ":" + filepath.Join(runtime.GOROOT(), "bin")}) //nolint:staticcheck // the go that runs this test
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

func TestFindAsksTheGoInPath(t *testing.T) {
	tc := hostGo(t)
	if tc.Version != runtime.Version() {
		t.Errorf("version %q, want %q", tc.Version, runtime.Version())
	}
	if tc.GOOS != runtime.GOOS || tc.GOARCH != runtime.GOARCH {
		t.Errorf("for %s/%s", tc.GOOS, tc.GOARCH)
	}
	if !strings.HasPrefix(tc.Go, tc.GOROOT+"/") {
		t.Errorf("go %q is not below GOROOT %q", tc.Go, tc.GOROOT)
	}
	if !tc.Supports("1.20") || !tc.Supports("") || tc.Supports("1.999") || tc.Supports("new") {
		t.Error("Supports is wrong about 1.20, empty, 1.999 or new")
	}
}

func TestFindIgnoresTheCallersEnvironment(t *testing.T) {
	t.Setenv("GOROOT", "/nowhere")
	t.Setenv("GOFLAGS", "-mod=bogus")
	t.Setenv("CGO_ENABLED", "bogus")
	if tc := hostGo(t); tc.GOROOT == "/nowhere" {
		t.Error("GOROOT was taken from the environment")
	}
}

func TestFindSaysWhatToInstallWhenThereIsNoGo(t *testing.T) {
	for _, cfg := range []Config{{Path: t.TempDir()}, {Path: "relative"}, {Go: filepath.Join(t.TempDir(), "go")}} {
		_, err := Find(t.Context(), cfg)
		var p *problem.Problem
		if !errors.As(err, &p) || p.Kind != problem.Missing || p.Hint == "" {
			t.Errorf("%+v: error %v, want Missing with a hint", cfg, err)
		}
	}
}

func TestFindRefusesARelativeSetting(t *testing.T) {
	_, err := Find(t.Context(), Config{Go: "go"})
	if p := problem.Of(err); p == nil || p.Kind != problem.Usage {
		t.Errorf("error %v, want Usage", err)
	}
}

func TestFindRunsNoGoAsRootThatOthersMayReplace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be tricked")
	}
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	bin := filepath.Join(dir, "go")
	write(t, bin, "#!/bin/sh\ntouch "+started+"\n", 0o777)
	_, err := Find(t.Context(), Config{Go: bin})
	if p := problem.Of(err); p == nil || p.Kind != problem.Refused {
		t.Errorf("error %v, want Refused", err)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("it was started")
	}
}

func TestImmutableChecksEveryFolderAlongThePathAndItsLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes files owned by root")
	}
	if ok, observed := Immutable("/usr/bin/env"); !ok {
		t.Errorf("/usr/bin/env: %s", observed)
	}
	dir := t.TempDir() // below /tmp, which all may write to
	file := filepath.Join(dir, "f")
	write(t, file, "x", 0o755)
	if ok, _ := Immutable(file); ok {
		t.Errorf("%s is below a folder that all may write to", file)
	}
	for _, path := range []string{"relative", filepath.Join(dir, "absent")} {
		if ok, _ := Immutable(path); ok {
			t.Errorf("%s passed", path)
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if ok, _ := Immutable(loop); ok {
		t.Error("a link to itself passed")
	}
}

// root is a small toolchain with a link that leads out of it.
func root(t *testing.T) (dir, binary, outside string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, outside = filepath.Join(base, "goroot"), filepath.Join(base, "share")
	for _, d := range []string{filepath.Join(dir, "bin"), outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "bin", "go")
	write(t, binary, "binary", 0o755)
	write(t, filepath.Join(dir, "VERSION"), "go1.0", 0o644)
	write(t, filepath.Join(outside, "src.go"), "package p", 0o644)
	for text, name := range map[string]string{outside: "src", "VERSION": "alias", "/absent/file": "dangling"} {
		if err := os.Symlink(text, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, binary, outside
}

func write(t testing.TB, path, data string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// later is a clock by which every file has settled.
func later() time.Time { return time.Now().Add(time.Hour) }

func measure(t *testing.T, m Meter, binary, dir string) Closure {
	t.Helper()
	c, err := m.Measure(t.Context(), binary, dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMeasureReadsAnUnchangedFileOnce(t *testing.T) {
	dir, binary, outside := root(t)
	m := Meter{Cache: filepath.Join(t.TempDir(), "stats"), Now: later}
	first := measure(t, m, binary, dir)
	if first.Hashed != 3 || first.Files != 3 || first.Bytes != int64(len("binary")+len("go1.0")+len("package p")) {
		t.Errorf("first: %+v, want three files", first)
	}
	if len(first.Roots) != 2 || first.Roots[1] != outside {
		t.Errorf("roots %q, want %q followed", first.Roots, outside)
	}
	second := measure(t, m, binary, dir)
	if runtime.GOOS == "linux" && second.Hashed != 0 {
		t.Errorf("second: %d files hashed again", second.Hashed)
	}
	if plain := measure(t, Meter{}, binary, dir); plain.SHA256 != first.SHA256 || second.SHA256 != first.SHA256 || plain.BinarySHA256 != second.BinarySHA256 {
		t.Error("the digest depends on the cache")
	}
}

func TestMeasureCachesNothingThatMayStillChange(t *testing.T) {
	dir, binary, _ := root(t)
	t.Run("unsettled", func(t *testing.T) {
		m := Meter{Cache: filepath.Join(t.TempDir(), "stats"), Now: func() time.Time { return time.Now() }}
		measure(t, m, binary, dir)
		if c := measure(t, m, binary, dir); c.Hashed != 3 {
			t.Errorf("%d files hashed again, want all", c.Hashed)
		}
	})
	t.Run("open for writing", func(t *testing.T) {
		m := Meter{Cache: filepath.Join(t.TempDir(), "stats"), Now: later}
		f, err := os.OpenFile(filepath.Join(dir, "VERSION"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		measure(t, m, binary, dir)
		if c := measure(t, m, binary, dir); c.Hashed < 1 {
			t.Error("a file open for writing was cached")
		}
	})
}

func TestUnchangedNoticesEveryKindOfDrift(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir, outside string){
		"content, same size and mtime": func(t *testing.T, dir, _ string) {
			path := filepath.Join(dir, "VERSION")
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, "go2.0", 0o644)
			if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
		"mode":    func(t *testing.T, dir, _ string) { write(t, filepath.Join(dir, "VERSION"), "go1.0", 0o755) },
		"new":     func(t *testing.T, dir, _ string) { write(t, filepath.Join(dir, "new"), "", 0o644) },
		"removed": func(t *testing.T, dir, _ string) { os.Remove(filepath.Join(dir, "VERSION")) },
		"outside": func(t *testing.T, _, outside string) { write(t, filepath.Join(outside, "src.go"), "package q", 0o644) },
		"link":    func(t *testing.T, dir, _ string) { os.Remove(filepath.Join(dir, "dangling")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, binary, outside := root(t)
			m := Meter{Cache: filepath.Join(t.TempDir(), "stats"), Now: later}
			before := measure(t, m, binary, dir)
			if same, _, err := m.Unchanged(t.Context(), before, dir); err != nil || !same {
				t.Fatalf("before: same %v, error %v", same, err)
			}
			change(t, dir, outside)
			if same, _, err := m.Unchanged(t.Context(), before, dir); err != nil || same {
				t.Errorf("after: same %v, error %v", same, err)
			}
		})
	}
}

func TestMeasureIgnoresADamagedCache(t *testing.T) {
	dir, binary, _ := root(t)
	m := Meter{Cache: filepath.Join(t.TempDir(), "stats"), Now: later}
	want := measure(t, m, binary, dir)
	good, err := os.ReadFile(m.Cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "x", string(good[:len(good)-2]), statCacheMarker + "\n1 2 3\n", strings.Replace(string(good), " ", "  ", 1)} {
		write(t, m.Cache, bad, 0o600)
		if got := measure(t, m, binary, dir); got.SHA256 != want.SHA256 || got.Hashed != 3 {
			t.Errorf("cache %.40q was believed: %+v", bad, got)
		}
	}
}

func TestMeasureReportsWhoMayChangeAFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changes owners")
	}
	dir, binary, _ := root(t)
	if err := os.Chown(filepath.Join(dir, "VERSION"), 1234, 0); err != nil {
		t.Fatal(err)
	}
	if c := measure(t, Meter{}, binary, dir); c.Immutable || !strings.Contains(c.Observed, "uid 1234") {
		t.Errorf("immutable %v, observed %q", c.Immutable, c.Observed)
	}
}

func TestMeasureOfTheRealToolchainCostsOnlyStatsTheSecondTime(t *testing.T) {
	tc := hostGo(t)
	m := Meter{Cache: filepath.Join(t.TempDir(), "stats"), Now: time.Now}
	start := time.Now()
	first, err := m.Measure(t.Context(), tc.Go, tc.Roots()...)
	if err != nil {
		t.Fatal(err)
	}
	cold := time.Since(start)
	start = time.Now()
	same, second, err := m.Unchanged(t.Context(), first, tc.Roots()...)
	warm := time.Since(start)
	if err != nil || !same {
		t.Fatalf("same %v, error %v", same, err)
	}
	t.Logf("%d files, %d bytes: cold %s, warm %s (%d hashed), immutable %v: %s", first.Files, first.Bytes, cold, warm, second.Hashed, first.Immutable, first.Observed)
}

func TestMeasureFollowsTheLoaderAndSharedLibrariesOfAProgram(t *testing.T) {
	program, err := filepath.EvalSymlinks("/bin/ls")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no dynamic program is known here")
	}
	c := measure(t, Meter{}, program, program)
	var libc, loader bool
	for _, r := range c.Roots {
		libc = libc || strings.HasPrefix(filepath.Base(r), "libc.so")
		loader = loader || strings.HasPrefix(filepath.Base(r), "ld-")
	}
	if !libc || !loader || c.Files < 3 {
		t.Errorf("roots %q, want libc and the loader among them", c.Roots)
	}
}

func TestMeasureRefusesAFIFO(t *testing.T) {
	dir, binary, _ := root(t)
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Meter{}.Measure(t.Context(), binary, dir)
	if p := problem.Of(err); p == nil || p.Kind != problem.Refused {
		t.Errorf("error %v, want Refused", err)
	}
}

// TestATreeIsMeasuredByItself: the same tree has the same digest wherever it
// lies, nothing beside it is read, and every kind of drift shows.
func TestATreeIsMeasuredByItself(t *testing.T) {
	build := func() string {
		dir := filepath.Join(t.TempDir(), "root")
		if err := os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "usr/bin/tool"), "tool", 0o755)
		write(t, filepath.Join(dir, "usr/data"), "data", 0o644)
		for link, to := range map[string]string{"bin": "usr/bin", "out": "/etc/passwd", "up": "../../../../etc/passwd", "none": "/nowhere", "loop": "loop"} {
			if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	m := Meter{Cache: filepath.Join(t.TempDir(), "stat"), Now: later}
	tree := func(dir string) Closure {
		t.Helper()
		c, err := m.MeasureTree(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := tree(build())
	dir := build()
	c := tree(dir)
	if c.SHA256 != first.SHA256 || c.Files != 2 || c.Bytes != 8 || len(c.Roots) != 1 || c.Roots[0] != dir {
		t.Errorf("got %+v, want the digest %s, 2 files of 8 bytes and one root", c, first.SHA256)
	}
	for what, change := range map[string]func(dir string) error{
		"content": func(dir string) error { return os.WriteFile(filepath.Join(dir, "usr/data"), []byte("DATA"), 0o600) },
		"mode":    func(dir string) error { return os.Chmod(filepath.Join(dir, "usr/data"), 0o755) },
		"name": func(dir string) error {
			return os.Rename(filepath.Join(dir, "usr/data"), filepath.Join(dir, "usr/date"))
		},
		"link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "bin")), os.Symlink("usr", filepath.Join(dir, "bin")))
		},
	} {
		dir := build()
		before := tree(dir)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if same, after, err := m.Unchanged(t.Context(), before); err != nil || same || after.SHA256 == first.SHA256 {
			t.Errorf("%s changed: %v, %v", what, same, err)
		}
	}
	if same, _, err := m.Unchanged(t.Context(), c); err != nil || !same {
		t.Errorf("nothing changed: %v, %v", same, err)
	}
	if os.Geteuid() == 0 && !c.Immutable {
		t.Errorf("not immutable: %s", c.Observed) // although the folders above belong to everybody
	}
	if err := os.Chmod(filepath.Join(dir, "usr"), 0o777); err != nil {
		t.Fatal(err)
	}
	if c := tree(dir); c.Immutable {
		t.Error("a folder that anybody may write to is immutable")
	}
}

func FuzzStatLine(f *testing.F) {
	f.Add("1 2 3 4 5 33188 " + strings.Repeat("a", 64) + ` "/x\n"`)
	f.Fuzz(func(t *testing.T, line string) {
		name, c, err := parseStatLine(line)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "c")
		if err := writeStatCache(path, map[string]cached{name: c}); err != nil {
			t.Fatal(err)
		}
		if got := readStatCache(path); got[name] != c {
			t.Errorf("read back %+v, want %+v", got[name], c)
		}
	})
}

func TestPartsSplitAClosureByItsRoots(t *testing.T) {
	dir, binary, outside := root(t)
	before := measure(t, Meter{}, binary, dir)
	part := func(c Closure, path string) Part {
		t.Helper()
		for _, p := range c.Parts {
			if p.Path == path {
				return p
			}
		}
		t.Fatalf("no part %q in %+v", path, c.Parts)
		return Part{}
	}
	if len(before.Parts) != 2 {
		t.Fatalf("got %+v", before.Parts)
	}
	in, out := part(before, dir), part(before, outside)
	// Two files and three links below dir, one file outside.
	if !in.Folder || in.Files != 5 || in.Bytes != int64(len("binary")+len("go1.0")) || out.Files != 1 || out.Bytes != int64(len("package p")) {
		t.Errorf("got %+v and %+v", in, out)
	}
	write(t, filepath.Join(outside, "src.go"), "package q", 0o644)
	after := measure(t, Meter{}, binary, dir)
	if part(after, dir) != in || part(after, outside).SHA256 == out.SHA256 {
		t.Errorf("a change outside gave %+v", after.Parts)
	}
	link := filepath.Join(t.TempDir(), "tool")
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	linked := part(measure(t, Meter{}, "", link), link)
	if sum := sha256.Sum256([]byte(binary)); linked.Folder || linked.SHA256 != hex.EncodeToString(sum[:]) || linked.Files != 1 || linked.Bytes != 0 {
		t.Errorf("a root that is a link: got %+v", linked)
	}
	file := measure(t, Meter{}, binary, binary)
	if p := part(file, binary); p.Folder || p.SHA256 != file.BinarySHA256 || p.Files != 1 || p.Bytes != int64(len("binary")) {
		t.Errorf("got %+v", p)
	}
}
