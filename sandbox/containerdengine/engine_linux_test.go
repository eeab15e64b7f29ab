package containerdengine_test

import (
	"os"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
	"striatum/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m)) }

func testLimits() sandbox.Limits {
	return sandbox.Limits{WallClock: time.Minute, MemoryBytes: 1 << 30, Pids: 256, MilliCPUs: 2000, OutputBytes: 1 << 20, DiskBytes: 256 << 20}
}

func TestPrivateContainerdKeepsTheContract(t *testing.T) {
	sandboxtest.Run(t, func(t testing.TB) sandbox.Engine {
		e, err := containerdengine.Open(t.Context(), testenv.Containerd(t))
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}
