package receipt_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
	"striatum/receipt/receipttest"
)

func TestDeriveClassifiesByTheFirstRuleThatMatches(t *testing.T) {
	failing := receipttest.Execution(receipt.Fail)
	unclear := receipttest.Execution(receipt.Inconclusive)
	tests := []struct {
		name      string
		change    func(r *receipt.Receipt)
		class     receipt.Classification
		agreement receipt.Agreement
		reasons   []string
	}{
		{"a plain builtin that passed", func(r *receipt.Receipt) {}, receipt.Asserted, receipt.Agreed, nil},
		{"a builtin with a pinned toolchain", func(r *receipt.Receipt) { r.Check.Kind = receipt.BuiltinToolchain }, receipt.VerifiedEligible, receipt.Agreed, nil},
		{"an external check with its control on the worktree", func(r *receipt.Receipt) {
			external(r)
		}, receipt.VerifiedEligible, receipt.Agreed, nil},
		{"an external check with its control on a fixture", func(r *receipt.Receipt) {
			external(r)
			r.Control.Kind = receipt.ControlFixture
		}, receipt.Asserted, receipt.Agreed, []string{"control_not_on_subject"}},
		{
			"both executions failed", func(r *receipt.Receipt) { r.Executions = []receipt.Execution{failing, failing} },
			receipt.Failed, receipt.Agreed,
			[]string{"check_failed", "check_failed"},
		},
		{
			"one execution failed", func(r *receipt.Receipt) { r.Executions[1] = failing },
			receipt.Failed, receipt.Disagreed,
			[]string{"check_failed", "no_reexecution_agreement"},
		},
		{
			"one failed and the other was lost", func(r *receipt.Receipt) { r.Executions = []receipt.Execution{failing} },
			receipt.Failed, receipt.NotCompared,
			[]string{"check_failed"},
		},
		{"failed beats void and indeterminate", func(r *receipt.Receipt) {
			r.Executions[0] = failing
			r.Control.Outcome = receipt.DidNotFail
			r.Posture.Facets[0].OK = false
		}, receipt.Failed, receipt.Disagreed, []string{"check_failed", "negative_control_did_not_fail", "sandbox_not_strict", "no_reexecution_agreement"}},
		{"the snapshot does not compile", func(r *receipt.Receipt) {
			r.Compile.Outcome = receipt.CompileFailed
			r.Executions = nil
			r.Control = receipt.Control{Kind: receipt.ControlNone, Outcome: receipt.NotReached, Why: "nothing to run"}
		}, receipt.Failed, receipt.NotCompared, []string{"compile_failed"}},
		{"an input was proven false", func(r *receipt.Receipt) {
			r.Incidents = []receipt.Incident{{Code: "dependency_mismatch", Effect: receipt.MakesFailed}}
		}, receipt.Failed, receipt.Agreed, []string{"dependency_mismatch"}},
		{
			"the control passed", func(r *receipt.Receipt) { r.Control.Outcome = receipt.DidNotFail },
			receipt.Void, receipt.Agreed,
			[]string{"negative_control_did_not_fail"},
		},
		{"tests saw the control", func(r *receipt.Receipt) {
			l := receipt.NewList([]string{"example.com/m TestAdd"})
			r.Control.Differs = &l
		}, receipt.Void, receipt.Agreed, []string{"control_detected"}},
		{"a mutant was killed", func(r *receipt.Receipt) {
			r.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, Killed: 1, Survived: 2}
		}, receipt.Asserted, receipt.Agreed, nil},
		{"no mutant was killed", func(r *receipt.Receipt) {
			r.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, Survived: 3, CutShort: 1}
		}, receipt.Void, receipt.Agreed, []string{"no_mutant_killed"}},
		{"no mutant came to an end", func(r *receipt.Receipt) {
			r.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, CutShort: 2, NotCompiled: 1}
		}, receipt.Indeterminate, receipt.Agreed, []string{"mutants_undecided"}},
		{"no statement to plant one in", func(r *receipt.Receipt) { r.Mutants = &receipt.Mutants{Asked: 3} }, receipt.Asserted, receipt.Agreed, nil},
		{"the control was invalid, also without a strict posture", func(r *receipt.Receipt) {
			r.Control.Outcome, r.Control.Why = receipt.Invalid, "it did not compile"
			r.Posture.Facets[1].OK = false
		}, receipt.Void, receipt.Agreed, []string{"negative_control_invalid", "sandbox_not_strict"}},
		{"an incident", func(r *receipt.Receipt) {
			r.Incidents = []receipt.Incident{{Code: "toolchain_drift", Effect: receipt.MakesIndeterminate}}
		}, receipt.Indeterminate, receipt.Agreed, []string{"toolchain_drift"}},
		{
			"a facet that is not strict", func(r *receipt.Receipt) { r.Posture.Facets[1].OK = false },
			receipt.Indeterminate, receipt.Agreed,
			[]string{"sandbox_not_strict"},
		},
		{
			"no facet at all", func(r *receipt.Receipt) { r.Posture.Facets = nil },
			receipt.Indeterminate, receipt.Agreed,
			[]string{"sandbox_not_strict"},
		},
		{"a limit", func(r *receipt.Receipt) { r.Limits.Hit = "memory" }, receipt.Indeterminate, receipt.Agreed, []string{"limit_hit"}},
		{
			"a passed execution that was cut short", func(r *receipt.Receipt) { r.Executions[0].OutputTruncated = true },
			receipt.Indeterminate, receipt.Agreed,
			[]string{"execution_cut_short"},
		},
		{
			"the compile step had trouble", func(r *receipt.Receipt) { r.Compile.Outcome = receipt.CompileInconclusive },
			receipt.Indeterminate, receipt.Agreed,
			[]string{"compile_indeterminate"},
		},
		{"no control", func(r *receipt.Receipt) {
			r.Control = receipt.Control{Kind: receipt.ControlNone, Outcome: receipt.NotReached, Why: "aborted"}
		}, receipt.Indeterminate, receipt.Agreed, []string{"negative_control_missing"}},
		{
			"one execution", func(r *receipt.Receipt) { r.Executions = r.Executions[:1] },
			receipt.Indeterminate, receipt.NotCompared,
			[]string{"execution_missing"},
		},
		{
			"no execution", func(r *receipt.Receipt) { r.Executions = nil },
			receipt.Indeterminate, receipt.NotCompared,
			[]string{"execution_missing"},
		},
		{
			"an execution without a judgement", func(r *receipt.Receipt) { r.Executions[1] = unclear },
			receipt.Indeterminate, receipt.NotCompared,
			[]string{"execution_indeterminate"},
		},
		{
			"results that differ", func(r *receipt.Receipt) { r.Executions[1].ResultSHA256 = receipttest.Digest("other") },
			receipt.Indeterminate, receipt.Disagreed,
			[]string{"no_reexecution_agreement"},
		},
		{
			"nothing", func(r *receipt.Receipt) { *r = receipt.Receipt{} },
			receipt.Indeterminate, receipt.NotCompared,
			[]string{"sandbox_not_strict", "execution_missing"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := receipttest.Facts()
			tt.change(&r)
			r.Classification, r.Agreement, r.Posture.Strict = receipt.VerifiedEligible, receipt.Agreed, true
			r.Reasons = []receipt.Reason{{Code: "authored"}}
			receipt.Derive(&r)
			if r.Classification != tt.class || r.Agreement != tt.agreement {
				t.Errorf("got %s, %s; want %s, %s", r.Classification, r.Agreement, tt.class, tt.agreement)
			}
			var codes []string
			for _, reason := range r.Reasons {
				codes = append(codes, reason.Code)
			}
			if diff := cmp.Diff(tt.reasons, codes); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
		})
	}
}

// external turns the facts into those of an external check.
func external(r *receipt.Receipt) {
	r.Check.ID, r.Check.Kind, r.Tools.BuiltinID = "schema", receipt.External, ""
	r.Control.Kind = receipt.ControlWorktree
	baseline := receipttest.Execution(receipt.Pass)
	r.Control.Baseline = &baseline
}
