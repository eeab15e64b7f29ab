package verifier_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/seal"
	"striatum/workflow"
)

// TestInterruptedCheckEndsInAReceipt cancels at each step. A number that was
// taken ends in a receipt that says aborted; before that there is none, and the
// lane is free for the next check either way.
func TestInterruptedCheckEndsInAReceipt(t *testing.T) {
	l := open(t)
	sum := seal.SHA256Hex([]byte("bytes\n"))
	root := testenv.Tree(t, good+"-- f --\nbytes\n-- verification/anchors.json --\n"+
		`{"schema_version":"striatum.anchors.v1","anchors":[{"path":"f","sha256":"`+sum+`"}]}`+"\n")
	vet, build := workflow.CheckRef{Uses: "builtin:go-vet"}, workflow.CheckRef{Uses: "builtin:go-build"}
	anchors := workflow.CheckRef{Uses: "builtin:artifact-anchor-integrity"}
	for _, c := range []struct {
		step     string
		check    workflow.CheckRef
		receipts int
	}{
		{"freeze the tree", goTest, 0},
		{"measure the tools", goTest, 0},
		{"start the sandbox engine", goTest, 1},
		{"read the module", goTest, 1},
		{"fetch dependencies", goTest, 1},
		{"compile the tests, and again with planted failures", goTest, 1},
		{"negative control", goTest, 1},
		{"both runs", goTest, 1},
		{"look for mutants of the product", goTest, 1},
		{"mutants of the product: 0 tried, 0 killed", goTest, 1},
		{"mutants of the product: look again at one that was killed", goTest, 1},
		{"negative control", vet, 1},
		{"run 1 of 2", vet, 1},
		{"run 2 of 2", vet, 1},
		{"negative control", build, 1},
		{"run 1 of 2", build, 1},
		{"run 2 of 2", build, 1},
		{"negative control", anchors, 1},
		{"run 1 of 2", anchors, 1},
		{"run 2 of 2", anchors, 1},
	} {
		t.Run(c.check.Uses+" "+c.step, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			outcomes, err := l.verify(ctx, t, root, c.check, func(_, step string) {
				if step == c.step {
					cancel()
				}
			})
			if err == nil || ctx.Err() == nil || len(outcomes) != c.receipts {
				t.Fatalf("%d outcomes, error %v; want %d and the interruption", len(outcomes), err, c.receipts)
			}
			for _, o := range outcomes {
				r := o.Receipt.Receipt()
				if r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "aborted") {
					t.Errorf("%s, codes %s; want indeterminate, aborted", r.Classification, codes(r))
				}
			}
		})
	}
	if r := l.receiptOf(t, root, goTest); r.Classification != receipt.Asserted {
		t.Errorf("the next check: %s, codes %s; want asserted", r.Classification, codes(r))
	}
}

// TestInterruptedWarmUpKeepsNoCache cancels while the standard library is being
// compiled for the cache: half a cache is none.
func TestInterruptedWarmUpKeepsNoCache(t *testing.T) {
	home := t.TempDir()
	l, err := newLab(home, testenv.Containerd(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcomes, err := l.verify(ctx, t, testenv.Tree(t, good), goTest, func(_, step string) {
		if strings.HasPrefix(step, "compile the standard library") {
			time.AfterFunc(3*time.Second, cancel) // minutes before its end
		}
	})
	if err == nil || ctx.Err() == nil || len(outcomes) != 1 {
		t.Fatalf("%d outcomes, error %v; want one and the interruption", len(outcomes), err)
	}
	if r := outcomes[0].Receipt.Receipt(); r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "aborted") {
		t.Errorf("%s, codes %s; want indeterminate, aborted", r.Classification, codes(r))
	}
	if err := l.engine.Close(); err != nil {
		t.Error(err)
	}
	if kept, err := filepath.Glob(filepath.Join(home, "cache", "*")); err != nil || len(kept) != 0 {
		t.Errorf("kept of the cache: %q, %v", kept, err)
	}
	if left := leftovers(home); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestRunsThatDifferAreNoAgreement: in each run the coin of sixty-four subtests
// says which of them are skipped, so that both runs pass and differ.
func TestRunsThatDifferAreNoAgreement(t *testing.T) {
	l := open(t)
	text := good + `-- coin_test.go --
package m

import (
	"crypto/rand"
	"fmt"
	"testing"
)

func TestCoin(t *testing.T) {
	var coins [64]byte
	_, _ = rand.Read(coins[:])
	for i, c := range coins {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if c&1 == 0 {
				t.Skip()
			}
		})
	}
}
`
	r := l.receiptOf(t, testenv.Tree(t, text), goTest)
	if r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "no_reexecution_agreement") {
		t.Errorf("%s, codes %s; want indeterminate, no_reexecution_agreement", r.Classification, codes(r))
	}
}

// TestARunThatFailsBesideOneThatPassesFails: each run fails by a coin of its own,
// until one passes and the other does not. What two that pass come to is for the
// coins of the controls to say.
func TestARunThatFailsBesideOneThatPassesFails(t *testing.T) {
	l := open(t)
	root := testenv.Tree(t, good+`-- coin_test.go --
package m

import (
	"crypto/rand"
	"testing"
)

func TestCoin(t *testing.T) {
	var coin [1]byte
	if _, _ = rand.Read(coin[:]); coin[0]&1 == 0 {
		t.Error("tails")
	}
}
`)
	for range 40 {
		r := l.receiptOf(t, root, goTest)
		a, b := r.Executions[0].Judgement, r.Executions[1].Judgement
		if failed := a != receipt.Pass || b != receipt.Pass; (r.Classification == receipt.Failed) != failed {
			t.Errorf("runs %s and %s: %s", a, b, r.Classification)
		}
		if a != b {
			if r.Census.Failed != 1 {
				t.Errorf("the census is of the run that passed: %+v", r.Census)
			}
			return
		}
	}
	t.Fatal("forty pairs of coins fell alike")
}

// TestNoRunSeesWhatAnotherLeft has two packages that leave a mark wherever they
// can and fail where there is one: within a run, between the runs, and after the
// control, nothing stays.
func TestNoRunSeesWhatAnotherLeft(t *testing.T) {
	l := open(t)
	test := `package p

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestMark(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, dir := range []string{".", "..", os.TempDir(), home, os.Getenv("GOCACHE"), os.Getenv("GOMODCACHE"), "/dev/shm", "/check", "/"} {
		mark := filepath.Join(dir, "mark")
		if _, err := os.Stat(mark); err == nil {
			t.Errorf("%s is there", mark)
		}
		if os.WriteFile(mark, nil, 0o600) == nil {
			left++
		}
	}
	if left < 5 {
		t.Errorf("left %d marks, too few to show anything", left)
	}
	if _, err := net.Listen("unix", "@mark"); err != nil {
		t.Error(err)
	}
	if _, err := net.Listen("tcp", "127.0.0.1:4321"); err != nil {
		t.Error(err)
	}
	const create, excl = 0o1000, 0o2000
	if _, _, errno := syscall.Syscall(syscall.SYS_SHMGET, 4321, 4096, create|excl|0o600); errno == syscall.EEXIST {
		t.Error("shared memory is there")
	}
}
`
	text := "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n-- a/p_test.go --\n" + test + "-- b/p_test.go --\n" + test
	r := l.receiptOf(t, testenv.Tree(t, text), goTest)
	if r.Classification != receipt.Asserted || r.Census.Passed != 2 {
		t.Errorf("%s, codes %s, census %+v; want asserted", r.Classification, codes(r), r.Census)
	}
}

// TestAnOutputPipeThatIsHeldOpenDelaysNothing: the child has the binary's own
// output, writes to it, and outlives the binary. It ends with it.
func TestAnOutputPipeThatIsHeldOpenDelaysNothing(t *testing.T) {
	l := open(t)
	text := good + `-- held_test.go --
package m

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

func TestHeld(t *testing.T) {
	child := exec.Command("sh", "-c", "trap '' HUP INT TERM; while :; do echo held; sleep 0.05; done")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	link := func(process, fd string) string {
		to, err := os.Readlink("/proc/" + process + "/fd/" + fd)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	own := []string{link("self", "1"), link("self", "2")}
	for _, fd := range []string{"1", "2"} {
		if held := link(strconv.Itoa(child.Process.Pid), fd); !slices.Contains(own, held) {
			t.Errorf("the child has %q, the test %q", held, own)
		}
	}
}
`
	check := goTest
	check.Limits = &workflow.Limits{WallClock: "5m"}
	r := l.receiptOf(t, testenv.Tree(t, text), check)
	if r.Classification != receipt.Asserted || r.Limits.Hit != "" {
		t.Errorf("%s, hit %q, codes %s; want asserted without a limit", r.Classification, r.Limits.Hit, codes(r))
	}
}
