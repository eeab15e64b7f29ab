package receipt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// FindingKind says how many findings of one code there are.
type FindingKind struct {
	Code  string `json:"code"`
	Count int64  `json:"count"`
}

// Findings is a receipt's findings, counted. Kinds are ascending by code;
// Details are the first of them by code, path and detail.
type Findings struct {
	Count   int64         `json:"count"`
	Kinds   []FindingKind `json:"kinds"`
	Details []Finding     `json:"details"`
}

// FindingsLeftOut returns the finding that stands for n more of a code, where a
// list has no room for them.
func FindingsLeftOut(code string, n int64) Finding {
	return Finding{Code: code, Detail: fmt.Sprintf("and %d more", n)}
}

// leftOut returns how many findings f stands for; ok is false for one that is a
// finding itself.
func (f Finding) leftOut() (n int64, ok bool) {
	if f.Path != "" {
		return 0, false
	}
	if _, err := fmt.Sscanf(f.Detail, "and %d more", &n); err != nil || n < 0 {
		return 0, false
	}
	return n, f == FindingsLeftOut(f.Code, n)
}

// CountFindings counts a receipt's findings, those that it had no room for
// included, and keeps at most details of them. The order of all does not matter.
func CountFindings(all []Finding, details int) Findings {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Code, b.Code), strings.Compare(a.Path, b.Path), strings.Compare(a.Detail, b.Detail))
	})
	out := Findings{Kinds: []FindingKind{}, Details: []Finding{}}
	for _, f := range sorted {
		n, left := f.leftOut()
		if !left {
			n = 1
			if len(out.Details) < details {
				out.Details = append(out.Details, f)
			}
		}
		out.Count += n
		if last := len(out.Kinds) - 1; last < 0 || out.Kinds[last].Code != f.Code {
			out.Kinds = append(out.Kinds, FindingKind{Code: f.Code})
		}
		out.Kinds[len(out.Kinds)-1].Count += n
	}
	return out
}

// String returns it as a phrase: "3 findings: go_file_ignored 2, module_not_checked 1".
func (f Findings) String() string {
	kinds := make([]string, len(f.Kinds))
	for i, k := range f.Kinds {
		kinds[i] = fmt.Sprintf("%s %d", k.Code, k.Count)
	}
	noun := "findings"
	if f.Count == 1 {
		noun = "finding"
	}
	return fmt.Sprintf("%d %s: %s", f.Count, noun, strings.Join(kinds, ", "))
}
