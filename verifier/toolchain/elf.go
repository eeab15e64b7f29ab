package toolchain

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs is where the loader looks by default, apart from its cache.
func libraryDirs(machine elf.Machine) []string {
	dirs := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}
	switch machine { //nolint:exhaustive // others have no multiarch folder that we know
	case elf.EM_X86_64:
		dirs = append([]string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"}, dirs...)
	case elf.EM_AARCH64:
		dirs = append([]string{"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}, dirs...)
	}
	return dirs
}

// Loaded returns the loader and the shared libraries that the kernel and the
// loader take for the ELF program at path, links resolved and on the host; none
// for any other file. What those load in turn, Measure finds.
func Loaded(path string) ([]string, error) { return dynamic(path) }

// dynamic returns the loader and the shared libraries that an ELF file names,
// links resolved; nothing for a file that is not ELF, is static or is no
// program or library. What is not to be found is left out: then the loader does
// not find it either.
func dynamic(path string) ([]string, error) {
	raw, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	var magic [4]byte
	if _, err := raw.ReadAt(magic[:], 0); err != nil || string(magic[:]) != elf.ELFMAG {
		return nil, nil
	}
	f, err := elf.NewFile(raw)
	if err != nil {
		return nil, nil //nolint:nilerr // test data of a toolchain: no loader would take it either
	}
	var out []string
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return nil, fmt.Errorf("read loader: %w", err)
		}
		if loader, err := filepath.EvalSymlinks(strings.TrimRight(string(name), "\x00")); err == nil {
			out = append(out, loader)
		}
	}
	if len(out) == 0 && f.Type != elf.ET_DYN {
		return nil, nil
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, nil //nolint:nilerr // no dynamic section
	}
	for _, name := range needed {
		if lib := library(f, path, name); lib != "" {
			out = append(out, lib)
		}
	}
	return out, nil
}

// library finds a needed library as the loader would, or returns "".
func library(f *elf.File, path, name string) string {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		list, err := f.DynString(tag)
		if err != nil {
			continue
		}
		for _, l := range list {
			origin := strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(l)
			dirs = append(dirs, filepath.SplitList(origin)...)
		}
	}
	candidates := []string{name}
	if !filepath.IsAbs(name) {
		candidates = nil
		for _, dir := range append(dirs, libraryDirs(f.Machine)...) {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, c := range candidates {
		if real, err := filepath.EvalSymlinks(c); err == nil && filepath.IsAbs(real) {
			return real
		}
	}
	return ""
}
