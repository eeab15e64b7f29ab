package gate_test

import (
	"slices"
	"strings"
	"testing"

	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

var protectedCommit = strings.Repeat("c", 40)

func protects(w *world, restored ...string) {
	w.facts.Inputs.Protected = &receipt.Protected{
		Commit: protectedCommit, Paths: []string{"**/*_test.go"}, Files: 7,
		Restored: receipt.NewList(restored), Added: receipt.NewList(nil), Removed: receipt.NewList(nil),
		TreeSHA256: digest("ran"), ManifestSHA256: digest("manifest of what ran"),
	}
	w.after = append(w.after, func(w *world) { w.in.Required[0].ProtectedCommit = protectedCommit })
}

// TestAGreenClaimSaysWhichBytesRan: protected inputs lower nothing, and the sentence does
// not let them pass for the tree's own.
func TestAGreenClaimSaysWhichBytesRan(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	w := newWorld(t, l)
	protects(w, "a_test.go")
	c := only(t, gate.Evaluate(w.build()))
	if want := "; ran on tree " + digest("ran")[:12] + ", which has the 7 protected files of commit cccccccccccc: 1 restored, 0 added, 0 removed; what the checked tree has there did not count"; c.Signal != gate.Green || len(c.Bases) != 0 || !strings.HasSuffix(c.Says, want) {
		t.Errorf("%s\nsays %s\nwant %s", describe(c), c.Says, want)
	}
	if p := c.Protected; p == nil || *p != (gate.Protected{Commit: protectedCommit, Files: 7, Restored: 1, TreeSHA256: digest("ran")}) {
		t.Errorf("got %+v", p)
	}
	w = newWorld(t, l)
	protects(w)
	if c := only(t, gate.Evaluate(w.build())); c.Signal != gate.Green || !strings.HasSuffix(c.Says, "; the tree has the 7 protected files of commit cccccccccccc") {
		t.Errorf("%s\nsays %s", describe(c), c.Says)
	}
}

// TestSilenceOnProtectedInputsIsNoGreen: a check with protected inputs that passes and
// says nothing of them, or of another commit's.
func TestSilenceOnProtectedInputsIsNoGreen(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	for name, turn := range map[string]func(w *world){
		"none":           func(w *world) { w.facts.Inputs.Protected = nil },
		"another commit": func(w *world) { w.facts.Inputs.Protected.Commit = strings.Repeat("d", 40) },
	} {
		w := newWorld(t, l)
		protects(w)
		turn(w)
		if c := only(t, gate.Evaluate(w.build())); c.Signal != gate.Amber || !slices.Contains(codes(c), gate.CheckIndeterminate) {
			t.Errorf("%s: %s", name, describe(c))
		}
	}
}
