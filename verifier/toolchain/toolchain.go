// Package toolchain says which Go a lane uses and proves that it stays the
// same: it finds the go command, asks it for its GOROOT and version, measures
// the closure (every byte below GOROOT and, with cgo, of the C compiler, with
// modes) and notices drift.
//
// It promises that a go command that somebody other than root could replace is
// never started by a lane that is root, and that a digest taken from the stat
// cache is one that the same bytes had: see Measure. It never reads a setting
// from a worktree, and asks go from an empty folder with GOTOOLCHAIN=local,
// GOENV=off and an environment of its own.
package toolchain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"striatum/internal/problem"
)

const (
	maxAnswerBytes = 64 << 10
	askTimeout     = 30 * time.Second
	installHint    = "install Go from https://go.dev/dl/ to /usr/local/go and put /usr/local/go/bin in PATH (golang-go of Debian 12 is too old), or set \"go\" in the home's config.json to an absolute path"
)

// Config says where to look for go.
type Config struct {
	// Go is the absolute path of the go command; links are followed. Empty:
	// the first go in Path.
	Go string
	// Path is the lane user's PATH. Entries that are not absolute are ignored.
	Path string
	// TempDir holds the empty folder that go is asked from; empty: the
	// system's.
	TempDir string
}

// Toolchain is one installed Go, as it describes itself.
type Toolchain struct {
	Go         string // absolute path of GOROOT's go command, links resolved
	GOROOT     string // absolute, links resolved
	Version    string // "go1.26.1"
	GOOS       string
	GOARCH     string
	CgoEnabled bool // as go finds it with only the system's compilers in PATH
	// Proxies is the GOPROXY list of this go where nobody sets one.
	Proxies string

	cc, cxx string // the C and C++ compilers that it calls
}

// Supports reports whether a module whose go.mod says "go line" can be built.
// An empty line is supported; one that is no Go version is not.
func (t Toolchain) Supports(line string) bool {
	if line == "" {
		return true
	}
	v := "go" + line
	return version.IsValid(v) && version.Compare(v, t.Version) <= 0
}

// Find returns the toolchain that cfg names. The error is a problem.Problem:
// Missing when there is no go, it does not run or it does not describe itself,
// Refused when the lane is root and others than root may change it.
func Find(ctx context.Context, cfg Config) (Toolchain, error) {
	path, err := locate(cfg)
	if err != nil {
		return Toolchain{}, err
	}
	if err := trusted(path); err != nil {
		return Toolchain{}, err
	}
	said, err := ask(ctx, cfg.TempDir, path)
	if refused, ok := errors.AsType[*problem.Problem](err); ok {
		return Toolchain{}, refused
	}
	if err != nil {
		return Toolchain{}, problem.Wrap(problem.Missing, err, fmt.Sprintf("go command %q cannot be used", path), installHint)
	}
	return said, nil
}

// trusted refuses, for a lane that is root, a command that others may replace.
func trusted(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if ok, observed := Immutable(path); !ok {
		return problem.New(problem.Refused, fmt.Sprintf("go command %q is not run as root", path), observed,
			"make it and the folders above it owned by root and writable only by root, or set \"go\" in the home's config.json to one that is")
	}
	return nil
}

// locate returns the absolute path of go without links.
func locate(cfg Config) (string, error) {
	candidates := []string{cfg.Go}
	if cfg.Go == "" {
		candidates = nil
		for _, dir := range filepath.SplitList(cfg.Path) {
			if filepath.IsAbs(dir) {
				candidates = append(candidates, filepath.Join(dir, "go"))
			}
		}
	} else if !filepath.IsAbs(cfg.Go) {
		return "", problem.New(problem.Usage, fmt.Sprintf("the go command %q is not usable", cfg.Go), "it is not an absolute path", installHint)
	}
	for _, c := range candidates {
		real, err := filepath.EvalSymlinks(c)
		if err != nil {
			continue
		}
		if st, err := os.Stat(real); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return real, nil
		}
	}
	if cfg.Go != "" {
		return "", problem.New(problem.Missing, fmt.Sprintf("the go command %q is not usable", cfg.Go), "there is no such executable file", installHint)
	}
	return "", problem.New(problem.Missing, "no go command found", fmt.Sprintf("PATH is %q", cfg.Path), installHint)
}

// ask runs go env and go version in an empty folder.
func ask(ctx context.Context, tempDir, path string) (_ Toolchain, err error) {
	dir, err := os.MkdirTemp(tempDir, "striatum-ask-")
	if err != nil {
		return Toolchain{}, fmt.Errorf("make empty folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer within %s", askTimeout))
	defer cancel()

	out, err := run(ctx, dir, path, "env", "-json", "GOROOT", "GOVERSION", "CGO_ENABLED", "GOOS", "GOARCH", "GOPROXY", "CC", "CXX")
	if err != nil {
		return Toolchain{}, err
	}
	var env struct{ GOROOT, GOVERSION, CGO_ENABLED, GOOS, GOARCH, GOPROXY, CC, CXX string } //nolint:staticcheck // go's own names
	if err := json.Unmarshal(out, &env); err != nil {
		return Toolchain{}, fmt.Errorf("read answer of go env: %w", err)
	}
	if !filepath.IsAbs(env.GOROOT) {
		return Toolchain{}, fmt.Errorf("it says that its GOROOT is %q", env.GOROOT)
	}
	root, err := filepath.EvalSymlinks(env.GOROOT)
	if err != nil {
		return Toolchain{}, fmt.Errorf("resolve its GOROOT: %w", err)
	}
	real, err := filepath.EvalSymlinks(filepath.Join(root, "bin", "go"))
	if err != nil {
		return Toolchain{}, fmt.Errorf("resolve the go command of its GOROOT: %w", err)
	}
	if err := trusted(real); err != nil {
		return Toolchain{}, err
	}
	out, err = run(ctx, dir, real, "version")
	if err != nil {
		return Toolchain{}, err
	}
	number := append(strings.Fields(env.GOVERSION), "")[0] // GOEXPERIMENT and the like follow it
	want := fmt.Sprintf("go version %s %s/%s", env.GOVERSION, env.GOOS, env.GOARCH)
	if got := strings.TrimSpace(string(out)); got != want || !version.IsValid(number) {
		return Toolchain{}, fmt.Errorf("go version says %q where go env leads to expect %q", got, want)
	}
	return Toolchain{
		Go: real, GOROOT: root, Version: number,
		GOOS: env.GOOS, GOARCH: env.GOARCH, CgoEnabled: env.CGO_ENABLED == "1", Proxies: env.GOPROXY,
		cc: compilerName(env.CC), cxx: compilerName(env.CXX),
	}, nil
}

// run starts the go command with nothing of the caller's environment. It has no
// HOME: in one it would count what it did, in a process that outlives it.
func run(ctx context.Context, dir, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + filepath.Dir(path) + ":/usr/bin:/bin", "GOCACHE=" + dir, "GOPATH=" + dir, "TMPDIR=" + dir,
		"GOTOOLCHAIN=local", "GOENV=off", "GOFLAGS=", "GOWORK=off", "GOTELEMETRY=off", "LANG=C.UTF-8",
	}
	cmd.WaitDelay = time.Second
	var out, errOut capped
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if said := strings.TrimSpace(errOut.String()); said != "" {
			return nil, fmt.Errorf("go %s: %w: %.300s", args[0], err, said)
		}
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out.Bytes(), nil
}

// capped keeps the first maxAnswerBytes and drops the rest.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	if room := maxAnswerBytes - c.Len(); room > 0 {
		c.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
