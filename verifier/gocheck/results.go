package gocheck

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	slices.SortFunc(rs, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Test, b.Test), cmp.Compare(a.Outcome, b.Outcome))
	})
	return rs
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
	ta, tb := newTestTree(a), newTestTree(b)
	collapsed := map[testKey]bool{}
	var findings []receipt.Finding
	for _, r := range a.sorted() {
		k := testKey{r.Package, r.Test}
		outcome, both := tb.outcome[k]
		if !both || outcome != r.Outcome || ta.below(k, collapsed) || ta.children[k] == tb.children[k] {
			continue
		}
		collapsed[k] = true
		findings = append(findings, receipt.Finding{
			Code: "subtest_names_vary", Path: r.Package,
			Detail: r.Test + ": its subtests have other names in the second execution; only their number is compared",
		})
	}
	if len(collapsed) == 0 {
		return a, b, nil
	}
	return ta.collapse(a, collapsed), tb.collapse(b, collapsed), boundFindings(findings)
}

type testKey struct{ pack, test string }

// testTree knows which test of an execution is a subtest of which.
type testTree struct {
	outcome  map[testKey]string
	children map[testKey]string // their names, joined
}

// newTestTree reads results, which must be sorted: a test comes before its
// subtests.
func newTestTree(rs Results) testTree {
	t := testTree{outcome: map[testKey]string{}, children: map[testKey]string{}}
	for _, r := range rs {
		t.outcome[testKey{r.Package, r.Test}] = r.Outcome
	}
	names := map[testKey][]string{}
	for _, r := range rs {
		if parent, ok := t.parent(testKey{r.Package, r.Test}); ok {
			names[parent] = append(names[parent], r.Test)
		}
	}
	for k, list := range names {
		t.children[k] = strings.Join(list, "\n")
	}
	return t
}

// parent is the test with the longest name of which k is a subtest. A subtest's
// own name may have slashes in it.
func (t testTree) parent(k testKey) (testKey, bool) {
	for name := k.test; ; {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return testKey{}, false
		}
		name = name[:i]
		if p := (testKey{k.pack, name}); t.has(p) {
			return p, true
		}
	}
}

func (t testTree) has(k testKey) bool { _, ok := t.outcome[k]; return ok }

// below reports whether k is a subtest, at any depth, of a collapsed test.
func (t testTree) below(k testKey, collapsed map[testKey]bool) bool {
	_, ok := t.top(k, collapsed)
	return ok
}

func (t testTree) top(k testKey, collapsed map[testKey]bool) (testKey, bool) {
	for {
		p, ok := t.parent(k)
		if !ok {
			return testKey{}, false
		}
		if collapsed[p] {
			return p, true
		}
		k = p
	}
}

func (t testTree) collapse(rs Results, collapsed map[testKey]bool) Results {
	counts := map[testKey]map[string]int{}
	var out Results
	for _, r := range rs {
		p, ok := t.top(testKey{r.Package, r.Test}, collapsed)
		if !ok {
			out = append(out, r)
			continue
		}
		if counts[p] == nil {
			counts[p] = map[string]int{}
		}
		counts[p][r.Outcome]++
	}
	for p, byOutcome := range counts {
		for outcome, n := range byOutcome {
			out = append(out, Result{Package: p.pack, Test: p.test + "/...", Outcome: fmt.Sprintf("%d subtests %s", n, outcome)})
		}
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
