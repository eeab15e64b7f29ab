package gocheck

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"striatum/baseline"
)

// testFuncs adds to p what its test files declare, by the rules by which the go
// command writes a test's main function.
func (c *census) testFuncs(p *Package) {
	for _, name := range p.TestFiles {
		c.testFile(p, name, false)
	}
	for _, name := range p.XTestFiles {
		c.testFile(p, name, true)
	}
}

func (c *census) testFile(p *Package, name string, external bool) {
	file := path.Join(p.Dir, name)
	src, err := ReadFile(c.tree, file, MaxSourceBytes)
	if err != nil {
		if TooLarge(err) {
			c.over[file] = true
		}
		p.problem(err)
		return
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		p.problem(err)
		if f == nil {
			return
		}
	}
	if external {
		p.XTestName = f.Name.Name
	} else if p.Name == "" {
		p.Name = f.Name.Name
	}
	source := func(n ast.Node) []byte {
		from, to := int(n.Pos()-f.FileStart), int(n.End()-f.FileStart)
		if from < 0 || to > len(src) || from > to {
			return nil // of a file that does not parse
		}
		return src[from:to]
	}
	examples := map[string]string{}
	var helpers []byte
	for _, d := range f.Decls {
		before := len(p.Tests)
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				c.testFunc(p, file, d, external)
			}
			if len(p.Tests) > before {
				p.Tests[before].Body = baseline.Short(source(d))
				continue
			}
			if strings.HasPrefix(d.Name.Name, "Example") {
				examples[d.Name.Name] = baseline.Short(source(d))
				continue
			}
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
		}
		helpers = append(append(helpers, source(d)...), '\n')
	}
	p.Sources = append(p.Sources, TestSource{Path: file, Constraint: constraintOf(f), Helpers: baseline.Short(helpers)})
	var silent []string
	for _, e := range doc.Examples(f) {
		if e.Output == "" && !e.EmptyOutput {
			silent = append(silent, "Example"+e.Name)
			continue
		}
		p.Tests = append(p.Tests, Test{Name: "Example" + e.Name, Kind: Example, External: external, Body: examples["Example"+e.Name]})
	}
	if len(silent) > 0 {
		c.notes.find("example_not_run", file, "compiled and not run, for want of an Output comment: "+nameSome(silent))
	}
}

func (p *Package) problem(err error) {
	if p.Problem == "" {
		p.Problem = err.Error()
	}
}

func (c *census) testFunc(p *Package, file string, fn *ast.FuncDecl, external bool) {
	name := fn.Name.Name
	kinds := []struct {
		prefix, arg string
		kind        Kind
	}{{"Test", "T", TestFunc}, {"Fuzz", "F", FuzzTarget}, {"Benchmark", "B", 0}}
	if name == "TestMain" && !takes(fn, "T") {
		if takes(fn, "M") {
			p.TestMain = true
			if !runsTests(fn) {
				c.notes.find("testmain_without_run", file, "TestMain neither calls Run of its argument nor hands it on")
			}
		}
		return
	}
	for _, k := range kinds {
		rest, ok := strings.CutPrefix(name, k.prefix)
		if !ok {
			continue
		}
		first, _ := utf8.DecodeRuneInString(rest)
		switch {
		case rest != "" && unicode.IsLower(first):
			if takes(fn, k.arg) {
				c.notes.find("test_name_malformed", file, fmt.Sprintf("%s is not run: a lower-case letter follows %q", name, k.prefix))
			}
		case !takes(fn, k.arg) || fn.Type.TypeParams.NumFields() > 0:
			p.problem(fmt.Errorf("%s: wrong signature for %s", file, name))
		case k.kind != 0:
			p.Tests = append(p.Tests, Test{Name: name, Kind: k.kind, External: external})
		}
		return
	}
}

// takes reports whether fn has no result and one parameter of a type written as
// *arg or *x.arg.
func takes(fn *ast.FuncDecl, arg string) bool {
	params := fn.Type.Params.List
	if fn.Type.Results.NumFields() > 0 || len(params) != 1 || len(params[0].Names) > 1 {
		return false
	}
	ptr, ok := params[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	switch t := ptr.X.(type) {
	case *ast.Ident:
		return t.Name == arg
	case *ast.SelectorExpr:
		return t.Sel.Name == arg
	}
	return false
}

// runsTests reports whether a TestMain uses its argument in a way that may run
// the tests: calls its Run, or uses it as a value.
func runsTests(fn *ast.FuncDecl) bool {
	params := fn.Type.Params.List[0].Names
	if len(params) == 0 || params[0].Name == "_" || fn.Body == nil {
		return false
	}
	name := params[0].Name
	runs := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == name {
				runs = runs || n.Sel.Name == "Run"
				return false
			}
		case *ast.Ident:
			runs = runs || n.Name == name
		}
		return !runs
	})
	return runs
}

// nameSome joins up to 10 names and says how many there are more.
func nameSome(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
