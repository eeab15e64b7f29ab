package containerdengine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"striatum/internal/problem"
	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
	"striatum/sandbox/sandboxtest"
)

// laneVariable makes the test binary a lane: home, init and socket.
const laneVariable = "STRIATUM_TEST_LANE"

func TestMain(m *testing.M) {
	if v := os.Getenv(laneVariable); v != "" {
		f := strings.Split(v, ":")
		os.Exit(lane(f[0], f[1], f[2]))
	}
	os.Exit(sandboxtest.Main(m))
}

func testLimits() sandbox.Limits {
	return sandbox.Limits{WallClock: time.Minute, MemoryBytes: 1 << 30, Pids: 256, MilliCPUs: 2000, OutputBytes: 1 << 20, DiskBytes: 256 << 20}
}

// contract runs the suite and looks for what is left after it.
func contract(t *testing.T, cfg containerdengine.Config, prepare ...func(*containerdengine.Engine)) {
	t.Helper()
	sandboxtest.Run(t, func(t testing.TB) sandbox.Engine {
		e, err := containerdengine.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range prepare {
			f(e)
		}
		t.Logf("%+v", e.Describe())
		return e
	})
	if left := leftovers(cfg.Home); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func TestPrivateContainerdKeepsTheContract(t *testing.T) {
	contract(t, testenv.Containerd(t))
}

func TestCopiedLayersKeepTheContract(t *testing.T) {
	contract(t, testenv.Containerd(t), containerdengine.CopyLayers)
}

func TestPrivateContainerd2KeepsTheContract(t *testing.T) {
	contract(t, testenv.Containerd2(t))
}

func TestHostContainerdKeepsTheContract(t *testing.T) {
	cfg := testenv.Containerd(t)
	cfg.Socket = hostContainerd(t, "containerd")
	contract(t, cfg)
	checkHost(t, cfg)
}

func TestHostContainerd2KeepsTheContract(t *testing.T) {
	cfg := testenv.Containerd2(t)
	cfg.Socket = hostContainerd(t, cfg.ContainerdPath)
	contract(t, cfg)
	checkHost(t, cfg)
}

func TestAKilledLaneOnAHostContainerdIsSweptByTheNext(t *testing.T) {
	for _, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			cfg := testenv.Containerd(t)
			cfg.Socket = hostContainerd(t, "containerd")
			killLane(t, cfg, stage)
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
			checkHost(t, cfg)
		})
	}
}

// checkHost looks into the host's containerd for what the engine left.
func checkHost(t *testing.T, cfg containerdengine.Config) {
	t.Helper()
	client, err := containerd.New(cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	spaces, err := client.NamespaceService().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range spaces {
		list, err := client.Containers(namespaces.WithNamespace(ctx, ns))
		if err != nil || len(list) != 0 {
			t.Errorf("namespace %s has %d containers, %v", ns, len(list), err)
		}
		if strings.Contains(ns, containerdengine.ID(cfg.Home)) {
			t.Errorf("namespace %s is left", ns)
		}
	}
}

// hostContainerd starts a containerd that stands for the machine's own, and
// returns its socket.
func hostContainerd(t *testing.T, binary string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "striatum-host-") //nolint:usetesting // socket paths have 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "containerd.sock")
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"]\n[grpc]\naddress = %q\n[debug]\nlevel = \"error\"\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config", config)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if said := await(func() string {
		client, err := containerd.New(socket, containerd.WithTimeout(time.Second))
		if err != nil {
			return err.Error()
		}
		defer client.Close()
		if _, err := client.Version(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	}); said != "" {
		t.Fatal(said)
	}
	return socket
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	cfg := testenv.Containerd(t)
	dir := t.TempDir()
	open := filepath.Join(dir, "runc")
	if err := os.WriteFile(open, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*containerdengine.Config)
		kind   problem.Kind
	}{
		{"no containerd", func(c *containerdengine.Config) { c.ContainerdPath = filepath.Join(dir, "none") }, problem.Missing},
		{"no shim", func(c *containerdengine.Config) { c.ShimPath = filepath.Join(dir, "none") }, problem.Missing},
		{"no runc", func(c *containerdengine.Config) { c.RuncPath = filepath.Join(dir, "none") }, problem.Missing},
		{"no init", func(c *containerdengine.Config) { c.InitPath = filepath.Join(dir, "none") }, problem.Missing},
		{"no socket", func(c *containerdengine.Config) { c.Socket = filepath.Join(dir, "none") }, problem.Missing},
		{"broken containerd", func(c *containerdengine.Config) { c.ContainerdPath = "/bin/false" }, problem.Missing},
		{"writable runc", func(c *containerdengine.Config) { c.RuncPath = open }, problem.Refused},
		{"no translation of owners", func(c *containerdengine.Config) { c.Home = "/proc/none" }, problem.Missing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := cfg
			tc.change(&changed)
			_, err := containerdengine.Open(t.Context(), changed)
			var p *problem.Problem
			if !errors.As(err, &p) || p.Kind != tc.kind || p.Hint == "" {
				t.Errorf("got %+v, want kind %d with a hint", err, tc.kind)
			}
			if left := leftovers(changed.Home); left != "" {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}

func TestProbeFindsThisMachineReady(t *testing.T) {
	cfg := testenv.Containerd(t)
	for _, c := range containerdengine.Probe(cfg) {
		if !c.OK {
			t.Errorf("%+v", c)
		}
	}
	cfg.RuncPath = "/nowhere/runc"
	cfg.Home = "/proc/none"
	bad := 0
	for _, c := range containerdengine.Probe(cfg) {
		if !c.OK {
			bad++
			if c.Fix == "" || c.Observed == "" {
				t.Errorf("%+v has no fix", c)
			}
		}
	}
	if bad != 2 {
		t.Errorf("%d checks failed, want 2", bad)
	}
}
