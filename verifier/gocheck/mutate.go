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

// full says that no more is kept.
func (f *mutating) full() bool { return len(f.units) >= maxUnits || f.texts >= maxTexts }

// file adds the units of one product file; false: it does not parse, or there is no
// room for all of them.
func (f *mutating) file(file, importPath string, src []byte, seed uint64) bool {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	s := &sites{mutating: f, tokens: fset.File(parsed.Pos()), src: src, file: file, seed: seed, generated: ast.IsGenerated(parsed)}
	s.names = f.namesOf(parsed, importPath)
	for _, decl := range parsed.Decls {
		if f.full() {
			return false
		}
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				s.begin(importPath + "." + decl.Name.Name)
			} else {
				s.begin("." + decl.Name.Name)
			}
			if decl.Body != nil {
				s.body(decl.Body, decl.Type.Results)
			}
			s.end()
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				values, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, name := range values.Names {
					s.begin(importPath + "." + name.Name)
					switch {
					case len(values.Values) == len(values.Names):
						s.value(values.Values[i])
					case i == 0 && len(values.Values) > 0: // one call for all
						s.value(values.Values[0])
					default:
						s.use(importPath + "." + values.Names[0].Name)
					}
					s.end()
				}
			}
		}
	}
	return true
}

// sites collects the sites of one file.
type sites struct {
	*mutating
	names
	tokens    *token.File
	src       []byte
	file      string
	seed      uint64
	generated bool
	unit      unit
	used      map[int32]bool
	brace     int // offset of what follows that of the function
}

// value looks at what a variable or constant is set to.
func (s *sites) value(v ast.Expr) {
	ast.Inspect(v, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok {
			s.body(lit.Body, lit.Type.Results)
			return false
		}
		return s.visit(n, s.use)
	})
}

func (s *sites) begin(name string) {
	s.unit = unit{name: s.id(name), importPath: s.importPath, generated: s.generated}
	s.used = map[int32]bool{}
}

func (s *sites) end() {
	for name := range s.used {
		if s.mutating.uses++; name != unknown && s.mutating.uses <= maxUses {
			s.unit.uses = append(s.unit.uses, name)
		}
	}
	for _, r := range s.unit.sites() {
		s.texts += len(r.Text)
	}
	s.units = append(s.units, s.unit)
}

func (s *sites) use(key string) { s.used[s.id(key)] = true }

// text is the source of n; false: it is too long to be mutated.
func (s *sites) text(n ast.Node) (string, bool) {
	from, to := s.tokens.Offset(n.Pos()), s.tokens.Offset(n.End())
	if to-from > maxMutatedText {
		return "", false
	}
	return string(s.src[from:to]), true
}

// site considers a mutant: text instead of what stands from pos to end.
func (s *sites) site(pos, end token.Pos, op Operator, text string) {
	if r, ok := s.ranked(pos, end, op, text); ok {
		i, _ := slices.BinarySearchFunc(s.unit.best, r, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
		most := maxSitesOfUnit
		if len(s.units) >= maxMutants {
			most = 2
		}
		if i < most {
			s.unit.best = slices.Insert(s.unit.best[:min(len(s.unit.best), most-1)], i, r)
		}
	}
}

func (s *sites) ranked(pos, end token.Pos, op Operator, text string) (ranked, bool) {
	from, to := s.tokens.Offset(pos), s.tokens.Offset(end)
	rank := mix(s.seed + uint64(from)*8191 + uint64(len(op))*131 + uint64(len(text)))
	m := Mutant{s.importPath, s.file, s.tokens.PositionFor(pos, false).Line, op, from, to, text, s.brace}
	return ranked{Mutant: m, rank: rank}, to-from <= maxMutatedText && len(text) <= 3*maxMutatedText
}

// mix makes a number of which every bit depends on all bits of x (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// body looks at the body of a function with these results.
func (s *sites) body(body *ast.BlockStmt, results *ast.FieldList) {
	defer func(outer int) { s.brace = outer }(s.brace)
	s.brace = s.tokens.Offset(body.Lbrace) + 1
	types := typesOf(results)
	var post ast.Stmt // of a for: its change would only make it endless
	ast.Inspect(body, func(n ast.Node) bool {
		if stmt, ok := n.(ast.Stmt); ok {
			switch stmt.(type) {
			case *ast.BlockStmt, *ast.EmptyStmt, *ast.LabeledStmt, *ast.CaseClause, *ast.CommClause:
			default:
				s.unit.statements++
			}
			if stmt == post {
				return false
			}
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			s.body(n.Body, n.Type.Results)
			return false
		case *ast.StructType:
			return false // its tags are no statements
		case *ast.ForStmt:
			post = n.Post
		case *ast.IfStmt:
			if cond, ok := s.text(n.Cond); ok {
				s.site(n.Cond.Pos(), n.Cond.End(), Negation, "!("+cond+")")
			}
		case *ast.BlockStmt:
			s.block(n.List)
		case *ast.CaseClause:
			s.block(n.Body)
		case *ast.CommClause:
			s.block(n.Body)
		case *ast.BinaryExpr:
			s.binary(n)
		case *ast.AssignStmt:
			if to, ok := arithmetic[n.Tok]; ok && !hasString(n.Rhs[0], maxSumDepth) {
				s.token(n.TokPos, n.Tok, to, Arithmetic)
			}
		case *ast.IncDecStmt:
			s.token(n.TokPos, n.Tok, arithmetic[n.Tok], Arithmetic)
		case *ast.BasicLit:
			s.literal(n)
		case *ast.Ident:
			if n.Name == "true" || n.Name == "false" {
				s.site(n.Pos(), n.End(), Constant, strconv.FormatBool(n.Name == "false"))
			}
		case *ast.ReturnStmt:
			s.returned(n, types)
		case *ast.ExprStmt:
			s.call(n)
		}
		return s.visit(n, s.use)
	})
}

// What an operator becomes.
var (
	arithmetic = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
		token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL, token.AND_NOT: token.AND,
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
		token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN, token.XOR_ASSIGN: token.AND_ASSIGN,
		token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN,
		token.INC: token.DEC, token.DEC: token.INC,
	}
	boundary   = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	comparison = map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
		token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	}
)

func (s *sites) token(pos token.Pos, from, to token.Token, op Operator) {
	s.site(pos, pos+token.Pos(len(from.String())), op, to.String())
}

func (s *sites) binary(n *ast.BinaryExpr) {
	if to, ok := arithmetic[n.Op]; ok && !hasString(n, maxSumDepth) {
		s.token(n.OpPos, n.Op, to, Arithmetic)
	}
	if to, ok := boundary[n.Op]; ok {
		s.token(n.OpPos, n.Op, to, Boundary)
	}
	if to, ok := comparison[n.Op]; ok {
		s.token(n.OpPos, n.Op, to, Comparison)
	}
}

// hasString reports whether e is a sum with a string in it, of which there is no
// difference. It looks only so deep.
func hasString(e ast.Expr, depth int) bool {
	if depth == 0 {
		return false
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return hasString(e.Y, depth/2) || hasString(e.X, depth-1)
	case *ast.ParenExpr:
		return hasString(e.X, depth-1)
	}
	return false
}

func (s *sites) literal(n *ast.BasicLit) {
	switch n.Kind { //nolint:exhaustive // imaginary numbers are rare
	case token.INT, token.FLOAT, token.CHAR:
		s.site(n.Pos(), n.End(), Constant, "("+n.Value+" + 1)")
	case token.STRING:
		r, ok := s.ranked(n.Pos(), n.End(), Constant, "("+n.Value+` + "x")`)
		if ok && (len(s.unit.text) == 0 || r.rank < s.unit.text[0].rank) {
			s.unit.text = []ranked{r}
		}
	}
}

// typesOf is the type of each result.
func typesOf(results *ast.FieldList) []ast.Expr {
	var types []ast.Expr
	if results != nil {
		for _, f := range results.List {
			types = append(types, slices.Repeat([]ast.Expr{f.Type}, max(1, len(f.Names)))...)
		}
	}
	return types
}

// returned considers each value of a return that is not a plain zero already.
func (s *sites) returned(n *ast.ReturnStmt, types []ast.Expr) {
	if len(types) != len(n.Results) {
		return // none, or those of a call
	}
	for i, e := range n.Results {
		value, short := s.text(e)
		kind, known := s.text(types[i])
		switch {
		case !short || !known || slices.Contains([]string{"nil", "0", `""`, "true", "false"}, value):
		case kind == "bool":
			s.site(e.Pos(), e.End(), ReturnValue, "!("+value+")")
		default:
			s.site(e.Pos(), e.End(), ReturnValue, "func() (_ "+kind+") { var _ "+kind+" = "+value+"; return }()")
		}
	}
}

// block considers the assignments among statements.
func (s *sites) block(list []ast.Stmt) {
	blank := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == "_" }
	for _, stmt := range list {
		if a, ok := stmt.(*ast.AssignStmt); ok && a.Tok == token.ASSIGN && slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool { return !blank(e) }) {
			s.removed(a, RemovedSet)
		}
	}
}

// removed considers a statement that is not executed.
func (s *sites) removed(n ast.Stmt, op Operator) {
	if text, ok := s.text(n); ok {
		s.site(n.Pos(), n.End(), op, "if false { "+text+" }")
	}
}

// endless are methods without which tests wait for ever.
var endless = []string{"Lock", "Unlock", "RLock", "RUnlock", "Add", "Done", "Wait"}

func (s *sites) call(n *ast.ExprStmt) {
	c, ok := n.X.(*ast.CallExpr)
	if !ok {
		return
	}
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		if fun.Name == "panic" { // it may end a function that has results
			return
		}
	case *ast.SelectorExpr:
		if slices.Contains(endless, fun.Sel.Name) {
			return
		}
	}
	s.removed(n, RemovedCall)
}
