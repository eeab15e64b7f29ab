package gatecmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// manyClaims is how many claims the benchmark's worktree has.
const manyClaims = 100

// BenchmarkColdGateRead starts `striatum version` and `striatum gate read` over
// 100 claims with a receipt each, in turn, and reports the medians: of both, and of
// what the second takes more, in time and in processor time.
func BenchmarkColdGateRead(b *testing.B) {
	dir := b.TempDir()
	striatum := filepath.Join(dir, "striatum")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", striatum, "striatum/cmd/striatum").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	home, top := filepath.Join(dir, "home"), filepath.Join(dir, "worktree")
	checks, claims := []any{}, []any{}
	for i := range manyClaims {
		id := fmt.Sprintf("claim-%d", i)
		checks = append(checks, map[string]any{"id": fmt.Sprintf("tests-%d", i), "uses": "builtin:go-test", "backs_claim": id, "packages": []string{fmt.Sprintf("./p%d", i)}})
		claims = append(claims, map[string]any{"id": id, "statement": "The tests pass."})
	}
	put := func(name, text string) {
		b.Helper()
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	put("go.mod", "module example.org/m\n\ngo 1.26\n")
	sample, err := os.ReadFile("../../../workflow/testdata/workflow.v1.json")
	if err != nil {
		b.Fatal(err)
	}
	var flow map[string]any
	if err := json.Unmarshal(sample, &flow); err != nil {
		b.Fatal(err)
	}
	flow["claims"] = claims
	for _, j := range flow["jobs"].([]any) {
		if job := j.(map[string]any); job["checks"] != nil {
			job["checks"] = checks
		}
	}
	doc, err := json.Marshal(flow)
	if err != nil {
		b.Fatal(err)
	}
	put("verification/workflow.json", string(doc))
	if err := recordRuns(b.Context(), home, top, true, ""); err != nil {
		b.Fatal(err)
	}
	run := func(args ...string) (wall, cpu time.Duration, text string) {
		b.Helper()
		cmd := exec.CommandContext(b.Context(), striatum, args...)
		cmd.Dir, cmd.Env = top, []string{"STRIATUM_HOME=" + home, "PATH=/usr/bin:/bin"}
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %v: %s", args, err, out)
		}
		return time.Since(begin), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), string(out)
	}
	if _, _, out := run("gate", "read"); strings.Count(out, "claim-") < manyClaims || strings.Contains(out, "amber") {
		b.Fatalf("not what is to be measured: %s", out)
	}
	var version, read, more, work []time.Duration
	for b.Loop() {
		v, vc, _ := run("version")
		r, rc, _ := run("gate", "read")
		version, read, more, work = append(version, v), append(read, r), append(more, r-v), append(work, rc-vc)
	}
	for _, m := range []struct {
		of   []time.Duration
		unit string
	}{{version, "ms-version"}, {read, "ms-gate-read"}, {more, "ms-more"}, {work, "ms-more-processor-time"}} {
		slices.Sort(m.of)
		b.ReportMetric(float64(m.of[(len(m.of)-1)/2].Microseconds())/1000, m.unit)
	}
	b.ReportMetric(0, "ns/op")
}
