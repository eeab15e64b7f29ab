package modules

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

const (
	maxGoModBytes = 4 << 20
	maxGoSumBytes = 16 << 20
	maxModules    = 20_000
)

// InvalidError says that a go.mod or go.sum cannot be read. The go command
// will say so too, in its own words.
type InvalidError struct {
	File string // "go.mod", "go.sum"
	Err  error
}

// Error names the file.
func (e *InvalidError) Error() string { return fmt.Sprintf("read %s: %v", e.File, e.Err) }

// Unwrap returns the reason.
func (e *InvalidError) Unwrap() error { return e.Err }

// want is one module version that go.sum names, with the hashes that it allows.
type want struct {
	module.Version
	zip, mod []string // h1; several only if go.sum contradicts itself
	needed   bool     // go.mod requires it: its zip is fetched, and missed
}

// plan is what a go.mod and a go.sum ask for.
type plan struct {
	wants []*want // sorted by path and version
	self  int64   // requirements that a folder replaces
}

// read returns the plan, or an *InvalidError.
func read(goMod, goSum []byte) (plan, error) {
	byVersion, err := readSum(goSum)
	if err != nil {
		return plan{}, &InvalidError{"go.sum", err}
	}
	if len(goMod) > maxGoModBytes {
		return plan{}, &InvalidError{"go.mod", fmt.Errorf("more than %d bytes", maxGoModBytes)}
	}
	f, err := modfile.Parse("go.mod", goMod, nil)
	if err != nil {
		return plan{}, &InvalidError{"go.mod", err}
	}
	var p plan
	for _, r := range f.Require {
		v, local := replaced(f.Replace, r.Mod)
		if local {
			p.self++
		} else if w := byVersion[v]; w != nil {
			w.needed = true
		}
	}
	complete := f.Go != nil && semver.Compare("v"+f.Go.Version, "v1.17") >= 0
	for _, w := range byVersion {
		w.needed = w.needed || !complete
		p.wants = append(p.wants, w)
	}
	slices.SortFunc(p.wants, func(a, b *want) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Version.Version, b.Version.Version)
	})
	return p, nil
}

// replaced is the version that takes v's place; local if a folder does.
func replaced(replace []*modfile.Replace, v module.Version) (_ module.Version, local bool) {
	for _, exact := range []bool{true, false} {
		for _, r := range replace {
			if r.Old.Path == v.Path && (exact && r.Old.Version == v.Version || !exact && r.Old.Version == "") {
				return r.New, r.New.Version == ""
			}
		}
	}
	return v, false
}

// readSum reads go.sum as the go command does: three fields a line, hashes of
// another kind than h1 ignored.
func readSum(data []byte) (map[module.Version]*want, error) {
	if len(data) > maxGoSumBytes {
		return nil, fmt.Errorf("more than %d bytes", maxGoSumBytes)
	}
	out := map[module.Version]*want{}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			return nil, fmt.Errorf("line %d has %d fields, not 3", n, len(f))
		}
		version, isMod := strings.CutSuffix(f[1], "/go.mod")
		v := module.Version{Path: f[0], Version: version}
		if !strings.HasPrefix(f[2], "h1:") || v.Path == "golang.org/toolchain" || !usable(v) {
			continue // GOTOOLCHAIN=local asks for no toolchain
		}
		w := out[v]
		if w == nil {
			if len(out) == maxModules {
				return nil, fmt.Errorf("more than %d modules", maxModules)
			}
			w = &want{Version: v}
			out[v] = w
		}
		if isMod {
			w.mod = append(w.mod, f[2])
		} else {
			w.zip = append(w.zip, f[2])
		}
	}
	return out, nil
}

// usable reports whether v can be a file name in a module cache.
func usable(v module.Version) bool {
	_, err := module.EscapePath(v.Path)
	if err == nil {
		_, err = module.EscapeVersion(v.Version)
	}
	return err == nil && semver.IsValid(v.Version) && !strings.Contains(v.Version, "/")
}
