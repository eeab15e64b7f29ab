package verifier_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"striatum/internal/crew"
	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/sandbox"
)

// faulty panics where a sandbox is to be made.
type faulty struct{ sandbox.Engine }

func (faulty) Prepare(context.Context, sandbox.Spec) (sandbox.Sandbox, error) { panic("a fault") }

// TestAPanicIsTheRunsAndTheLaneGoesOn panics beside the goroutine of the run: what was
// begun is sealed as aborted, and the lane is free.
func TestAPanicIsTheRunsAndTheLaneGoesOn(t *testing.T) {
	l := open(t)
	l.wrap = func(e sandbox.Engine) sandbox.Engine { return faulty{e} }
	defer func() { l.wrap = nil }()
	before := len(l.stored)
	fault := crew.Catch(func() { _, _ = l.verify(t.Context(), t, testenv.Tree(t, good), goTest, nil) })
	if fault == nil || fault.Value != "a fault" {
		t.Fatalf("got %v", fault)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.lane(t, nil).Settle(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if len(l.stored) != before+1 {
		t.Fatalf("%d receipts were recorded, want one", len(l.stored)-before)
	}
	r, err := receipt.Parse(l.stored[before])
	if err != nil || r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "aborted") {
		t.Errorf("got %+v, %v; want it indeterminate, aborted", r, err)
	}
}
