package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"striatum/allowlist"
	"striatum/receipt"
)

// askControl is condition 7.
func (j *judge) askControl(r *receipt.Receipt) {
	c := r.Control
	switch c.Outcome {
	case receipt.FailedAsRequired:
		if c.Execution == nil || !ranFirst(c.Execution, r.Executions) {
			j.add(NegativeControlMissing, j.verify(), "nothing shows that the negative control ran before the check")
		}
		if d := c.Differs; d != nil {
			j.add(ControlDetected, j.showReceipt(), "%s when a failure is planted, so the suite tells the control from a run: %s", plural(d.Count, "test")+" end otherwise", firstOf(*d))
		}
		if c.Kind == receipt.ControlFixture {
			j.add(ControlNotOnSubject, noCommand,
				"the negative control ran on a fixture, not on a mutation of this tree: let the intent's mutation_of be \".\"")
		}
	case receipt.DidNotFail:
		j.add(NegativeControlDidNotFail, j.showReceipt(), "the check passed on an input that it must fail on, so its passing says nothing; on the same tree it will again")
	case receipt.Invalid:
		j.add(NegativeControlInvalid, j.showReceipt(), "the negative control failed for another reason than the check's own judgement: %q", c.Why)
	case receipt.NotReached:
		why := undecided(r) // it ended before: that is what to know
		if why == "" {
			why = quoteOr(c.Why, "nobody says why")
		}
		j.add(NegativeControlMissing, j.again(r), "the negative control did not run: %s", why)
	default:
		j.add(NegativeControlMissing, j.verify(), "nothing is known about the negative control")
	}
}

// askMutants is condition 7 for the product: its tests noticed a planted defect.
// That a passing receipt does not say so is no sign that they did.
func (j *judge) askMutants(r *receipt.Receipt) {
	passes := r.Classification == receipt.Asserted || r.Classification == receipt.VerifiedEligible
	switch m := r.Mutants; {
	case m == nil && passes && plantsMutants(r):
		j.add(CheckIndeterminate, j.verify(), "no full judgement was possible: nothing shows that mutants of the product were tried")
	case m != nil && m.Killed == 0 && m.Survived > 0:
		j.add(NoMutantKilled, j.showReceipt(), "the tests noticed none of %s planted in %s of the product: they do not test it",
			plural(m.Survived, "defect"), plural(m.Statements, "statement"))
	}
}

// askProtected is condition 7 for the examination: it was the commit's. A receipt of a
// check with protected inputs that does not name them is not of its examination.
func (j *judge) askProtected(r *receipt.Receipt) {
	commit := ""
	if p := r.Inputs.Protected; p != nil {
		commit = p.Commit
	}
	passes := r.Classification == receipt.Asserted || r.Classification == receipt.VerifiedEligible
	if passes && r.Check.Digest == j.req.CheckDigest && commit != j.req.ProtectedCommit {
		j.add(CheckIndeterminate, j.verify(), "no full judgement was possible: the check's protected inputs are those of commit %q, and the receipt has those of %q", j.req.ProtectedCommit, commit)
	}
}

// plantsMutants reports whether the receipt is of a check that tries mutants.
func plantsMutants(r *receipt.Receipt) bool {
	_, name, _ := strings.Cut(r.Tools.BuiltinID, ":")
	return name == "go-test"
}

// ranFirst reports whether the control started no later than every execution.
func ranFirst(control *receipt.Execution, runs []receipt.Execution) bool {
	start, err := time.Parse(time.RFC3339Nano, control.StartedAt)
	if err != nil {
		return false
	}
	for _, run := range runs {
		t, err := time.Parse(time.RFC3339Nano, run.StartedAt)
		if err != nil || t.Before(start) {
			return false
		}
	}
	return true
}

// askOutcome is condition 8.
func (j *judge) askOutcome(r *receipt.Receipt) {
	if r.Classification == receipt.Failed {
		if tree := r.Inputs.TreeSHA256; j.judged() && tree != j.in.Tree.SHA256 {
			j.add(CheckNotPassing, j.verify(), "the check failed on another tree%s; nothing is known of the judged one", reasons(r))
		} else {
			j.add(CheckNotPassing, j.showReceipt(), "the check failed%s; mend that, for the same tree stays red", reasons(r))
		}
	}
	if r.Agreement == receipt.Disagreed {
		j.add(NoReexecutionAgreement, j.showReceipt(), "two runs on the same tree gave different results%s", reasons(r))
	}
	if n := skipsBeyond(r.Census, j.req.AllowSkips); n != "" {
		fix := showPolicy
		if j.in.Policy == nil {
			fix = j.showReceipt()
		}
		j.add(SkipsNotAllowed, fix, "a test was skipped that may not be: %s; let it run, or allow it in the check's allow_skips", n)
	}
}

// askClassification is the rest of condition 8: what kept the check from a
// judgement, and for a receipt that does not pass although no condition from 7
// to 9 failed (explained is false), that there is none.
func (j *judge) askClassification(r *receipt.Receipt, explained bool) {
	switch r.Classification {
	case receipt.Asserted, receipt.VerifiedEligible:
		return
	case receipt.Failed, receipt.Void, receipt.Indeterminate:
	}
	if why := undecided(r); why != "" {
		j.add(CheckIndeterminate, j.again(r), "no full judgement was possible: %s", why)
	} else if !explained {
		j.add(CheckIndeterminate, j.verify(), "no judgement was possible%s", reasons(r))
	}
}

// again is the command after which a check may be judged that was not: to run it
// again, or where its tools or definition drifted from the pin, to see how.
func (j *judge) again(r *receipt.Receipt) string {
	drifted := slices.ContainsFunc(r.Incidents, func(i receipt.Incident) bool { return i.Code == "toolchain_drift" })
	if drifted && !j.req.Builtin {
		return allowlist.PinCommand + " --diff-only"
	}
	return j.verify()
}

// undecided says what, beside disagreement and posture, kept the check from a
// judgement; empty if nothing did. That a failed check ran no further is none.
func undecided(r *receipt.Receipt) string {
	for _, i := range r.Incidents {
		if i.Effect == receipt.MakesIndeterminate {
			return i.Code + quoteAfter(i.Detail)
		}
	}
	switch {
	case r.Limits.Hit != "":
		return "the limit " + quoteOr(r.Limits.Hit, "") + " was hit"
	case r.Compile != nil && r.Compile.Outcome == receipt.CompileInconclusive:
		return "the compile step came to no end"
	case slices.ContainsFunc(r.Executions, func(e receipt.Execution) bool { return e.Judgement == receipt.Inconclusive }):
		return "an execution was cut short"
	case r.Mutants != nil && r.Mutants.Killed+r.Mutants.Survived == 0 && r.Mutants.CutShort+r.Mutants.NotCompiled > 0:
		return "no mutant of the product came to an end"
	case len(r.Executions) < 2 && r.Classification != receipt.Failed:
		return "it ran less than twice"
	}
	return ""
}

// maxReasons is how many reasons a sentence names.
const maxReasons = 3

// reasons are the first of a receipt's, to stand after a word.
func reasons(r *receipt.Receipt) string {
	all := r.Explained()
	if len(all) == 0 {
		return ""
	}
	parts := []string{}
	for _, reason := range all[:min(len(all), maxReasons)] {
		parts = append(parts, reason.Code+quoteAfter(reason.Detail))
	}
	if more := len(all) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return ": " + strings.Join(parts, "; ")
}

// quoteAfter returns detail, quoted and cut, to stand after a code.
func quoteAfter(detail string) string {
	if detail == "" {
		return ""
	}
	return " " + quoteOr(clip(detail), "")
}

// clip keeps a sentence short.
func clip(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// skipsBeyond returns a skipped test that is not allowed, quoted, or the empty
// string. A list that was cut cannot be compared and is not allowed.
func skipsBeyond(c *receipt.Census, allowed AllowSkips) string {
	if c == nil || c.Skipped == 0 && c.SkippedTests.Count == 0 || allowed.Any {
		return ""
	}
	for _, name := range c.SkippedTests.Names {
		if _, ok := slices.BinarySearch(allowed.Names, name); !ok {
			return quoteOr(name, "one without a name")
		}
	}
	if n := int64(len(c.SkippedTests.Names)); n < c.SkippedTests.Count || n < c.Skipped {
		return "the list of skipped tests is longer than the receipt could hold"
	}
	return ""
}

// firstOf quotes the first name of a list.
func firstOf(l receipt.List) string {
	if len(l.Names) == 0 {
		return "the receipt has no room for their names"
	}
	return quoteOr(clip(l.Names[0]), "one without a name")
}

// askPosture is condition 9.
func (j *judge) askPosture(r *receipt.Receipt) {
	var loose []string
	for _, f := range r.Posture.Facets {
		if !f.OK {
			loose = append(loose, f.Name)
		}
	}
	switch {
	case len(loose) > 0:
		j.add(SandboxNotStrict, "striatum doctor", "the sandbox was not strict in %q", loose)
	case !r.Posture.Strict || len(r.Posture.Facets) == 0:
		j.add(SandboxNotStrict, "striatum doctor", "the sandbox's posture was not measured in full")
	}
}
