package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"striatum/sandbox"
)

// suite is the engine under test and what its subtests share.
type suite struct {
	engine sandbox.Engine
	self   string
}

// Run holds the engine that open returns against the contract, and closes it.
// The calling package's TestMain must go through Main.
func Run(t *testing.T, open func(testing.TB) sandbox.Engine) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{engine: open(t), self: self}
	defer func() {
		if err := s.engine.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := s.engine.Prepare(context.Background(), s.spec()); err == nil {
			t.Error("a closed engine prepares sandboxes")
		}
	}()
	for _, c := range []struct {
		name string
		test func(*suite, *testing.T)
	}{
		{"TheWayAProgramEndsIsReported", (*suite).endings},
		{"EnvironmentArgumentsAndFolderAreExact", (*suite).environment},
		{"EveryFacetIsObservedAndStrict", (*suite).strict},
		{"NothingKnownGetsOut", (*suite).escapes},
		{"InitCannotBeDisturbed", (*suite).signals},
		{"OnlyOwnLoopback", (*suite).network},
		{"FilesArePlantedBeneathALayerOnly", (*suite).files},
		{"NoProgramTrapsTheFilesOfTheNext", (*suite).traps},
		{"FreshPlacesAreFreshAndSharedOnesStay", (*suite).places},
		{"ToolsComeFromARootOfTheirOwn", (*suite).root},
		{"CollectedFilesComeBack", (*suite).collect},
		{"VolumesPassFromOneToTheNext", (*suite).volumes},
		{"WhatIsLeftBehindIsKilled", (*suite).leftBehind},
		{"WallClockEndsARun", (*suite).wallClock},
		{"MemoryLimitIsKept", (*suite).memory},
		{"ProcessLimitIsKept", (*suite).pids},
		{"OutputLimitIsKept", (*suite).output},
		{"DiskLimitIsKept", (*suite).disk},
		{"CancelEndsARun", (*suite).cancel},
		{"AWritersErrorEndsARun", (*suite).writer},
		{"ManyRunAtOnce", (*suite).many},
		{"MisuseIsRefused", (*suite).misuse},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(s, t) })
	}
}

// spec is a sandbox with the probe, a worktree, /tmp and moderate limits.
func (s *suite) spec(mounts ...sandbox.Mount) sandbox.Spec {
	return sandbox.Spec{
		Mounts: append([]sandbox.Mount{
			{Kind: sandbox.ReadOnly, Source: s.self, Target: probePath},
			{Kind: sandbox.Scratch, Target: "/tmp"},
		}, mounts...),
		Limits: sandbox.Limits{
			WallClock: time.Minute, MemoryBytes: 512 << 20, Pids: 128, MilliCPUs: 2000, OutputBytes: 8 << 20, DiskBytes: 64 << 20,
		},
	}
}

// do is a program that makes the probe do what args say.
func do(args ...string) sandbox.Program {
	return sandbox.Program{Path: probePath, Args: append([]string{"probe", probeArg}, args...), Dir: "/tmp"}
}

// sh is a program that runs a line of shell.
func sh(line string) sandbox.Program {
	return sandbox.Program{Path: "/bin/sh", Args: []string{"sh", "-c", line}, Dir: "/tmp", Env: []string{"PATH=/usr/bin:/bin"}}
}

// run runs programs in a fresh sandbox and returns what each wrote.
func (s *suite) run(t *testing.T, spec sandbox.Spec, programs ...sandbox.Program) (sandbox.Result, []string) {
	t.Helper()
	res, out, err := s.try(t.Context(), spec, programs...)
	if err != nil {
		t.Fatal(err)
	}
	return res, out
}

func (s *suite) try(ctx context.Context, spec sandbox.Spec, programs ...sandbox.Program) (sandbox.Result, []string, error) {
	sb, err := s.engine.Prepare(ctx, spec)
	if err != nil {
		return sandbox.Result{}, nil, err
	}
	defer sb.Discard()
	bufs := make([]bytes.Buffer, len(programs))
	res, err := sb.Run(ctx, programs, func(i int) (io.Writer, io.Writer) { return &bufs[i], &bufs[i] })
	out := make([]string, len(programs))
	for i := range bufs {
		out[i] = bufs[i].String()
	}
	return res, out, err
}

func (s *suite) endings(t *testing.T) {
	res, out := s.run(t, s.spec(), sh("exit 0"), sh("echo out; echo err >&2; exit 3"), sh("kill -TERM $$"),
		sandbox.Program{Path: "/nowhere", Args: []string{"nowhere"}, Dir: "/"},
		sandbox.Program{Path: "/etc/passwd", Args: []string{"passwd"}, Dir: "/"},
		sandbox.Program{Path: "/bin/true", Args: []string{"true"}, Dir: "/nowhere"},
		sh("sleep 0.01"), sh("exit 0"))
	if len(res.Programs) != 8 {
		t.Fatalf("got %d programs, want 8", len(res.Programs))
	}
	p := res.Programs
	if p[0].ExitCode != 0 || p[0].Signal != "" || p[0].StartError != "" {
		t.Errorf("success: %+v", p[0])
	}
	if p[1].ExitCode != 3 || p[1].StdoutBytes != 4 || p[1].StderrBytes != 4 || !strings.Contains(out[1], "out\n") {
		t.Errorf("failure: %+v, output %q", p[1], out[1])
	}
	if p[2].Signal != "SIGTERM" || p[2].ExitCode != 128+15 {
		t.Errorf("signal: %+v", p[2])
	}
	for _, i := range []int{3, 4, 5} {
		if p[i].StartError == "" || p[i].ExitCode != 0 {
			t.Errorf("program %d cannot start: %+v", i, p[i])
		}
	}
	if p[7].ExitCode != 0 || p[7].StartError != "" || p[6].Signal != "" {
		t.Errorf("after failed starts: %+v", p[7])
	}
	if p[6].Duration < 0 || p[0].MaxRSSBytes <= 0 || p[0].StartedAt.IsZero() {
		t.Errorf("accounting is missing: %+v", p[0])
	}
}

func (s *suite) environment(t *testing.T) {
	p := do("environment", "a b", "")
	p.Env = []string{"A=1", "B=x y"}
	p.Dir = "/usr"
	_, out := s.run(t, s.spec(), p, sh("grep -E 'Sig(Blk|Ign)' /proc/self/status; umask; ulimit -c"))
	want := "[\"A=1\" \"B=x y\"]\n[\"a b\" \"\"]\n/usr <nil>\n/dev/null <nil> []\n"
	if out[0] != want {
		t.Errorf("got\n%swant\n%s", out[0], want)
	}
	zero := "0000000000000000"
	if want := "SigBlk:\t" + zero + "\nSigIgn:\t" + zero + "\n0022\n0\n"; out[1] != want {
		t.Errorf("got\n%swant\n%s", out[1], want)
	}
}

func (s *suite) strict(t *testing.T) {
	res, _ := s.run(t, s.spec(), sh("exit 0"), sh("exit 1"))
	seen := map[string]bool{}
	for _, f := range res.Posture.Facets {
		if !f.OK {
			t.Errorf("%s is %q, required is %q", f.Name, f.Observed, f.Required)
		}
		if f.Required == "" || f.Observed == "" || f.Observer != "init" && f.Observer != "lane" || seen[f.Name] {
			t.Errorf("facet is incomplete or double: %+v", f)
		}
		seen[f.Name] = true
	}
	for _, name := range []string{
		"namespace_pid", "namespace_net", "namespace_mnt", "namespace_ipc", "namespace_uts", "namespace_cgroup", "namespace_user",
		"id_map", "id_range", "user", "no_new_privs", "seccomp", "capabilities", "read_only", "kernel_paths", "no_setuid",
		"network", "memory", "swap", "pids", "cpu", "wall_clock", "output", "disk",
	} {
		if !seen[name] {
			t.Errorf("facet %s is missing", name)
		}
	}
	if len(res.Posture.SeccompSHA256) != 64 || res.Hit != sandbox.HitNone || res.CPU <= 0 || res.MaxRSSBytes <= 0 {
		t.Errorf("result is incomplete: %+v", res)
	}
}

func (s *suite) escapes(t *testing.T) {
	layer := t.TempDir()
	spec := s.spec(sandbox.Mount{Kind: sandbox.Layer, Source: layer, Target: "/workspace"},
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/home/check", Shared: true})
	_, out := s.run(t, spec, do("escape"))
	if out[0] != "" {
		t.Errorf("not denied:\n%s", out[0])
	}
}

func (s *suite) signals(t *testing.T) {
	res, out := s.run(t, s.spec(), do("signals"), sh("exit 0"))
	if out[0] != "" || len(res.Programs) != 2 {
		t.Errorf("got %q, %+v", out[0], res.Programs)
	}
}

func (s *suite) network(t *testing.T) {
	_, out := s.run(t, s.spec(), do("network"))
	if out[0] != "" {
		t.Error(out[0])
	}
}

func (s *suite) files(t *testing.T) {
	layer := t.TempDir()
	if err := os.WriteFile(filepath.Join(layer, "old"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := s.spec(sandbox.Mount{Kind: sandbox.Layer, Source: layer, Target: "/workspace"})
	first := sh("cat /workspace/new /workspace/deep/er/run /workspace/old; stat -c '%u:%g %a' /workspace/new /workspace/deep/er/run; /workspace/deep/er/run")
	first.Files = []sandbox.File{
		{Path: "/workspace/new", Mode: 0o644, Data: []byte("new\n")},
		{Path: "/workspace/deep/er/run", Mode: 0o755, Data: []byte("#!/bin/sh\necho ran\n")},
		{Path: "/workspace/old", Mode: 0o644, Data: []byte("replaced\n")},
	}
	_, out := s.run(t, spec, first, sh("cat /workspace/old; ls /workspace"))
	want := "new\n#!/bin/sh\necho ran\nreplaced\n1000:1000 644\n1000:1000 755\nran\n"
	if out[0] != want || out[1] != "oldold\n" {
		t.Errorf("got %q and %q, want %q and %q", out[0], out[1], want, "oldold\n")
	}
	if data, err := os.ReadFile(filepath.Join(layer, "old")); err != nil || string(data) != "old" {
		t.Errorf("source was changed: %q, %v", data, err)
	}
	old := time.Unix(1_000_000_000, 0)
	if err := os.Chtimes(layer, old, old); err != nil {
		t.Fatal(err)
	}
	timed := sh("stat -c %Y /workspace /workspace/new")
	timed.Files = first.Files[:1]
	if _, out := s.run(t, spec, timed); out[0] != "1000000000\n1000000000\n" {
		t.Errorf("the top of a layer and a file in it have the times %q", out[0])
	}
	for _, path := range []string{"/usr/x", "/workspace/../etc/x", "/opt/probe", "/workspace/link/x"} {
		if err := os.RemoveAll(filepath.Join(layer, "link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/tmp", filepath.Join(layer, "link")); err != nil {
			t.Fatal(err)
		}
		p := sh("exit 0")
		p.Files = []sandbox.File{{Path: path, Mode: 0o644}}
		if _, _, err := s.try(t.Context(), spec, p); err == nil {
			t.Errorf("file %q was written", path)
		}
	}
}

// traps is a place in which one program lays traps for the next one's files.
func (s *suite) traps(t *testing.T) {
	spec := s.spec(sandbox.Mount{Kind: sandbox.Layer, Source: t.TempDir(), Target: "/shared", Shared: true})
	for _, trap := range []string{"mkfifo f", "ln -s /tmp/x f", "mkdir f", "ln -s /usr d", "mkfifo d"} {
		next := sh("exit 0")
		next.Files = []sandbox.File{{Path: "/shared/f", Mode: 0o644}, {Path: "/shared/d/f", Mode: 0o644}}
		start := time.Now()
		res, _, err := s.try(t.Context(), spec, sh("cd /shared && "+trap), next)
		if err == nil || time.Since(start) > grace {
			t.Errorf("%q: got %+v, %v after %v", trap, res, err, time.Since(start))
		}
	}
}

func (s *suite) places(t *testing.T) {
	layer := t.TempDir()
	if err := os.MkdirAll(filepath.Join(layer, "sub", "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(layer, "sub", "dir", "f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := s.spec(sandbox.Mount{Kind: sandbox.Layer, Source: layer, Target: "/fresh"},
		sandbox.Mount{Kind: sandbox.Layer, Source: layer, Target: "/shared", Shared: true},
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/scratch", Shared: true})
	change := sh("set -e; for d in /fresh /shared; do rm -r $d/sub; mkdir $d/sub; mv $d/sub $d/other; echo y > $d/new; done; " +
		"echo a > /scratch/a; echo b > /tmp/b; echo c > /dev/shm/c; ls /fresh /shared /scratch /tmp /dev/shm")
	look := sh("ls /fresh /shared /scratch /tmp /dev/shm; cat /fresh/sub/dir/f")
	_, out := s.run(t, spec, change, look)
	if want := "/dev/shm:\nc\n\n/fresh:\nnew\nother\n\n/scratch:\na\n\n/shared:\nnew\nother\n\n/tmp:\nb\n"; out[0] != want {
		t.Errorf("first: got %q, want %q", out[0], want)
	}
	if want := "/dev/shm:\n\n/fresh:\nsub\n\n/scratch:\na\n\n/shared:\nnew\nother\n\n/tmp:\nx"; out[1] != want {
		t.Errorf("second: got %q, want %q", out[1], want)
	}
	if _, err := os.Stat(filepath.Join(layer, "sub", "dir", "f")); err != nil {
		t.Errorf("source was changed: %v", err)
	}
}

func (s *suite) collect(t *testing.T) {
	p := sh("printf 0123456789 > a; ln -s a link; mkdir d; mkfifo pipe; printf x > none; chmod 0 none; ln -s /etc linkdir; head -c 300000 /dev/zero > big")
	p.Collect = []string{"/tmp/a", "/tmp/missing", "/tmp/link", "/tmp/d", "/tmp/pipe", "/tmp/linkdir/passwd", "/tmp/big"}
	p.CollectBytes = 200_000
	q := sh("printf abcdef > a")
	q.Collect, q.CollectBytes = []string{"/tmp/a"}, 4
	res, _ := s.run(t, s.spec(), p, q)
	var lines strings.Builder
	for _, r := range res.Programs {
		for _, c := range r.Collected {
			data := string(c.Data)
			if len(data) > 20 {
				data = fmt.Sprint(len(data), " bytes")
			}
			fmt.Fprintf(&lines, "%s %v %v %s\n", c.Path, c.Regular, c.Truncated, data)
		}
	}
	got := lines.String()
	want := "/tmp/a true false 0123456789\n/tmp/missing false false \n/tmp/link false false \n/tmp/d false false \n" +
		"/tmp/pipe false false \n/tmp/linkdir/passwd false false \n/tmp/big true true 200000 bytes\n/tmp/a true true abcd\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func (s *suite) writer(t *testing.T) {
	broken := errors.New("broken writer")
	sb, err := s.engine.Prepare(t.Context(), s.spec())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Discard()
	_, err = sb.Run(t.Context(), []sandbox.Program{do("flood")}, func(int) (io.Writer, io.Writer) { return failing{broken}, nil })
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the writer's error", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
