package toolchain

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
)

// libcFiles are what the C library gives to every link; libresolv is what package
// net links.
var libcFiles = []string{
	"crt1.o", "Scrt1.o", "rcrt1.o", "crti.o", "crtn.o", "libc.so", "libc.a", "libc_nonshared.a", "libm.so", "libm.a",
	"libmvec.so", "libpthread.a", "libpthread.so", "libpthread_nonshared.a", "libdl.a", "libdl.so", "librt.a", "librt.so",
	"libresolv.a", "libresolv.so",
}

// Roots are what Measure is to measure of t: GOROOT and, where cgo is on, what
// makes C code into bytes: the compiler that go names with its own programs and
// objects (cc1, collect2, crtbegin.o), assembler, linker, the system's headers
// and its C library. They are found by where they lie; nothing is run. What is
// not there is left out. Other libraries that a module asks the linker for are
// not among them.
func (t Toolchain) Roots() []string {
	roots := []string{t.GOROOT}
	if !t.CgoEnabled {
		return roots
	}
	add := func(path string) bool {
		_, err := os.Lstat(path)
		if err == nil {
			roots = append(roots, path)
		}
		return err == nil
	}
	for _, name := range []string{t.cc, t.cxx, "as", "ld", "ld.bfd", "ld.gold"} {
		_ = add("/usr/bin/"+name) || add("/bin/"+name) // as the PATH of a check has them
	}
	for _, dir := range []string{"/usr/lib/gcc", "/usr/libexec/gcc", "/usr/include", "/usr/local/include"} {
		add(dir)
	}
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[t.GOARCH]
	for _, name := range libcFiles {
		for _, dir := range libraryDirs(machine) {
			real, err := filepath.EvalSymlinks(dir) // /lib is often /usr/lib
			if err == nil && add(filepath.Join(real, name)) {
				break
			}
		}
	}
	return roots
}

// compilerName is the program of a CC or CXX as go env has it, which may have
// arguments after it; one with a path is found elsewhere than in PATH.
func compilerName(command string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	return filepath.Base(name)
}
