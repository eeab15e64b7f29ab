package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// order is the table of docs/architecture.md: a package imports, of the
// packages here, only those above its own line and those of its own line. What
// is below a package belongs to its line.
var order = []string{
	"seal",
	"receipt",
	"claim",
	"workflow",
	"allowlist",
	"baseline",
	"gate",
	"workflowtemplates",
	"workflowgenerate",
	"sandbox",
	"snapshot",
	"verifier",
	"eventlog",
	"migrations",
	"store",
	"daemon",
	"internal/cli",
	"cmd",
}

// rule says what packages must not import: themselves (direct), and together
// with every package of ours that they reach (reach). A path that ends in
// "/..." covers what is below it.
type rule struct {
	packages []string
	direct   []string
	reach    []string
}

var (
	network = []string{"net", "net/http", "net/rpc", "crypto/tls"}
	running = []string{"os/exec"}
	engines = []string{"striatum/sandbox/...", "striatum/verifier/...", "github.com/containerd/..."}
	stores  = []string{"striatum/store/...", "striatum/daemon/...", "database/sql"}
	judge   = []string{"striatum/gate/..."}
)

var rules = []rule{
	{packages: []string{"seal"}, direct: []string{"striatum/..."}, reach: slices.Concat(network, running)},
	{packages: []string{"receipt", "claim", "workflow", "allowlist", "baseline"}, reach: slices.Concat(network, running, engines, stores)},
	{packages: []string{"gate"}, direct: []string{"os", "context", "io/fs"}, reach: slices.Concat(network, running, engines, stores)},
	{packages: []string{"workflowtemplates", "workflowgenerate"}, direct: []string{"os"}, reach: slices.Concat(network, running, engines, stores)},
	{packages: []string{"sandbox", "sandbox/ocispec", "sandbox/seccompfilter", "sandbox/containerdengine"}, reach: slices.Concat(stores, judge)},
	{packages: []string{"snapshot", "internal/worktree", "internal/beneath"}, reach: slices.Concat(network, running, stores, judge)},
	{packages: []string{"verifier", "verifier/journal", "verifier/modules", "verifier/images", "verifier/toolchain"}, reach: slices.Concat(stores, judge)},
	{packages: []string{"verifier/gocheck", "verifier/external", "verifier/rehearsal"}, reach: slices.Concat(network, running, engines, stores, judge)},
	{packages: []string{"store", "store/internal/sqlrows", "store/sqlite", "store/postgres", "eventlog", "migrations"}, reach: slices.Concat(network, engines)},
	{packages: []string{"daemon", "daemon/wire", "daemon/httpapi", "daemon/client", "internal/cli/servecmd", "cmd/striatumd"}, reach: slices.Concat(running, engines)},
	{packages: []string{"cmd/striatum-init"}, reach: []string{"github.com/...", "striatum/receipt/...", "striatum/seal/...", "net/http", "os/exec"}},
}

// mayRun are the packages that may start a program of the host: never one that
// an untrusted tree names.
var mayRun = []string{"internal/idrange", "internal/installation", "sandbox/containerdengine", "verifier/toolchain"}

// testSupport are the packages that only tests import. They may start programs.
var testSupport = []string{"internal/cli/clitest", "internal/testenv", "receipt/receipttest", "sandbox/sandboxtest", "store/storetest"}

// clockless are the packages that never read the clock: the time comes in.
var clockless = []string{"seal", "receipt", "claim", "workflow", "allowlist", "baseline", "gate", "workflowtemplates", "workflowgenerate", "verifier/gocheck", "verifier/external", "verifier/rehearsal", "eventlog"}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// name is the import path without the module's.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, "striatum/") }

// list returns the packages of the module as they are on Linux, by import path.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "striatum/...")
	cmd.Env = append(cmd.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// named returns the package that a rule names.
func named(t *testing.T, all map[string]pkg, name string) pkg {
	t.Helper()
	p, ok := all["striatum/"+name]
	if !ok {
		t.Fatalf("the rules name %s, which does not exist", name)
	}
	return p
}

// reach returns path and every package of ours that it imports, with one way
// there each.
func reach(all map[string]pkg, path string) map[string]string {
	ways := map[string]string{path: path}
	for queue := []string{path}; len(queue) > 0; queue = queue[1:] {
		for _, imp := range all[queue[0]].Imports {
			if _, ours := all[imp]; !ours {
				continue
			}
			if _, seen := ways[imp]; !seen {
				ways[imp] = ways[queue[0]] + " → " + imp
				queue = append(queue, imp)
			}
		}
	}
	return ways
}

func covers(pattern, path string) bool {
	if prefix, tree := strings.CutSuffix(pattern, "/..."); tree {
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	}
	return path == pattern
}

func anyCovers(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, path) })
}

func TestImportsKeepTheRules(t *testing.T) {
	all := list(t)
	for _, r := range rules {
		for _, name := range r.packages {
			p := named(t, all, name)
			for _, imp := range p.Imports {
				if anyCovers(r.direct, imp) {
					t.Errorf("%s must not import %s", name, imp)
				}
			}
			for from, way := range reach(all, p.ImportPath) {
				for _, imp := range all[from].Imports {
					if anyCovers(r.reach, imp) {
						t.Errorf("%s must not reach %s: %s", name, imp, way)
					}
				}
			}
		}
	}
}

// line returns the index in order of the line that path belongs to, or -1.
func line(path string) int {
	return slices.IndexFunc(order, func(name string) bool { return covers("striatum/"+name+"/...", path) })
}

func TestImportsGoOneWay(t *testing.T) {
	all := list(t)
	for path, p := range all {
		at := line(path)
		if at < 0 {
			continue
		}
		for to, way := range reach(all, path) {
			if line(to) > at && !slices.Contains(testSupport, p.name()) {
				t.Errorf("%s imports %s, which is below it in the table: %s", path, to, way)
			}
		}
	}
}

func TestOnlyNamedPackagesStartPrograms(t *testing.T) {
	all := list(t)
	for _, name := range mayRun {
		if !slices.Contains(named(t, all, name).Imports, "os/exec") {
			t.Errorf("%s no longer imports os/exec; take it off the list", name)
		}
	}
	for _, p := range all {
		if slices.Contains(p.Imports, "os/exec") && !slices.Contains(mayRun, p.name()) && !slices.Contains(testSupport, p.name()) {
			t.Errorf("%s imports os/exec; only %v may", p.name(), mayRun)
		}
	}
}

func TestOnlyTestsImportTestSupport(t *testing.T) {
	all := list(t)
	for _, name := range testSupport {
		named(t, all, name)
	}
	for _, p := range all {
		if slices.Contains(testSupport, p.name()) {
			continue
		}
		for _, imp := range p.Imports {
			if imp == "testing" || slices.Contains(testSupport, strings.TrimPrefix(imp, "striatum/")) {
				t.Errorf("%s imports %s, which is for tests", p.name(), imp)
			}
		}
	}
}

func TestOnlyTheAdapterKnowsItsDriver(t *testing.T) {
	for path, p := range list(t) {
		for _, imp := range p.Imports {
			if anyCovers([]string{"modernc.org/sqlite/...", "github.com/jackc/pgx/..."}, imp) && !covers("striatum/store/...", path) {
				t.Errorf("%s imports %s", path, imp)
			}
		}
	}
}

func TestPurePackagesReadNoClock(t *testing.T) {
	all := list(t)
	for _, name := range clockless {
		p := named(t, all, name)
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep", "NewTimer", "NewTicker"}, sel.Sel.Name) {
					t.Errorf("%s/%s calls time.%s", name, file, sel.Sel.Name)
				}
				return true
			})
		}
	}
}
