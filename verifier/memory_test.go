package verifier_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
)

// laneBytes is what the lane's process may take at most, all in all.
const laneBytes = 100 << 20

// TestAFloodStaysWithinTheLanesMemory floods the lane with what it must remember:
// names of tests, different ones in each run, in twelve packages.
func TestAFloodStaysWithinTheLanesMemory(t *testing.T) {
	l := open(t)
	l.receiptOf(t, testenv.Tree(t, good), goTest) // the cache layer is there
	// Each of n subtests has a name of random digits, or one that stays.
	flood := func(n, digits int, random bool, more string) string {
		seed := "string(uuid)"
		if !random {
			seed = `"same"`
		}
		var text strings.Builder
		text.WriteString("-- go.mod --\nmodule example.test/flood\n\ngo 1.24\n")
		for p := range 12 {
			fmt.Fprintf(&text, `-- p%d/p_test.go --
package p

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestFlood(t *testing.T) {
	uuid, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat(%s, %d)[:%d]
	for i := range %d {
		t.Run(fmt.Sprint(i, name), func(t *testing.T) { _ = uuid%s })
	}
}
`, p, seed, digits, digits, n, more)
		}
		return text.String()
	}
	for name, c := range map[string]struct {
		text string
		want receipt.Classification
		code string
	}{
		"20,000 subtests":              {flood(20_000/12, 40, false, ""), receipt.Asserted, ""},
		"as many names as may be":      {flood(4_100, 60, true, ""), receipt.Asserted, "subtest_names_vary"},
		"as many that fail":            {flood(4_100, 60, true, `; t.Error(name)`), receipt.Failed, "tests_failed"},
		"more tests than may be":       {flood(20_000, 30, true, ""), receipt.Indeterminate, "events_over_bound"},
		"more bytes than may be":       {flood(800, 1_000, true, ""), receipt.Indeterminate, "events_over_bound"},
		"more than may be, failing":    {flood(20_000, 30, true, `; if len(name) == 30 { t.Fail() }`), receipt.Failed, "events_over_bound"},
		"a flood beside the framework": {flood(1, 30, true, "; for {\n\t\t\tfmt.Println(name)\n\t\t}"), receipt.Void, "limit_output"},
	} {
		t.Run(name, func(t *testing.T) {
			root := testenv.Tree(t, c.text)
			c.text = ""
			restPeak(t)
			r := l.receiptOf(t, root, goTest)
			if got := codes(r); r.Classification != c.want || !strings.Contains(got, c.code) {
				t.Errorf("%s, want %s with %q; codes: %s; control %s %s", r.Classification, c.want, c.code, got, r.Control.Outcome, r.Control.Why)
			}
			most := peak(t)
			t.Logf("the lane's process came to %d MiB", most>>20)
			if most > laneBytes {
				t.Errorf("the lane's process came to %d MiB, want at most %d", most>>20, laneBytes>>20)
			}
		})
	}
}

// restPeak makes the memory that this process has now its peak.
func restPeak(t *testing.T) {
	t.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// peak is the peak resident memory of this process, in bytes.
func peak(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
