package containerdengine_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
)

func testLimits() sandbox.Limits {
	return sandbox.Limits{WallClock: time.Minute, MemoryBytes: 1 << 30, Pids: 256, MilliCPUs: 2000, OutputBytes: 1 << 20, DiskBytes: 256 << 20}
}

func TestTrueRunsStrictly(t *testing.T) {
	start := time.Now()
	e, err := containerdengine.Open(t.Context(), testenv.Containerd(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("open %v", time.Since(start))
	defer func() {
		start := time.Now()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("close %v", time.Since(start))
	}()
	for range 3 {
		start = time.Now()
		sb, err := e.Prepare(t.Context(), sandbox.Spec{
			Mounts: []sandbox.Mount{{Kind: sandbox.Layer, Source: t.TempDir(), Target: "/workspace"}, {Kind: sandbox.Scratch, Target: "/tmp"}},
			Limits: testLimits(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("prepare %v", time.Since(start))
		start = time.Now()
		var out bytes.Buffer
		res, err := sb.Run(context.Background(), []sandbox.Program{
			{Path: "/bin/true", Args: []string{"true"}, Dir: "/workspace"},
			{Path: "/usr/local/go/bin/go", Args: []string{"go", "version"}, Dir: "/workspace", Env: []string{"HOME=/tmp", "PATH=/usr/bin"}},
			{Path: "/bin/cat", Args: []string{"cat", "/proc/self/mountinfo"}, Dir: "/workspace"},
		}, func(int) (io.Writer, io.Writer) { return &out, &out })
		t.Logf("run %v", time.Since(start))
		sb.Discard()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range res.Posture.Facets {
			if !f.OK {
				t.Errorf("facet %+v", f)
			}
		}
		t.Logf("%+v\n%s", res, out.String())
	}
	t.Logf("%+v", e.Describe())
}
