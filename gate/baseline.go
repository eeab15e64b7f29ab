package gate

import (
	"striatum/baseline"
	"striatum/receipt"
)

// askBaseline is condition 8 for the tests that an operator accepted: the check
// still has them, none is newly skipped, and their data are the same. The lane
// compared; what it says counts only of the baseline that the accepted policy has.
func (j *judge) askBaseline(r *receipt.Receipt) {
	if j.in.Policy == nil {
		return
	}
	accepted, b := j.in.Policy.Files[baseline.Path], r.Baseline
	failed := r.Classification != receipt.Asserted && r.Classification != receipt.VerifiedEligible
	switch {
	case accepted == "" || b == nil && (failed || !plantsMutants(r)):
		return // nobody asked for it, or it ended before, or is not about tests
	case b == nil || b.SHA256 != accepted:
		j.add(BaselineNotCompared, j.verify(), "the tests were not compared with the accepted baseline %s", accepted)
		return
	}
	for _, x := range []struct {
		code Code
		list receipt.List
		says string
	}{
		{TestsRemoved, b.TestsRemoved, "the accepted baseline has tests that did not run here under their names"},
		{TestsNewlySkipped, b.TestsNewlySkipped, "tests were skipped that ran when the baseline was accepted"},
		{TestInputsChanged, b.TestInputsChanged, "test data, or constraints of test files, are not those of the accepted baseline"},
	} {
		if x.list.Count > 0 {
			j.add(x.code, acceptBaseline, "%s: %s, first %s; undo that, or let an operator accept it", x.says, plural(x.list.Count, "difference"), firstOf(x.list))
		}
	}
}
