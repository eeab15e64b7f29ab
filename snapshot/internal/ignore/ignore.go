// Package ignore decides which paths of a tree git would leave out, from the
// tree's own .gitignore files and nothing else (no user or repository settings,
// no .git/info/exclude).
//
// It promises the answers of stock git, case-sensitive, also where the manual is
// silent. The rules, as git applies them:
//
//   - A file is split at newlines; one carriage return before a newline, a UTF-8
//     byte order mark at the start of the file, and unescaped spaces at the end of
//     a line are dropped. A line ends at a NUL byte. Lines that are empty or begin
//     with '#' say nothing.
//   - '!' in front takes back an earlier match; '/' at the end matches folders only.
//   - A pattern without another '/' is compared with the last component of a path.
//     Any other is compared with the path relative to the folder of its file.
//   - In such a comparison the text before the first of "*?[\" is compared byte by
//     byte, and what remains is matched by Glob on what remains of the path. So
//     "a**/b" behaves like "a" followed by "**/b".
//   - In one file the last matching line wins; a file in a deeper folder wins over
//     one further up. Nothing below an ignored folder can be taken back.
//
// Parsing is total: every input has a meaning. Work is bounded by a Budget.
package ignore

import (
	"bytes"
	"strings"
	"sync/atomic"
)

// MaxFileBytes is the largest .gitignore that the caller should hand to Parse.
const MaxFileBytes = 1 << 20

// Budget bounds the work of all matching that shares it: one step is about one
// comparison of a rule, or of eight bytes under wildcards. Matching that finds the
// budget spent answers "not ignored"; the caller looks at Spent and discards the
// answer. A nil Budget is unlimited.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of steps.
func NewBudget(steps int64) *Budget {
	b := new(Budget)
	b.left.Store(steps)
	return b
}

// Spent says whether more steps were asked for than there were.
func (b *Budget) Spent() bool { return b != nil && b.left.Load() < 0 }

func (b *Budget) take(n int) bool {
	return b == nil || b.left.Add(-int64(n)) >= 0
}

// rule is one line of a file.
type rule struct {
	text     string // without '!', a leading and a trailing '/'
	literal  int    // how many bytes of text hold no wildcard
	glob     *Glob  // of text[literal:], or of all of text for a basename rule; nil without wildcards
	negated  bool
	dirOnly  bool
	baseOnly bool // compared with the last component alone
	suffix   bool // "*" and then no wildcard: text[1:] is a suffix of the component
}

// Rules are the rules in force in one folder: those of its own .gitignore before
// those of the folders above it. The zero pointer has no rules. Rules are not
// changed after they are made.
type Rules struct {
	up    *Rules
	base  string // folder of the file, with a final slash unless it is the top
	rules []rule
}

// Parse returns the rules in force in the folder dir (relative to the top, ""
// for the top itself), whose .gitignore has the content data, below up.
func Parse(data []byte, dir string, up *Rules) *Rules {
	out := &Rules{up: up}
	if dir != "" {
		out.base = dir + "/"
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		line, _, _ = bytes.Cut(line, []byte{0})
		if r, ok := parseLine(trimSpaces(string(line))); ok {
			out.rules = append(out.rules, r)
		}
	}
	if len(out.rules) == 0 {
		return up
	}
	return out
}

// trimSpaces drops the spaces at the end of s that no backslash protects. A
// backslash at the very end keeps everything.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			continue
		case '\\':
			i++
			if i == len(s) {
				return s
			}
		}
		end = i + 1
	}
	return s[:end]
}

// parseLine returns the rule of one line; ok is false for a line that can never
// match.
func parseLine(s string) (r rule, ok bool) {
	if rest, found := strings.CutPrefix(s, "!"); found {
		r.negated, s = true, rest
	}
	whole := s
	if rest, found := strings.CutSuffix(s, "/"); found {
		r.dirOnly, s = true, rest
	}
	r.baseOnly = !strings.Contains(s, "/")
	// An unfinished "\/" at the end keeps its backslash, which then matches nothing.
	r.suffix = r.baseOnly && strings.HasPrefix(s, "*") && !hasWildcard(whole[1:])
	if !r.baseOnly {
		s = strings.TrimPrefix(s, "/")
	}
	r.text = s
	r.literal = strings.IndexAny(s, wildcards)
	switch {
	case s == "":
		return r, false
	case r.literal < 0:
		r.literal = len(s)
		return r, true
	case r.suffix:
		return r, true
	case r.baseOnly:
		r.glob = Compile(s, false)
	default:
		r.glob = Compile(s[r.literal:], true)
	}
	return r, r.glob != nil
}

const wildcards = `*?[\`

func hasWildcard(s string) bool { return strings.ContainsAny(s, wildcards) }

// Ignored says whether the entry at path (relative to the top, with slashes) is
// ignored, taken that no folder above it is. isDir is true for a folder, not for
// a link to one.
func (r *Rules) Ignored(path string, isDir bool, b *Budget) bool {
	base := path[strings.LastIndexByte(path, '/')+1:]
	for ; r != nil; r = r.up {
		rel := path[len(r.base):]
		if !b.take(len(r.rules)) {
			return false
		}
		for i := len(r.rules) - 1; i >= 0; i-- {
			if r.rules[i].matches(rel, base, isDir, b) {
				return !r.rules[i].negated
			}
		}
	}
	return false
}

func (r *rule) matches(rel, base string, isDir bool, b *Budget) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if r.baseOnly {
		switch {
		case r.suffix:
			return strings.HasSuffix(base, r.text[1:])
		case r.glob == nil:
			return base == r.text
		}
		return r.glob.Match(base, b)
	}
	if !strings.HasPrefix(rel, r.text[:r.literal]) {
		return false
	}
	if r.glob == nil {
		return len(rel) == r.literal
	}
	return r.glob.Match(rel[r.literal:], b)
}
