package toolchain

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/internal/testenv"
)

// cgoGo is the host's go where it finds a C compiler.
func cgoGo(t *testing.T) Toolchain {
	t.Helper()
	tc := hostGo(t)
	if !tc.CgoEnabled {
		testenv.Missing(t, "gcc", "go finds no C compiler")
	}
	return tc
}

// gcc asks the compiler itself.
func gcc(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/gcc", args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestTheClosureCoversWhatTheCompilerReads holds the roots against the compiler's
// own word on its programs, its objects and its header folders, and against the
// files that it opens for a link.
func TestTheClosureCoversWhatTheCompilerReads(t *testing.T) {
	tc := cgoGo(t)
	c, err := Meter{}.Measure(t.Context(), tc.Go, tc.Roots()...)
	if err != nil {
		t.Fatal(err)
	}
	need := []string{"/usr/bin/gcc"}
	for _, name := range []string{"cc1", "collect2", "lto-wrapper", "as", "ld"} {
		path := gcc(t, "-print-prog-name="+name)
		if !filepath.IsAbs(path) {
			if path, err = exec.LookPath(path); err != nil {
				t.Fatal(err)
			}
		}
		need = append(need, path)
	}
	for _, name := range []string{"crt1.o", "Scrt1.o", "crti.o", "crtn.o", "crtbegin.o", "crtbeginS.o", "libgcc.a", "libc.so", "libpthread.a", "libc_nonshared.a", "libresolv.so"} {
		if path := gcc(t, "-print-file-name="+name); filepath.IsAbs(path) {
			need = append(need, path)
		}
	}
	source := filepath.Join(t.TempDir(), "x.c")
	write(t, source, "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { return puts(\"\"); }\n", 0o644)
	for line := range strings.SplitSeq(gcc(t, "-v", "-E", "-o", "/dev/null", source), "\n") {
		if dir := strings.TrimSpace(line); strings.HasPrefix(line, " /") && !strings.Contains(dir, " ") {
			need = append(need, dir)
		}
	}
	for line := range strings.SplitSeq(gcc(t, "-o", "/dev/null", "-Wl,--trace", "-pthread", source), "\n") {
		if filepath.IsAbs(line) && !strings.HasPrefix(line, os.TempDir()) {
			need = append(need, line)
		}
	}
	if len(need) < 15 {
		t.Errorf("the compiler names too little to tell: %q", need)
	}
	for _, path := range need {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		if !covered(c.Roots, real) {
			t.Errorf("%s (%s) is not in the closure", path, real)
		}
	}
	if c.Files < 1000 {
		t.Errorf("%d files", c.Files)
	}
	t.Logf("%d files, %d MB, immutable %v: %s", c.Files, c.Bytes>>20, c.Immutable, c.Observed)
}

func TestWithoutCgoTheCompilerDoesNotCount(t *testing.T) {
	tc := cgoGo(t)
	tc.CgoEnabled = false
	if got := tc.Roots(); !slices.Equal(got, []string{tc.GOROOT}) {
		t.Errorf("roots %q", got)
	}
}

func TestCompilerNameIsTheProgramOfTheCommand(t *testing.T) {
	for command, want := range map[string]string{"gcc": "gcc", "gcc -m64": "gcc", "/usr/bin/clang": "clang", " cc  -O2": "cc"} {
		if got := compilerName(command); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}

// TestUnchangedNoticesAnotherCompilerBehindALink: a compiler is often a link, and
// a system update changes where it leads or what is there.
func TestUnchangedNoticesAnotherCompilerBehindALink(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"other target": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "gcc")), os.Symlink("gcc-13", filepath.Join(dir, "gcc")))
		},
		"other bytes": func(dir string) error { return os.WriteFile(filepath.Join(dir, "gcc-12"), []byte("b"), 0o755) },
		"gone":        func(dir string) error { return os.Remove(filepath.Join(dir, "gcc-12")) },
	} {
		t.Run(name, func(t *testing.T) {
			goroot, binary, _ := root(t)
			dir := t.TempDir()
			link := filepath.Join(dir, "gcc")
			write(t, filepath.Join(dir, "gcc-12"), "a", 0o755)
			write(t, filepath.Join(dir, "gcc-13"), "a", 0o755)
			if err := os.Symlink("gcc-12", link); err != nil {
				t.Fatal(err)
			}
			m := Meter{Cache: filepath.Join(t.TempDir(), "stats"), Now: later}
			before, err := m.Measure(t.Context(), binary, goroot, link)
			if err != nil {
				t.Fatal(err)
			}
			if same, _, err := m.Unchanged(t.Context(), before, goroot, link); err != nil || !same {
				t.Fatalf("before: same %v, error %v", same, err)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if same, _, err := m.Unchanged(t.Context(), before, goroot, link); err != nil || same {
				t.Errorf("after: same %v, error %v", same, err)
			}
		})
	}
}
