package receipt

import (
	"fmt"
	"strings"
)

// realExecutions is how often a check runs for real.
const realExecutions = 2

// Derive fills what follows from the facts: Posture.Strict, Agreement,
// Classification and Reasons. The first rule that matches classifies:
//
//  1. failed: an execution was judged failed, the snapshot does not compile, or
//     an incident proves an input false;
//  2. void: the negative control did not fail, was invalid, or changed how
//     other tests end; or mutants of the product were run and none was killed;
//  3. indeterminate: an incident, a facet that is not strict, a limit, or a
//     missing piece (no control, less than two executions, no judgement);
//  4. indeterminate: both executions passed but do not agree;
//  5. asserted: a plain builtin, or a control on a fixture and not on the
//     subject itself;
//  6. verified_eligible.
//
// Reasons lists what matched of rules 1 to 4, in that order; missing pieces
// are left out of a failed receipt, where they only follow from the failure.
func Derive(r *Receipt) {
	r.Posture.Strict = len(r.Posture.Facets) > 0 && len(openFacets(r)) == 0
	r.Agreement = agreementOf(r.Executions)

	failed, void := failures(r), append(controlFaults(r), survivors(r)...)
	unclear, missing := obstacles(r), missingPieces(r)
	var disagree []Reason
	if r.Agreement == Disagreed {
		disagree = []Reason{{Code: "no_reexecution_agreement", Detail: difference(r.Executions[0], r.Executions[1])}}
	}
	r.Reasons = []Reason{}
	add := func(lists ...[]Reason) {
		for _, l := range lists {
			r.Reasons = append(r.Reasons, l...)
		}
	}
	switch {
	case len(failed) > 0:
		r.Classification = Failed
		add(failed, void, unclear, disagree)
		return
	case len(void) > 0:
		r.Classification = Void
	case len(unclear)+len(missing)+len(disagree) > 0:
		r.Classification = Indeterminate
	case r.Check.Kind == Builtin:
		r.Classification = Asserted
	case r.Control.Kind == ControlFixture:
		r.Classification = Asserted
		add([]Reason{{Code: "control_not_on_subject", Detail: "the control mutates a fixture, not what the check is about"}})
	default:
		r.Classification = VerifiedEligible
	}
	add(void, unclear, missing, disagree)
}

func failures(r *Receipt) []Reason {
	var out []Reason
	if r.Compile != nil && r.Compile.Outcome == CompileFailed {
		out = append(out, Reason{Code: "compile_failed", Detail: "the snapshot does not compile"})
	}
	for i, e := range r.Executions {
		if e.Judgement == Fail {
			out = append(out, Reason{Code: "check_failed", Detail: fmt.Sprintf("execution %d: %s", i+1, codes(e.Reasons))})
		}
	}
	return append(out, incidents(r, MakesFailed)...)
}

// codes lists the codes of reasons, for a sentence.
func codes(reasons []Reason) string {
	if len(reasons) == 0 {
		return "no reason given"
	}
	var out []string
	for _, c := range reasons {
		out = append(out, c.Code)
	}
	return strings.Join(out, ", ")
}

func incidents(r *Receipt, effect IncidentEffect) []Reason {
	var out []Reason
	for _, i := range r.Incidents {
		if i.Effect == effect {
			out = append(out, Reason{Code: i.Code, Detail: i.Detail})
		}
	}
	return out
}

func controlFaults(r *Receipt) []Reason {
	switch r.Control.Outcome {
	case DidNotFail:
		return []Reason{{Code: "negative_control_did_not_fail", Detail: "the check passed on the known-bad input"}}
	case Invalid:
		return []Reason{{Code: "negative_control_invalid", Detail: r.Control.Why}}
	case FailedAsRequired, NotReached:
	}
	if d := r.Control.Differs; d != nil {
		return []Reason{{Code: "control_detected", Detail: "tests end otherwise when a failure is planted: " + d.first()}}
	}
	return nil
}

// planted is how many mutants were chosen.
func (m *Mutants) planted() int64 { return m.Killed + m.Survived + m.CutShort + m.NotCompiled }

// survivors is what voids a receipt whose tests noticed none of its mutants.
func survivors(r *Receipt) []Reason {
	if m := r.Mutants; m != nil && m.Survived > 0 && m.Killed == 0 {
		return []Reason{{Code: "no_mutant_killed", Detail: fmt.Sprintf("the tests noticed none of %d defects planted in the product's %d statements", m.Survived, m.Statements)}}
	}
	return nil
}

// obstacles are what keeps a judgement from counting.
func obstacles(r *Receipt) []Reason {
	out := incidents(r, MakesIndeterminate)
	if m := r.Mutants; m != nil && m.planted() > 0 && m.Killed+m.Survived == 0 {
		out = append(out, Reason{Code: "mutants_undecided", Detail: fmt.Sprintf("of %d mutants of the product %d did not compile, and a limit ended the others", m.planted(), m.NotCompiled)})
	}
	if !r.Posture.Strict {
		detail := "no facet was observed"
		if f := openFacets(r); len(f) > 0 {
			detail = strings.Join(f, ", ")
		}
		out = append(out, Reason{Code: "sandbox_not_strict", Detail: detail})
	}
	if r.Limits.Hit != "" {
		out = append(out, Reason{Code: "limit_hit", Detail: r.Limits.Hit})
	}
	if r.Compile != nil && r.Compile.Outcome == CompileInconclusive {
		out = append(out, Reason{Code: "compile_indeterminate", Detail: "the compile step came to no judgement"})
	}
	for i, e := range r.Executions {
		if what := cutShort(e); what != "" {
			out = append(out, Reason{Code: "execution_cut_short", Detail: fmt.Sprintf("execution %d: %s", i+1, what)})
		}
		if e.Judgement == Inconclusive {
			out = append(out, Reason{Code: "execution_indeterminate", Detail: fmt.Sprintf("execution %d: %s", i+1, codes(e.Reasons))})
		}
	}
	return out
}

// openFacets names the facets that are not strict, in their order.
func openFacets(r *Receipt) []string {
	var out []string
	for _, f := range r.Posture.Facets {
		if !f.OK {
			out = append(out, f.Name)
		}
	}
	return out
}

// cutShort names the limits that an execution itself met.
func cutShort(e Execution) string {
	var out []string
	if e.TimedOut {
		out = append(out, "timed out")
	}
	if e.OOM {
		out = append(out, "out of memory")
	}
	if e.OutputTruncated {
		out = append(out, "output cut")
	}
	return strings.Join(out, ", ")
}

func missingPieces(r *Receipt) []Reason {
	var out []Reason
	if r.Control.Outcome == NotReached {
		out = append(out, Reason{Code: "negative_control_missing", Detail: r.Control.Why})
	}
	if n := len(r.Executions); n < realExecutions {
		out = append(out, Reason{Code: "execution_missing", Detail: fmt.Sprintf("%d of %d executions", n, realExecutions)})
	}
	return out
}

func agreementOf(e []Execution) Agreement {
	if len(e) != realExecutions || e[0].Judgement == Inconclusive || e[1].Judgement == Inconclusive {
		return NotCompared
	}
	if difference(e[0], e[1]) != "" {
		return Disagreed
	}
	return Agreed
}

// difference says what tells a from b; empty if nothing does.
func difference(a, b Execution) string {
	var out []string
	if a.Judgement != b.Judgement {
		out = append(out, "judgements differ")
	}
	if a.ExitCode != b.ExitCode || a.Signal != b.Signal {
		out = append(out, "exit codes differ")
	}
	if a.ResultSHA256 != b.ResultSHA256 {
		out = append(out, "results differ")
	}
	return strings.Join(out, ", ")
}
