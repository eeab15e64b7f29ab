package containerdengine_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
)

// medianReport adds the median of what took to b's output, in milliseconds.
func medianReport(b *testing.B, took []time.Duration) {
	b.ReportMetric(median(took), "median-ms")
	b.ReportMetric(float64(took[len(took)/10].Microseconds())/1000, "p10-ms")
}

// BenchmarkThreeFresh is three fresh strict executions of /bin/true in an
// engine that is up, prepared together, run in order, and discarded. What is
// left to removal is in the second figure: the mean with Close, which removes
// everything.
func BenchmarkThreeFresh(b *testing.B) {
	e, err := containerdengine.Open(b.Context(), testenv.Containerd(b))
	if err != nil {
		b.Fatal(err)
	}
	layer := b.TempDir()
	spec := sandbox.Spec{
		Mounts: []sandbox.Mount{{Kind: sandbox.Layer, Source: layer, Target: "/workspace"}, {Kind: sandbox.Scratch, Target: "/tmp"}},
		Limits: testLimits(),
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := threeFresh(b, e, spec); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	total := time.Duration(0)
	for _, d := range took {
		total += d
	}
	start := time.Now()
	if err := e.Close(); err != nil {
		b.Error(err)
	}
	total += time.Since(start)
	b.ReportMetric(float64(total.Microseconds())/1000/float64(len(took)), "mean-with-close-ms")
	medianReport(b, took)
}

// BenchmarkThreeRatio alternates three fresh executions with three of ctr and
// reports the ratio of the medians.
func BenchmarkThreeRatio(b *testing.B) {
	cfg := testenv.Containerd(b)
	e, err := containerdengine.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}()
	spec := sandbox.Spec{
		Mounts: []sandbox.Mount{{Kind: sandbox.Layer, Source: b.TempDir(), Target: "/workspace"}, {Kind: sandbox.Scratch, Target: "/tmp"}},
		Limits: testLimits(),
	}
	ctr := ctrCommand(b, cfg)
	var ours, theirs []time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		if err := threeFresh(b, e, spec); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(start))
		start = time.Now()
		for range 3 {
			n++
			runCommand(b, ctr, n)
		}
		theirs = append(theirs, time.Since(start))
	}
	b.ReportMetric(median(ours), "median-ms")
	b.ReportMetric(median(theirs), "ctr-median-ms")
	b.ReportMetric(median(ours)/median(theirs), "ratio")
}

func threeFresh(b *testing.B, e sandbox.Engine, spec sandbox.Spec) error {
	var boxes [3]sandbox.Sandbox
	var errs [3]error
	var prepared [3]sync.WaitGroup
	for i := range boxes {
		prepared[i].Go(func() { boxes[i], errs[i] = e.Prepare(b.Context(), spec) })
	}
	for i := range boxes {
		prepared[i].Wait()
		if errs[i] != nil {
			return errs[i]
		}
		res, err := boxes[i].Run(b.Context(), []sandbox.Program{{Path: "/bin/true", Args: []string{"true"}, Dir: "/"}}, nil)
		boxes[i].Discard()
		if err != nil {
			return err
		}
		for _, f := range res.Posture.Facets {
			if !f.OK {
				return fmt.Errorf("facet %+v", f)
			}
		}
	}
	return nil
}
