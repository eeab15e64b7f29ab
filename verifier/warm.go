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

	"striatum/internal/durable"
	"striatum/internal/problem"
	"striatum/sandbox"
	"striatum/seal"
	"striatum/verifier/gocheck"
	"striatum/verifier/toolchain"
)

// warmLimits bound the one sandbox that compiles the standard library.
var warmLimits = sandbox.Limits{
	WallClock: 30 * time.Minute, MemoryBytes: 8 << 30, Pids: 1024, MilliCPUs: 1000 * 64,
	OutputBytes: 16 << 20, DiskBytes: 4 << 30,
}

// warmVolumeBytes bounds the compiled standard library on disk.
const warmVolumeBytes = 4 << 30

// standardCache returns the folder of the lane's cache layer 1: the standard
// library of tc, compiled and vetted in a strict sandbox that sees no worktree
// and no module. It is made on the first use of a toolchain and environment
// and never written again; runs see it below a layer of their own.
func (r *run) standardCache(ctx context.Context) (string, error) {
	l, closure := r.lane, r.tools.closure
	env := gocheck.NewEnvironment(r.tools.chain.GOROOT, r.tools.chain.CgoEnabled, false) // there is no go.work here
	key := seal.SHA256Hex([]byte(closure.SHA256 + "\n" + env.Digest() + "\n"))
	dir := filepath.Join(l.cfg.Dir, "cache", "std-"+key[:32])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for the cache layer: %w", err)
	}
	if err := durable.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	r.step("compile the standard library for the lane's cache (once for each Go version)")
	empty := filepath.Join(l.cfg.Dir, "empty")
	if err := durable.MkdirAll(empty, 0o755); err != nil {
		return "", err
	}
	vol, err := r.engine.NewVolume(ctx, warmVolumeBytes)
	if err != nil {
		return "", err
	}
	sb, err := r.engine.Prepare(ctx, sandbox.Spec{
		Mounts: append(toolMounts(closure),
			sandbox.Mount{Kind: sandbox.Layer, Source: empty, Target: gocheck.WorkDir, Shared: true},
			sandbox.Mount{Kind: sandbox.Scratch, Target: gocheck.HomeDir, Shared: true},
			sandbox.Mount{Kind: sandbox.Scratch, Target: "/tmp", Shared: true},
			sandbox.Mount{Kind: sandbox.Output, Volume: vol, Target: gocheck.CacheDir},
		),
		Limits: warmLimits,
	})
	if err != nil {
		return "", errors.Join(err, vol.Remove())
	}
	defer sb.Discard()
	var out tail
	programs := warmPrograms(r.tools.chain, env)
	res, err := sb.Run(ctx, programs, out.streams)
	switch {
	case err != nil:
	case res.Hit != sandbox.HitNone:
		err = fmt.Errorf("the %s limit was hit", res.Hit)
	case len(res.Programs) != len(programs):
		err = errors.New("it ended early")
	default:
		for _, p := range res.Programs {
			if p.StartError != "" || p.ExitCode != 0 || p.Signal != "" {
				err = fmt.Errorf("%s%s (exit %d): %s", p.StartError, p.Signal, p.ExitCode, out.String())
			}
		}
	}
	if err != nil {
		return "", problem.Wrap(problem.Indeterminate, errors.Join(err, vol.Remove()), "compile the standard library in the sandbox", "run `striatum doctor`")
	}
	return dir, keepCache(vol, dir)
}

// keepCache moves a compiled cache to its place. The go command renews the time
// of an entry that it uses and that is an hour old, which would copy every entry
// that a run uses into its layer; a time far ahead keeps it from that.
func keepCache(vol sandbox.Volume, dir string) error {
	tmp := dir + ".new"
	if err := errors.Join(os.RemoveAll(tmp), vol.Keep(tmp)); err != nil {
		return fmt.Errorf("keep the cache layer: %w", err)
	}
	ahead := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	err := filepath.WalkDir(tmp, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return os.Chtimes(p, ahead, ahead)
	})
	if err != nil {
		return fmt.Errorf("keep the cache layer: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("keep the cache layer: %w", err)
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
	var imports strings.Builder
	for _, name := range warmImports {
		fmt.Fprintf(&imports, "import _ %q\n", name)
	}
	run := func(args ...string) sandbox.Program { return program(tc.Go, args, gocheck.WorkDir, env.List()) }
	first := run("build", "std")
	for name, data := range map[string]string{
		"go.mod":       "module warm.invalid\n\ngo " + strings.TrimPrefix(tc.Version, "go") + "\n",
		"warm.go":      "package warm\n\n" + imports.String(),
		"warm_test.go": "package warm\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n",
	} {
		first.Files = append(first.Files, sandbox.File{Path: path.Join(gocheck.WorkDir, name), Mode: 0o644, Data: []byte(data)})
	}
	return []sandbox.Program{first, run("vet", "./..."), run("test", "-count=1", "./...")}
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
