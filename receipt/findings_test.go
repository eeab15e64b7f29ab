package receipt_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
	"striatum/receipt/receipttest"
)

func TestFindingsAreCountedByKindInOneOrder(t *testing.T) {
	all := []receipt.Finding{
		{Code: "module_not_checked", Path: "tools/go.mod", Detail: "no check names it"},
		{Code: "go_file_ignored", Path: "b_test.go"},
		receipt.FindingsLeftOut("go_file_ignored", 40),
		{Code: "go_file_ignored", Path: "a_test.go"},
		{Code: "test_not_declared", Path: "", Detail: "and 3 more tests"},
	}
	want := receipt.Findings{
		Count:   44,
		Kinds:   []receipt.FindingKind{{"go_file_ignored", 42}, {"module_not_checked", 1}, {"test_not_declared", 1}},
		Details: []receipt.Finding{{Code: "go_file_ignored", Path: "a_test.go"}, {Code: "go_file_ignored", Path: "b_test.go"}},
	}
	for range 5 {
		got := receipt.CountFindings(all, 2)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		all = append(all[1:], all[0])
	}
	if got := want.String(); got != "44 findings: go_file_ignored 42, module_not_checked 1, test_not_declared 1" {
		t.Errorf("got %q", got)
	}
	if got := receipt.CountFindings(nil, 2); got.Count != 0 || got.Kinds == nil || got.Details == nil {
		t.Errorf("got %+v, want empty lists", got)
	}
}

func TestExplainedNamesWhatFailedOnce(t *testing.T) {
	failed := func(reasons ...receipt.Reason) receipt.Execution {
		e := receipttest.Execution(receipt.Fail)
		e.Reasons = reasons
		return e
	}
	exit := receipt.Reason{Code: "exit_nonzero", Detail: "m/a: exit status 1"}
	tests := receipt.Reason{Code: "tests_failed", Detail: "m/a: TestA, TestB"}
	flaky := receipt.Reason{Code: "tests_failed", Detail: "m/b: TestC"}
	onlyFirst := receipt.Reason{Code: "tests_failed", Detail: "m/b: TestC (only in run 1)"}
	build := receipt.Reason{Code: "compile_failed", Detail: "m/a: a.go:3:1: undefined: x"}
	for _, c := range []struct {
		name   string
		change func(r *receipt.Receipt)
		want   []receipt.Reason
	}{
		{"a pass", func(*receipt.Receipt) {}, []receipt.Reason{}},
		{
			"both runs alike",
			func(r *receipt.Receipt) { r.Executions = []receipt.Execution{failed(exit, tests), failed(exit, tests)} },
			[]receipt.Reason{tests, exit},
		},
		{
			"one run more",
			func(r *receipt.Receipt) {
				r.Executions = []receipt.Execution{failed(exit, tests, flaky), failed(exit, tests)}
				r.Executions[1].ResultSHA256 = receipttest.Digest("other")
			},
			[]receipt.Reason{tests, onlyFirst, exit, {Code: "no_reexecution_agreement", Detail: "results differ"}},
		},
		{
			"no reason given",
			func(r *receipt.Receipt) { r.Executions = []receipt.Execution{failed(), failed()} },
			[]receipt.Reason{{Code: "check_failed", Detail: "execution 1: no reason given"}, {Code: "check_failed", Detail: "execution 2: no reason given"}},
		},
		{
			"it does not compile",
			func(r *receipt.Receipt) {
				e := failed(build)
				r.Compile = &receipt.Compile{Outcome: receipt.CompileFailed, Execution: &e}
				r.Executions, r.Census = nil, nil
				r.Control = receipt.Control{Kind: receipt.ControlPlanted, MutationOf: ".", Outcome: receipt.NotReached, Why: "not_reached"}
			},
			[]receipt.Reason{build},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := receipttest.Facts()
			c.change(&r)
			_, sealed := receipttest.Sign(t, r, receipttest.Key(t, 1))
			if diff := cmp.Diff(c.want, sealed.Explained()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			before := fmt.Sprint(sealed.Reasons)
			sealed.Explained()
			if got := fmt.Sprint(sealed.Reasons); got != before {
				t.Errorf("the sealed reasons became %s", got)
			}
		})
	}
}
