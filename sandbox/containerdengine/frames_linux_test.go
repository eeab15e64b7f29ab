package containerdengine_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
)

// runWith runs /bin/true in an engine whose init is badinit in a mode.
func runWith(t *testing.T, mode string) (sandbox.Result, error) {
	t.Helper()
	cfg := testenv.Containerd(t)
	cfg.InitPath = filepath.Join(t.TempDir(), "init")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w -X main.mode="+mode, "-o", cfg.InitPath, "./testdata/badinit")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e, err := containerdengine.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	spec := plainSpec(t)
	spec.Limits.WallClock = 2 * time.Second
	sb, err := e.Prepare(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Discard()
	return sb.Run(t.Context(), []sandbox.Program{{Path: "/bin/true", Args: []string{"true"}, Dir: "/"}}, nil)
}

func TestFramesThatAreNotAsAgreedAreNoResult(t *testing.T) {
	for _, mode := range []string{"silent", "garbage", "nonce", "turn", "missing", "unknown", "twice", "collected", "noend", "more"} {
		t.Run(mode, func(t *testing.T) {
			res, err := runWith(t, mode)
			var p *sandbox.PostureError
			if !errors.As(err, &p) || p.Reason == "" {
				t.Errorf("got %+v, %v, want a posture error", res, err)
			}
			if len(res.Programs) != 0 {
				t.Errorf("programs of a run that does not count: %+v", res.Programs)
			}
		})
	}
	t.Run("late", func(t *testing.T) {
		res, err := runWith(t, "late")
		if err != nil || res.Hit != sandbox.HitWallClock || len(res.Programs) != 0 {
			t.Errorf("got %+v, %v, want the wall clock", res, err)
		}
		for _, f := range res.Posture.Facets {
			if f.Observer == "init" && (f.OK || f.Observed != sandbox.NotObserved) {
				t.Errorf("%+v was never reported", f)
			}
		}
	})
	t.Run("honest", func(t *testing.T) {
		if res, err := runWith(t, "honest"); err != nil || len(res.Programs) != 1 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}
