package gate_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/claim"
	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

func TestAbsenceIsNeverSuccess(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	all := func() gate.Input { return newWorld(t, l).build() }
	inputs := map[string]func(in *gate.Input){
		"nothing at all":        func(in *gate.Input) { *in = gate.Input{} },
		"no required claims":    func(in *gate.Input) { in.Required = nil },
		"no ledger":             func(in *gate.Input) { in.Ledger = claim.Ledger{} },
		"no evidence":           func(in *gate.Input) { in.Evidence = nil },
		"nothing but the claim": func(in *gate.Input) { *in = gate.Input{Required: in.Required} },
	}
	for name, empty := range inputs {
		t.Run(name, func(t *testing.T) {
			in := all()
			empty(&in)
			r := gate.Evaluate(in)
			if r.Green() || !r.NothingChecked() || r.Verdict != gate.NothingWasChecked || r.Signal == gate.Green {
				t.Errorf("green %t, nothing checked %t, signal %q, verdict %q", r.Green(), r.NothingChecked(), r.Signal, r.Verdict)
			}
			if r.Trust != seal.ClassShared {
				t.Errorf("trust = %s, want shared where no lane is known to be isolated", r.Trust)
			}
			if _, err := r.Encode(); err != nil {
				t.Error(err)
			}
		})
	}
	var zero gate.Report
	if zero.Green() || !zero.NothingChecked() {
		t.Error("the zero report grants something")
	}
}

func TestReportDoesNotDependOnTheOrderOfTheInput(t *testing.T) {
	lanes := lanesForStories(t)
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := newStory(t, rng, lanes)
		for range 12 {
			s.grow()
		}
		s.harm()
		s.in.Required[0].AllowSkips.Names = []string{"m TestB", "m TestA"}
		first, err := gate.Evaluate(s.in).Encode()
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			shuffle(rng, s.in.Required)
			shuffle(rng, s.in.History)
			shuffle(rng, s.in.Opened)
			shuffle(rng, s.in.Lanes)
			shuffle(rng, s.in.Attestations)
			shuffle(rng, s.in.Explanations)
			again, err := gate.Evaluate(s.in).Encode()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, again) {
				t.Fatalf("seed %d:\n%s\n%s", seed, first, again)
			}
		}
	}
}

func shuffle[T any](rng *rand.Rand, list []T) {
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

func TestEvaluateChangesNoneOfItsInput(t *testing.T) {
	in := newWorld(t, newLane(t, laneID, seal.ClassIsolated)).build()
	in.Required = append([]gate.Requirement{{ClaimID: "z-claim", AllowSkips: gate.AllowSkips{Names: []string{"b", "a"}}}}, in.Required...)
	required := slices.Clone(in.Required)
	gate.Evaluate(in)
	if diff := cmp.Diff(required, in.Required); diff != "" || in.Required[0].AllowSkips.Names[0] != "b" {
		t.Errorf("requirements were changed:\n%s", diff)
	}
}

// TestSilenceOnMutantsIsNoGreen: a go-test that passes and says nothing of mutants.
func TestSilenceOnMutantsIsNoGreen(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	builtin(w)
	w.facts.Mutants = nil
	c := only(t, gate.Evaluate(w.build()))
	if got := codes(c); c.Signal != gate.Amber || !slices.Contains(got, gate.CheckIndeterminate) {
		t.Errorf("%s", describe(c))
	}
}

// TestAnInterruptionIsTheFirstThingSaid: the control of a check that was interrupted
// did not run either, and that is not what a person has to know.
func TestAnInterruptionIsTheFirstThingSaid(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	w.authors = claim.Asserted
	w.facts.Executions = nil
	w.facts.Control = receipt.Control{Kind: w.facts.Control.Kind, MutationOf: ".", Outcome: receipt.NotReached, Why: "not_reached"}
	w.facts.Incidents = []receipt.Incident{{Code: "aborted", Effect: receipt.MakesIndeterminate, Detail: "the check was interrupted"}}
	c := only(t, gate.Evaluate(w.build()))
	if c.Signal != gate.Amber || !strings.Contains(c.Bases[0].Sentence, "the check was interrupted") {
		t.Errorf("%s: %s", describe(c), c.Bases[0].Sentence)
	}
}

// TestABaselineCountsOnlyWhereItWasAccepted: what a receipt says of one that no
// operator accepted, or a change that is none to accept, lowers nothing.
func TestABaselineCountsOnlyWhereItWasAccepted(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	removed := func(b *receipt.Baseline) { b.TestsRemoved = receipt.NewList([]string{"m TestGone"}) }
	goTest := func(b *receipt.Baseline) func(w *world) {
		return func(w *world) {
			baselined(func(*receipt.Baseline) {})(w)
			builtin(w)
			w.facts.Baseline = b
		}
	}
	for name, c := range map[string]struct {
		apply func(w *world)
		want  gate.Signal
	}{
		"accepted, the same":     {baselined(func(*receipt.Baseline) {}), gate.Green},
		"accepted, differs":      {baselined(removed), gate.Amber},
		"accepted, of others":    {baselined(func(b *receipt.Baseline) { b.Entry = false }), gate.Green},
		"a policy without it":    {func(w *world) { baselined(removed)(w); w.after = nil }, gate.Green},
		"no policy":              {func(w *world) { baselined(removed)(w); input(func(in *gate.Input, _ *world) { in.Policy = nil })(w) }, gate.Green},
		"a check without tests":  {func(w *world) { baselined(removed)(w); w.facts.Baseline = nil }, gate.Green},
		"go-test, none compared": {goTest(nil), gate.Amber},
		"go-test, compared":      {goTest(&receipt.Baseline{SHA256: digest("baseline")}), gate.Green},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, l)
			c.apply(w)
			got := only(t, gate.Evaluate(w.build()))
			if got.Signal != c.want {
				t.Errorf("want %s: %s", c.want, describe(got))
			}
			for _, b := range got.Bases {
				if b.Code == gate.TestsRemoved && (b.Fix != "striatum verifier baseline accept" || !strings.Contains(b.Sentence, `1 difference, first "m TestGone"`)) {
					t.Errorf("%+v", b)
				}
			}
		})
	}
}

func TestPlainBuiltinIsAssertedAndGreenWithBuiltinCapFirst(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassShared))
	builtin(w)
	w.after = append(w.after, func(w *world) { // the embedded default, nothing accepted or attested
		w.in.Policy, w.in.Attestations, w.in.Store.Class = nil, nil, seal.ClassShared
		w.in.Lanes[0].Class = seal.ClassShared
	})
	in := w.build()
	r := gate.Evaluate(in)
	c := only(t, r)
	want := []gate.Code{gate.BuiltinCap, gate.PolicyNotAccepted, gate.LaneNotIsolated, gate.StoreNotIsolated}
	if diff := cmp.Diff(want, codes(c)); diff != "" || c.Effective != claim.Asserted || c.Signal != gate.Green || !r.Green() {
		t.Errorf("codes (-want +got):\n%s%s", diff, describe(c))
	}
	if r.Trust != seal.ClassShared || c.Rung != gate.RungNone {
		t.Errorf("trust %s, rung %s; want shared and none", r.Trust, c.Rung)
	}
	in.Floor = claim.Verified
	if c := only(t, gate.Evaluate(in)); c.Signal != gate.Amber || c.Effective != claim.Asserted {
		t.Errorf("at the floor VERIFIED: %s", describe(c))
	}
	in.Floor, in.RequireIsolated = claim.Asserted, true
	if c := only(t, gate.Evaluate(in)); c.Signal != gate.Amber {
		t.Errorf("with isolation required: %s", describe(c))
	}
}

func TestFloorIsTheHigherOfPolicyAndCallerAndNeverBelowAsserted(t *testing.T) {
	policy := func(s claim.Status) *gate.Policy { return &gate.Policy{Floor: s} }
	for _, c := range []struct {
		caller claim.Status
		policy *gate.Policy
		want   claim.Status
	}{
		{0, nil, claim.Asserted},
		{claim.Designed, policy(claim.Designed), claim.Asserted},
		{claim.Asserted, policy(claim.Verified), claim.Verified},
		{claim.Verified, policy(claim.Asserted), claim.Verified},
		{200, nil, claim.Verified},
	} {
		if got := gate.Evaluate(gate.Input{Floor: c.caller, Policy: c.policy}).Floor; got != c.want {
			t.Errorf("caller %s, policy %v: floor %s, want %s", c.caller, c.policy, got, c.want)
		}
	}
}

func TestSkipsAreGreenOnlyWhereAllowed(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	for _, c := range []struct {
		name    string
		allowed gate.AllowSkips
		want    gate.Signal
	}{
		{"none", gate.AllowSkips{}, gate.Amber},
		{"another", gate.AllowSkips{Names: []string{"m TestA"}}, gate.Amber},
		{"that one", gate.AllowSkips{Names: []string{"m TestZ", "m TestB"}}, gate.Green},
		{"any", gate.AllowSkips{Any: true}, gate.Green},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, l)
			skips(&w.facts)
			in := w.build()
			in.Required[0].AllowSkips = c.allowed
			got := only(t, gate.Evaluate(in))
			if got.Signal != c.want || got.Skipped != 1 {
				t.Errorf("skipped %d, %s", got.Skipped, describe(got))
			}
			if c.want == gate.Green && !strings.Contains(got.Says, "1 test skipped") {
				t.Errorf("says %q, which does not tell of the skip", got.Says)
			}
		})
	}
	t.Run("a list that was cut", func(t *testing.T) {
		w := newWorld(t, l)
		skips(&w.facts)
		names := make([]string, receipt.MaxList+1)
		for i := range names {
			names[i] = "m Test" + strings.Repeat("x", i%40) + string(rune('a'+i%26)) + strings.Repeat("y", i/40)
		}
		w.facts.Census.SkippedTests, w.facts.Census.Skipped = receipt.NewList(names), int64(len(names))
		in := w.build()
		in.Required[0].AllowSkips.Names = names
		if c := only(t, gate.Evaluate(in)); c.Signal != gate.Amber {
			t.Errorf("a cut list cannot be compared: %s", describe(c))
		}
	})
}

// failedBefore has a failure of the same inputs at number 1 and the claim's own
// receipt at number 2.
func failedBefore(t *testing.T, l lane) (gate.Input, string) {
	w := newWorld(t, l)
	r := facts(theClaim)
	fails(&r)
	w.before = l.seal(t, r)
	w.facts.PrevSeal = w.before.Seal()
	return w.build(), w.before.Seal()
}

func TestExplainedFailureDoesNotContradict(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	in, failure := failedBefore(t, l)
	c := only(t, gate.Evaluate(in))
	if c.Signal != gate.Red || c.Bases[0].Fix != "striatum receipt explain "+failure+" --reason TEXT --token-file FILE" {
		t.Fatalf("unexplained: %s", describe(c))
	}
	in.Explanations = []gate.Explanation{{Seal: failure, Reason: "the network of the test host", By: "op"}}
	c = only(t, gate.Evaluate(in))
	if c.Signal != gate.Green || c.Effective != claim.Verified {
		t.Errorf("explained: %s", describe(c))
	}
	if want := "2 attempts on this tree, 1 failed"; !strings.Contains(c.Says, want) {
		t.Errorf("says %q, want %q in it", c.Says, want)
	}
}

func TestFailureOfOtherInputsDoesNotContradict(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	for name, change := range map[string]func(r *receipt.Receipt){
		"tree":         func(r *receipt.Receipt) { r.Inputs.TreeSHA256 = digest("tree-2") },
		"check":        func(r *receipt.Receipt) { r.Check.Digest = digest("check-2") },
		"closure":      func(r *receipt.Receipt) { r.Tools.ClosureSHA256 = digest("closure-2") },
		"dependencies": func(r *receipt.Receipt) { r.Inputs.Dependencies = nil },
	} {
		w := newWorld(t, l)
		r := facts(theClaim)
		fails(&r)
		change(&r)
		w.before = l.seal(t, r)
		w.facts.PrevSeal = w.before.Seal()
		if c := only(t, gate.Evaluate(w.build())); c.Signal != gate.Green {
			t.Errorf("a failure with another %s: %s", name, describe(c))
		}
	}
}

func TestFailureIsRedBeforeTheLedgerKnowsIt(t *testing.T) {
	in, _ := failedBefore(t, newLane(t, laneID, seal.ClassIsolated))
	in.Ledger, in.Evidence, in.History = claim.Ledger{}, nil, in.History[:1]
	in.Opened = in.Opened[:1]
	c := only(t, gate.Evaluate(in))
	if want := []gate.Code{gate.ContradictedByFailure, gate.NoReceiptRef}; !slices.Equal(codes(c), want) || c.Signal != gate.Red {
		t.Errorf("want %v: %s", want, describe(c))
	}
}

func TestExplainedHoleIsNoGap(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	holes := map[string]func(in *gate.Input){
		"opened":          func(in *gate.Input) { in.History = in.History[1:] },
		"without a trace": func(in *gate.Input) { in.History, in.Opened = in.History[1:], in.Opened[1:] },
	}
	for name, dig := range holes {
		w := newWorld(t, l)
		in := w.build()
		dig(&in)
		c := only(t, gate.Evaluate(in))
		if !slices.Contains(codes(c), gate.ReceiptChainGap) {
			t.Fatalf("%s: no gap: %s", name, describe(c))
		}
		// The fix names what is to be explained.
		name, _, _ := strings.Cut(strings.TrimPrefix(c.Bases[0].Fix, "striatum receipt explain "), " ")
		in.Explanations = []gate.Explanation{{Seal: name, Reason: "the store was restored"}}
		if c := only(t, gate.Evaluate(in)); c.Signal != gate.Green {
			t.Errorf("explained: %s", describe(c))
		}
		in.Explanations = []gate.Explanation{{Seal: w.before.Seal(), Reason: "by its seal"}}
		if c := only(t, gate.Evaluate(in)); c.Signal != gate.Green {
			t.Errorf("explained by the seal that the next receipt names: %s", describe(c))
		}
	}
}

func TestPlacesOfOtherChecksAreNoHoles(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	in := w.build()
	in.History = in.History[1:]
	in.Places = []gate.Place{{LaneEpoch: epoch, Sequence: 1, Seal: w.before.Seal(), PrevSeal: receipt.FirstPrevSeal}}
	if c := only(t, gate.Evaluate(in)); c.Signal != gate.Green {
		t.Errorf("%s", describe(c))
	}
	in.Places[0].Seal = digest("another")
	if c := only(t, gate.Evaluate(in)); !slices.Contains(codes(c), gate.LaneEquivocated) {
		t.Errorf("number 1 has another seal than number 2 names: %s", describe(c))
	}
}

func TestAttemptOfALostLaneCanBeExplained(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	in := w.build()
	o := openedFor(w.own.Receipt(), "lane-gone")
	o.LaneEpoch, o.Sequence, o.PrevSeal = "epoch-gone", 1, receipt.FirstPrevSeal
	in.Opened = append(in.Opened, o)
	if c := only(t, gate.Evaluate(in)); !slices.Contains(codes(c), gate.AttemptUnsealed) || c.Effective != claim.Designed {
		t.Fatalf("%s", describe(c))
	}
	in.Explanations = []gate.Explanation{{Seal: gate.OpenedName(o), Reason: "the host was torn down"}}
	if c := only(t, gate.Evaluate(in)); c.Signal != gate.Green {
		t.Errorf("explained: %s", describe(c))
	}
}

func TestHugeHolesCostNothing(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	w.facts.Sequence = 1 << 52
	c := only(t, gate.Evaluate(w.build()))
	if !slices.Contains(codes(c), gate.ReceiptChainGap) || !strings.Contains(c.Bases[0].Sentence, "2 to 4503599627370495") {
		t.Errorf("%s", describe(c))
	}
}

func TestReceiptOfAnotherRunCountsOnlyWhereThePolicyAllowsReuse(t *testing.T) {
	w := newWorld(t, newLane(t, laneID, seal.ClassIsolated))
	w.facts.RunID = "run-0"
	w.facts.Inputs.PolicySHA256 = digest("policy")
	in := w.build()
	if c := only(t, gate.Evaluate(in)); !slices.Contains(codes(c), gate.WrongRun) {
		t.Fatalf("not allowed: %s", describe(c))
	}
	in.Policy.AllowReuse = true
	if c := only(t, gate.Evaluate(in)); c.Signal != gate.Green {
		t.Errorf("allowed: %s", describe(c))
	}
	in.Policy.Digest = digest("policy-2")
	if c := only(t, gate.Evaluate(in)); !slices.Contains(codes(c), gate.WrongRun) {
		t.Errorf("made under another policy: %s", describe(c))
	}
}

func TestClaimWithTwoChecksIsNotGreen(t *testing.T) {
	in := newWorld(t, newLane(t, laneID, seal.ClassIsolated)).build()
	in.Required = append(in.Required, in.Required[0])
	if r := gate.Evaluate(in); !r.Green() || len(r.Claims) != 1 {
		t.Errorf("the same requirement twice gives %d claims, green %t", len(r.Claims), r.Green())
	}
	second := in.Required[0]
	second.CheckID = "check-2"
	in.Required = append(in.Required, second)
	r := gate.Evaluate(in)
	for _, c := range r.Claims {
		if c.Signal == gate.Green {
			t.Errorf("%s", describe(c))
		}
	}
}

func TestUndeclaredClaimsAreListedAndNeverCount(t *testing.T) {
	in := newWorld(t, newLane(t, laneID, seal.ClassIsolated)).build()
	in.Ledger = apply(t, in.Ledger, claim.Writer{Principal: claim.Local},
		claim.Update{ClaimID: "it-is-fast", Statement: "It is fast.", Status: claim.Asserted})
	r := gate.Evaluate(in)
	want := []gate.Undeclared{{ID: "it-is-fast", Statement: "It is fast.", Authored: claim.Asserted, Author: "local"}}
	if diff := cmp.Diff(want, r.Undeclared); diff != "" || !r.Green() || len(r.Claims) != 1 {
		t.Errorf("green %t, undeclared (-want +got):\n%s", r.Green(), diff)
	}
}

func TestHostileTextIsQuotedInSentencesAndFixes(t *testing.T) {
	evil := "a\x1b[2J'; rm -rf ~ #\n"
	in := gate.Input{
		RepositoryID: evil, RunID: evil, Tree: gate.Tree{SHA256: evil, Source: "worktree"},
		Store:    gate.Store{Problem: evil},
		Required: []gate.Requirement{{ClaimID: "a", CheckID: evil}, {ClaimID: "b", CheckID: "-x"}, {ClaimID: "c", CheckID: "two words"}},
		Policy:   &gate.Policy{Files: map[string]string{evil: ""}},
	}
	r := gate.Evaluate(in)
	fixes := map[string]bool{}
	for _, c := range r.Claims {
		for _, b := range c.Bases {
			fixes[b.Fix] = true
			if strings.ContainsAny(b.Sentence+b.Fix, "\x1b\n") {
				t.Errorf("%q holds a control character", b.Sentence+b.Fix)
			}
		}
	}
	run := ` --run $'a\x1b[2J\x27; rm -rf ~ #\x0a'`
	for _, want := range []string{
		`striatum verifier run --check $'a\x1b[2J\x27; rm -rf ~ #\x0a'` + run,
		`striatum verifier run --check '-x'` + run,
		`striatum verifier run --check 'two words'` + run,
	} {
		if !fixes[want] {
			t.Errorf("no fix reads %s; got %v", want, fixes)
		}
	}
}
