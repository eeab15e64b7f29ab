package gocheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"striatum/internal/collector"
	"striatum/receipt"
)

// TestMain makes this test binary a collector when the go command starts it as
// one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "collect" {
		os.Exit(collector.Main(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

// lab does on the host, with trusted fixtures, what a lane does in sandboxes.
type lab struct {
	t         *testing.T
	dir       string
	params    Params
	discovery Discovery
	notes     Notes
	env       []string
}

const labTimeout = time.Minute

// hostEnv is what the host's go command works with.
func hostEnv(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "env", "-json", "GOROOT", "GOCACHE", "GOMODCACHE", "CGO_ENABLED").Output()
	if err != nil {
		t.Fatal(err)
	}
	var env map[string]string
	if err := json.Unmarshal(out, &env); err != nil {
		t.Fatal(err)
	}
	return env
}

func newLab(t *testing.T, dir string, params Params) *lab {
	t.Helper()
	host := hostEnv(t)
	home := t.TempDir()
	// Without this file the go command starts a process that outlives it and
	// writes into the home: the variable GOTELEMETRY only reports the mode.
	mode := filepath.Join(home, ".config", "go", "telemetry", "mode")
	if err := os.MkdirAll(filepath.Dir(mode), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mode, []byte("off 2024-01-01\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, params: params}
	l.env = append(NewEnvironment(host["GOROOT"], host["CGO_ENABLED"] == "1", false).List(),
		"GOCACHE="+host["GOCACHE"], "GOMODCACHE="+host["GOMODCACHE"], "HOME="+home, "TMPDIR="+t.TempDir(), "PATH="+os.Getenv("PATH"))
	tree := rootFS(t, dir).FS()
	m, notes, err := FindModule(tree, Selection{})
	if err != nil {
		t.Fatal(err)
	}
	d, findings, err := Census(tree, m, params, BuildContext{GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, CgoEnabled: host["CGO_ENABLED"] == "1", GoVersion: runtime.Version()})
	if err != nil {
		t.Fatal(err)
	}
	l.discovery, l.notes = d, notes
	l.notes.Findings = append(l.notes.Findings, findings...)
	return l
}

// goCommand runs the go command with planted files in place.
func (l *lab) goCommand(c Command, planted []Planted) (*ToolLog, End) {
	l.t.Helper()
	for _, p := range planted {
		file := filepath.Join(l.dir, p.Path)
		was, missing := os.ReadFile(file)
		if err := os.WriteFile(file, p.Data, 0o644); err != nil {
			l.t.Fatal(err)
		}
		defer func() {
			if missing != nil {
				_ = os.Remove(file)
			} else {
				_ = os.WriteFile(file, was, 0o644)
			}
		}()
	}
	log := NewToolLog()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("go", c.Args...)
	cmd.Dir = l.dir + strings.TrimPrefix(c.Dir, WorkDir)
	cmd.Env = append(l.env, "PWD="+cmd.Dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	end := l.end(cmd.Run())
	_, _ = io.Copy(log.StdoutWriter(), &stdout)
	_, _ = io.Copy(log.StderrWriter(), &stderr)
	log.Close()
	return log, end
}

func (l *lab) end(err error) End {
	l.t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return End{}
	case !errors.As(err, &exit):
		l.t.Fatal(err)
	case exit.ExitCode() < 0:
		return End{ExitCode: -1, Signal: "signal"}
	}
	return End{ExitCode: exit.ExitCode()}
}

// compile returns the word on a compile step and, if it compiled, what the
// binaries came to.
func (l *lab) compile(planted []Planted) (Compiled, []PackageRun) {
	l.t.Helper()
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	out := l.t.TempDir()
	c, err := TestCompile(l.discovery.Module, l.params, []string{self, "collect", out, "--"}, labTimeout)
	if err != nil {
		l.t.Fatal(err)
	}
	log, end := l.goCommand(c, planted)
	compiled := JudgeCompile(l.discovery, log, end)
	if compiled.Outcome != receipt.Compiled {
		return compiled, nil
	}
	files, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil {
		l.t.Fatal(err)
	}
	var records []collector.Record
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			l.t.Fatal(err)
		}
		r, err := collector.ParseRecord(data)
		if err != nil {
			l.t.Fatal(err)
		}
		r.Dir = WorkDir + strings.TrimPrefix(r.Dir, l.dir)
		records = append(records, r)
	}
	binaries, err := MatchRecords(l.discovery, records, labTimeout)
	if err != nil {
		l.t.Fatal(err)
	}
	var runs []PackageRun
	room := &Room{}
	for _, b := range binaries {
		tally := NewTally(room)
		for _, p := range planted {
			if p.ImportPath == b.ImportPath {
				tally = NewControlTally(p.Test, room)
			}
		}
		cmd := exec.Command(filepath.Join(out, b.File), b.Args...)
		cmd.Dir = l.dir + strings.TrimPrefix(b.Dir, WorkDir)
		cmd.Env = append(l.env, "PWD="+cmd.Dir)
		cmd.Stdout = tally
		end := l.end(cmd.Run())
		tally.Close()
		runs = append(runs, PackageRun{ImportPath: b.ImportPath, ExitCode: end.ExitCode, Signal: end.Signal, Tally: tally})
	}
	return compiled, runs
}

// verdict is what all of go-test came to.
type verdict struct {
	compile  receipt.CompileOutcome
	judged   Judged
	control  receipt.ControlOutcome
	why      string
	reasons  map[string]bool
	findings map[string]bool
}

func (l *lab) goTest() verdict {
	l.t.Helper()
	v := verdict{reasons: map[string]bool{}, findings: map[string]bool{}}
	compiled, runs := l.compile(nil)
	v.compile = compiled.Outcome
	for _, r := range compiled.Reasons {
		v.reasons[r.Code] = true
	}
	if compiled.Outcome == receipt.Compiled {
		v.judged = JudgeTests(l.discovery, runs)
	}
	planted, err := PlantTest(l.discovery, l.random())
	if err != nil {
		l.t.Fatal(err)
	}
	if c, runs := l.compile(planted); c.Outcome == receipt.Compiled {
		v.control, v.why = JudgeTestControl(planted, runs)
		if v.judged.Judgement == receipt.Pass && len(ControlDiffers(runs, v.judged.Results, v.judged.Results)) > 0 {
			v.reasons["control_detected"] = true
		}
	} else {
		v.control, v.why = receipt.Invalid, "it does not compile"
	}
	for _, r := range v.judged.Reasons {
		v.reasons[r.Code] = true
	}
	for _, f := range append(l.notes.Findings, v.judged.Findings...) {
		v.findings[f.Code] = true
	}
	return v
}

func (l *lab) random() io.Reader { return rand.NewChaCha8([32]byte{1, 2, 3}) }
