package sandboxtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"striatum/sandbox"
)

// grace is how long over its wall clock a run may take to end.
const grace = 5 * time.Second

func (s *suite) leftBehind(t *testing.T) {
	res, out := s.run(t, s.spec(), do("daemon", "spin", "spin"), sh("set -- /proc/[0-9]*; echo $#"), sh("sleep 30 & exit 4"))
	if len(res.Programs) != 3 {
		t.Fatalf("run ended early: hit %q, %+v", res.Hit, res.Programs)
	}
	if out[0] != "left\n" || res.Programs[0].LeftBehind != 2 || res.Programs[0].ExitCode != 0 {
		t.Errorf("left behind: %+v, output %q", res.Programs[0], out[0])
	}
	if got := strings.TrimSpace(out[1]); got != "2" {
		t.Errorf("second program sees %s processes, want the launcher and itself", got)
	}
	if res.Programs[2].ExitCode != 4 || res.Programs[2].LeftBehind != 1 || res.Programs[2].Duration > grace {
		t.Errorf("third program: %+v", res.Programs[2])
	}
}

func (s *suite) wallClock(t *testing.T) {
	limited := sh("trap '' TERM INT HUP; sleep 60 & sleep 60")
	limited.WallClock = 300 * time.Millisecond
	start := time.Now()
	res, _ := s.run(t, s.spec(), limited, sh("exit 5"))
	if p := res.Programs[0]; !p.TimedOut || p.Signal != "SIGKILL" || res.Programs[1].ExitCode != 5 || res.Hit != sandbox.HitNone {
		t.Errorf("program's own clock: %+v", res)
	}
	spec := s.spec()
	spec.Limits.WallClock = time.Second
	res, _ = s.run(t, spec, sh("kill -STOP $$"), sh("exit 0"))
	if len(res.Programs) != 1 || res.Hit != sandbox.HitWallClock || !res.Programs[0].TimedOut {
		t.Errorf("sandbox's clock: %+v", res)
	}
	if took := time.Since(start); took > spec.Limits.WallClock+2*grace {
		t.Errorf("ending took %v", took)
	}
}

func (s *suite) memory(t *testing.T) {
	spec := s.spec()
	spec.Limits.MemoryBytes = 128 << 20
	res, _ := s.run(t, spec, do("memory"), sh("exit 0"))
	if res.Hit != sandbox.HitMemory || len(res.Programs) != 1 || res.Programs[0].Signal != "SIGKILL" {
		t.Errorf("memory: %+v", res)
	}
	// A child's death alone would not show in the exit code.
	res, _ = s.run(t, spec, do("memory-child"))
	if res.Hit != sandbox.HitMemory {
		t.Errorf("memory of a child: hit %q, %+v", res.Hit, res.Programs)
	}
	// The kernel counts in batches and may be a few pages over for a moment.
	if res.MaxRSSBytes > spec.Limits.MemoryBytes+1<<20 {
		t.Errorf("%d bytes were used", res.MaxRSSBytes)
	}
}

func (s *suite) pids(t *testing.T) {
	spec := s.spec()
	spec.Limits.Pids = 64
	p := do("forks")
	p.WallClock = 2 * time.Second
	start := time.Now()
	res, _ := s.run(t, spec, p, sh("exit 0"))
	if res.Hit != sandbox.HitPids || len(res.Programs) != 1 {
		t.Errorf("fork bomb: hit %q, %+v", res.Hit, res.Programs)
	}
	if took := time.Since(start); took > p.WallClock+grace {
		t.Errorf("ending took %v", took)
	}
	// A shell that cannot fork ends.
	res, _ = s.run(t, spec, sh("for i in $(seq 100); do sleep 60 & done"), sh("exit 0"))
	if res.Hit != sandbox.HitPids || len(res.Programs) != 1 || res.Programs[0].ExitCode == 0 {
		t.Errorf("too many: hit %q, %+v", res.Hit, res.Programs)
	}
}

func (s *suite) output(t *testing.T) {
	spec := s.spec()
	spec.Limits.OutputBytes = 4 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, out := s.run(t, spec, do("flood"), sh("exit 0"))
	runtime.ReadMemStats(&after)
	if res.Hit != sandbox.HitOutput || len(res.Programs) != 1 || int64(len(out[0])) != spec.Limits.OutputBytes {
		t.Errorf("flood: hit %q, %d bytes, %+v", res.Hit, len(out[0]), res.Programs)
	}
	// The buffer of this test doubles as it grows; the engine adds little.
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20+4*uint64(spec.Limits.OutputBytes) {
		t.Errorf("%d bytes were allocated", grown)
	}
}

func (s *suite) disk(t *testing.T) {
	layer := t.TempDir()
	spec := s.spec(sandbox.Mount{Kind: sandbox.Layer, Source: layer, Target: "/workspace"},
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/shared", Shared: true})
	for _, probe := range []string{"fill", "inodes"} {
		for _, dir := range []string{"/workspace", "/tmp", "/dev/shm", "/shared"} {
			res, out := s.run(t, spec, do(probe, dir), sh("exit 0"))
			if res.Hit != sandbox.HitDisk || len(res.Programs) != 1 || res.Programs[0].ExitCode != 3 || out[0] != "true\n" {
				t.Errorf("%s %s: hit %q, output %q, %+v", probe, dir, res.Hit, out[0], res.Programs)
			}
		}
	}
	if entries, err := os.ReadDir(layer); err != nil || len(entries) != 0 {
		t.Errorf("source was changed: %v, %v", entries, err)
	}
}

func (s *suite) cancel(t *testing.T) {
	reason := errors.New("reason to stop")
	ctx, stop := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(300*time.Millisecond, func() { stop(reason) })
	defer timer.Stop()
	start := time.Now()
	_, _, err := s.try(ctx, s.spec(), do("daemon", "spin"), sh("sleep 60"))
	if !errors.Is(err, reason) {
		t.Errorf("got %v, want the cause", err)
	}
	if took := time.Since(start); took > grace {
		t.Errorf("ending took %v", took)
	}
}

func (s *suite) many(t *testing.T) {
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			spec := s.spec()
			if i == 0 {
				spec.Limits.Pids = 32
				bomb := do("forks")
				bomb.WallClock = time.Second
				if _, _, err := s.try(t.Context(), spec, bomb); err != nil {
					t.Error(err)
				}
				return
			}
			res, out, err := s.try(t.Context(), spec, sh("echo hello > /tmp/f; cat /tmp/f; ls /tmp"))
			if err != nil || out[0] != "hello\nf\n" || res.Hit != sandbox.HitNone {
				t.Errorf("got %q, hit %q, %v", out, res.Hit, err)
			}
		})
	}
	all.Wait()
}

func (s *suite) volumes(t *testing.T) {
	ctx := t.Context()
	v, err := s.engine.NewVolume(ctx, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	fillSpec := s.spec(sandbox.Mount{Kind: sandbox.Output, Volume: v, Target: "/out"})
	res, out := s.run(t, fillSpec, sh("mkdir /out/d; echo one > /out/d/f; printf '#!/bin/sh\\necho two\\n' > /out/run; chmod 4755 /out/run; echo > /out/own; chmod 600 /out/own; stat -c %u /out /out/d /out/run"), sh("cat /out/d/f"))
	if res.Programs[0].ExitCode != 0 || out[0] != "1000\n1000\n1000\n" || out[1] != "one\n" {
		t.Fatalf("filling: %q, %+v", out, res.Programs)
	}
	read := s.spec(sandbox.Mount{Kind: sandbox.ReadOnly, Volume: v, Target: "/in"})
	look := sh("cat /in/d/f; /in/run; (cat /in/own || echo x > /in/x) 2>/dev/null || echo refused; stat -c '%u %a' /in /in/d /in/d/f /in/run")
	for range 2 {
		if _, out = s.run(t, read, look); out[0] != "one\ntwo\nrefused\n65534 755\n65534 755\n65534 644\n65534 755\n" {
			t.Errorf("reading: %q", out[0])
		}
	}
	dst := filepath.Join(t.TempDir(), "kept")
	if err := v.Keep(dst); err != nil {
		t.Fatal(err)
	}
	checkKept(t, dst, map[string]fs.FileMode{".": 0o755, "d": 0o755, "d/f": 0o444, "own": 0o444, "run": 0o555})
	if err := v.Remove(); err != nil {
		t.Errorf("remove what was kept: %v", err)
	}
	for _, line := range []string{"ln -s /etc/shadow /out/x", "mkfifo /out/x", "mkdir -p /out/$(printf 'x/%.0s' $(seq 129))"} {
		v, err := s.engine.NewVolume(ctx, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		s.run(t, s.spec(sandbox.Mount{Kind: sandbox.Output, Volume: v, Target: "/out"}), sh(line))
		_, out, err := s.try(ctx, s.spec(sandbox.Mount{Kind: sandbox.ReadOnly, Volume: v, Target: "/in"}), sh("stat -c %u /in/x"))
		if err == nil && out[0] != "65534\n" || err != nil && !strings.Contains(err.Error(), "nested") {
			t.Errorf("reading after %q: got %q, %v", line, out, err)
		}
		dst := filepath.Join(t.TempDir(), "kept")
		if err := v.Keep(dst); err == nil {
			t.Errorf("%q was kept", line)
		}
		if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q left %s: %v", line, dst, err)
		}
		if err := v.Remove(); err != nil {
			t.Error(err)
		}
	}
	small, err := s.engine.NewVolume(ctx, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	res, _ = s.run(t, s.spec(sandbox.Mount{Kind: sandbox.Output, Volume: small, Target: "/out"}), do("fill", "/out"))
	if res.Programs[0].ExitCode != 3 {
		t.Errorf("a full volume: %+v", res.Programs[0])
	}
	if err := errors.Join(small.Remove(), small.Remove()); err != nil {
		t.Error(err)
	}
}

// checkKept looks at owner and mode of what was kept, and for nothing more.
func checkKept(t *testing.T, dst string, want map[string]fs.FileMode) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dst, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dst, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen++
		st := info.Sys().(*syscall.Stat_t)
		if got := info.Mode() &^ fs.ModeDir; got != want[rel] || st.Uid != 0 || st.Gid != 0 {
			t.Errorf("%s has mode %v and owner %d, want %v and root", rel, info.Mode(), st.Uid, want[rel])
		}
		return nil
	})
	if err != nil || seen != len(want) {
		t.Errorf("kept %d entries, want %d: %v", seen, len(want), err)
	}
}

func (s *suite) misuse(t *testing.T) {
	ctx := t.Context()
	for name, change := range map[string]func(*sandbox.Spec){
		"no limit":        func(s *sandbox.Spec) { s.Limits.Pids = 0 },
		"relative target": func(s *sandbox.Spec) { s.Mounts[1].Target = "tmp" },
		"unclean target":  func(s *sandbox.Spec) { s.Mounts[1].Target = "/tmp/../x" },
		"proc":            func(s *sandbox.Spec) { s.Mounts[1].Target = "/proc/x" },
		"root":            func(s *sandbox.Spec) { s.Mounts[1].Target = "/" },
		"zero kind":       func(s *sandbox.Spec) { s.Mounts[1].Kind = 0 },
		"no source":       func(s *sandbox.Spec) { s.Mounts[0].Source = "" },
		"same target":     func(s *sandbox.Spec) { s.Mounts[1].Target = s.Mounts[0].Target },
		"below a scratch": func(s *sandbox.Spec) { s.Mounts[0].Target = "/tmp/x" },
		"missing source":  func(s *sandbox.Spec) { s.Mounts[0].Source = "/nowhere/at/all" },
		"missing root":    func(s *sandbox.Spec) { s.Root = "/nowhere/at/all" },
		"relative root":   func(s *sandbox.Spec) { s.Root = "root" },
		"host as root":    func(s *sandbox.Spec) { s.Root = "/" },
	} {
		spec := s.spec()
		change(&spec)
		if _, err := s.engine.Prepare(ctx, spec); err == nil {
			t.Errorf("%s: prepared", name)
		}
	}
	sb, err := s.engine.Prepare(ctx, s.spec())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Run(ctx, []sandbox.Program{sh("exit 0")}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Run(ctx, []sandbox.Program{sh("exit 0")}, nil); err == nil {
		t.Error("a sandbox ran twice")
	}
	sb.Discard()
	sb.Discard()
	unused, err := s.engine.Prepare(ctx, s.spec())
	if err != nil {
		t.Fatal(err)
	}
	unused.Discard()
	if _, err := s.engine.NewVolume(ctx, 0); err == nil {
		t.Error("a volume of no size was made")
	}
}
