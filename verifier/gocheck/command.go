package gocheck

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// The folders of a check's sandbox. They are the same on every host, because
// Go writes them into what it compiles.
const (
	WorkDir    = "/workspace"      // the tree
	HomeDir    = "/home/check"     // empty, writable
	TempDir    = "/tmp"            // empty, writable
	CacheDir   = "/cache/go-build" // GOCACHE, private to the sandbox
	ModuleDir  = "/cache/go-mod"   // GOMODCACHE, the lane's module store, read-only
	MaxTimeout = 10 * time.Minute  // of one test binary
)

// MinGoVersion is the oldest toolchain whose output is understood: the first
// that reports build failures as JSON.
const MinGoVersion = "go1.24"

// Variable is one environment variable of a check, with the reason for it.
type Variable struct {
	Name, Value, Why string
}

// Environment is the whole environment of a check's programs. The zero value
// is not usable; NewEnvironment makes one.
type Environment struct {
	vars []Variable
}

// NewEnvironment returns the environment for the toolchain at goroot. cgo is
// what that toolchain finds for itself; goWork is true only for a check that
// declares go_work.
func NewEnvironment(goroot string, cgo, goWork bool) Environment {
	vars := []Variable{
		{"CGO_ENABLED", "0", "as the toolchain finds it on the lane's host, and fixed"},
		{"GOCACHE", CacheDir, "a private layer over the lane's read-only compiled packages"},
		{"GOENV", "off", "no settings file of a user"},
		{"GOFLAGS", "", "no flags but those of the command itself"},
		{"GOMODCACHE", ModuleDir, "the lane's module store, read-only"},
		{"GOPROXY", "off", "there is no network; dependencies are fetched before"},
		{"GOSUMDB", "off", "there is no network; go.sum is compared before"},
		{"GOTELEMETRY", "off", "no counters are kept"},
		{"GOTOOLCHAIN", "local", "the measured toolchain and no other"},
		{"GOWORK", "off", "go.work counts only for a check that declares go_work"},
		{"HOME", HomeDir, "empty, writable, gone after the run"},
		{"LANG", "C.UTF-8", "the same on every host"},
		{"PATH", path.Join(goroot, "bin") + ":/usr/bin:/bin", "the measured tools and no other"},
		{"TMPDIR", TempDir, "empty, writable, gone after the run"},
		{"TZ", "UTC", "the same on every host"},
	}
	if cgo {
		vars[0].Value = "1"
	}
	if goWork {
		vars = slices.DeleteFunc(vars, func(v Variable) bool { return v.Name == "GOWORK" })
	}
	return Environment{vars: vars}
}

// Variables returns the variables sorted by name, for the documentation.
func (e Environment) Variables() []Variable { return slices.Clone(e.vars) }

// List returns "NAME=value" strings sorted by name, as a program takes them.
func (e Environment) List() []string {
	list := make([]string, len(e.vars))
	for i, v := range e.vars {
		list[i] = v.Name + "=" + v.Value
	}
	return list
}

// In returns List for a program that starts in dir: with PWD, as the go command
// sets it for the tests that it runs.
func (e Environment) In(dir string) []string {
	return append(e.List(), "PWD="+dir)
}

// Digest is the hex SHA-256 of List, each entry ended by a newline.
func (e Environment) Digest() string {
	sum := sha256.Sum256([]byte(strings.Join(e.List(), "\n") + "\n"))
	return hex.EncodeToString(sum[:])
}

// Params are the parameters of a check that change its commands.
type Params struct {
	Packages []string // "./...", "./a", "./a/..."; empty: "./..."
	Tags     []string // build tags
}

const tagRunes = "_.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Validate reports the first parameter that no command may have.
func (p Params) Validate() error {
	for _, pattern := range p.Packages {
		if _, err := parsePattern(pattern); err != nil {
			return err
		}
	}
	for _, tag := range p.Tags {
		if tag == "" || strings.ContainsFunc(tag, func(r rune) bool { return !strings.ContainsRune(tagRunes, r) }) {
			return fmt.Errorf("read build tag %q: letters, digits, _ and . only", tag)
		}
	}
	return nil
}

func (p Params) patterns() []string {
	if len(p.Packages) == 0 {
		return []string{"./..."}
	}
	return p.Packages
}

// pattern is one package pattern: a folder relative to the module and, if Tree,
// those below it.
type pattern struct {
	dir  string
	tree bool
}

func parsePattern(s string) (pattern, error) {
	rest, tree := strings.CutSuffix(s, "/...")
	dir := strings.TrimPrefix(rest, "./")
	ok := rest == "." || strings.HasPrefix(rest, "./") && dir != "" && path.Clean(dir) == dir
	if !ok || strings.Contains(dir, "...") || strings.ContainsAny(dir, "\\\x00\n") || dir == ".." || strings.HasPrefix(dir, "../") || path.IsAbs(dir) {
		return pattern{}, fmt.Errorf("read package pattern %q: it must be \".\", \"./dir\", or one of them followed by \"/...\"", s)
	}
	return pattern{dir: dir, tree: tree}, nil
}

// Command is one call of the go command, made in the module's folder.
type Command struct {
	Args []string // without the program itself
	Dir  string   // absolute, inside the sandbox
}

// command builds the arguments that all calls have. VCS stamping is off because
// it would run a program on metadata of the tree.
func command(m Module, p Params, verb string, flags ...string) Command {
	args := append([]string{verb}, flags...)
	args = append(args, "-buildvcs=false")
	if len(p.Tags) > 0 {
		args = append(args, "-tags="+strings.Join(p.Tags, ","))
	}
	args = append(args, p.patterns()...)
	return Command{Args: args, Dir: path.Join(WorkDir, m.Dir)}
}

// TestCompile vets, builds and links every test of the check and hands each
// binary to collector, an argv inside the sandbox without blanks in it. No code
// of the repository runs. The timeout, of one test binary, is cut to MaxTimeout.
func TestCompile(m Module, p Params, collector []string, timeout time.Duration) (Command, error) {
	if len(collector) == 0 || slices.ContainsFunc(collector, func(s string) bool { return s == "" || strings.ContainsAny(s, " \t\r\n'\"\\") }) {
		return Command{}, errors.New("build the test command: the collector's words must not be empty or have blanks or quotes")
	}
	timeout = TestTimeout(timeout)
	return command(m, p, "test", "-json", "-count=1", "-timeout="+timeout.String(), "-exec="+strings.Join(collector, " ")), nil
}

// TestTimeout is the timeout of one test binary under a check's wall clock.
func TestTimeout(wallClock time.Duration) time.Duration {
	return min(wallClock, MaxTimeout)
}

// binaryArgs are the arguments that TestCompile's go command gives each binary.
func binaryArgs(timeout time.Duration) []string {
	return []string{"-test.paniconexit0", "-test.v=test2json", "-test.timeout=" + TestTimeout(timeout).String(), "-test.count=1"}
}

// Vet is go vet with all its analyzers. Its findings are on standard error.
func Vet(m Module, p Params) Command { return command(m, p, "vet") }

// Build compiles and links every package and keeps nothing. Its failures are
// JSON on standard output.
func Build(m Module, p Params) Command { return command(m, p, "build", "-json", "-o=/dev/null") }
