package gocheck

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// oddSources notes the first character of each kind, in each of the files of dir,
// that makes a source read otherwise than it compiles.
func (c *census) oddSources(dir string, names []string) {
	for _, name := range names {
		file := path.Join(dir, name)
		src, err := ReadFile(c.tree, file, MaxSourceBytes)
		if err != nil {
			continue // the compiler reads it and says so, or the check is census_incomplete
		}
		if line, r := firstOdd(src, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }); line > 0 {
			c.notes.find("bidi_source", file, fmt.Sprintf("line %d holds U+%04X, which changes the reading direction", line, r))
		}
		lines := bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
		if line, r := firstOdd(lines, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }); line > 0 {
			c.notes.find("control_source", file, fmt.Sprintf("line %d holds the control character U+%04X", line, r))
		}
	}
}

// firstOdd returns the line, from 1, of the first character that is odd; 0: none is.
func firstOdd(src []byte, odd func(rune) bool) (line int, r rune) {
	at := bytes.IndexFunc(src, odd)
	if at < 0 {
		return 0, 0
	}
	r, _ = utf8.DecodeRune(src[at:])
	return 1 + bytes.Count(src[:at], []byte("\n")), r
}

// constraint returns the build constraint of a source (constraintOf); "" if it
// cannot be read.
func (c *census) constraint(file string) string {
	src, err := ReadFile(c.tree, file, MaxSourceBytes)
	if err != nil {
		return ""
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.PackageClauseOnly|parser.ParseComments)
	if f == nil || err != nil && !f.Package.IsValid() {
		return ""
	}
	return constraintOf(f)
}

// constraintOf returns the build constraint of a source, normalised; "" if it has
// none. That of its name is not part of it.
func constraintOf(f *ast.File) string {
	var old []string
	for _, group := range f.Comments {
		for _, comment := range group.List {
			if comment.Pos() >= f.Package {
				continue
			}
			expr, err := constraint.Parse(comment.Text)
			switch {
			case err != nil:
			case constraint.IsGoBuild(comment.Text):
				return expr.String() // lines of the old form do not count beside it
			default:
				old = append(old, expr.String())
			}
		}
	}
	return strings.Join(old, " && ")
}
