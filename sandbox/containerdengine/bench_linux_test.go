package containerdengine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
)

// medianReport adds the median of what took to b's output, in milliseconds.
func medianReport(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)/10].Microseconds())/1000, "p10-ms")
}

// BenchmarkThreeFresh is three fresh strict executions of /bin/true in an
// engine that is up, prepared together, run in order, and discarded; removing
// containers is part of it, since the bin is bounded.
func BenchmarkThreeFresh(b *testing.B) {
	e, err := containerdengine.Open(b.Context(), testenv.Containerd(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}()
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
	medianReport(b, took)
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
