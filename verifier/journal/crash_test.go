package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"striatum/receipt"
	"striatum/seal"
)

const crashEnv = "STRIATUM_TEST_CRASH_AT"

func TestMain(m *testing.M) {
	if at := os.Getenv(crashEnv); at != "" {
		os.Exit(crashingLane(os.Args[1], at))
	}
	os.Exit(m.Run())
}

// crashingLane does a lane's work in dir and kills itself before the write
// with the given number. It prints each number that it was given and each seal
// that it was promised.
func crashingLane(dir, at string) int {
	n, err := strconv.Atoi(at)
	if err != nil {
		return 2
	}
	cfg := testConfig()
	cfg.crash = func(string) {
		if n--; n == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if err := laneWork(dir, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func laneWork(dir string, cfg Config, out io.Writer) error {
	cfg.Key = crashKey(dir)
	j, err := Open(dir, cfg)
	if err != nil {
		return err
	}
	s, err := j.Lock(context.Background(), "crash", 0, nil)
	if err != nil {
		return err
	}
	left, err := s.Leftovers()
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := seals(e, out); err != nil {
			return err
		}
	}
	for i := range 2 {
		e, err := s.Begin(draft("a"), "local")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "opened %s %d\n", e.Opened.LaneEpoch, e.Opened.Sequence)
		if i == 1 {
			d := e.Draft
			d.Executions = []receipt.Execution{{Judgement: receipt.Fail, ExitCode: 1, StartedAt: "2026-01-02T03:04:05Z"}}
			if err := e.Note(d); err != nil {
				return err
			}
			fmt.Fprintf(out, "failed %s %d\n", e.Opened.LaneEpoch, e.Opened.Sequence)
		}
		if err := seals(e, out); err != nil {
			return err
		}
	}
	pending, err := j.Pending()
	if err != nil {
		return err
	}
	for _, p := range pending {
		if err := s.MarkRecorded(p); err != nil {
			return err
		}
	}
	return s.Release()
}

func seals(e *Entry, out io.Writer) error {
	envelope, _, err := receipt.Sign(e.Aborted(testConfig().Now(), "crash test"), e.s.j.cfg.Key)
	if err != nil {
		return err
	}
	sealed, err := e.Finish(envelope)
	if err == nil {
		fmt.Fprintf(out, "sealed %s %d %s\n", e.Opened.LaneEpoch, e.Opened.Sequence, sealed)
	}
	return err
}

func TestNoKillLosesANumberOrGivesItTwoReceipts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var points int
	for at := 1; ; at++ {
		dir := filepath.Join(t.TempDir(), "journal")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		writeCrashKey(t, dir)
		cmd := exec.Command(self, dir)
		cmd.Env = append(os.Environ(), crashEnv+"="+strconv.Itoa(at))
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
			t.Fatalf("at %d: %v: %s", at, err, exit.Stderr)
		}
		checkAfterCrash(t, at, dir, string(out))
		if err == nil {
			points = at - 1
			break
		}
	}
	t.Logf("%d points", points)
	if points < 20 {
		t.Errorf("killed at %d points only", points)
	}
}

// checkAfterCrash works on in dir and then looks at every number.
func checkAfterCrash(t *testing.T, at int, dir, out string) {
	t.Helper()
	if err := laneWork(dir, testConfig(), io.Discard); err != nil {
		t.Fatalf("at %d: after the kill: %v", at, err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "receipts", "*", "*", "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	bySequence := map[string]receipt.Receipt{}
	for _, path := range found {
		envelope, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := receipt.Parse(envelope)
		if err != nil {
			t.Fatalf("at %d: %v", at, err)
		}
		place := fmt.Sprint(r.LaneEpoch, " ", r.Sequence)
		if _, twice := bySequence[place]; twice {
			t.Errorf("at %d: two receipts for %s", at, place)
		}
		bySequence[place] = r
	}
	checkChain(t, at, bySequence)
	checkPromises(t, at, out, bySequence)
	for _, folder := range []string{"open", "pending"} {
		if rest, err := os.ReadDir(filepath.Join(dir, folder)); err != nil || len(rest) != 0 {
			t.Errorf("at %d: left in %s: %v, error %v", at, folder, rest, err)
		}
	}
}

func checkChain(t *testing.T, at int, bySequence map[string]receipt.Receipt) {
	t.Helper()
	epochs := map[string]bool{}
	for _, r := range bySequence {
		epochs[r.LaneEpoch] = true
	}
	if len(epochs) != 1 {
		t.Errorf("at %d: receipts in %d epochs", at, len(epochs))
	}
	for epoch := range epochs {
		prev := zeroSeal
		for n := 1; n <= len(bySequence); n++ {
			r, ok := bySequence[fmt.Sprint(epoch, " ", n)]
			if !ok || r.PrevSeal != prev {
				t.Errorf("at %d: number %d: there %v, after %s, want %s", at, n, ok, r.PrevSeal, prev)
			}
			prev = r.SealDigest
		}
	}
}

// checkPromises looks for what the killed lane had been told.
func checkPromises(t *testing.T, at int, out string, bySequence map[string]receipt.Receipt) {
	t.Helper()
	for line := range strings.Lines(out) {
		var what, epoch, sealed string
		var n int64
		if _, err := fmt.Sscan(strings.TrimSpace(line)+" -", &what, &epoch, &n, &sealed); err != nil {
			t.Fatalf("at %d: line %q: %v", at, line, err)
		}
		r, ok := bySequence[fmt.Sprint(epoch, " ", n)]
		switch {
		case !ok:
			t.Errorf("at %d: %q, but no receipt", at, line)
		case what == "failed" && r.Classification != receipt.Failed:
			t.Errorf("at %d: %q, but the receipt says %s", at, line, r.Classification)
		case what == "sealed" && r.SealDigest != sealed:
			t.Errorf("at %d: %q, but the seal is %s", at, line, r.SealDigest)
		}
	}
}

func writeCrashKey(t *testing.T, dir string) {
	t.Helper()
	pem, err := testKey.PEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+".key", pem, 0o600); err != nil {
		t.Fatal(err)
	}
}

func crashKey(dir string) *seal.PrivateKey {
	pem, err := os.ReadFile(dir + ".key")
	if err != nil {
		panic(err)
	}
	k, err := seal.ParsePrivateKey(pem)
	if err != nil {
		panic(err)
	}
	return k
}
