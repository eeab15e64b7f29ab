package receipt

import (
	"fmt"
	"slices"
)

// Explained returns the reasons as people want them. A derived reason that only
// names the codes of an execution gives way to the execution's own reasons,
// which name packages and tests: each stands there once, though both runs gave
// it, and one that only one of two runs gave says so. How a program ended comes
// after what it reported.
func (r *Receipt) Explained() []Reason {
	out := []Reason{}
	add := func(list ...Reason) {
		for _, reason := range list {
			if !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	for _, reason := range r.Reasons {
		var own []Reason
		switch reason.Code {
		case "compile_failed", "compile_indeterminate":
			if r.Compile != nil && r.Compile.Execution != nil {
				own = r.Compile.Execution.Reasons
			}
		case "check_failed", "execution_indeterminate":
			own = r.ofRuns()
		}
		if len(own) == 0 {
			own = []Reason{reason}
		}
		add(own...)
	}
	return out
}

// ofRuns merges the reasons of the real executions.
func (r *Receipt) ofRuns() []Reason {
	var out []Reason
	for i, e := range r.Executions {
		for _, reason := range e.Reasons {
			if !r.inEachRun(reason) {
				reason.Detail = fmt.Sprintf("%s (only in run %d)", reason.Detail, i+1)
			}
			out = append(out, reason)
		}
	}
	slices.SortStableFunc(out, func(a, b Reason) int { return late(a) - late(b) })
	return out
}

func (r *Receipt) inEachRun(reason Reason) bool {
	for _, e := range r.Executions {
		if !slices.Contains(e.Reasons, reason) {
			return false
		}
	}
	return true
}

// late is 1 for what only follows from the other reasons of an execution.
func late(r Reason) int {
	if r.Code == "exit_nonzero" {
		return 1
	}
	return 0
}
