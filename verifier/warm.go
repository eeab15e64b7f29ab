package verifier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
	OutputBytes: 16 << 20, DiskBytes: 1 << 30,
}

// warmVolumeBytes bounds the compiled standard library on disk.
const warmVolumeBytes = 4 << 30

// standardCache returns the folder of the lane's cache layer 1: the standard
// library of tc, compiled and vetted in a strict sandbox that sees no worktree
// and no module. It is made on the first use of a toolchain and environment
// and never written again; runs see it below a layer of their own.
func (r *run) standardCache(ctx context.Context) (string, error) {
	l, closure, env := r.lane, r.tools.closure, r.source.env
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
	if err := vol.Keep(dir); err != nil {
		return "", fmt.Errorf("keep the cache layer: %w", err)
	}
	return dir, nil
}

// warmPrograms compile and vet what every check of a module needs: a module of
// one package that imports the standard library, built, vetted and tested.
func warmPrograms(tc toolchain.Toolchain, env gocheck.Environment) []sandbox.Program {
	files := []sandbox.File{
		{Path: gocheck.WorkDir + "/go.mod", Mode: 0o644, Data: []byte("module warm.invalid\n\ngo " + strings.TrimPrefix(tc.Version, "go") + "\n")},
		{Path: gocheck.WorkDir + "/warm.go", Mode: 0o644, Data: []byte("package warm\n")},
		{Path: gocheck.WorkDir + "/warm_test.go", Mode: 0o644, Data: []byte("package warm\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n")},
	}
	program := func(args ...string) sandbox.Program {
		return sandbox.Program{Path: tc.Go, Args: args, Dir: gocheck.WorkDir, Env: env.List()}
	}
	first := program("build", "std")
	first.Files = files
	return []sandbox.Program{
		first,
		program("vet", "std"),
		program("test", "-count=1", "./..."),
	}
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
