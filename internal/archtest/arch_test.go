package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rule says what a package, and every package of ours that it reaches, must not
// import. A path ends in "/..." to cover what is below it.
type rule struct {
	packages []string
	deny     []string
}

var (
	network = []string{"net", "net/http"}
	running = []string{"os/exec"}
	engines = []string{"striatum/sandbox/...", "striatum/verifier/...", "github.com/containerd/containerd/v2/..."}
)

var rules = []rule{
	{[]string{"seal"}, []string{"striatum/..."}},
	{[]string{"receipt", "claim", "workflow", "allowlist"}, slices.Concat(network, running)},
	{[]string{"gate"}, slices.Concat(network, running, engines, []string{"os", "striatum/store/...", "context", "time"})},
	{[]string{"workflowgenerate"}, slices.Concat(network, running, []string{"os"})},
	{[]string{"snapshot"}, slices.Concat(network, running, []string{"striatum/store/...", "striatum/gate"})},
	{[]string{"sandbox", "sandbox/ocispec", "sandbox/containerdengine"}, []string{"striatum/store/...", "striatum/gate"}},
	{[]string{"verifier", "verifier/journal", "verifier/modules", "verifier/toolchain"}, []string{"striatum/store/...", "striatum/gate", "striatum/daemon"}},
	{[]string{"verifier/gocheck"}, slices.Concat(running, network, engines, []string{"striatum/store/...", "striatum/gate"})},
	{[]string{"store", "store/sqlite"}, engines},
	{[]string{"eventlog"}, engines},
	{[]string{"daemon"}, slices.Concat(running, engines)},
	{[]string{"cmd/striatum-init"}, []string{"github.com/...", "striatum/receipt", "striatum/seal"}},
}

// mayRun are the packages that may start a program of the host: never one that
// an untrusted tree names.
var mayRun = []string{"verifier/toolchain", "sandbox/containerdengine", "internal/reaper", "internal/launcher", "internal/idrange", "internal/mountns"}

// directOnly are imports that count only where a package has them itself: the
// standard library and pure libraries reach them inside.
var directOnly = []string{"os", "context", "time", "net", "net/http", "os/exec"}

type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Standard", "striatum/...")
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

func denies(pattern, imp string) bool {
	if prefix, tree := strings.CutSuffix(pattern, "/..."); tree {
		return imp == prefix || strings.HasPrefix(imp, prefix+"/")
	}
	return imp == pattern
}

func TestImportsGoDown(t *testing.T) {
	all := list(t)
	for _, r := range rules {
		for _, name := range r.packages {
			path := "striatum/" + name
			if _, ok := all[path]; !ok {
				t.Errorf("the rules name %s, which does not exist", path)
				continue
			}
			for from, way := range reach(all, path) {
				for _, imp := range all[from].Imports {
					for _, pattern := range r.deny {
						ofUs := strings.HasPrefix(pattern, "striatum/") && (imp == path || from != path && denies(pattern, from))
						if !denies(pattern, imp) || ofUs {
							continue
						}
						if slices.Contains(directOnly, pattern) && from != path && !strings.HasPrefix(name, "daemon") && pattern != "os/exec" {
							continue
						}
						t.Errorf("%s must not import %s: %s → %s", path, pattern, way, imp)
					}
				}
			}
		}
	}
}

func TestOnlyNamedPackagesStartPrograms(t *testing.T) {
	all := list(t)
	for path, p := range all {
		name := strings.TrimPrefix(path, "striatum/")
		if slices.Contains(p.Imports, "os/exec") && !slices.Contains(mayRun, name) {
			t.Errorf("%s imports os/exec; only %v may", path, mayRun)
		}
	}
}

func TestOnlyTheAdapterKnowsItsDriver(t *testing.T) {
	for path, p := range list(t) {
		for _, imp := range p.Imports {
			if (denies("modernc.org/sqlite/...", imp) || denies("github.com/jackc/pgx/...", imp)) && !denies("striatum/store/...", path) {
				t.Errorf("%s imports %s", path, imp)
			}
		}
	}
}
