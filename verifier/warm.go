package verifier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"striatum/internal/collector"
	"striatum/internal/durable"
	"striatum/internal/problem"
	"striatum/sandbox"
	"striatum/seal"
	"striatum/verifier/gocheck"
	"striatum/verifier/toolchain"
)

// warmLimits bound a sandbox that compiles a layer of the lane's cache.
var warmLimits = sandbox.Limits{
	WallClock: 30 * time.Minute, MemoryBytes: 8 << 30, Pids: 1024, MilliCPUs: 1000 * 64,
	OutputBytes: 16 << 20, DiskBytes: 4 << 30,
}

const (
	warmVolumeBytes = 4 << 30 // bounds one compiled layer
	cacheQuota      = 8 << 30 // bounds all layers together
)

// goCache returns the compiled packages that the programs of a Go check see below
// a layer of their own: the standard library, and what the check imports of
// proven modules.
func (r *run) goCache(ctx context.Context) (string, error) {
	dir, err := r.standardCache(ctx)
	if err != nil {
		return "", err
	}
	if dir, err = r.dependencyCache(ctx, dir); err != nil {
		return "", err
	}
	now := r.lane.cfg.Now()
	return dir, os.Chtimes(dir, now, now) // the newest use, for pruneLayers
}

// layerDir is where the layer of a key is, and whether it is there.
func (r *run) layerDir(kind, key string) (dir string, have bool, err error) {
	dir = filepath.Join(r.lane.cfg.Dir, "cache", kind+"-"+key[:32])
	if _, err := os.Stat(dir); err == nil {
		return dir, true, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("look for the cache layer: %w", err)
	}
	return dir, false, durable.MkdirAll(filepath.Dir(dir), 0o700)
}

// standardCache returns the folder of the lane's cache layer 1: the standard
// library, compiled and vetted in a strict sandbox that sees no worktree
// and no module. It is made on the first use of a toolchain and environment
// and never written again.
func (r *run) standardCache(ctx context.Context) (string, error) {
	env := gocheck.NewEnvironment(r.tools.chain.GOROOT, r.tools.chain.CgoEnabled, false) // there is no go.work here
	dir, have, err := r.layerDir("std", seal.SHA256Hex([]byte(r.tools.closure.SHA256+"\n"+env.Digest()+"\n")))
	if err != nil || have {
		return dir, err
	}
	r.step("compile the standard library for the lane's cache (once for each Go version)")
	vol, err := r.engine.NewVolume(ctx, warmVolumeBytes)
	if err != nil {
		return "", err
	}
	defer r.drop(vol)
	programs := warmPrograms(r.tools.chain, env)
	var out tail
	said, err := r.compileLayer(ctx, warmLimits, programs, out.streams, sandbox.Mount{Kind: sandbox.Output, Volume: vol, Target: gocheck.CacheDir})
	if err == nil && said != "" {
		err = errors.New(said + ": " + out.String())
	}
	if err != nil {
		return "", problem.Wrap(problem.Indeterminate, err, "compile the standard library in the sandbox", "run `striatum doctor`")
	}
	return dir, r.keepLayer(vol, dir, "")
}

// errLimit is within the error of a layer's sandbox that hit a limit.
var errLimit = errors.New("limit was hit")

// compileLayer runs programs in a sandbox that sees the tools, an empty worktree
// and mounts. failed says how the first one that did not succeed ended.
func (r *run) compileLayer(ctx context.Context, limits sandbox.Limits, programs []sandbox.Program, to sandbox.Streams, mounts ...sandbox.Mount) (failed string, err error) {
	empty := filepath.Join(r.lane.cfg.Dir, "empty")
	if err := durable.MkdirAll(empty, 0o755); err != nil {
		return "", err
	}
	sb, err := r.engine.Prepare(ctx, sandbox.Spec{
		Mounts: append(append(toolMounts(r.tools.closure),
			sandbox.Mount{Kind: sandbox.Layer, Source: empty, Target: gocheck.WorkDir, Shared: true},
			sandbox.Mount{Kind: sandbox.Scratch, Target: gocheck.HomeDir, Shared: true},
			sandbox.Mount{Kind: sandbox.Scratch, Target: "/tmp", Shared: true},
		), mounts...),
		Limits: limits,
	})
	if err != nil {
		return "", err
	}
	defer sb.Discard()
	res, err := sb.Run(ctx, programs, to)
	switch {
	case err != nil:
		return "", err
	case res.Hit != sandbox.HitNone:
		return "", fmt.Errorf("the %s %w", res.Hit, errLimit)
	case len(res.Programs) != len(programs):
		return "", errors.New("it ended early")
	}
	for _, p := range res.Programs {
		if p.StartError != "" || p.ExitCode != 0 || p.Signal != "" {
			return fmt.Sprintf("%s%s (exit %d)", p.StartError, p.Signal, p.ExitCode), nil
		}
	}
	return "", nil
}

// keepLayer moves what was compiled to its place, with links to the layer below.
func (r *run) keepLayer(vol sandbox.Volume, dir, below string) error {
	if err := r.makeLayer(vol, dir, below); err != nil {
		return fmt.Errorf("keep the cache layer: %w", err)
	}
	return pruneLayers(filepath.Dir(dir), cacheQuota, dir, below)
}

func (r *run) makeLayer(vol sandbox.Volume, dir, below string) error {
	tmp := dir + unfinished
	if err := errors.Join(os.RemoveAll(tmp), vol.Keep(tmp)); err != nil {
		return err
	}
	err := filepath.WalkDir(tmp, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return os.Chtimes(p, collector.LayerTime, collector.LayerTime)
	})
	if err == nil && below != "" {
		err = filepath.WalkDir(below, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			at := tmp + strings.TrimPrefix(p, below)
			if !d.IsDir() {
				err = os.Link(p, at)
			} else if err = os.Mkdir(at, 0o700); err == nil {
				err = os.Chmod(at, 0o755) //nolint:gosec // sandboxes read it as another user, whatever the umask is
			}
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// warmImports are the packages that a check's cold cache would make it compile
// and vet again and again: what most tests import. Their own imports come along.
var warmImports = []string{
	"bufio", "bytes", "cmp", "context", "crypto/sha256", "database/sql", "embed", "encoding/base64", "encoding/binary",
	"encoding/hex", "encoding/json", "encoding/xml", "errors", "flag", "fmt", "go/ast", "go/parser", "html/template",
	"io", "io/fs", "iter", "log", "log/slog", "maps", "math", "math/big", "math/rand", "mime/multipart", "net",
	"net/http", "net/http/httptest", "net/url", "os", "os/exec", "os/signal", "path", "path/filepath", "reflect",
	"regexp", "runtime", "runtime/debug", "slices", "sort", "strconv", "strings", "sync", "sync/atomic", "syscall",
	"testing", "testing/fstest", "testing/iotest", "testing/quick", "text/tabwriter", "text/template", "time",
	"unicode", "unicode/utf8",
}

// warmPrograms compile the standard library, and vet as `go vet` and as `go
// test` do what most tests import of it.
func warmPrograms(tc toolchain.Toolchain, env gocheck.Environment) []sandbox.Program {
	run := func(args ...string) sandbox.Program { return program(tc.Go, args, gocheck.WorkDir, env.List()) }
	first := run("build", "std")
	first.Files = append(warmPackage(warmImports), warmFile("go.mod", "module warm.invalid\n\ngo "+strings.TrimPrefix(tc.Version, "go")+"\n"))
	return []sandbox.Program{first, run("vet", "./..."), run("test", "-count=1", "./...")}
}

// warmDir is the package of a warming module, in its folder.
const warmDir = "warm"

// warmPackage is a package that imports names, with a test.
func warmPackage(names []string) []sandbox.File {
	var imports strings.Builder
	for _, name := range names {
		fmt.Fprintf(&imports, "import _ %q\n", name)
	}
	return []sandbox.File{
		warmFile(warmDir+"/warm.go", "package warm\n\n"+imports.String()),
		warmFile(warmDir+"/warm_test.go", "package warm\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n"),
	}
}

func warmFile(name, text string) sandbox.File {
	return sandbox.File{Path: path.Join(gocheck.WorkDir, name), Mode: 0o644, Data: []byte(text)}
}

// tail keeps the last bytes of what several programs print.
type tail struct{ b []byte }

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) streams(int) (stdout, stderr io.Writer) { return t, t }

func (t *tail) String() string { return string(t.b[max(0, len(t.b)-tailBytes):]) }
