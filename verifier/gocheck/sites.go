package gocheck

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

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
