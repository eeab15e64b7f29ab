package containerdengine_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"striatum/internal/problem"
	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
)

// await polls until what says nothing, at most ten seconds, and returns its
// last word.
func await(what func() string) string {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for {
		said := what()
		if said == "" {
			return ""
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return said
		}
	}
}

// processes returns those that have the engine's id in their command line or
// in the name of their cgroup.
func processes(id string) string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"cmdline", "cgroup"} {
			data, err := os.ReadFile(filepath.Join("/proc", e.Name(), file))
			if err == nil && (strings.Contains(string(data), "/striatum/"+id) || strings.Contains(string(data), "striatum-"+id)) {
				out = append(out, e.Name()+" "+strings.ReplaceAll(string(data), "\x00", " "))
			}
		}
	}
	return strings.Join(out, "\n")
}

// leftovers returns what an engine of a home left on the host.
func leftovers(home string) string {
	id := containerdengine.ID(home)
	out := processes(id)
	if info, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(info), id) {
		out += fmt.Sprintf("\nmounts %v", err)
	}
	for _, dir := range []string{"/sys/fs/cgroup", "/run/striatum", "/run/containerd", os.TempDir(), "/var/lib/containerd"} {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && strings.Contains(d.Name(), id) {
				out += "\n" + p
			}
			if err == nil && d.IsDir() && dir == os.TempDir() && p != dir {
				return fs.SkipDir
			}
			return nil
		})
	}
	return out
}

// busySpec is a sandbox with every kind of mount.
func busySpec(t testing.TB, e sandbox.Engine, layer string) sandbox.Spec {
	v, err := e.NewVolume(context.Background(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Spec{
		Mounts: []sandbox.Mount{
			{Kind: sandbox.Layer, Source: layer, Target: "/workspace"},
			{Kind: sandbox.Scratch, Target: "/tmp", Shared: true},
			{Kind: sandbox.Output, Volume: v, Target: "/out"},
		},
		Limits: testLimits(),
	}
}

var spinning = sandbox.Program{
	Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 600 & echo up; while :; do :; done"}, Dir: "/tmp", Env: []string{"PATH=/usr/bin"},
}

// onHost returns those shim sockets of a private containerd that the host sees.
func onHost(t *testing.T, home string) []string {
	t.Helper()
	inside := fmt.Sprintf("/proc/%d/root/run/containerd/s", reaper(t, home))
	entries, err := os.ReadDir(inside)
	if err != nil || len(entries) == 0 {
		t.Errorf("shims have no sockets: %v", err)
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join("/run/containerd/s", e.Name())); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// reaper returns the process above a private containerd.
func reaper(t *testing.T, home string) int {
	t.Helper()
	name, err := os.ReadFile(filepath.Join("/run/striatum", containerdengine.ID(home), "reaper.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(name))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	cfg := testenv.Containerd(t)
	e, err := containerdengine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var boxes []sandbox.Sandbox
	for range 3 {
		sb, err := e.Prepare(t.Context(), busySpec(t, e, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, sb)
	}
	ctx, stop := context.WithCancel(t.Context())
	if _, err := boxes[0].Run(ctx, []sandbox.Program{spinning}, func(int) (io.Writer, io.Writer) { return stopper(stop), nil }); err == nil {
		t.Error("a cancelled run has a result")
	}
	if seen := onHost(t, cfg.Home); len(seen) != 0 {
		t.Errorf("shim sockets on the host: %v", seen)
	}
	boxes[0].Discard()
	boxes[1].Discard() // never run; the third is forgotten
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if left := leftovers(cfg.Home); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// stopper calls itself when something is written.
type stopper func()

func (s stopper) Write(p []byte) (int, error) {
	s()
	return len(p), nil
}

// The stages of the lane that a test kills, in order.
var stages = []string{"start", "open", "prepared", "running", "discarded"}

// lane is what the test binary does as a process that is killed: it says each
// stage and goes on.
func lane(home, initPath, socket string) int {
	say := func(s string) { fmt.Println(s) }
	say("start")
	e, err := containerdengine.Open(context.Background(), containerdengine.Config{Home: home, InitPath: initPath, Socket: socket, Now: time.Now})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	say("open")
	var boxes []sandbox.Sandbox
	for range 3 {
		v, err := e.NewVolume(context.Background(), 1<<20)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		sb, err := e.Prepare(context.Background(), sandbox.Spec{
			Mounts: []sandbox.Mount{
				{Kind: sandbox.Layer, Source: home, Target: "/workspace"},
				{Kind: sandbox.Output, Volume: v, Target: "/out"},
			},
			Limits: testLimits(),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		boxes = append(boxes, sb)
	}
	say("prepared")
	boxes[1].Discard()
	p := spinning
	p.Dir = "/workspace"
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	_, err = boxes[0].Run(ctx, []sandbox.Program{p}, func(int) (io.Writer, io.Writer) { return stopper(func() { say("running") }), nil })
	boxes[0].Discard()
	say("discarded")
	fmt.Fprintln(os.Stderr, err)
	select {}
}

// killLane starts a lane, waits until it says stage, and kills it.
func killLane(t *testing.T, cfg containerdengine.Config, stage string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), laneVariable+"="+strings.Join([]string{cfg.Home, cfg.InitPath, cfg.Socket}, ":"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == stage {
			return
		}
	}
	t.Errorf("the lane ended before stage %q", stage)
}

func TestAKilledLaneLeavesNothingToTheNext(t *testing.T) {
	for _, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			cfg := testenv.Containerd(t)
			killLane(t, cfg, stage)
			// The kernel ends what the lane had started, at once and alone.
			if left := await(func() string { return processes(containerdengine.ID(cfg.Home)) }); left != "" {
				t.Errorf("processes of a killed lane:\n%s", left)
			}
			e, err := containerdengine.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if left := leftovers(cfg.Home); left != "" {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}

// TestWhatIsCancelledLeavesNothing ends Open and Prepare after any time.
func TestWhatIsCancelledLeavesNothing(t *testing.T) {
	for _, host := range []bool{false, true} {
		cfg := testenv.Containerd(t)
		if host {
			cfg.Socket = hostContainerd(t, "containerd")
		}
		for after := time.Duration(0); after < 200*time.Millisecond; after += 15 * time.Millisecond {
			ctx, stop := context.WithTimeout(t.Context(), after)
			if e, err := containerdengine.Open(ctx, cfg); err == nil {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			stop()
			if left := leftovers(cfg.Home); left != "" {
				t.Fatalf("host %v, open cancelled after %v left:\n%s", host, after, left)
			}
		}
		e, err := containerdengine.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for after := time.Duration(0); after < 100*time.Millisecond; after += 5 * time.Millisecond {
			ctx, stop := context.WithTimeout(t.Context(), after)
			if sb, err := e.Prepare(ctx, plainSpec(t)); err == nil {
				sb.Discard()
			}
			stop()
		}
		sb, err := e.Prepare(t.Context(), plainSpec(t))
		if err != nil {
			t.Fatalf("host %v: prepare after cancelled ones: %v", host, err)
		}
		sb.Discard()
		if err := e.Close(); err != nil {
			t.Errorf("host %v: %v", host, err)
		}
		if left := leftovers(cfg.Home); left != "" {
			t.Errorf("host %v: left:\n%s", host, left)
		}
		if host {
			checkHost(t, cfg)
		}
	}
}

func TestOpeningTakesNothingOfAnotherHome(t *testing.T) {
	first, second := testenv.Containerd(t), testenv.Containerd(t)
	a, err := containerdengine.Open(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := containerdengine.Open(t.Context(), first); err == nil {
		t.Error("one home was opened twice")
	}
	sb, err := a.Prepare(t.Context(), busySpec(t, a, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := containerdengine.Open(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	res, err := sb.Run(t.Context(), []sandbox.Program{{Path: "/bin/true", Args: []string{"true"}, Dir: "/out"}}, nil)
	if err != nil || len(res.Programs) != 1 {
		t.Errorf("a sandbox beside another engine: %+v, %v", res, err)
	}
	sb.Discard()
}

func TestARunSaysThatContainerdDied(t *testing.T) {
	cfg := testenv.Containerd(t)
	e, err := containerdengine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := e.Prepare(t.Context(), busySpec(t, e, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	pid := reaper(t, cfg.Home)
	killed := stopper(func() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	})
	res, err := sb.Run(t.Context(), []sandbox.Program{spinning}, func(int) (io.Writer, io.Writer) { return killed, nil })
	if p := problem.Of(err); err == nil || p.Kind != problem.Indeterminate || p.What != "containerd has ended" {
		t.Errorf("got %+v, %v, want that containerd has ended", res, err)
	}
	sb.Discard()
	if _, err := e.Prepare(t.Context(), plainSpec(t)); err == nil || problem.Of(err).What != "containerd has ended" {
		t.Errorf("prepare: got %v, want that containerd has ended", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if left := leftovers(cfg.Home); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func plainSpec(t testing.TB) sandbox.Spec {
	return sandbox.Spec{Mounts: []sandbox.Mount{{Kind: sandbox.Layer, Source: t.TempDir(), Target: "/workspace"}}, Limits: testLimits()}
}
