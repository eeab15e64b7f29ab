package verifier_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/sandbox/containerdengine"
)

// laneVariable tells the test binary to be a lane that is killed: the lab's
// folder, striatum-init and the worktree, with colons between them.
const laneVariable = "STRIATUM_TEST_LANE"

// TestLaneProcess is no test of its own: it is what the killed process does. It
// says each step and runs the check, and never hands over a receipt.
func TestLaneProcess(t *testing.T) {
	home, rest, ok := strings.Cut(os.Getenv(laneVariable), ":")
	if !ok {
		return
	}
	initPath, root, _ := strings.Cut(rest, ":")
	l, err := newLab(home, containerdengine.Config{InitPath: initPath, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	l.stuck = true
	_, err = l.verify(t.Context(), t, root, goTest, func(_, step string) { fmt.Println(step) })
	t.Fatalf("the lane was not killed: %v", err)
}

// killLane starts a lane on root, waits until it says step, and kills it.
func killLane(t *testing.T, home, root, step string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestLaneProcess$")
	cmd.Env = append(os.Environ(), laneVariable+"="+strings.Join([]string{home, testenv.Init(t), root}, ":"))
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
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said = append(said, lines.Text()); lines.Text() == step {
			return
		}
	}
	t.Fatalf("the lane ended before %q: %q", step, said)
}

// leftovers names what the lane of a home has on the machine: processes, mounts,
// cgroups and its run folder.
func leftovers(home string) []string {
	id := containerdengine.ID(home)
	var left []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		for _, name := range []string{"cmdline", "cgroup"} {
			data, err := os.ReadFile(filepath.Join("/proc", e.Name(), name))
			if err == nil && (strings.Contains(string(data), "/striatum/"+id) || strings.Contains(string(data), "striatum-"+id)) {
				left = append(left, "process "+e.Name()+" "+strings.ReplaceAll(string(data), "\x00", " "))
			}
		}
	}
	if info, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(info), id) {
		left = append(left, fmt.Sprintf("mounts %v", err))
	}
	for _, dir := range []string{"/sys/fs/cgroup", "/run/striatum"} {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && strings.Contains(d.Name(), id) && !strings.HasSuffix(p, ".lock") {
				left = append(left, p)
			}
			return nil
		})
	}
	return left
}

// TestAKilledCheckIsSealedByTheNextLane kills a lane at each step that has taken
// a number and started sandboxes. The next one seals that number as aborted
// before its own check, and nothing is left on the machine.
func TestAKilledCheckIsSealedByTheNextLane(t *testing.T) {
	warm := open(t)
	root := testenv.Tree(t, good)
	warm.receiptOf(t, root, goTest) // the cache layer is there to be copied
	for _, step := range []string{"compile the tests, and again with planted failures", "negative control", "both runs", "mutants of the product: 0 tried, 0 killed", "record"} {
		t.Run(step, func(t *testing.T) {
			home := t.TempDir()
			if out, err := exec.CommandContext(t.Context(), "cp", "-al", filepath.Join(warm.dir, "cache"), home).CombinedOutput(); err != nil {
				t.Fatalf("copy the cache layer: %v: %s", err, out)
			}
			killLane(t, home, root, step)
			l, err := newLab(home, testenv.Containerd(t))
			if err != nil {
				t.Fatal(err)
			}
			next := l.receiptOf(t, root, goTest)
			if err := l.engine.Close(); err != nil {
				t.Error(err)
			}
			if left := leftovers(home); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
			if next.Classification != receipt.Asserted || next.Sequence != 2 || len(l.stored) != 2 {
				t.Fatalf("the next check: %s, number %d, %d receipts; want asserted, 2 and 2", next.Classification, next.Sequence, len(l.stored))
			}
			killed, err := receipt.Parse(l.stored[0])
			if err != nil {
				t.Fatal(err)
			}
			// At "record" the receipt was sealed already; it is only handed over.
			want, code := receipt.Indeterminate, "aborted"
			if step == "record" {
				want, code = receipt.Asserted, ""
			}
			if killed.Sequence != 1 || killed.Classification != want || !strings.Contains(codes(killed), code) {
				t.Errorf("the killed check: number %d, %s, codes %s; want 1, %s, %s", killed.Sequence, killed.Classification, codes(killed), want, code)
			}
			if open, err := filepath.Glob(filepath.Join(home, "journal", "open", "*")); err != nil || len(open) != 0 {
				t.Errorf("numbers that are still open: %q, %v", open, err)
			}
			if made, err := filepath.Glob(filepath.Join(home, "snapshots", "*")); err != nil || slices.ContainsFunc(made, func(p string) bool { return strings.Contains(p, ".tmp") }) {
				t.Errorf("unfinished snapshots: %q, %v", made, err)
			}
		})
	}
}
