package gate_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/baseline"
	"striatum/claim"
	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

// turn makes one condition fail.
type turn struct {
	name   string
	codes  []gate.Code // all that it alone gives, in order
	status claim.Status
	signal gate.Signal
	// field is what the turn sets: two turns of one field are no pair.
	field string
	// blind says that the receipt is not read: the codes that read it go away.
	blind bool
	apply func(w *world)
}

// input returns a turn's apply that changes the input.
func input(f func(in *gate.Input, w *world)) func(*world) {
	return func(w *world) { w.after = append(w.after, func(w *world) { f(&w.in, w) }) }
}

// edit returns a turn's apply that changes the ledger's claim.
func edit(f func(*claim.Claim)) func(*world) {
	return func(w *world) { w.edits = append(w.edits, f) }
}

func body(f func(r *receipt.Receipt)) func(*world) { return func(w *world) { f(&w.facts) } }

func problem(p gate.Problem) func(*world) {
	return input(func(in *gate.Input, w *world) { in.Evidence[theClaim] = gate.Evidence{Problem: p, LogPosition: 20} })
}

// later returns a receipt that follows the world's own in its chain.
func later(w *world, number int64, prev string, change func(r *receipt.Receipt)) *receipt.Verified {
	r := facts(theClaim)
	r.Sequence, r.PrevSeal, r.Nonce = number, prev, "nonce-later"
	change(&r)
	return w.lane.seal(w.t, r)
}

func fails(r *receipt.Receipt) {
	r.Executions[0] = execution(receipt.Fail, "2026-01-01T00:00:01Z")
	r.Executions[1] = execution(receipt.Fail, "2026-01-01T00:00:02Z")
}

func builtin(w *world) {
	w.facts.Check.Kind = receipt.Builtin
	w.facts.Tools.BuiltinID = "builtin:go-test"
	if w.facts.Mutants == nil {
		w.facts.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, Reached: 9, Killed: 3}
	}
	w.facts.Control.Kind = receipt.ControlPlanted
	w.after = append(w.after, func(w *world) { w.in.Required[0].Builtin = true })
}

func skips(r *receipt.Receipt) {
	r.Census = &receipt.Census{
		Discovered: 2, Run: 2, Passed: 1, Skipped: 1, PassedTests: receipt.NewList([]string{"m TestA"}),
		SkippedTests: receipt.NewList([]string{"m TestB"}), FailedTests: receipt.NewList(nil), NotRun: receipt.NewList(nil),
	}
}

// baselined returns a turn's apply that has an operator accept a baseline, and the
// receipt compare its tests with it as change says.
func baselined(change func(*receipt.Baseline)) func(*world) {
	return func(w *world) {
		w.facts.Baseline = &receipt.Baseline{SHA256: digest("baseline"), Entry: true, CensusSHA256: digest("census")}
		change(w.facts.Baseline)
		w.after = append(w.after, func(w *world) {
			w.in.TreeFiles[baseline.Path] = digest("baseline")
			if w.in.Policy != nil {
				w.in.Policy.Files[baseline.Path] = digest("baseline")
			}
		})
	}
}

func turns() []turn {
	const (
		designed, asserted, verified = claim.Designed, claim.Asserted, claim.Verified
		red, amber, green            = gate.Red, gate.Amber, gate.Green
	)
	type codes = []gate.Code
	return []turn{
		{
			"store fails",
			codes{gate.StoreUnavailable},
			designed, amber, "store", false,
			input(func(in *gate.Input, w *world) { in.Store.Problem = "disk I/O error" }),
		},
		{
			"no ledger",
			codes{gate.NoReceiptRef},
			designed, amber, "ledger", true,
			input(func(in *gate.Input, w *world) { in.Ledger = claim.Ledger{} }),
		},
		{"receipt absent", codes{gate.ReceiptUnavailable}, designed, amber, "evidence", true, problem(gate.Absent)},
		{"receipt unavailable", codes{gate.ReceiptUnavailable}, designed, amber, "evidence", true, problem(gate.Unavailable)},
		{
			"receipt superseded",
			codes{gate.SupersededReceipt},
			asserted, amber, "next", false,
			input(func(in *gate.Input, w *world) {
				in.History = append(in.History, gate.HistoryEntry{Verified: later(w, 3, w.own.Seal(), func(*receipt.Receipt) {}), LogPosition: 30})
			}),
		},
		{"receipt unparseable", codes{gate.ReceiptUnparseable}, designed, red, "evidence", true, problem(gate.Unparseable)},
		{"seal mismatch", codes{gate.ReceiptSealMismatch}, designed, red, "evidence", true, problem(gate.SealMismatch)},
		{"bad signature", codes{gate.InvalidSignature}, designed, red, "evidence", true, problem(gate.SignatureInvalid)},
		{"foreign key", codes{gate.LaneUnknown}, designed, amber, "evidence", true, problem(gate.UnknownLane)},
		{
			"lane not enrolled",
			codes{gate.LaneUnknown, gate.LaneNotIsolated},
			asserted, amber, "lanes", false,
			input(func(in *gate.Input, w *world) { in.Lanes = nil }),
		},
		{
			"lane enrolled later",
			codes{gate.LaneUnknown, gate.LaneNotIsolated},
			asserted, amber, "lanes", false,
			input(func(in *gate.Input, w *world) { in.Lanes[0].EnrolledAt = 21 }),
		},
		{
			"key of another lane",
			codes{gate.LaneUnknown, gate.LaneNotIsolated},
			asserted, amber, "lanes", false,
			input(func(in *gate.Input, w *world) { in.Lanes[0].LaneID = "lane-2" }),
		},
		{
			"lane retired before",
			codes{gate.LaneRevoked, gate.LaneNotIsolated},
			asserted, amber, "lanes", false,
			input(func(in *gate.Input, w *world) { in.Lanes[0].RevokedAt, in.Lanes[0].Kind = 20, gate.Retired }),
		},
		{
			"lane compromised and enrolled again",
			codes{gate.LaneRevoked, gate.LaneNotIsolated},
			asserted, amber, "lanes", false,
			input(func(in *gate.Input, w *world) {
				again := in.Lanes[0]
				in.Lanes[0].RevokedAt, in.Lanes[0].Kind = 15, gate.Compromised
				in.Lanes = append(in.Lanes, again)
			}),
		},
		{
			"other repository",
			codes{gate.WrongRepository},
			asserted, amber, "repository", false,
			input(func(in *gate.Input, w *world) { in.RepositoryID = "repo-2" }),
		},
		{
			"other run",
			codes{gate.WrongRun},
			asserted, amber, "run", false,
			body(func(r *receipt.Receipt) { r.RunID = "run-2" }),
		},
		{
			"claim bound to another tree",
			codes{gate.ClaimUnbound},
			asserted, amber, "binding", false,
			edit(func(c *claim.Claim) { c.BoundInputDigest = digest("tree-2") }),
		},
		{
			"claim bound to no tree",
			codes{gate.ClaimUnbound},
			asserted, amber, "binding", false,
			edit(func(c *claim.Claim) { c.BoundInputDigest = "" }),
		},
		{
			"evidence decayed",
			codes{gate.EvidenceDigestDecayed},
			asserted, amber, "binding", false,
			edit(func(c *claim.Claim) { c.EvidenceDigest = digest("other") }),
		},
		{
			"stale tree",
			codes{gate.StaleTree},
			asserted, amber, "tree", false,
			input(func(in *gate.Input, w *world) { in.Tree.SHA256 = digest("tree-2") }),
		},
		{
			"tree of another kind",
			codes{gate.TreeNotComparable},
			asserted, amber, "tree", false,
			input(func(in *gate.Input, w *world) { in.Tree.SHA256 = digest("tree")[:40] }),
		},
		{
			"no tree",
			codes{gate.TreeNotJudged},
			asserted, amber, "tree", false,
			input(func(in *gate.Input, w *world) { in.Tree = gate.Tree{} }),
		},
		{
			"tree from nowhere",
			codes{gate.TreeNotJudged},
			asserted, amber, "tree", false,
			input(func(in *gate.Input, w *world) { in.Tree.Source = "hearsay" }),
		},
		{
			"weaker check of the same name",
			codes{gate.CheckDoesNotBackClaim},
			asserted, amber, "check", false,
			input(func(in *gate.Input, w *world) { in.Required[0].CheckDigest = digest("check 2") }),
		},
		{
			"another check required",
			codes{gate.CheckDoesNotBackClaim},
			asserted, amber, "check", false,
			input(func(in *gate.Input, w *world) { in.Required[0].CheckID = "check-2" }),
		},
		{
			"policy drift",
			codes{gate.PolicyDrift},
			asserted, amber, "policy", false,
			input(func(in *gate.Input, w *world) { in.TreeFiles["verification/workflow.json"] = digest("workflow-2") }),
		},
		{
			"policy file added",
			codes{gate.PolicyDrift},
			asserted, amber, "policy", false,
			input(func(in *gate.Input, w *world) { in.TreeFiles["verification/anchors.json"] = digest("anchors") }),
		},
		{
			"no policy",
			codes{gate.PolicyNotAccepted},
			asserted, green, "policy", false,
			input(func(in *gate.Input, w *world) { in.Policy = nil }),
		},
		{"tests removed", codes{gate.TestsRemoved}, asserted, amber, "baseline", false, baselined(func(b *receipt.Baseline) {
			b.TestsRemoved = receipt.NewList([]string{"m TestGone"})
		})},
		{"tests newly skipped", codes{gate.TestsNewlySkipped}, asserted, amber, "baseline", false, baselined(func(b *receipt.Baseline) {
			b.TestsNewlySkipped = receipt.NewList([]string{"m TestIdle"})
		})},
		{"test inputs changed", codes{gate.TestInputsChanged}, asserted, amber, "baseline", false, baselined(func(b *receipt.Baseline) {
			b.TestInputsChanged = receipt.NewList([]string{"testdata/golden"})
		})},
		{"all three", codes{gate.TestsRemoved, gate.TestsNewlySkipped, gate.TestInputsChanged}, asserted, amber, "baseline", false, baselined(func(b *receipt.Baseline) {
			b.TestsRemoved, b.TestsNewlySkipped, b.TestInputsChanged = receipt.NewList([]string{"a"}), receipt.NewList([]string{"b"}), receipt.NewList([]string{"c"})
		})},
		{"another baseline compared", codes{gate.BaselineNotCompared}, asserted, amber, "baseline", false, baselined(func(b *receipt.Baseline) {
			b.SHA256 = digest("an agent's baseline")
		})},
		{"no baseline compared", codes{gate.BaselineNotCompared}, asserted, amber, "baseline", false, baselined(func(b *receipt.Baseline) {
			b.SHA256, b.Entry = "", false
		})},
		{
			"control not reached",
			codes{gate.NegativeControlMissing},
			asserted, amber, "control", false,
			func(w *world) {
				w.authors = claim.Asserted
				w.facts.Control.Outcome, w.facts.Control.Why = receipt.NotReached, "cancelled"
			},
		},
		{
			"control after the runs",
			codes{gate.NegativeControlMissing},
			asserted, amber, "control", false,
			body(func(r *receipt.Receipt) { r.Control.Execution.StartedAt = "2026-01-01T00:00:01.5Z" }),
		},
		{
			"control passed",
			codes{gate.NegativeControlDidNotFail},
			designed, red, "control", false,
			body(func(r *receipt.Receipt) {
				e := execution(receipt.Pass, "2026-01-01T00:00:00Z")
				r.Control.Execution, r.Control.Outcome = &e, receipt.DidNotFail
			}),
		},
		{
			"control invalid",
			codes{gate.NegativeControlInvalid},
			designed, red, "control", false,
			body(func(r *receipt.Receipt) { r.Control.Outcome, r.Control.Why = receipt.Invalid, "command not found" }),
		},
		{
			"tests see the control",
			codes{gate.ControlDetected},
			designed, red, "control", false,
			body(func(r *receipt.Receipt) {
				l := receipt.NewList([]string{"example.com/m TestAdd"})
				r.Control.Differs = &l
			}),
		},
		{
			"no mutant killed",
			codes{gate.NoMutantKilled},
			designed, red, "mutants", false,
			body(func(r *receipt.Receipt) {
				r.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, Survived: 24}
			}),
		},
		{
			"no mutant came to an end",
			codes{gate.CheckIndeterminate},
			asserted, amber, "mutants", false,
			func(w *world) {
				w.authors = claim.Asserted
				w.facts.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, CutShort: 24}
			},
		},
		{
			"control on a fixture",
			codes{gate.ControlNotOnSubject},
			asserted, green, "control", false,
			body(func(r *receipt.Receipt) {
				e := execution(receipt.Pass, "2026-01-01T00:00:00Z")
				r.Control.Kind, r.Control.MutationOf, r.Control.Baseline = receipt.ControlFixture, "fixtures/good", &e
			}),
		},
		{"check fails", codes{gate.CheckNotPassing}, designed, red, "executions", false, body(fails)},
		{
			"runs disagree",
			codes{gate.NoReexecutionAgreement},
			asserted, amber, "executions", false,
			func(w *world) { w.authors = claim.Asserted; w.facts.Executions[1].ResultSHA256 = digest("result-2") },
		},
		{
			"toolchain drifts",
			codes{gate.CheckIndeterminate},
			asserted, amber, "incident", false,
			func(w *world) {
				w.authors = claim.Asserted
				w.facts.Incidents = []receipt.Incident{{Code: "toolchain_drift", Effect: receipt.MakesIndeterminate, Detail: "go"}}
			},
		},
		{
			"one run only",
			codes{gate.CheckIndeterminate},
			asserted, amber, "executions", false,
			func(w *world) { w.authors = claim.Asserted; w.facts.Executions = w.facts.Executions[:1] },
		},
		{"test skipped", codes{gate.SkipsNotAllowed}, asserted, amber, "census", false, body(skips)},
		{
			"facet loose",
			codes{gate.SandboxNotStrict},
			asserted, amber, "posture", false,
			func(w *world) { w.authors = claim.Asserted; w.facts.Posture.Facets[0].OK = false },
		},
		{"plain builtin", codes{gate.BuiltinCap}, asserted, green, "control", false, builtin},
		{
			"weaker than a builtin",
			codes{gate.WeakerThanBuiltin},
			asserted, green, "weaker", false,
			input(func(in *gate.Input, w *world) { in.Required[0].WeakerThanBuiltin = true }),
		},
		{
			"not attested",
			codes{gate.AttestationMissing},
			asserted, green, "attestation", false,
			input(func(in *gate.Input, w *world) { in.Attestations = nil }),
		},
		{
			"other bytes attested",
			codes{gate.AttestationMissing},
			asserted, green, "attestation", false,
			input(func(in *gate.Input, w *world) { in.Attestations[0].ClosureSHA256 = digest("closure-2") }),
		},
		{
			"attestation revoked",
			codes{gate.AttestationRevoked},
			asserted, green, "attestation", false,
			input(func(in *gate.Input, w *world) { in.Attestations[0].RevokedAt = 30 }),
		},
		{
			"receipt of another check lost",
			codes{gate.ReceiptChainGap},
			asserted, amber, "before", false,
			input(func(in *gate.Input, w *world) { in.History = in.History[1:] }),
		},
		{
			"number lost without a trace",
			codes{gate.ReceiptChainGap},
			designed, amber, "before", false,
			input(func(in *gate.Input, w *world) { in.History, in.Opened = in.History[1:], in.Opened[1:] }),
		},
		{
			"attempt without a receipt",
			codes{gate.AttemptUnsealed},
			designed, amber, "next", false,
			input(func(in *gate.Input, w *world) {
				o := openedFor(w.own.Receipt(), laneID)
				o.Sequence, o.PrevSeal = 3, w.own.Seal()
				in.Opened = append(in.Opened, o)
			}),
		},
		{
			"lane sealed a number twice",
			codes{gate.LaneEquivocated},
			asserted, amber, "before", false,
			input(func(in *gate.Input, w *world) {
				r := facts("other-claim")
				r.Nonce = "nonce-2"
				in.History = append(in.History, gate.HistoryEntry{Verified: w.lane.seal(w.t, r), LogPosition: 11})
			}),
		},
		{
			"earlier failure",
			codes{gate.ContradictedByFailure},
			designed, red, "earlier", false,
			input(func(in *gate.Input, w *world) {
				failure := later(w, 1, receipt.FirstPrevSeal, func(r *receipt.Receipt) { fails(r); r.LaneEpoch = "epoch-0" })
				in.History = append(in.History, gate.HistoryEntry{Verified: failure, LogPosition: 8})
			}),
		},
		{
			"lane shared",
			codes{gate.LaneNotIsolated},
			asserted, green, "lanes", false,
			input(func(in *gate.Input, w *world) { in.Lanes[0].Class = seal.ClassShared }),
		},
		{
			"lane lowered by a probe",
			codes{gate.LaneNotIsolated},
			asserted, green, "lanes", false,
			input(func(in *gate.Input, w *world) { in.Lanes[0].Lowered = "secret_readable" }),
		},
		{
			"recorded while a user reached the lane",
			codes{gate.LaneNotIsolated},
			asserted, green, "lanes", false,
			input(func(in *gate.Input, w *world) {
				in.Lanes[0].Reached = []gate.Span{{From: 1, To: 20}, {From: 20, To: 21}}
			}),
		},
		{
			"store shared",
			codes{gate.StoreNotIsolated},
			asserted, green, "class", false,
			input(func(in *gate.Input, w *world) { in.Store.Class = seal.ClassShared }),
		},
		{
			"author lowers",
			codes{gate.AuthoredBelowFloor},
			designed, amber, "author", false,
			edit(func(c *claim.Claim) { c.Status = claim.Designed }),
		},
	}
}

func TestClaimWithNothingAgainstItReadsVerified(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	r := gate.Evaluate(newWorld(t, l).build())
	c := only(t, r)
	if c.Effective != claim.Verified || c.Signal != gate.Green || len(c.Bases) != 0 || !r.Green() || r.Trust != seal.ClassIsolated {
		t.Errorf("got trust %s, %s", r.Trust, describe(c))
	}
	if c.Rung != gate.RungAttested {
		t.Errorf("rung = %s, want attested", c.Rung)
	}
}

func TestEachConditionAloneLowersWithItsBasis(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	for _, turn := range turns() {
		t.Run(turn.name, func(t *testing.T) {
			w := newWorld(t, l)
			turn.apply(w)
			r := gate.Evaluate(w.build())
			c := only(t, r)
			if diff := cmp.Diff(turn.codes, codes(c)); diff != "" {
				t.Errorf("codes (-want +got):\n%s%s", diff, describe(c))
			}
			if c.Effective != turn.status || c.Signal != turn.signal {
				t.Errorf("got %s %s, want %s %s\n%s", c.Effective, c.Signal, turn.status, turn.signal, describe(c))
			}
			if r.Green() != (turn.signal == gate.Green) {
				t.Errorf("report green = %t with a %s claim", r.Green(), turn.signal)
			}
			for _, b := range c.Bases {
				if b.Sentence == "" {
					t.Errorf("basis %s has no sentence: %+v", b.Code, b)
				}
			}
		})
	}
}

func TestEveryCodeIsTurnedByTheTable(t *testing.T) {
	all := []gate.Code{
		gate.StoreUnavailable, gate.NoReceiptRef, gate.ReceiptUnavailable, gate.SupersededReceipt, gate.ReceiptUnparseable,
		gate.ReceiptSealMismatch, gate.InvalidSignature, gate.LaneUnknown, gate.LaneRevoked, gate.WrongRepository, gate.WrongRun,
		gate.ClaimUnbound, gate.EvidenceDigestDecayed, gate.StaleTree, gate.TreeNotComparable, gate.TreeNotJudged,
		gate.CheckDoesNotBackClaim, gate.PolicyDrift, gate.PolicyNotAccepted, gate.NegativeControlMissing,
		gate.NegativeControlDidNotFail, gate.NegativeControlInvalid, gate.ControlDetected, gate.NoMutantKilled, gate.ControlNotOnSubject, gate.CheckNotPassing,
		gate.NoReexecutionAgreement, gate.CheckIndeterminate, gate.SkipsNotAllowed, gate.BaselineNotCompared, gate.TestsRemoved, gate.TestsNewlySkipped,
		gate.TestInputsChanged, gate.SandboxNotStrict, gate.BuiltinCap,
		gate.WeakerThanBuiltin, gate.AttestationMissing, gate.AttestationRevoked, gate.ReceiptChainGap, gate.AttemptUnsealed,
		gate.LaneEquivocated, gate.ContradictedByFailure, gate.LaneNotIsolated, gate.StoreNotIsolated, gate.AuthoredBelowFloor,
	}
	seen := map[gate.Code]bool{}
	for _, turn := range turns() {
		for _, c := range turn.codes {
			seen[c] = true
		}
	}
	for _, c := range all {
		if !seen[c] {
			t.Errorf("no turn gives %s", c)
		}
	}
}

// TestTwoConditionsTogetherAreBothReported turns every pair of conditions that
// can fail together. The claim must not read higher than with either alone, and
// both bases must be there, but for those that the other one takes away.
func TestTwoConditionsTogetherAreBothReported(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	pairs := 0
	list := turns()
	for i, a := range list {
		for _, b := range list[i+1:] {
			if a.field == b.field || a.name == "no policy" && b.field == "baseline" { // without a policy no baseline counts
				continue
			}
			pairs++
			w := newWorld(t, l)
			a.apply(w)
			b.apply(w)
			c := only(t, gate.Evaluate(w.build()))
			name := a.name + " and " + b.name
			got := codes(c)
			for _, one := range [...][2]turn{{a, b}, {b, a}} {
				checkTurned(t, name, c, got, one[0], one[1])
			}
			for k := 1; k < len(c.Bases); k++ {
				if c.Bases[k-1].Effect != c.Bases[k].Effect && weight(c.Bases[k-1].Effect) > weight(c.Bases[k].Effect) {
					t.Errorf("%s: bases out of order: %v", name, got)
				}
			}
		}
	}
	if pairs < 1000 {
		t.Errorf("only %d pairs were turned", pairs)
	}
}

// checkTurned looks for what one does in the judgement of a claim that other
// was done to, too.
func checkTurned(t *testing.T, name string, c gate.Claim, got []gate.Code, one, other turn) {
	t.Helper()
	missing := false
	for _, code := range one.codes {
		if slices.Contains(got, code) {
			continue
		}
		missing = true
		if !takesAway(other, code) {
			t.Errorf("%s: %s is not reported\n%s", name, code, describe(c))
		}
	}
	if missing {
		if c.Signal == gate.Green && one.signal != gate.Green {
			t.Errorf("%s: green though %v are not reported\n%s", name, one.codes, describe(c))
		}
		return
	}
	rank := map[gate.Signal]int{gate.Red: 0, gate.Amber: 1, gate.Green: 2}
	if c.Effective > one.status || rank[c.Signal] > rank[one.signal] {
		t.Errorf("%s: got %s %s, above %s %s\n%s", name, c.Effective, c.Signal, one.status, one.signal, describe(c))
	}
}

func weight(e gate.Effect) int {
	return slices.Index([]gate.Effect{gate.Against, gate.Missing, gate.Cap}, e)
}

// takesAway says that after turn the question behind code cannot be asked.
func takesAway(turn turn, code gate.Code) bool {
	history := []gate.Code{
		gate.SupersededReceipt, gate.ReceiptChainGap, gate.AttemptUnsealed, gate.LaneEquivocated, gate.ContradictedByFailure,
	}
	switch {
	case code == gate.AuthoredBelowFloor: // only where nothing else explains it
		return true
	case turn.blind:
		return !slices.Contains([]gate.Code{
			gate.StoreUnavailable, gate.TreeNotComparable, gate.TreeNotJudged, gate.PolicyDrift, gate.PolicyNotAccepted,
			gate.BuiltinCap, gate.AttemptUnsealed, gate.ContradictedByFailure, gate.StoreNotIsolated,
		}, code)
	case turn.field == "repository": // that one has another history
		return slices.Contains(history, code)
	case turn.name == "no tree": // nor files
		return code == gate.PolicyDrift
	case turn.name == "plain builtin": // then 11 is not asked
		return slices.Contains([]gate.Code{gate.WeakerThanBuiltin, gate.AttestationMissing, gate.AttestationRevoked}, code)
	}
	return false
}
