package gocheck

import (
	"errors"
	"fmt"
	"go/build"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"striatum/receipt"
)

// BuildContext is what decides which files of a package are compiled.
type BuildContext struct {
	GOOS, GOARCH string
	CgoEnabled   bool
	GoVersion    string // of the toolchain, "go1.26.1"
}

// Discovery is what the sources of a check's packages declare.
type Discovery struct {
	Module   Module
	Packages []Package // sorted by import path
	// Incomplete lists files that could not be counted because they are over a
	// bound; a test check with any is indeterminate (census_incomplete).
	Incomplete []string
	// External lists the packages of required modules that the check's packages
	// and their tests import, sorted.
	External []string
	// Unread lists those of which not even the imports could be read, so that
	// nothing at all is known of the package.
	Unread []string
	// DataDirs are the folders named testdata that the patterns meet or that lie
	// beside a package, Embedded the files and folders that test files embed;
	// sorted paths of the tree.
	DataDirs, Embedded []string
}

// Package is one package of a check.
type Package struct {
	ImportPath string
	Dir        string // slash-separated, relative to the tree
	Name       string // package clause; of the internal test files if it has no other
	XTestName  string // package clause of the external test files

	// Files that the context selects, sorted.
	GoFiles    []string // cgo files included
	TestFiles  []string // internal: of package Name
	XTestFiles []string // external: of package XTestName

	// Imports of each kind of files that are packages of the same check.
	Imports, TestImports []string

	Tests    []Test
	Sources  []TestSource // its test files, also those left out
	TestMain bool
	// Problem is why the go command cannot load the package; empty: it can.
	Problem string
}

// Kind tells the kinds of discovered tests apart.
type Kind uint8

// The kinds of tests. Benchmarks are none.
const (
	_ Kind = iota
	TestFunc
	FuzzTarget // its seeds run
	Example    // with an Output comment
)

// Test is one function that the testing package will run.
type Test struct {
	Name     string
	Kind     Kind
	External bool   // of package XTestName
	Body     string // the beginning of a digest of its source (baseline.Short)
}

// TestSource is one test file of a package.
type TestSource struct {
	Path       string // slash-separated, relative to the tree
	Constraint string // its build constraint, normalised; empty: none
	Excluded   bool   // the context does not select it
	Helpers    string // the beginning of a digest of what it declares beside tests and imports
}

// HasTests reports whether a test binary is built for the package.
func (p Package) HasTests() bool { return len(p.TestFiles)+len(p.XTestFiles) > 0 }

// Census reads which packages the patterns of params name, as the go command
// in ctx sees them, and which tests they declare. Sources that do not parse are
// left to the compiler. Findings: test files left out, a TestMain that never
// runs the tests, names that only look like tests, examples that are compiled
// and not run, packages that an ignore line or the patterns leave out, go:debug
// lines, and sources with characters that do not show. The error is one of
// reading the tree or a bad pattern; a *LiteralError names a folder that is not
// there.
func Census(tree fs.FS, m Module, params Params, ctx BuildContext) (Discovery, []receipt.Finding, error) {
	c := &census{
		tree: tree, module: m, seen: map[string]bool{}, over: map[string]bool{},
		platform: fmt.Sprintf("%s/%s, cgo %s", ctx.GOOS, ctx.GOARCH, map[bool]string{true: "on", false: "off"}[ctx.CgoEnabled]),
	}
	c.context = c.goBuild(ctx, params.Tags)
	c.found.Module = m
	for _, s := range params.patterns() {
		p, err := parsePattern(s)
		if err != nil {
			return Discovery{}, nil, err
		}
		dir := path.Join(m.Dir, p.dir)
		if info, err := fs.Stat(tree, dir); err != nil || !info.IsDir() {
			return Discovery{}, nil, &LiteralError{Pattern: s}
		}
		if p.tree {
			err = c.walk(dir, true)
		} else {
			err = c.dir(dir)
		}
		if err != nil {
			return Discovery{}, nil, err
		}
	}
	slices.SortFunc(c.found.Packages, func(a, b Package) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	if len(params.Packages) > 0 {
		if err := c.leftOut(); err != nil {
			return Discovery{}, nil, err
		}
	}
	c.sortImports()
	if len(c.over) > 0 {
		c.found.Incomplete = sortedKeys(c.over)
	}
	for _, list := range []*[]string{&c.found.Unread, &c.found.DataDirs, &c.found.Embedded} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return c.found, boundFindings(c.notes.Findings), nil
}

// LiteralError says that a package pattern names a folder that is not there.
type LiteralError struct{ Pattern string }

func (e *LiteralError) Error() string {
	return fmt.Sprintf("find packages %q: there is no such folder in the module", e.Pattern)
}

// goBuild returns the context of package go/build over tree, whose root is "/".
// It has hooks for every access, so that go/build looks at nothing else and
// never asks a go command.
func (c *census) goBuild(ctx BuildContext, tags []string) *build.Context {
	tree := c.tree
	rel := func(p string) string {
		if p = strings.TrimPrefix(path.Clean(p), "/"); p != "" {
			return p
		}
		return "."
	}
	return &build.Context{
		GOOS: ctx.GOOS, GOARCH: ctx.GOARCH, CgoEnabled: ctx.CgoEnabled, Compiler: "gc",
		BuildTags: tags, ToolTags: toolTags(ctx.GOARCH), ReleaseTags: releaseTags(ctx.GoVersion),
		JoinPath:      path.Join,
		SplitPathList: func(list string) []string { return strings.Split(list, ":") },
		IsAbsPath:     path.IsAbs,
		IsDir: func(p string) bool {
			info, err := fs.Stat(tree, rel(p))
			return err == nil && info.IsDir()
		},
		HasSubdir: func(string, string) (string, bool) { return "", false },
		ReadDir: func(p string) ([]fs.FileInfo, error) {
			entries, err := fs.ReadDir(tree, rel(p))
			if err != nil {
				return nil, err
			}
			infos := make([]fs.FileInfo, 0, len(entries))
			for _, e := range entries {
				info, err := e.Info()
				if err != nil {
					return nil, err
				}
				infos = append(infos, info)
			}
			return infos, nil
		},
		OpenFile: func(p string) (io.ReadCloser, error) {
			f, err := tree.Open(rel(p))
			if err != nil {
				return nil, err
			}
			return &cappedFile{File: f, left: MaxSourceBytes, over: func() { c.found.Unread = append(c.found.Unread, rel(p)) }}, nil
		},
	}
}

// cappedFile fails once more than its bound was read, and calls over.
type cappedFile struct {
	fs.File
	left int64
	over func()
}

func (f *cappedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if f.left -= int64(n); f.left < 0 {
		f.over()
		return 0, fmt.Errorf("it is over %d bytes", MaxSourceBytes)
	}
	return n, err
}

// toolTags are the architecture's baseline, which the go command sets unless
// the environment asks for more. Experiments are off.
func toolTags(goarch string) []string {
	switch goarch {
	case "amd64":
		return []string{"amd64.v1"}
	case "arm64":
		return []string{"arm64.v8.0"}
	case "386":
		return []string{"386.sse2"}
	case "ppc64", "ppc64le":
		return []string{goarch + ".power8"}
	case "riscv64":
		return []string{"riscv64.rva20u64"}
	}
	return nil
}

// releaseTags are go1.1 up to the toolchain's release.
func releaseTags(version string) []string {
	rest := strings.TrimPrefix(version, "go1.")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	minor, err := strconv.Atoi(rest)
	if err != nil || minor > 999 {
		return nil
	}
	tags := make([]string, minor)
	for i := range tags {
		tags[i] = "go1." + strconv.Itoa(i+1)
	}
	return tags
}

type census struct {
	tree     fs.FS
	module   Module
	context  *build.Context
	platform string
	seen     map[string]bool // folders looked at
	over     map[string]bool // test files over MaxSourceBytes
	found    Discovery
	notes    Notes
}

// walk looks at dir and what is below it, by the go command's rules for "...":
// not into folders with a reserved name, into other modules, nor what an
// ignore line names.
func (c *census) walk(dir string, top bool) error {
	name := path.Base(dir)
	if dir != "." && hiddenDir(name) {
		return c.excludedTree(dir)
	}
	if c.module.ignores(dir) {
		c.notes.find("package_ignored", dir, "an ignore line of go.mod leaves this folder out of ./...")
		return nil
	}
	if !top {
		if info, err := fs.Stat(c.tree, path.Join(dir, "go.mod")); err == nil && !info.IsDir() {
			return nil // FindModule's finding module_not_checked
		}
	}
	if err := c.dir(dir); err != nil {
		return err
	}
	entries, err := fs.ReadDir(c.tree, dir)
	if err != nil {
		return fmt.Errorf("list folder %q: %w", dir, err)
	}
	for _, e := range entries {
		// Below a folder named vendor "..." matches nothing.
		if !e.IsDir() || !top && name == "vendor" {
			continue
		}
		if err := c.walk(path.Join(dir, e.Name()), false); err != nil {
			return err
		}
	}
	return nil
}

// ignores applies the ignore lines of go.mod as the go command does: "./p" is a
// prefix of the folder relative to the module, "p" any part of it.
func (m Module) ignores(dir string) bool {
	rel := relative(m.Dir, dir)
	if rel == "" {
		return false
	}
	for _, line := range m.ignored {
		p, anchored := strings.CutPrefix(line, "./")
		p = "/" + strings.Trim(path.Clean(p), "/") + "/"
		if anchored && strings.HasPrefix("/"+rel+"/", p) || !anchored && strings.Contains("/"+rel+"/", p) {
			return true
		}
	}
	return false
}

// relative returns dir below base, both relative to the tree; "" for base.
func relative(base, dir string) string {
	if base == dir {
		return ""
	}
	if base == "." {
		return dir
	}
	return strings.TrimPrefix(dir, base+"/")
}

// excludedTree notes test files below a folder whose name hides it from "...".
// testdata is where Go itself keeps files that are not packages.
func (c *census) excludedTree(dir string) error {
	if path.Base(dir) == "testdata" {
		c.found.DataDirs = append(c.found.DataDirs, dir)
		return nil
	}
	count := 0
	err := fs.WalkDir(c.tree, dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(p, "_test.go") {
			count++
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list folder %q: %w", dir, err)
	}
	if count > 0 {
		c.notes.find("test_directory_excluded", dir, fmt.Sprintf("./... leaves the folder out because of its name; test files in it: %d", count))
	}
	return nil
}

// dir reads the package in dir, if there is one.
func (c *census) dir(dir string) error {
	if c.seen[dir] {
		return nil
	}
	c.seen[dir] = true
	b, err := c.context.ImportDir("/"+dir, 0)
	if _, ok := errors.AsType[*build.NoGoError](err); ok {
		c.excludedFiles(&Package{Dir: dir}, b)
		return nil
	}
	p := Package{
		Dir: dir, ImportPath: path.Join(c.module.Path, relative(c.module.Dir, dir)), Name: b.Name,
		GoFiles:   slices.Sorted(slices.Values(slices.Concat(b.GoFiles, b.CgoFiles))),
		TestFiles: b.TestGoFiles, XTestFiles: b.XTestGoFiles,
		Imports: b.Imports, TestImports: slices.Concat(b.TestImports, b.XTestImports),
	}
	if err != nil {
		p.Problem = err.Error()
	}
	c.excludedFiles(&p, b)
	c.testData(dir, slices.Concat(b.TestEmbedPatterns, b.XTestEmbedPatterns))
	for _, d := range slices.Concat(b.Directives, b.TestDirectives, b.XTestDirectives) {
		if setting, ok := strings.CutPrefix(d.Text, "//go:debug "); ok {
			c.notes.find("godebug_line", path.Join(dir, path.Base(d.Pos.Filename)), "godebug "+strings.TrimSpace(setting))
		}
	}
	c.oddSources(dir, slices.Concat(b.GoFiles, b.CgoFiles, b.TestGoFiles, b.XTestGoFiles))
	c.testFuncs(&p)
	c.found.Packages = append(c.found.Packages, p)
	return nil
}

func (c *census) excludedFiles(p *Package, b *build.Package) {
	dir := p.Dir
	for _, name := range b.IgnoredGoFiles {
		if strings.HasSuffix(name, "_test.go") {
			left := TestSource{Path: path.Join(dir, name), Constraint: c.constraint(path.Join(dir, name)), Excluded: true}
			detail := "its name leaves it out for " + c.platform
			if left.Constraint != "" {
				detail = fmt.Sprintf("its build constraint %q or its name leaves it out for %s", left.Constraint, c.platform)
			}
			c.notes.find("test_file_excluded", left.Path, detail)
			p.Sources = append(p.Sources, left)
		}
	}
	entries, err := fs.ReadDir(c.tree, dir)
	if err != nil {
		return // ImportDir has listed the same folder
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, "_test.go") && (name[0] == '_' || name[0] == '.') {
			c.notes.find("test_file_excluded", path.Join(dir, name), "go ignores files with such a name")
		}
	}
	for _, name := range b.SysoFiles {
		c.notes.find("prebuilt_object", path.Join(dir, name), "the linker takes this file as it is")
	}
}

// testData notes what the tests of the package in dir read: the folder testdata,
// and what their patterns embed.
func (c *census) testData(dir string, patterns []string) {
	data := path.Join(dir, "testdata")
	if info, err := fs.Stat(c.tree, data); err == nil && info.IsDir() {
		c.found.DataDirs = append(c.found.DataDirs, data)
	}
	for _, p := range patterns {
		matches, err := fs.Glob(c.tree, path.Join(dir, strings.TrimPrefix(p, "all:")))
		if err != nil {
			continue // the compiler says so
		}
		c.found.Embedded = append(c.found.Embedded, matches...)
	}
}

// leftOut notes the packages of the module that the check's patterns do not name.
func (c *census) leftOut() error {
	all := &census{tree: c.tree, module: c.module, context: c.context, platform: c.platform, seen: map[string]bool{}, over: map[string]bool{}}
	if err := all.walk(c.module.Dir, true); err != nil {
		return err
	}
	out, tests, first := 0, 0, ""
	for _, p := range all.found.Packages {
		if c.seen[p.Dir] {
			continue
		}
		if out++; first == "" {
			first = p.ImportPath
		}
		if p.HasTests() {
			tests++
		}
	}
	if out > 0 {
		c.notes.find("packages_not_checked", c.module.Dir, fmt.Sprintf(
			"%d packages of the module, %d of them with tests, are not among the check's packages, first: %s", out, tests, first))
	}
	return nil
}

// sortImports moves imports that are no packages of the check to External, if a
// required module may have them, and drops the rest.
func (c *census) sortImports() {
	own := map[string]bool{}
	for _, p := range c.found.Packages {
		own[p.ImportPath] = true
	}
	external := map[string]bool{}
	keep := func(list []string) []string {
		for _, s := range list {
			if !own[s] && c.module.requires(s) {
				external[s] = true
			}
		}
		list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !own[s] })
		slices.Sort(list)
		return slices.Compact(list)
	}
	for i := range c.found.Packages {
		p := &c.found.Packages[i]
		p.Imports, p.TestImports = keep(p.Imports), keep(p.TestImports)
	}
	c.found.External = sortedKeys(external)
}
