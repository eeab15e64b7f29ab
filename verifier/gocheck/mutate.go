package gocheck

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The bounds of what mutants are looked for in.
const (
	MaxMutationBytes = 64 << 20 // source of all product files together
	maxMutants       = 1000     // candidates that are kept
	maxMutatedText   = 1 << 10  // of one expression or statement
	maxSitesOfUnit   = 8        // that are kept of one function, besides a string; 2 where there are many functions
	maxUnits         = 100_000  // functions, variables and constants
	maxNames         = 32 << 20 // bytes of names that are followed, and nameBytes for each
	nameBytes        = 64
	maxUses          = 4 << 20  // names in all functions that are followed
	maxTexts         = 16 << 20 // bytes of changed text
	maxSumDepth      = 100      // in which a string is looked for
)

// Operator is a kind of defect.
type Operator string

// The operators.
const (
	Arithmetic  Operator = "arithmetic"   // + becomes -, << becomes >>
	Boundary    Operator = "boundary"     // < becomes <=
	Comparison  Operator = "comparison"   // == becomes !=, && becomes ||
	Negation    Operator = "negation"     // the condition of an if
	Constant    Operator = "constant"     // 1 becomes 1+1, true becomes false
	ReturnValue Operator = "return_value" // a zero value, or of a bool the other one
	RemovedCall Operator = "removed_call" // a call whose result nobody uses
	RemovedSet  Operator = "removed_set"  // an assignment
)

// Mutant is one small defect in a product file: Text instead of the bytes from
// Offset up to End.
type Mutant struct {
	ImportPath  string // of its package
	Path        string // relative to the tree
	Line        int
	Operator    Operator
	Offset, End int
	Text        string
	Body        int // offset of what follows the brace of the function it lies in
}

// Apply returns the file src with the defect.
func (m Mutant) Apply(src []byte) ([]byte, error) {
	if m.Offset < 0 || m.End < m.Offset || m.End > len(src) {
		return nil, fmt.Errorf("mutate %q: it has %d bytes", m.Path, len(src))
	}
	return slices.Concat(src[:m.Offset], []byte(m.Text), src[m.End:]), nil
}

// Neutral returns the file src with a change of the same function that alters its code,
// not what it does or the number of any line. Its name is drawn from rnd; an error
// is one of reading it.
func (m Mutant) Neutral(src []byte, rnd io.Reader) ([]byte, error) {
	if m.Body < 0 || m.Body > len(src) {
		return nil, fmt.Errorf("change %q: it has %d bytes", m.Path, len(src))
	}
	name, err := word(rnd, 13)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s for %s {}; %s\nvar %s bool\n", src[:m.Body], name, src[m.Body:], name), nil
}

// Mutations is what can be mutated in a check's packages.
type Mutations struct {
	Statements int64    // of the product files
	Reached    int64    // of them, those in functions that tests name, or that what they name does
	Candidates []Mutant // in the order in which to try them
	Skipped    []string // product files that are over a bound, links, or do not parse; sorted
}

// FindMutants looks for mutants in the product files of d: those that are built
// and are no tests. Which come first is drawn by seed, one of each function
// before a second one, after these classes: functions that tests reach by name;
// string constants in them; more of those functions; other functions of packages that
// tests import; other packages; generated files. The error is one of reading the tree.
func FindMutants(tree fs.FS, d Discovery, seed string) (Mutations, error) {
	f := &mutating{tree: tree, packages: map[string]string{}, ids: map[string]int32{"": unknown}, live: map[int32]bool{}}
	for _, p := range d.Packages {
		f.packages[p.ImportPath] = p.Name
	}
	if err := f.tests(d); err != nil {
		return Mutations{}, err
	}
	type source struct {
		file  string
		pkg   Package
		order uint64
	}
	var sources []source
	for _, p := range d.Packages {
		for _, name := range p.GoFiles {
			file := path.Join(p.Dir, name)
			sum := sha256.Sum256([]byte(seed + "\x00" + file))
			sources = append(sources, source{file, p, binary.BigEndian.Uint64(sum[:])})
		}
	}
	slices.SortFunc(sources, func(a, b source) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.file, b.file)) })
	left := int64(MaxMutationBytes)
	for _, s := range sources {
		info, err := fs.Lstat(tree, s.file)
		if err != nil {
			return Mutations{}, err
		}
		src, err := ReadFile(tree, s.file, min(left, MaxSourceBytes))
		if TooLarge(err) || !info.Mode().IsRegular() {
			f.found.Skipped = append(f.found.Skipped, s.file)
			continue
		}
		if err != nil {
			return Mutations{}, err
		}
		left -= int64(len(src))
		if f.full() || !f.file(s.file, s.pkg.ImportPath, src, s.order) {
			f.found.Skipped = append(f.found.Skipped, s.file)
		}
	}
	slices.Sort(f.found.Skipped)
	f.reach()
	f.order(d)
	return f.found, nil
}

// Testers are the packages whose tests are to notice a defect in the package at
// importPath. Near: its own tests, if it has any. Else all whose tests import it,
// themselves or by others; and if there are none, all that have tests, which may
// build it.
func (d Discovery) Testers(importPath string, near bool) []Package {
	for _, p := range d.Packages {
		if near && p.ImportPath == importPath && p.HasTests() {
			return []Package{p}
		}
	}
	importers := map[string][]string{}
	for _, p := range d.Packages {
		for _, i := range p.Imports {
			importers[i] = append(importers[i], p.ImportPath)
		}
	}
	have := closure([]string{importPath}, func(p string) []string { return importers[p] })
	var all, some []Package
	for _, p := range d.Packages {
		if !p.HasTests() {
			continue
		}
		all = append(all, p)
		if have[p.ImportPath] || slices.ContainsFunc(p.TestImports, func(i string) bool { return have[i] }) {
			some = append(some, p)
		}
	}
	if len(some) == 0 {
		return all
	}
	return some
}

// tested has the packages that are in a test binary.
func (d Discovery) tested() map[string]bool {
	imports := map[string][]string{}
	var from []string
	for _, p := range d.Packages {
		imports[p.ImportPath] = p.Imports
		if p.HasTests() {
			from = append(append(from, p.ImportPath), p.TestImports...)
		}
	}
	return closure(from, func(p string) []string { return imports[p] })
}

// closure is from, and what next leads to from there.
func closure(from []string, next func(string) []string) map[string]bool {
	seen := map[string]bool{}
	for queue := slices.Clone(from); len(queue) > 0; {
		last := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if !seen[last] {
			seen[last] = true
			queue = append(queue, next(last)...)
		}
	}
	return seen
}

// Pattern names the package to a command in the folder of m.
func (p Package) Pattern(m Module) string {
	if rel := relative(m.Dir, p.Dir); rel != "" {
		return "./" + rel
	}
	return "."
}

// unit is one function, or one variable or constant, of a product file.
type unit struct {
	name       int32
	uses       []int32
	importPath string
	statements int64
	generated  bool
	reached    bool
	best       []ranked // sorted by rank
	text       []ranked // a string constant, if there is one
}

type ranked struct {
	Mutant
	rank  uint64
	class int32 // its place among the sites of the unit
}

// sites are the unit's in the order in which to try them: two, a string constant,
// the others.
func (u unit) sites() []ranked {
	n := min(len(u.best), 2)
	all := slices.Concat(u.best[:n], u.text, u.best[n:])
	for i := range all {
		switch {
		case i < n:
			all[i].class = int32(i)
		case i < n+len(u.text):
			all[i].class = 2
		default:
			all[i].class = int32(i - n - len(u.text) + 3)
		}
	}
	return all
}

type mutating struct {
	tree     fs.FS
	packages map[string]string // names of the check's packages, by import path
	ids      map[string]int32  // of names
	live     map[int32]bool    // names that tests use, or what they use
	named    int               // bytes of names
	uses     int               // names in units
	texts    int               // bytes of changed text in units
	units    []unit
	found    Mutations
}

// unknown stands for all names over the bound: they are not followed.
const unknown = 0

func (f *mutating) id(name string) int32 {
	id, ok := f.ids[name]
	if !ok && f.named < maxNames {
		id = int32(len(f.ids)) // there are fewer than bytes of names
		f.ids[strings.Clone(name)] = id
		f.named += len(name) + nameBytes
	}
	return id
}

// tests notes what the test files name. One that does not parse does not compile.
func (f *mutating) tests(d Discovery) error {
	for _, name := range called {
		f.live[f.id("."+name)] = true
	}
	for _, p := range d.Packages {
		f.live[f.id(p.ImportPath+".init")] = true
		for _, name := range slices.Concat(p.TestFiles, p.XTestFiles) {
			src, err := ReadFile(f.tree, path.Join(p.Dir, name), MaxSourceBytes)
			if TooLarge(err) {
				continue // census_incomplete: it cannot pass
			}
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
			if err != nil {
				continue
			}
			n := f.namesOf(file, p.ImportPath)
			ast.Inspect(file, func(x ast.Node) bool { return n.visit(x, func(key string) { f.live[f.id(key)] = true }) })
		}
	}
	return nil
}

// called are methods that Go's own packages call by an interface.
var called = []string{
	"String", "Error", "Format", "GoString", "Unwrap", "Is", "As", "Len", "Less", "Swap", "Push", "Pop", "Read", "Write", "Close", "Seek",
	"ReadFrom", "WriteTo", "ServeHTTP", "RoundTrip", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "MarshalBinary",
	"UnmarshalBinary", "Scan", "Value", "Set", "Open", "Stat", "Handle", "Enabled",
}

// names knows what a name in a file may stand for: "import/path.Name" of what a
// package declares, ".Name" of a method or field.
type names struct {
	importPath string
	imports    map[string]string // import paths by the names in the file
	dots       []string          // import paths whose names stand for themselves
}

func (f *mutating) namesOf(file *ast.File, importPath string) names {
	n := names{importPath: importPath, imports: map[string]string{}}
	for _, i := range file.Imports {
		to, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		name := f.packages[to]
		if name == "" {
			name = path.Base(to)
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		if name == "." {
			n.dots = append(n.dots, to)
			continue
		}
		n.imports[name] = to
	}
	return n
}

// visit is for ast.Inspect: it hands each name in x to use.
func (n names) visit(x ast.Node, use func(key string)) bool {
	switch x := x.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok && n.imports[id.Name] != "" {
			use(n.imports[id.Name] + "." + x.Sel.Name)
			return false
		}
		use("." + x.Sel.Name)
	case *ast.Ident:
		use(n.importPath + "." + x.Name)
		for _, to := range n.dots {
			use(to + "." + x.Name)
		}
	}
	return true
}

// reach follows the names that tests use through the units of those names.
func (f *mutating) reach() {
	byName := map[int32][]int{}
	var queue []int
	for i, u := range f.units {
		byName[u.name] = append(byName[u.name], i)
		if u.name != unknown && f.live[u.name] {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		u := &f.units[queue[len(queue)-1]]
		queue = queue[:len(queue)-1]
		if u.reached {
			continue
		}
		u.reached = true
		for _, name := range u.uses {
			if !f.live[name] {
				f.live[name] = true
				queue = append(queue, byName[name]...)
			}
		}
		u.uses = nil
	}
}

// order counts the statements and sorts the candidates.
func (f *mutating) order(d Discovery) {
	type candidate struct {
		unit, site, class int32
		rank              uint64
	}
	tested := d.tested()
	var all []candidate
	for n, u := range f.units {
		f.found.Statements += u.statements
		reached := u.reached && tested[u.importPath]
		if reached {
			f.found.Reached += u.statements
		}
		var class int32
		switch {
		case !tested[u.importPath]:
			class = 2 * (maxSitesOfUnit + 1)
		case !reached:
			class = maxSitesOfUnit + 1
		}
		if u.generated {
			class += 3 * (maxSitesOfUnit + 1)
		}
		for i, r := range u.sites() {
			all = append(all, candidate{int32(n), int32(i), class + r.class, r.rank})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.rank, b.rank), cmp.Compare(a.unit, b.unit), cmp.Compare(a.site, b.site))
	})
	for _, c := range all[:min(len(all), maxMutants)] {
		f.found.Candidates = append(f.found.Candidates, f.units[c.unit].sites()[c.site].Mutant)
	}
}
