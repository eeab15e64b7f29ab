package snapshot

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// nameFindings reports the odd names directly in the folder n, which lies at
// dir, and the names in it that a case-folding or normalising file system would
// take for one.
func nameFindings(n *node, dir string) []Finding {
	var out []Finding
	seen := make(map[string]string, len(n.kids)+1)
	seen[".git"] = ".git"
	for _, k := range n.kids {
		at := path.Join(dir, k.name)
		ascii := isASCII(k.name)
		if f, odd := oddName(k.name, ascii); odd {
			f.Path = Quote(at)
			out = append(out, f)
		}
		key := strings.ToLower(k.name)
		if !ascii {
			key = norm.NFKC.String(cases.Fold().String(norm.NFKC.String(k.name)))
		}
		if other, taken := seen[key]; taken {
			out = append(out, Finding{CollidingNames, Quote(at), "one with " + Quote(path.Join(dir, other)) + " where case or form does not count"})
			continue
		}
		seen[key] = k.name
	}
	return out
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func oddName(name string, ascii bool) (Finding, bool) {
	if !ascii && !utf8.ValidString(name) {
		return Finding{Code: ControlName, Detail: "the name is not valid UTF-8"}, true
	}
	for _, r := range name {
		if !ascii && unicode.Is(unicode.Bidi_Control, r) {
			return Finding{Code: BidiName, Detail: fmt.Sprintf("the name holds U+%04X, which changes the reading direction", r)}, true
		}
		if unicode.IsControl(r) {
			return Finding{Code: ControlName, Detail: fmt.Sprintf("the name holds the control character U+%04X", r)}, true
		}
	}
	return Finding{}, false
}

// maxLinkSteps is how many links Linux follows in one path.
const maxLinkSteps = 40

// leavesTree says whether following the link n ends, or passes, outside the
// tree. A path that does not exist in the tree stays where it breaks off.
func leavesTree(n *node) bool {
	steps := 0
	_, out := follow(n.parent, n.target, &steps, func(*node) {})
	return out
}

// follow resolves target from the folder at. It returns nil where the way breaks
// off inside the tree. via is told each link on the way.
func follow(at *node, target string, steps *int, via func(link *node)) (to *node, out bool) {
	if *steps++; *steps > maxLinkSteps {
		return nil, false
	}
	if strings.HasPrefix(target, "/") {
		return nil, true
	}
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			if at.parent == nil {
				return nil, true
			}
			at = at.parent
			continue
		}
		next := at.kid(part)
		if next != nil && next.mode == modeLink {
			via(next)
			if next, out = follow(at, next.target, steps, via); out {
				return nil, true
			}
		}
		if next == nil || next.mode != modeTree {
			return next, false
		}
		at = next
	}
	return at, false
}

// kid returns the entry of a finished folder.
func (n *node) kid(name string) *node {
	for _, m := range []mode{modeFile, modeTree} {
		lo, hi := 0, len(n.kids)
		for lo < hi {
			mid := (lo + hi) / 2
			k := n.kids[mid]
			switch c := compareNames(k.name, k.mode, name, m); {
			case c == 0:
				return k
			case c < 0:
				lo = mid + 1
			default:
				hi = mid
			}
		}
	}
	return nil
}
