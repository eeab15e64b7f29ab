package modules

import (
	"bytes"
	"errors"
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

// Files are the module files of a check, as the go command reads them.
type Files struct {
	// Mods and Sums are the go.mod and go.sum of the module; in a workspace, of
	// each module that go.work uses.
	Mods, Sums [][]byte
	// Work and WorkSum are the go.work in force and its go.work.sum; nil: none.
	Work, WorkSum []byte
}

// ErrBound is within the error of files that are over a bound of this package.
var ErrBound = errors.New("over a bound")

// InvalidError says that a module file cannot be read. The go command will say
// so too, in its own words.
type InvalidError struct {
	File string // "go.mod", "go.sum", "go.work", "go.work.sum"
	Err  error
}

// Error names the file.
func (e *InvalidError) Error() string { return fmt.Sprintf("read %s: %v", e.File, e.Err) }

// Unwrap returns the reason.
func (e *InvalidError) Unwrap() error { return e.Err }

// want is one module version that a go.sum names, with the hashes that it allows.
type want struct {
	module.Version
	zip, mod []string // h1; several only if the go.sum files contradict each other
	needed   bool     // its zip is fetched, and missed
}

// plan is what the module files ask for.
type plan struct {
	wants []*want // sorted by path and version
	self  int64   // requirements that a folder or a module of the workspace replaces
}

// read returns the plan, or an *InvalidError.
func read(files Files) (plan, error) {
	sums := sums{}
	for _, data := range files.Sums {
		if err := sums.add(data, false); err != nil {
			return plan{}, &InvalidError{"go.sum", err}
		}
	}
	// What go.work.sum names beyond the modules' own files is what only the
	// workspace as a whole needs; no go.mod requires it.
	if err := sums.add(files.WorkSum, true); err != nil {
		return plan{}, &InvalidError{"go.work.sum", err}
	}
	r, err := readMods(files)
	if err != nil {
		return plan{}, err
	}
	var p plan
	for v := range r.require {
		v, local := r.replaced(v)
		if local {
			p.self++
		} else if w := sums[v]; w != nil {
			w.needed = true
		}
	}
	for _, w := range sums {
		w.needed = w.needed || !r.complete
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

// requirements are what the go.mod files and a go.work say together.
type requirements struct {
	require  map[module.Version]bool
	own      map[string]bool       // modules of the workspace
	replaces [2][]*modfile.Replace // of go.work, which has the first word; of the modules
	complete bool                  // each go.mod names every module that its build needs
}

func readMods(files Files) (requirements, error) {
	r := requirements{require: map[module.Version]bool{}, own: map[string]bool{}, complete: true}
	for _, data := range files.Mods {
		if len(data) > maxGoModBytes {
			return r, &InvalidError{"go.mod", fmt.Errorf("%w: more than %d bytes", ErrBound, maxGoModBytes)}
		}
		f, err := modfile.Parse("go.mod", data, nil)
		if err != nil {
			return r, &InvalidError{"go.mod", err}
		}
		if f.Module != nil && files.Work != nil {
			r.own[f.Module.Mod.Path] = true
		}
		for _, q := range f.Require {
			r.require[q.Mod] = true
		}
		r.replaces[1] = append(r.replaces[1], f.Replace...)
		r.complete = r.complete && f.Go != nil && semver.Compare("v"+f.Go.Version, "v1.17") >= 0
	}
	if files.Work == nil {
		return r, nil
	}
	if len(files.Work) > maxGoModBytes {
		return r, &InvalidError{"go.work", fmt.Errorf("%w: more than %d bytes", ErrBound, maxGoModBytes)}
	}
	work, err := modfile.ParseWork("go.work", files.Work, nil)
	if err != nil {
		return r, &InvalidError{"go.work", err}
	}
	r.replaces[0] = work.Replace
	return r, nil
}

// replaced is the version that takes v's place; local if a folder does.
func (r requirements) replaced(v module.Version) (_ module.Version, local bool) {
	if r.own[v.Path] {
		return v, true
	}
	for _, list := range r.replaces {
		for _, exact := range []bool{true, false} {
			for _, x := range list {
				if x.Old.Path == v.Path && (exact && x.Old.Version == v.Version || !exact && x.Old.Version == "") {
					return x.New, x.New.Version == ""
				}
			}
		}
	}
	return v, false
}

// sums are the module versions that go.sum files name.
type sums map[module.Version]*want

// add reads a go.sum as the go command does: three fields a line, hashes of
// another kind than h1 ignored. Where needed is set, so is every zip of it.
func (s sums) add(data []byte, needed bool) error {
	if len(data) > maxGoSumBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrBound, maxGoSumBytes)
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			return fmt.Errorf("line %d has %d fields, not 3", n, len(f))
		}
		version, isMod := strings.CutSuffix(f[1], "/go.mod")
		v := module.Version{Path: f[0], Version: version}
		if !strings.HasPrefix(f[2], "h1:") || v.Path == "golang.org/toolchain" || !usable(v) {
			continue // GOTOOLCHAIN=local asks for no toolchain
		}
		w := s[v]
		if w == nil {
			if len(s) == maxModules {
				return fmt.Errorf("%w: more than %d modules", ErrBound, maxModules)
			}
			w = &want{Version: v}
			s[v] = w
		}
		h1s := &w.zip
		if isMod {
			h1s = &w.mod
		} else {
			w.needed = w.needed || needed
		}
		if !slices.Contains(*h1s, f[2]) {
			*h1s = append(*h1s, f[2])
		}
	}
	return nil
}

// usable reports whether v can be a file name in a module cache.
func usable(v module.Version) bool {
	_, err := module.EscapePath(v.Path)
	if err == nil {
		_, err = module.EscapeVersion(v.Version)
	}
	return err == nil && semver.IsValid(v.Version) && !strings.Contains(v.Version, "/")
}
