package receipt

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"striatum/seal"
)

// MaxList is the most entries that a list in a receipt has.
const MaxList = 1000

// NewList sorts names and cuts them to MaxList, keeping count and digest of
// all. A newline in a name becomes \n and a byte that is not UTF-8 \xNN, before
// both. The argument is not changed.
func NewList(names []string) List {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = strings.ReplaceAll(Text(n), "\n", `\n`)
	}
	slices.Sort(all)
	kept := all[:min(len(all), MaxList)]
	return List{Names: kept, Count: int64(len(all)), SHA256: linesDigest(all)}
}

func linesDigest(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return seal.SHA256Hex([]byte(b.String()))
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
