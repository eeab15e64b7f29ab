package gocheck

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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
}

// Apply returns the file src with the defect.
func (m Mutant) Apply(src []byte) ([]byte, error) {
	if m.Offset < 0 || m.End < m.Offset || m.End > len(src) {
		return nil, fmt.Errorf("mutate %q: it has %d bytes", m.Path, len(src))
	}
	return slices.Concat(src[:m.Offset], []byte(m.Text), src[m.End:]), nil
}

// Mutations is what can be mutated in a check's packages.
type Mutations struct {
	Statements int64    // of the product files
	Reached    int64    // of them, those in functions that tests name, or that what they name does
	Candidates []Mutant // in the order in which to try them
	Skipped    []string // product files that are over a bound, or links; sorted
}

// FindMutants looks for mutants in the product files of d: those that are built
// and are no tests. Which come first is drawn by seed, one of each function
// before a second one, after these classes: functions that tests reach by name;
// string constants in them; other functions of packages that tests import; other
// packages; generated files. Files that do not parse have none. The error is one
// of reading the tree.
func FindMutants(tree fs.FS, d Discovery, seed string) (Mutations, error) {
	f := &mutating{tree: tree, packages: map[string]string{}, ids: map[string]int32{}, live: map[int32]bool{}}
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
		f.file(s.file, s.pkg.ImportPath, src, s.order)
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
	byPath := map[string]Package{}
	for _, p := range d.Packages {
		byPath[p.ImportPath] = p
	}
	if p := byPath[importPath]; near && p.HasTests() {
		return []Package{p}
	}
	var all, some []Package
	for _, p := range d.Packages {
		if !p.HasTests() {
			continue
		}
		all = append(all, p)
		if uses(byPath, p, importPath) {
			some = append(some, p)
		}
	}
	if len(some) == 0 {
		return all
	}
	return some
}

// Pattern names the package to a command in the folder of m.
func (p Package) Pattern(m Module) string {
	if rel := relative(m.Dir, p.Dir); rel != "" {
		return "./" + rel
	}
	return "."
}

// uses reports whether the tests of p have the package at target in their binary.
func uses(byPath map[string]Package, p Package, target string) bool {
	seen := map[string]bool{p.ImportPath: true}
	queue := append([]string{p.ImportPath}, p.TestImports...)
	for len(queue) > 0 {
		next := queue[0]
		if queue = queue[1:]; next == target {
			return true
		}
		for _, i := range append(byPath[next].Imports, next) {
			if !seen[i] {
				seen[i] = true
				queue = append(queue, i)
			}
		}
	}
	return false
}

// unit is one function, or one variable or constant, of a product file.
type unit struct {
	name       int32
	uses       []int32
	importPath string
	statements int64
	generated  bool
	reached    bool
	best       [3]ranked // two of the strongest, and a string constant
}

type ranked struct {
	Mutant
	rank uint64
}

type mutating struct {
	tree     fs.FS
	packages map[string]string // names of the check's packages, by import path
	ids      map[string]int32  // of names
	live     map[int32]bool    // names that tests use, or what they use
	units    []unit
	found    Mutations
}

func (f *mutating) id(name string) int32 {
	id, ok := f.ids[name]
	if !ok {
		id = int32(len(f.ids)) // there are fewer names than bytes of source
		f.ids[strings.Clone(name)] = id
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
		if f.live[u.name] {
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
		ranked
		class int
	}
	byPath, tested := map[string]Package{}, map[string]bool{}
	for _, p := range d.Packages {
		byPath[p.ImportPath] = p
	}
	for _, p := range d.Packages {
		tested[p.ImportPath] = slices.ContainsFunc(d.Packages, func(t Package) bool { return t.HasTests() && uses(byPath, t, p.ImportPath) })
	}
	var all []candidate
	for _, u := range f.units {
		f.found.Statements += u.statements
		reached := u.reached && tested[u.importPath]
		if reached {
			f.found.Reached += u.statements
		}
		for i, r := range u.best {
			if r.Text == "" {
				continue
			}
			class := i
			switch {
			case !tested[u.importPath]:
				class += 6
			case !reached:
				class += 3
			}
			if u.generated {
				class += 9
			}
			all = append(all, candidate{r, class})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.rank, b.rank), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Offset, b.Offset))
	})
	for _, c := range all[:min(len(all), maxMutants)] {
		f.found.Candidates = append(f.found.Candidates, c.Mutant)
	}
}

// file adds the units of one product file.
func (f *mutating) file(file, importPath string, src []byte, seed uint64) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return // the compiler says what is wrong
	}
	s := &sites{mutating: f, tokens: fset.File(parsed.Pos()), src: src, file: file, seed: seed, generated: ast.IsGenerated(parsed)}
	s.names = f.namesOf(parsed, importPath)
	for _, decl := range parsed.Decls {
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
					for _, v := range values.Values {
						if len(values.Values) == len(values.Names) && v != values.Values[i] {
							continue
						}
						ast.Inspect(v, func(n ast.Node) bool {
							if lit, ok := n.(*ast.FuncLit); ok {
								s.body(lit.Body, lit.Type.Results)
								return false
							}
							return s.visit(n, s.use)
						})
					}
					s.end()
				}
			}
		}
	}
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
}

func (s *sites) begin(name string) {
	s.unit = unit{name: s.id(name), importPath: s.importPath, generated: s.generated}
	s.used = map[int32]bool{}
}

func (s *sites) end() {
	for name := range s.used {
		s.unit.uses = append(s.unit.uses, name)
	}
	s.units = append(s.units, s.unit)
}

func (s *sites) use(key string) { s.used[s.id(key)] = true }

// text is the source of n.
func (s *sites) text(n ast.Node) string {
	return string(s.src[s.tokens.Offset(n.Pos()):s.tokens.Offset(n.End())])
}

// site considers a mutant: text instead of what stands from pos to end.
func (s *sites) site(pos, end token.Pos, op Operator, text string, weak bool) {
	from, to := s.tokens.Offset(pos), s.tokens.Offset(end)
	if to-from > maxMutatedText {
		return
	}
	rank := mix(s.seed + uint64(from)*8191 + uint64(len(op))*131 + uint64(len(text)))
	r := ranked{Mutant{s.importPath, s.file, s.tokens.PositionFor(pos, false).Line, op, from, to, text}, rank}
	if weak {
		if s.unit.best[2].Text == "" || rank < s.unit.best[2].rank {
			s.unit.best[2] = r
		}
		return
	}
	switch best := &s.unit.best; {
	case best[0].Text == "" || rank < best[0].rank:
		best[1], best[0] = best[0], r
	case best[1].Text == "" || rank < best[1].rank:
		best[1] = r
	}
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
			s.site(n.Cond.Pos(), n.Cond.End(), Negation, "!("+s.text(n.Cond)+")", false)
		case *ast.BinaryExpr:
			s.binary(n)
		case *ast.AssignStmt:
			if to, ok := arithmetic[n.Tok]; ok && !hasString(n.Rhs[0]) {
				s.token(n.TokPos, n.Tok, to, Arithmetic)
			}
		case *ast.IncDecStmt:
			s.token(n.TokPos, n.Tok, arithmetic[n.Tok], Arithmetic)
		case *ast.BasicLit:
			s.literal(n)
		case *ast.Ident:
			if n.Name == "true" || n.Name == "false" {
				s.site(n.Pos(), n.End(), Constant, strconv.FormatBool(n.Name == "false"), false)
			}
		case *ast.ReturnStmt:
			s.returned(n, results)
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
	s.site(pos, pos+token.Pos(len(from.String())), op, to.String(), false)
}

func (s *sites) binary(n *ast.BinaryExpr) {
	if to, ok := arithmetic[n.Op]; ok && !hasString(n) {
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
// difference.
func hasString(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return hasString(e.X) || hasString(e.Y)
	case *ast.ParenExpr:
		return hasString(e.X)
	}
	return false
}

func (s *sites) literal(n *ast.BasicLit) {
	switch n.Kind { //nolint:exhaustive // imaginary numbers are rare
	case token.INT, token.FLOAT, token.CHAR:
		s.site(n.Pos(), n.End(), Constant, "("+n.Value+" + 1)", false)
	case token.STRING:
		s.site(n.Pos(), n.End(), Constant, "("+n.Value+` + "x")`, true)
	}
}

// returned considers each value of a return that is not a plain zero already.
func (s *sites) returned(n *ast.ReturnStmt, results *ast.FieldList) {
	var types []ast.Expr
	if results != nil {
		for _, f := range results.List {
			types = append(types, slices.Repeat([]ast.Expr{f.Type}, max(1, len(f.Names)))...)
		}
	}
	if len(types) != len(n.Results) {
		return // none, or those of a call
	}
	for i, e := range n.Results {
		value, kind := s.text(e), s.text(types[i])
		switch {
		case slices.Contains([]string{"nil", "0", `""`, "true", "false"}, value):
		case kind == "bool":
			s.site(e.Pos(), e.End(), ReturnValue, "!("+value+")", false)
		default:
			s.site(e.Pos(), e.End(), ReturnValue, "func() (_ "+kind+") { var _ "+kind+" = "+value+"; return }()", false)
		}
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
	s.site(n.Pos(), n.End(), RemovedCall, "if false { "+s.text(n)+" }", false)
}
