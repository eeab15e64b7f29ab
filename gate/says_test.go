package gate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/claim"
	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

func TestAGreenClaimSaysWhatItsCheckLeftOut(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	w := newWorld(t, l)
	skips(&w.facts)
	w.facts.Findings = []receipt.Finding{{Code: "module_not_checked", Path: "tools/go.mod", Detail: "no check names this module"}}
	for i := range 14 {
		w.facts.Findings = append(w.facts.Findings, receipt.Finding{Code: "go_file_ignored", Path: fmt.Sprintf("p%02d_test.go", 13-i), Detail: strings.Repeat("é", 150)})
	}
	w.facts.Findings = append(w.facts.Findings, receipt.FindingsLeftOut("go_file_ignored", 30))
	in := w.build()
	in.Required[0].AllowSkips.Any = true
	c := only(t, gate.Evaluate(in))
	if want := "; 1 test skipped, allowed: any; 45 findings: go_file_ignored 44, module_not_checked 1"; c.Signal != gate.Green || !strings.HasSuffix(c.Says, want) {
		t.Errorf("%s, says %q, want %q at its end", c.Signal, c.Says, want)
	}
	kinds := []receipt.FindingKind{{Code: "go_file_ignored", Count: 44}, {Code: "module_not_checked", Count: 1}}
	if diff := cmp.Diff(kinds, c.Findings.Kinds); diff != "" || c.Findings.Count != 45 {
		t.Errorf("%d findings, kinds (-want +got):\n%s", c.Findings.Count, diff)
	}
	if d := c.Findings.Details; len(d) != 10 || d[0].Path != "p00_test.go" || d[9].Path != "p09_test.go" || len(d[0].Detail) > 210 {
		t.Errorf("details: %+v", d)
	}
	if _, err := gate.Evaluate(in).Encode(); err != nil {
		t.Error(err)
	}
}

func TestAFailedClaimNamesWhatFailedOnce(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	w := newWorld(t, l)
	fails(&w.facts)
	for i := range w.facts.Executions {
		w.facts.Executions[i].Reasons = []receipt.Reason{
			{Code: "exit_nonzero", Detail: "m/a: exit status 1"},
			{Code: "tests_failed", Detail: "m/a: TestA"},
			{Code: "exit_nonzero", Detail: "m/b: exit status 1"},
			{Code: "tests_failed", Detail: "m/b: TestB, TestC"},
		}
	}
	c := only(t, gate.Evaluate(w.build()))
	want := `the check failed: tests_failed "m/a: TestA"; tests_failed "m/b: TestB, TestC"; exit_nonzero "m/a: exit status 1"; and 1 more; mend that, for the same tree stays red`
	if got := c.Bases[0].Sentence; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAFailureOnAnotherTreeAsksForThisOne: what failed elsewhere says nothing of
// the judged tree, and running the check there does help.
func TestAFailureOnAnotherTreeAsksForThisOne(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	fails(&w.facts)
	in := w.build()
	in.Tree = gate.Tree{SHA256: digest("tree-2"), Source: "worktree"}
	c := only(t, gate.Evaluate(in))
	b := c.Bases[0]
	if c.Signal != gate.Red || b.Code != gate.CheckNotPassing || !strings.HasPrefix(b.Sentence, "the check failed on another tree") || !strings.HasPrefix(b.Fix, "striatum verifier run --check ") {
		t.Errorf("%s: %+v", c.Signal, b)
	}
}

// TestAttemptsAreThoseOnTheJudgedTree: a claim that was checked on another tree
// does not show that one's attempts as this one's.
func TestAttemptsAreThoseOnTheJudgedTree(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	for _, c := range []struct {
		name string
		tree gate.Tree
		made int64
		says string
	}{
		{"the receipt's tree", gate.Tree{SHA256: tree, Source: "worktree"}, 1, "; 1 attempt on this tree"},
		{"another tree", gate.Tree{SHA256: digest("tree-2"), Source: "worktree"}, 1, "; 1 attempt on this tree, 1 without a receipt"},
		{"a third tree", gate.Tree{SHA256: digest("tree-3"), Source: "worktree"}, 0, "; no attempt of the required check on this tree"},
		{"no tree", gate.Tree{}, 1, "; 1 attempt on the receipt's tree"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, l)
			in := w.build()
			o := openedFor(w.own.Receipt(), laneID)
			o.Sequence, o.PrevSeal, o.TreeSHA256 = 3, w.own.Seal(), digest("tree-2")
			in.Opened = append(in.Opened, o)
			in.Tree = c.tree
			got := only(t, gate.Evaluate(in))
			if got.Attempts.Made != c.made || !strings.HasSuffix(got.Says, c.says) {
				t.Errorf("%+v, says %q, want %q at its end", got.Attempts, got.Says, c.says)
			}
		})
	}
}

// TestAnAuthoredVerifiedIsLoweredByAnIndeterminateRun: the ledger keeps VERIFIED,
// bound to a receipt that shows nothing; the gate does not grant it.
func TestAnAuthoredVerifiedIsLoweredByAnIndeterminateRun(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	w := newWorld(t, l)
	in := w.build()
	r := facts(theClaim)
	r.Sequence, r.PrevSeal, r.ReceiptID, r.Nonce = 3, w.own.Seal(), "r-3", "nonce-3"
	r.Incidents = []receipt.Incident{{Code: "toolchain_drift", Effect: receipt.MakesIndeterminate, Detail: "go"}}
	later := l.seal(t, r)
	in.Ledger = apply(t, in.Ledger, claim.Writer{Principal: claim.Lane, Name: l.id}, claim.Update{ClaimID: theClaim, Receipt: later})
	in.Evidence[theClaim] = gate.Evidence{Verified: later, LogPosition: 30}
	in.History = append(in.History, gate.HistoryEntry{Verified: later, LogPosition: 30})
	in.Opened = append(in.Opened, openedFor(later.Receipt(), l.id))
	c := only(t, gate.Evaluate(in))
	if c.Authored != claim.Verified || c.Effective > claim.Asserted || c.Signal != gate.Amber || len(c.Bases) != 1 || c.Bases[0].Code != gate.CheckIndeterminate {
		t.Errorf("authored %s, effective %s, %s, bases %v", c.Authored, c.Effective, c.Signal, c.Bases)
	}
}

func TestAClaimSaysWhatANarrowedCheckIsAbout(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	in := w.build()
	in.Required[0].Scope = "the packages ./a ./b in tools"
	if c := only(t, gate.Evaluate(in)); !strings.Contains(c.Says, "; speaks for the packages ./a ./b in tools alone; 1 attempt") {
		t.Errorf("says %q", c.Says)
	}
}

func TestTheFixOfASkipIsWhereSkipsAreAllowed(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
		skips(&w.facts)
		in := w.build()
		want := "striatum policy show"
		if !accepted {
			in.Policy, want = nil, "striatum receipt show .striatum/receipts/"+w.own.Seal()+".receipt.json"
		}
		fix := ""
		for _, b := range only(t, gate.Evaluate(in)).Bases {
			if b.Code == gate.SkipsNotAllowed {
				fix = b.Fix
			}
		}
		if fix != want {
			t.Errorf("accepted %t: got %q, want %q", accepted, fix, want)
		}
	}
}
