package verifier_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/workflow"
)

// realModule is a public module at a pinned version. The proxy's zip of a module
// leaves out the modules below it: nested names those that lie there, by folder.
type realModule struct {
	module string
	nested map[string]string
	dir    string // of the check; empty: the module's own choice
	only   string // the one builtin to run: what is large takes long; empty: all three
	cgo    bool   // plain go must have a C compiler
	finds  string // the code of a finding that each receipt must have
	// Why the lane's verdict on a check is another than plain go's, by builtin.
	// Such a line belongs into docs/go-checks.md too.
	differs map[string]string
}

var realModules = []realModule{
	{module: "github.com/google/uuid@v1.6.0"},
	{module: "github.com/google/go-cmp@v0.7.0"},                        // go vet reports; go test passes
	{module: "github.com/sirupsen/logrus@v1.9.3"},                      // with dependencies
	{module: "github.com/spf13/pflag@v1.0.5", only: "builtin:go-test"}, // its vet reports
	{module: "github.com/pkg/errors@v0.9.1", only: "builtin:go-test"},  // no go.mod
	{module: "github.com/beevik/ntp@v1.4.3"},                           // its tests ask servers
	{
		module: "github.com/containerd/btrfs/v2@v2.0.0", cgo: true,
		differs: map[string]string{"builtin:go-test": "a module without tests passes plain go test; a check that checked nothing fails"},
	},
	{module: "github.com/DataDog/zstd@v1.5.6", cgo: true, only: "builtin:go-test"}, // C compiled, with tests
	{
		module: "github.com/containerd/errdefs@v1.0.0", nested: map[string]string{"pkg": "github.com/containerd/errdefs/pkg@v0.3.0"},
		finds: "module_not_checked",
	},
	{
		module: "github.com/containerd/errdefs@v1.0.0", nested: map[string]string{"pkg": "github.com/containerd/errdefs/pkg@v0.3.0"},
		dir: "pkg",
	},
}

// goEnv is what plain go runs with: nothing of the caller's, and no network once
// the modules are there.
type goEnv struct{ goroot, modcache, cache, home, proxy, sumdb string }

func (e goEnv) list(offline bool) []string {
	proxy, sumdb := e.proxy, e.sumdb
	if offline {
		proxy, sumdb = "off", "off"
	}
	return []string{
		"PATH=" + e.goroot + "/bin:/usr/bin:/bin", "HOME=" + e.home, "GOMODCACHE=" + e.modcache, "GOCACHE=" + e.cache,
		"GOPROXY=" + proxy, "GOSUMDB=" + sumdb, "GOFLAGS=", "GOENV=off", "GOTOOLCHAIN=local", "GOWORK=off", "TZ=UTC", "LANG=C.UTF-8",
	}
}

func hostGo(t *testing.T) goEnv {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ GOROOT, GOMODCACHE, GOCACHE, GOPROXY, GOSUMDB string }
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	return goEnv{v.GOROOT, v.GOMODCACHE, v.GOCACHE, t.TempDir(), v.GOPROXY, v.GOSUMDB}
}

// download copies a module to dir, and its dependencies into the module cache.
func (e goEnv) download(t *testing.T, module, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Env = t.TempDir(), e.list(false)
	out, err := cmd.Output()
	var m struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &m); err != nil || jerr != nil || m.Dir == "" {
		testenv.Missing(t, "modules", module+": "+m.Error)
	}
	if err := os.CopyFS(dir, os.DirFS(m.Dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.Dir, "go.mod")); err != nil {
		return
	}
	deps := t.TempDir() // go.mod and go.sum of the copy stay as they are
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(m.Dir, name))
		if err != nil && (name == "go.mod" || !os.IsNotExist(err)) {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(deps, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd = exec.CommandContext(ctx, "go", "mod", "download")
	cmd.Dir, cmd.Env = deps, e.list(false)
	if out, err := cmd.CombinedOutput(); err != nil {
		testenv.Missing(t, "modules", module+": "+string(out))
	}
}

// offline runs a go command on the host in a network namespace of its own, which
// has a loopback interface and leads nowhere, as the sandbox does.
func (e goEnv) offline(t *testing.T, dir string, args ...string) (stdout []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(e.goroot, "bin", "go"), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, e.list(true), &out, &said
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with its network
		started <- errors.Join(ownNetwork(), cmd.Start())
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		t.Fatalf("go %v: %v", args, ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("go %v: %w: %.2000s", args, err, said.String())
	}
	return out.Bytes(), err
}

// ownNetwork gives the calling thread a network with nothing but loopback.
func ownNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// census is what plain go test reports of tests, subtests, fuzz targets and
// examples: how many passed, failed and were skipped.
func census(out []byte) [3]int64 {
	var n [3]int64
	for line := range bytes.Lines(out) {
		var ev struct{ Action, Test string }
		if json.Unmarshal(line, &ev) != nil || ev.Test == "" {
			continue
		}
		if i := slices.Index([]string{"pass", "fail", "skip"}, ev.Action); i >= 0 {
			n[i]++
		}
	}
	return n
}

// TestRealModulesAreJudgedAsPlainGoJudgesThem holds the lane's verdict on public
// modules against the exit status of plain go, and its census against plain go's
// own report.
func TestRealModulesAreJudgedAsPlainGoJudgesThem(t *testing.T) {
	l := open(t)
	env := hostGo(t)
	l.downloads = filepath.Join(env.modcache, "cache", "download")
	t.Cleanup(func() { l.downloads = "" })
	commands := map[string][]string{
		"builtin:go-build": {"build", "-o=/dev/null", "./..."},
		"builtin:go-vet":   {"vet", "./..."},
		"builtin:go-test":  {"test", "-json", "-count=1", "./..."},
	}
	for _, m := range realModules {
		t.Run(strings.NewReplacer("/", "_", "@", "_").Replace(m.module)+m.dir, func(t *testing.T) {
			root := t.TempDir()
			env.download(t, m.module, root)
			for dir, nested := range m.nested {
				env.download(t, nested, filepath.Join(root, dir))
			}
			if _, err := exec.LookPath("gcc"); m.cgo && err != nil {
				testenv.Missing(t, "gcc", err.Error())
			}
			for uses, args := range commands {
				if m.only == "" || m.only == uses {
					m.compare(t, l, env, root, uses, args)
				}
			}
		})
	}
}

func (m realModule) compare(t *testing.T, l *lab, env goEnv, root, uses string, args []string) {
	t.Helper()
	started := time.Now()
	out, failed := env.offline(t, filepath.Join(root, m.dir), args...)
	plain := time.Since(started)
	want := receipt.Asserted
	if failed != nil {
		want = receipt.Failed
	}
	r := l.receiptOf(t, root, workflow.CheckRef{Uses: uses, Dir: m.dir})
	got := codes(r)
	t.Logf("%s: %s (plain go %.1f s, the lane %.1f s); %s", uses, r.Classification, plain.Seconds(), (time.Since(started) - plain).Seconds(), got)
	if differs := r.Classification != want; differs != (m.differs[uses] != "") {
		t.Errorf("%s: %s, plain go leads to expect %s (%q); codes: %s; control %s %s\n%v",
			uses, r.Classification, want, m.differs[uses], got, r.Control.Outcome, r.Control.Why, failed)
	}
	if !strings.Contains(got, m.finds) {
		t.Errorf("%s: codes %s, want %s", uses, got, m.finds)
	}
	if r.Census != nil {
		if have := [3]int64{r.Census.Passed, r.Census.Failed, r.Census.Skipped}; have != census(out) {
			t.Errorf("passed, failed, skipped: %v; plain go: %v; failed: %v; skipped: %v", have, census(out), r.Census.FailedTests.Names, r.Census.SkippedTests.Names)
		}
	}
}
