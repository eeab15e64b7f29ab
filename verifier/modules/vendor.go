package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// maxVendorList bounds vendor/modules.txt.
const maxVendorList = 16 << 20

// Differs is a vendored module that is not what the proven module is.
type Differs struct {
	Module module.Version // the zero value: files of no module that modules.txt names
	File   string         // the first that differs, relative to the vendor folder
	Why    string
	Files  int
}

// String names the module, the first file and how many differ.
func (d Differs) String() string {
	name := d.Module.String()
	if d.Module == (module.Version{}) {
		name = "no module of modules.txt"
	}
	return fmt.Sprintf("%s: %d files differ, first: %s %s", name, d.Files, d.File, d.Why)
}

// Vendored holds a vendor folder against the proven modules of the set: each
// file there must be that of its module, and of each package that modules.txt
// lists no source file may be missing that `go mod vendor` copies. unproven are
// the modules that the set does not have, or a folder of the tree replaces, so
// that nothing can be said of them. Both are sorted.
func (s Set) Vendored(ctx context.Context, vendor fs.FS) (differs []Differs, unproven []module.Version, err error) {
	list, err := readVendorList(vendor)
	if err != nil {
		return nil, nil, err
	}
	c := comparison{set: s, vendor: vendor, list: list, differs: map[module.Version]*Differs{}, unproven: map[module.Version]bool{}}
	err = fs.WalkDir(vendor, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if d.IsDir() || name == "modules.txt" {
			return nil
		}
		return c.file(name, d)
	})
	for _, m := range list {
		for _, p := range m.packages {
			if err == nil {
				err = c.missing(m, p)
			}
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("compare the vendor folder: %w", err)
	}
	for _, d := range c.differs {
		differs = append(differs, *d)
	}
	slices.SortFunc(differs, func(a, b Differs) int { return strings.Compare(a.String(), b.String()) })
	for v := range c.unproven {
		unproven = append(unproven, v)
	}
	slices.SortFunc(unproven, func(a, b module.Version) int { return strings.Compare(a.String(), b.String()) })
	return differs, unproven, nil
}

// vendored is one module of modules.txt.
type vendored struct {
	path     string         // its place in the vendor folder
	content  module.Version // what stands there; without a version: a folder
	packages []string
}

// readVendorList reads modules.txt: "# path version [=> path [version]]" lines,
// each followed by the import paths of its packages. A vendor folder without one
// is a list of nothing.
func readVendorList(vendor fs.FS) ([]vendored, error) {
	f, err := vendor.Open("modules.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read vendor/modules.txt: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxVendorList+1))
	if err == nil && len(data) > maxVendorList {
		err = errTooLong
	}
	if err != nil {
		return nil, fmt.Errorf("read vendor/modules.txt: %w", err)
	}
	var list []vendored
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		rest, isModule := strings.CutPrefix(line, "# ")
		switch {
		case isModule:
			old, replacement, replaced := strings.Cut(rest, " => ")
			f := strings.Fields(old)
			if len(f) != 2 {
				continue // a replacement that nothing uses
			}
			m := vendored{path: f[0], content: module.Version{Path: f[0], Version: f[1]}}
			if r := strings.Fields(replacement); replaced {
				m.content = module.Version{Path: strings.Join(r, " ")}
				if len(r) == 2 {
					m.content = module.Version{Path: r[0], Version: r[1]}
				}
			}
			list = append(list, m)
		case line != "" && line[0] != '#' && len(list) > 0:
			m := &list[len(list)-1]
			m.packages = append(m.packages, line)
		}
	}
	return list, nil
}

type comparison struct {
	set      Set
	vendor   fs.FS
	list     []vendored
	differs  map[module.Version]*Differs
	unproven map[module.Version]bool
}

// file compares one file of the vendor folder.
func (c *comparison) file(name string, d fs.DirEntry) error {
	var owner vendored
	for _, m := range c.list {
		if below(name, m.path) && len(m.path) > len(owner.path) {
			owner = m
		}
	}
	if owner.path == "" {
		c.differ(module.Version{}, name, "is of no module that modules.txt names")
		return nil
	}
	proven, ok := c.proven(owner.content)
	if !ok {
		return nil
	}
	if !d.Type().IsRegular() {
		c.differ(owner.content, name, "is not a regular file")
		return nil
	}
	theirs, err := proven.Open(strings.TrimPrefix(name, owner.path+"/"))
	if errors.Is(err, fs.ErrNotExist) {
		c.differ(owner.content, name, "is not in the module")
		return nil
	}
	if err != nil {
		return err
	}
	defer theirs.Close()
	ours, err := c.vendor.Open(name)
	if err != nil {
		return err
	}
	defer ours.Close()
	same, err := sameBytes(ours, theirs)
	if err == nil && !same {
		c.differ(owner.content, name, "has other bytes")
	}
	return err
}

// missing notes the source files of a listed package that are not there.
func (c *comparison) missing(m vendored, importPath string) error {
	if importPath != m.path && !below(importPath, m.path) || !fs.ValidPath(importPath) {
		return nil // the go command refuses such a list
	}
	proven, ok := c.proven(m.content)
	if !ok {
		return nil
	}
	dir := "."
	if importPath != m.path {
		dir = strings.TrimPrefix(importPath, m.path+"/")
	}
	entries, err := fs.ReadDir(proven, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		name := path.Join(importPath, e.Name())
		if _, err := fs.Stat(c.vendor, name); err == nil {
			continue
		}
		source, err := fs.ReadFile(proven, path.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if everBuilt(source) {
			c.differ(m.content, name, "is missing")
		}
	}
	return nil
}

func below(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }

func (c *comparison) differ(v module.Version, name, why string) {
	d := c.differs[v]
	if d == nil {
		d = &Differs{Module: v, File: name, Why: why}
		c.differs[v] = d
	}
	d.Files++
}

// proven is the folder of a module of the set; false, and noted, if the set does
// not have it.
func (c *comparison) proven(v module.Version) (fs.FS, bool) {
	if name, err := dirName(v); err == nil && usable(v) && c.set.Dir != "" {
		dir := filepath.Join(c.set.Dir, name)
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			return os.DirFS(dir), true
		}
	}
	c.unproven[v] = true
	return nil, false
}

func sameBytes(a, b io.Reader) (bool, error) {
	var bufs [2][32 << 10]byte
	for {
		n, err := io.ReadFull(a, bufs[0][:])
		m, berr := io.ReadFull(b, bufs[1][:])
		if !bytes.Equal(bufs[0][:n], bufs[1][:m]) {
			return false, nil
		}
		for _, e := range []error{err, berr} {
			if e != nil && !errors.Is(e, io.EOF) && !errors.Is(e, io.ErrUnexpectedEOF) {
				return false, e
			}
		}
		if err != nil {
			return true, nil
		}
	}
}

// everBuilt reports whether some build takes a source file: `go mod vendor`
// copies no other. The tag "ignore" is the one that is never set.
func everBuilt(source []byte) bool {
	f, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		return false // what go makes of it is not ours to say
	}
	for _, group := range f.Comments {
		for _, comment := range group.List {
			if comment.Pos() > f.Package {
				return true
			}
			if x, err := constraint.Parse(comment.Text); err == nil && !satisfiable(x, true) {
				return false
			}
		}
	}
	return true
}

// satisfiable evaluates x where every tag but "ignore" is what suits.
func satisfiable(x constraint.Expr, suits bool) bool {
	switch x := x.(type) {
	case *constraint.AndExpr:
		return satisfiable(x.X, suits) && satisfiable(x.Y, suits)
	case *constraint.OrExpr:
		return satisfiable(x.X, suits) || satisfiable(x.Y, suits)
	case *constraint.NotExpr:
		return !satisfiable(x.X, !suits)
	case *constraint.TagExpr:
		return x.Tag != "ignore" && suits
	}
	return true
}
