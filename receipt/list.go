package receipt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxList is the most entries that a list in a receipt has.
const MaxList = 1000

// NewList sorts names and cuts them to MaxList, keeping count and digest of
// all. A newline in a name becomes \n and a byte that is not UTF-8 \xNN, before
// both. The argument is not changed.
func NewList(names []string) List {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = listed(n)
	}
	slices.Sort(all)
	return SortedList(slices.Values(all))
}

// SortedList is NewList of names that come sorted. It holds no more of them than
// the list does.
func SortedList(names iter.Seq[string]) List {
	l := List{Names: []string{}}
	digest := sha256.New()
	for n := range names {
		n = listed(n)
		if l.Count++; l.Count <= MaxList {
			l.Names = append(l.Names, n)
		}
		_, _ = io.WriteString(digest, n+"\n") // a hash never fails
	}
	l.SHA256 = hex.EncodeToString(digest.Sum(nil))
	return l
}

// listed is a name as a list has it.
func listed(name string) string { return strings.ReplaceAll(Text(name), "\n", `\n`) }

func linesDigest(lines []string) string {
	digest := sha256.New()
	for _, l := range lines {
		_, _ = io.WriteString(digest, l+"\n") // a hash never fails
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// first names the first of l and says how many there are more.
func (l List) first() string {
	const most = 5
	names := l.Names[:min(len(l.Names), most)]
	text := strings.Join(names, ", ")
	if more := l.Count - int64(len(names)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// cut returns l with at most n names.
func (l List) cut(n int) List {
	l.Names = l.Names[:min(len(l.Names), n)]
	return l
}

// Text returns s with each byte that is not part of valid UTF-8 written as \xNN.
// File names and output of programs go through it on their way into a receipt.
func Text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// shorten returns s as Text of at most n bytes, the last of which are … if
// something was left out.
func shorten(s string, n int) string {
	s = Text(s)
	if len(s) <= n {
		return s
	}
	s = s[:max(0, n-len("…"))]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
