package gocheck

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"striatum/receipt"
)

// Result is one fact on which two executions must agree: a test and its
// outcome, a diagnostic (Outcome), or a package and its outcome. Fields that a
// kind of check does not have are empty.
type Result struct {
	Package, Test, Outcome string
}

// String is the result's line: the fields that are not empty, joined by tabs.
func (r Result) String() string {
	fields := slices.DeleteFunc([]string{r.Package, r.Test, r.Outcome}, func(s string) bool { return s == "" })
	return strings.Join(fields, "\t")
}

// Results are the results of one execution, sorted.
type Results []Result

func (rs Results) sorted() Results {
	slices.SortFunc(rs, func(a, b Result) int { return cmp.Or(a.compareTest(b), cmp.Compare(a.Outcome, b.Outcome)) })
	return rs
}

func (r Result) compareTest(s Result) int {
	return cmp.Or(cmp.Compare(r.Package, s.Package), cmp.Compare(r.Test, s.Test))
}

// SHA256 is the hex digest of the lines, each ended by a newline.
func (rs Results) SHA256() string {
	h := sha256.New()
	for _, r := range rs {
		_, _ = h.Write([]byte(r.String() + "\n")) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// CompareRuns returns the results by which two executions of a test check are
// compared. Where both have a test with the same outcome and its subtests have
// other names (times, ports or seeds in them), the subtests are replaced by
// their count for each outcome, and a finding subtest_names_vary names the
// test. The executions agree if the results returned are equal.
func CompareRuns(a, b Results) (Results, Results, []receipt.Finding) {
	ta, tb := newTestTree(a.sorted()), newTestTree(b.sorted())
	var findings []receipt.Finding
	j := 0
	for i, r := range a {
		for j < len(b) && b[j].compareTest(r) < 0 {
			j++
		}
		if j == len(b) || b[j] != r || ta.children[i] == tb.children[j] || ta.counted(i) >= 0 {
			continue
		}
		ta.count[i], tb.count[j] = true, true
		findings = append(findings, receipt.Finding{
			Code: "subtest_names_vary", Path: r.Package,
			Detail: r.Test + ": its subtests have other names in the second execution; only their number is compared",
		})
	}
	if len(findings) == 0 {
		return a, b, nil
	}
	return ta.results(), tb.results(), boundFindings(findings)
}

// testTree knows which test of an execution is a subtest of which. It has a few
// bytes for each test, because there may be many.
type testTree struct {
	all      Results  // sorted
	parent   []int32  // of each test, the one of which it is a subtest; -1: none
	children []uint64 // of each test, a hash of the names of its subtests
	count    []bool   // of each test, whether its subtests are only counted
}

func newTestTree(sorted Results) testTree {
	n := len(sorted)
	t := testTree{sorted, make([]int32, n), make([]uint64, n), make([]bool, n)}
	var open []int32 // the tests whose names are prefixes of the current one, shortest first
	for i, r := range sorted {
		for len(open) > 0 {
			if last := sorted[open[len(open)-1]]; last.Package == r.Package && strings.HasPrefix(r.Test, last.Test) {
				break
			}
			open = open[:len(open)-1]
		}
		// A subtest's own name may have slashes in it: the longest name counts.
		t.parent[i] = -1
		for _, p := range slices.Backward(open) {
			if end := len(sorted[p].Test); end < len(r.Test) && r.Test[end] == '/' {
				t.parent[i] = p
				t.children[p] = maphash.Comparable(nameSeed, [2]uint64{t.children[p], maphash.String(nameSeed, r.Test)})
				break
			}
		}
		open = append(open, int32(i)) // there are at most MaxTests
	}
	return t
}

// nameSeed makes the hashes of names. Names that collide are compared as they
// are, and found to differ.
var nameSeed = maphash.MakeSeed()

// counted is the test, at any height above the i-th, whose subtests are only
// counted; -1: there is none.
func (t testTree) counted(i int) int32 {
	p := t.parent[i]
	for p >= 0 && !t.count[p] {
		p = t.parent[p]
	}
	return p
}

// results are those of the execution, with counts in place of what is counted.
func (t testTree) results() Results {
	type group struct {
		test    int32
		outcome string
	}
	counts := map[group]int{}
	var out Results
	for i, r := range t.all {
		if p := t.counted(i); p >= 0 {
			counts[group{p, r.Outcome}]++
		} else {
			out = append(out, r)
		}
	}
	for g, n := range counts {
		r := t.all[g.test]
		out = append(out, Result{Package: r.Package, Test: r.Test + "/...", Outcome: fmt.Sprintf("%d subtests %s", n, g.outcome)})
	}
	return out.sorted()
}

// boundFindings keeps MaxFindings of each code and says how many were left out.
func boundFindings(all []receipt.Finding) []receipt.Finding {
	count := map[string]int{}
	var kept []receipt.Finding
	for _, f := range all {
		if count[f.Code]++; count[f.Code] <= MaxFindings {
			kept = append(kept, f)
		}
	}
	var codes []string
	for code, n := range count {
		if n > MaxFindings {
			codes = append(codes, code)
		}
	}
	slices.Sort(codes)
	for _, code := range codes {
		kept = append(kept, receipt.FindingsLeftOut(code, int64(count[code]-MaxFindings)))
	}
	return kept
}

// maxReasons bounds the reasons of one execution.
const maxReasons = 50

func boundReasons(all []receipt.Reason) []receipt.Reason {
	if len(all) <= maxReasons {
		return all
	}
	more := receipt.Reason{Code: all[0].Code, Detail: fmt.Sprintf("and %d more reasons", len(all)-maxReasons)}
	return append(slices.Clip(all[:maxReasons]), more)
}
