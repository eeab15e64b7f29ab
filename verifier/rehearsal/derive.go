package rehearsal

import (
	"fmt"
	"slices"
	"strings"

	"striatum/receipt"
)

// derive fills Posture.Strict, Verdict and Reasons, which follow from the facts.
func derive(r *Rehearsal) {
	void, open := r.redsJudged()
	controlVoid, tried := r.controlsJudged()
	void = append(controlVoid, void...)
	as := r.asRun(tried)
	receipt.Derive(&as)
	r.Posture.Strict = as.Posture.Strict
	r.Reasons = append(append([]receipt.Reason{}, void...), as.Explained()...)
	failed := as.Classification == receipt.Failed
	if !failed {
		r.Reasons = append(r.Reasons, open...)
	}
	switch {
	case failed || len(void) > 0:
		r.Verdict = Refused
	case as.Classification == receipt.Indeterminate || len(open) > 0:
		r.Verdict = Indeterminate
	default:
		r.Verdict = Graduates
		if r.reportsTests() && r.TestFiles == 0 {
			r.Reasons = append(r.Reasons, receipt.Reason{Code: "no_test_files", Detail: "no file of the tree counts as a test file, so none was emptied"})
		}
	}
}

// asRun is the receipt that the executions on the tree would make. What is wrong
// with the control is told apart; here it only counts as tried, or not.
func (r *Rehearsal) asRun(tried bool) receipt.Receipt {
	as := receipt.Receipt{
		Check: r.Check, Executions: r.Runs, Incidents: r.Incidents, Posture: r.Posture, Limits: r.Limits,
		Control: receipt.Control{Kind: receipt.ControlNone, Outcome: receipt.NotReached, Why: "not_reached"},
	}
	if tried {
		as.Control = receipt.Control{Kind: r.Controls[0].Control.Kind, Outcome: receipt.FailedAsRequired}
	}
	return as
}

// controlsJudged says what is wrong with the control, and whether each mutation
// was tried as often as is due.
func (r *Rehearsal) controlsJudged() (void []receipt.Reason, tried bool) {
	tried = r.Mutations > 0
	for m := int64(1); m <= min(r.Mutations, MaxMutations); m++ {
		var outcomes, whys []string
		file := ""
		for _, c := range r.Controls {
			if c.Mutation != m {
				continue
			}
			file, outcomes = c.File, append(outcomes, string(c.Control.Outcome))
			if c.Control.Why != "" && !slices.Contains(whys, c.Control.Why) {
				whys = append(whys, c.Control.Why)
			}
		}
		if len(outcomes) != Repetitions {
			tried = false
		}
		if len(outcomes) == 0 {
			continue
		}
		which := fmt.Sprintf("mutation %d, of %s", m, file)
		because := strings.Join(whys, "; ")
		different := slices.ContainsFunc(outcomes, func(o string) bool { return o != outcomes[0] })
		switch outcome := receipt.ControlOutcome(outcomes[0]); {
		case different:
			detail := which + ": " + strings.Join(outcomes, ", ")
			if because != "" {
				detail += " (" + because + ")"
			}
			void = append(void, receipt.Reason{Code: "negative_control_nondeterministic", Detail: detail})
		case outcome == receipt.DidNotFail:
			void = append(void, receipt.Reason{Code: "negative_control_did_not_fail", Detail: which + ": the check passed although one line of its input was wrong"})
		case outcome != receipt.FailedAsRequired:
			void = append(void, receipt.Reason{Code: "negative_control_invalid", Detail: which + ": " + because})
		}
	}
	return void, tried && r.Mutations <= MaxMutations
}

// redsJudged says which of the other inputs passed, and which say nothing.
func (r *Rehearsal) redsJudged() (void, open []receipt.Reason) {
	due := map[Input]string{EmptyWorktree: "a tree that has nothing but the check's own definition: let it fail where it finds nothing to check"}
	if r.reportsTests() && r.TestFiles > 0 {
		due[EmptiedTests] = fmt.Sprintf("a tree whose %d test files are empty: let it fail where no test is run", r.TestFiles)
	}
	for _, input := range []Input{EmptyWorktree, EmptiedTests} {
		what, ok := due[input]
		if !ok {
			continue
		}
		i := slices.IndexFunc(r.Reds, func(x Red) bool { return x.Input == input })
		switch {
		case i < 0:
			open = append(open, receipt.Reason{Code: "rehearsal_incomplete", Detail: string(input) + " was not tried"})
		case r.Reds[i].Execution.Judgement == receipt.Pass:
			void = append(void, receipt.Reason{Code: "passes_on_" + string(input), Detail: "the check passes on " + what})
		case cutShort(r.Reds[i].Execution):
			open = append(open, receipt.Reason{Code: "execution_cut_short", Detail: string(input) + " did not come to its own end"})
		}
	}
	return void, open
}

// cutShort reports whether an execution ended otherwise than by its program: it
// did not pass then, and did not fail by its own judgement either.
func cutShort(x receipt.Execution) bool {
	return x.TimedOut || x.OOM || x.OutputTruncated || x.Judgement != receipt.Fail &&
		!slices.ContainsFunc(x.Reasons, func(why receipt.Reason) bool { return why.Code == reportUnreadable })
}

// reportUnreadable is the reason of an execution that ended by itself without a
// report of tests that can be read: it does not pass.
const reportUnreadable = "report_unreadable"

func (r *Rehearsal) reportsTests() bool {
	return slices.Contains([]string{"go-test-json", "junit", "tap"}, r.Check.Agreement)
}
