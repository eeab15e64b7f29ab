package archtest

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"striatum/snapshot"
	"striatum/verifier"
)

// constantRow matches a row of docs/limits.md that names a constant: the cell
// with the figure comes second.
var constantRow = regexp.MustCompile("(?m)^\\|[^|]*\\|([^|]*)\\|(?:[^|]*\\|)? `([a-z/]+)\\.([A-Za-z]+)` \\|$")

func TestLimitsPageHasTheConstantsFigures(t *testing.T) {
	rows := constantRow.FindAllStringSubmatch(read(t, "docs/limits.md"), -1)
	if len(rows) < 50 {
		t.Fatalf("%d rows with a constant", len(rows))
	}
	known := map[string]map[string]int64{}
	for _, row := range rows {
		figure, dir, name := row[1], row[2], row[3]
		if known[dir] == nil {
			known[dir] = constants(t, dir)
		}
		v, ok := known[dir][name]
		if !ok {
			t.Errorf("docs/limits.md names %s.%s, which is no constant", dir, name)
			continue
		}
		if !says(figure, v) {
			t.Errorf("docs/limits.md gives %s.%s as %q, not %s, %s or %v", dir, name, strings.TrimSpace(figure), size(v), count(v), time.Duration(v))
		}
	}
}

func TestLimitsPageHasTheDefaults(t *testing.T) {
	page := read(t, "docs/limits.md")
	s, x := snapshot.DefaultLimits(), verifier.DefaultLimits()
	for what, figure := range map[string]string{
		"files and links that are part":    count(s.Files),
		"bytes of all files":               size(s.Bytes),
		"bytes of one file":                size(s.FileBytes),
		"path from the top":                count(s.PathBytes) + " bytes",
		"folders above a file":             count(s.Depth),
		"wall clock":                       duration(x.WallClock),
		"memory, swap included":            size(x.MemoryBytes),
		"processes and threads":            count(x.Pids),
		"output, of all programs together": size(x.OutputBytes),
		"disk, of each writable layer":     size(x.DiskBytes),
	} {
		if want := "| " + what + " | " + figure; !strings.Contains(page, want) {
			t.Errorf("docs/limits.md has no row that begins with %q", want)
		}
	}
}

// says reports whether a cell begins with v as a size, a count or a duration.
func says(cell string, v int64) bool {
	for _, form := range []string{size(v), count(v), duration(time.Duration(v))} {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(cell), form); ok && (rest == "" || strings.ContainsAny(rest[:1], " ,(")) {
			return true
		}
	}
	return false
}

func size(v int64) string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if v >= unit.bytes && v%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", v/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", v)
}

func count(v int64) string {
	s := fmt.Sprint(v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func duration(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
	return fmt.Sprintf("%d seconds", d/time.Second)
}

// constants returns the integer constants of the package in dir whose values
// are literals, products, shifts or durations.
func constants(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			for _, spec := range d.Specs {
				s := spec.(*ast.ValueSpec)
				for i, expr := range s.Values {
					if v, ok := constant.Int64Val(constant.ToInt(value(expr))); ok {
						values[s.Names[i].Name] = v
					}
				}
			}
		}
	}
	return values
}

// value evaluates a constant expression; it is unknown if names of other
// constants are in it.
func value(expr ast.Expr) constant.Value {
	switch e := expr.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.SelectorExpr:
		units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
		if unit, ok := units[e.Sel.Name]; ok {
			return constant.MakeInt64(int64(unit))
		}
	case *ast.BinaryExpr:
		x, y := constant.ToInt(value(e.X)), constant.ToInt(value(e.Y))
		if x.Kind() != constant.Int || y.Kind() != constant.Int {
			return constant.MakeUnknown()
		}
		if e.Op == token.SHL {
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, token.SHL, uint(n))
		}
		if e.Op == token.MUL {
			return constant.BinaryOp(x, token.MUL, y)
		}
	}
	return constant.MakeUnknown()
}
