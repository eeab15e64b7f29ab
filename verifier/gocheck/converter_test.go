package gocheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// step is an event in the words of test2json, with adjoining output joined.
type step struct{ Action, Test, Output string }

func addStep(steps []step, s step) []step {
	if last := len(steps) - 1; s.Action == "output" && last >= 0 && steps[last].Action == "output" && steps[last].Test == s.Test {
		steps[last].Output += s.Output
		return steps
	}
	return append(steps, s)
}

var actionWords = map[Action]string{
	Run: "run", Pause: "pause", Cont: "cont", Output: "output", Passed: "pass", Failed: "fail", Skipped: "skip", Bench: "bench", Attr: "attr",
}

// convert runs out through a Converter, in pieces of the given size.
func convert(out []byte, piece int, unmarked bool) []step {
	var steps []step
	c := NewConverter(func(e Event) {
		steps = addStep(steps, step{actionWords[e.Action], e.Test, string(e.Output)})
	})
	c.unmarkedOK = unmarked
	for p := out; len(p) > 0; p = p[min(piece, len(p)):] {
		_, _ = c.Write(p[:min(piece, len(p))])
	}
	c.Close()
	for i := range steps { // as JSON makes text of it
		steps[i].Output = asText(steps[i].Output)
		steps[i].Test = asText(steps[i].Test)
	}
	return steps
}

func asText(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		panic(err)
	}
	return text
}

// test2json builds the release's own converter.
func test2json(t *testing.T) func(out []byte) []step {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "test2json")
	if msg, err := exec.Command("go", "build", "-o", bin, "cmd/test2json").CombinedOutput(); err != nil {
		t.Fatalf("build test2json: %v: %s", err, msg)
	}
	return func(out []byte) []step {
		t.Helper()
		cmd := exec.Command(bin)
		cmd.Stdin = bytes.NewReader(out)
		data, err := cmd.Output()
		if err != nil {
			t.Fatalf("test2json: %v", err)
		}
		var steps []step
		for dec := json.NewDecoder(bytes.NewReader(data)); ; {
			var s step
			if err := dec.Decode(&s); err == io.EOF {
				return steps
			} else if err != nil {
				t.Fatalf("read test2json: %v", err)
			}
			switch s.Action {
			case "start":
				continue
			case "artifacts":
				s.Action = "attr"
			}
			steps = addStep(steps, s)
		}
	}
}

// testBinary compiles the tests in dir with the real go command. What is
// returned runs them and gives their standard output.
func testBinary(t *testing.T, dir string) func(flags ...string) []byte {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "t.test")
	build := exec.Command("go", "test", "-c", "-o", bin, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, msg)
	}
	return func(flags ...string) []byte {
		run := exec.Command(bin, append([]string{"-test.paniconexit0", "-test.v=test2json"}, flags...)...)
		run.Dir = dir
		out, _ := run.Output() // its status is not the matter here
		return out
	}
}

func TestConverterAgreesWithTest2JSONOnRealTests(t *testing.T) {
	want := test2json(t)
	output := testBinary(t, unpack(t, "outputs.txtar"))
	for _, c := range [][]string{
		nil,
		{"-test.bench=.", "-test.benchtime=1x"},
		{"-test.run=Panic", "-test.skip=^$"},
		{"-test.run=Parallel", "-test.count=2"},
		{"-test.run=^$"},
		{"-test.run=Exit"},
		{"-test.run=Forged"},
		{"-test.run=Fuzz"},
		{"-test.run=Quiet"},
	} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			if c == nil {
				c = []string{"-test.skip=Panic|Exit"}
			}
			out := output(c...)
			if len(out) == 0 {
				t.Fatal("no output")
			}
			compareSteps(t, want, out)
		})
	}
}

func compareSteps(t *testing.T, want func([]byte) []step, out []byte) {
	t.Helper()
	expected := want(out)
	for _, piece := range []int{len(out), 1, 7, 4096} {
		if diff := cmp.Diff(expected, convert(out, max(1, piece), true)); diff != "" {
			t.Errorf("in pieces of %d: (-test2json +ours)\n%s\nof %q", piece, diff, out)
			return
		}
	}
}

// TestConverterAgreesWithTest2JSONOnGarbage puts framing, parts of it, other
// control bytes and long text together at random.
func TestConverterAgreesWithTest2JSONOnGarbage(t *testing.T) {
	want := test2json(t)
	parts := []string{
		"\x16", "\x16\x16", "=== RUN   TestA\n", "\x16=== RUN   TestA\n", "\x16=== RUN   TestA/b c\n", "\x16=== RUN   \n", "\x16=== NAME\n", "\x16=== NAME  \n",
		"\x16=== NAME  TestB\n", "\x16=== PAUSE TestA\n", "\x16=== CONT  TestA\n", "\x16--- PASS: TestA (0.00s)\n", "\x16--- FAIL: TestA (1.25s)\n",
		"\x16    --- PASS: TestA/b (0.00s)\n", "    --- SKIP: TestA/b (0.00s)\n", "\x16        --- FAIL: TestA/b/c (0.00s)\n", "--- PASS: TestZ (0.00s)\n",
		"\x16--- BENCH: BenchmarkA-8\n", "BenchmarkA-8 \t 1\t 12 ns/op\n", "\x16PASS\n", "PASS\n", "\x16FAIL\n", "\x16FAIL\tp\n", "FAIL", "\x16PASS\r\n", "\x16PASS",
		"\n", "\r\n", "text\n", "text", "    text\n", "\x16    text\n", "\x16        text\n", "é", "\xc3", "\xff\xfe", "\x00", "\x16=== ATTR  TestA k v w\n",
		"\x16=== ARTIFACTS TestA /tmp/x\n", "\x16=== RUNX  TestA\n", "\x16--- PASS: \n", "\x16--- PASS: A (x (0.00s)\n", "\x16--- PASS: TestA (0.00s)", "=== ",
		strings.Repeat("x", 1000), strings.Repeat("é", 1111), strings.Repeat("y", 5001), "\x16=== RUN   " + strings.Repeat("z", 4100) + "\n", "\x16--- FAIL: " + strings.Repeat("T", 4000) + "\n",
	}
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var out []byte
		for range 1 + rnd.IntN(40) {
			out = append(out, parts[rnd.IntN(len(parts))]...)
		}
		compareSteps(t, want, out)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestConverterSeesAMarkerAfterAFullBuffer(t *testing.T) {
	for _, n := range []int{4095, 4096, 4097, 8192} {
		out := "\x16=== RUN   TestA\n" + strings.Repeat("x", n) + "\x16--- PASS: TestA (0.00s)\n\x16PASS\n"
		steps := convert([]byte(out), len(out), false)
		if last := steps[len(steps)-3]; last.Action != "pass" || last.Test != "TestA" {
			t.Errorf("after %d bytes: %+v", n, last)
		}
	}
}

func TestConverterTakesNoLineWithoutAMarkerForFraming(t *testing.T) {
	out := "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n"
	if diff := cmp.Diff([]step{{"output", "", out}}, convert([]byte(out), 5, false)); diff != "" {
		t.Error(diff)
	}
}

func FuzzTest2JSON(f *testing.F) {
	f.Add([]byte("\x16=== RUN   TestA\nx\x16--- PASS: TestA (0.00s)\n\x16PASS\n"), 3)
	f.Add([]byte("\x16=== RUN   TestA\n\x16=== RUN   TestA/b\n\x16    --- FAIL: TestA/b (0.00s)\n\x16--- FAIL: TestA (0.00s)\n\x16FAIL\n"), 1)
	f.Fuzz(func(t *testing.T, out []byte, piece int) {
		whole := convert(out, max(1, len(out)), false)
		if diff := cmp.Diff(whole, convert(out, 1+abs(piece)%50, false)); diff != "" {
			t.Errorf("pieces matter: %s", diff)
		}
		var printed strings.Builder
		for _, s := range whole {
			printed.WriteString(s.Output)
		}
		tally := NewTally(&Room{})
		_, _ = tally.Write(out)
		tally.Close()
		for name, s := range tally.tests {
			if name == "" || s.runs+s.ended() == 0 {
				t.Errorf("tally of %q: %+v", name, s)
			}
		}
		if !bytes.ContainsRune(out, marker) && (len(tally.tests) > 0 || tally.final != 0) {
			t.Errorf("framing without a marker: %v", fmt.Sprint(tally.tests))
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
