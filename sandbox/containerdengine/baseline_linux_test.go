package containerdengine_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"striatum/internal/rootfs"
	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
	"striatum/sandbox/ocispec"
	"striatum/sandbox/seccompfilter"
)

// baselineBase is an id range that no pool hands out.
const baselineBase = 0x70000000 - 65536

// baseline is a bundle with the specification of a sandbox, as far as a plain
// runtime can have it: /bin/true directly, the profile compiled by runc.
func baseline(b *testing.B) string {
	b.Helper()
	return bundleOf(b, []string{"/bin/true"}, func(spec *specs.Spec) {
		spec.Process.User = specs.User{UID: 1000, GID: 1000}
		spec.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, Architectures: []specs.Arch{specs.ArchX86_64},
			Syscalls: []specs.LinuxSyscall{{Names: seccompfilter.Names(), Action: specs.ActAllow}},
		}
	})
}

// bundleOf is a bundle for runc in which args run.
func bundleOf(b *testing.B, args []string, options ...ocispec.Option) (bundle string) {
	b.Helper()
	bundle, err := os.MkdirTemp("/run", "striatum-bench-") //nolint:usetesting // runc wants a short path on a tmpfs
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(bundle); err != nil {
			b.Error(err)
		}
	})
	if err := os.Chmod(bundle, 0o711); err != nil {
		b.Fatal(err)
	}
	root := filepath.Join(bundle, "rootfs")
	points := []rootfs.Point{{Path: "/workspace"}, {Path: sandbox.InitPath, File: true}, {Path: "/.striatum/fresh"}, {Path: "/.striatum/shared"}}
	if err := rootfs.Make(root, "/usr", "/etc", points); err != nil {
		b.Fatal(err)
	}
	spec := ocispec.New(args, append(options,
		ocispec.WithRoot(root), ocispec.WithUserNamespace(baselineBase), ocispec.WithReadOnly("/usr", "/usr"),
		ocispec.WithLimits("/striatum-bench", testLimits()))...)
	for _, target := range []string{"/workspace", "/tmp"} {
		spec.Mounts = append(spec.Mounts, specs.Mount{
			Destination: target, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "size=128m"},
		})
	}
	data, err := json.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600); err != nil {
		b.Fatal(err)
	}
	return bundle
}

// three runs a command three times in a row, and again for each iteration. An
// argument "ID" stands for a new name each time.
func three(b *testing.B, args ...string) {
	b.Helper()
	var took []time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		for range 3 {
			n++
			runCommand(b, args, n)
		}
		took = append(took, time.Since(start))
	}
	medianReport(b, took)
}

// runCommand runs args once, with the n-th name for "ID".
func runCommand(b *testing.B, args []string, n int) {
	b.Helper()
	call := make([]string, len(args))
	for i, a := range args {
		if a == "ID" {
			a = "bench-" + strconv.Itoa(n)
		}
		call[i] = a
	}
	if out, err := exec.Command(call[0], call[1:]...).CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", call, err, out)
	}
}

// ctrCommand runs the baseline with the private containerd of an open engine.
func ctrCommand(b *testing.B, cfg containerdengine.Config) []string {
	bundle := baseline(b)
	socket := filepath.Join("/run/striatum", containerdengine.ID(cfg.Home), "containerd.sock")
	return []string{"ctr", "-a", socket, "run", "--rm", "--fifo-dir", filepath.Join(bundle, "fifo"), "--config", filepath.Join(bundle, "config.json"), "ID"}
}

func BenchmarkThreeCtr(b *testing.B) {
	cfg := testenv.Containerd(b)
	e, err := containerdengine.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}()
	three(b, ctrCommand(b, cfg)...)
}

func BenchmarkThreeRunc(b *testing.B) {
	testenv.Containerd(b)
	bundle := baseline(b)
	three(b, "runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, "ID")
}

func BenchmarkThreeBwrap(b *testing.B) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		testenv.Missing(b, "bwrap", err.Error())
	}
	three(b, bwrap, "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
		"--tmpfs", "/tmp", "--tmpfs", "/workspace", "/bin/true")
}

// BenchmarkLauncher measures what striatum-init adds to a sandbox: its own start
// (runc with it as the program, which ends at once since its input is empty, less
// runc with /bin/true), and a run of /bin/true in a sandbox that is prepared, less
// /bin/true alone: measuring the posture, confining, sweeping.
func BenchmarkLauncher(b *testing.B) {
	e, err := containerdengine.Open(b.Context(), testenv.Containerd(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}()
	spec := sandbox.Spec{
		Mounts: []sandbox.Mount{{Kind: sandbox.Layer, Source: b.TempDir(), Target: "/workspace"}, {Kind: sandbox.Scratch, Target: "/tmp"}},
		Limits: testLimits(),
	}
	runc := func(bundle string) []string {
		return []string{"runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, "ID"}
	}
	alike := []ocispec.Option{ocispec.WithReadOnly(testenv.Init(b), sandbox.InitPath), ocispec.WithCapabilities(containerdengine.InitCapabilities...)}
	plain := runc(bundleOf(b, []string{"/bin/true"}, alike...))
	launcher := runc(bundleOf(b, []string{sandbox.InitPath}, alike...))
	// What is removed in the background is gone before the next is timed.
	const settle = 200 * time.Millisecond
	var bare, start, alone, run []time.Duration
	n := 0
	timed := func(took *[]time.Duration, fn func()) {
		at := time.Now()
		fn()
		*took = append(*took, time.Since(at))
	}
	for b.Loop() {
		for range 2 {
			n++
			time.Sleep(settle)
			if (n+1)/2%2 == n%2 { // each goes first every other time
				timed(&bare, func() { runCommand(b, plain, n) })
			} else {
				timed(&start, func() { runCommand(b, launcher, n) })
			}
		}
		box, err := e.Prepare(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(settle)
		timed(&alone, func() { runCommand(b, []string{"/bin/true"}, n) })
		timed(&run, func() {
			_, err = box.Run(b.Context(), []sandbox.Program{{Path: "/bin/true", Args: []string{"true"}, Dir: "/"}}, nil)
		})
		box.Discard()
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(start)-median(bare), "start-ms")
	b.ReportMetric(median(run)-median(alone), "run-ms")
	b.ReportMetric(median(start)-median(bare)+median(run)-median(alone), "adds-ms")
}

// median returns the median in milliseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000
}
