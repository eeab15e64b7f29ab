// Package shellquote writes words so that a shell reads them back as they are.
package shellquote

import (
	"fmt"
	"strings"
)

// Word quotes s for a POSIX-like shell so that it is one argument and prints no
// control character, whatever it holds.
func Word(s string) string {
	plain := s != "" && s[0] != '-'
	return quote(s, plain)
}

// Line joins words to a command. A word that begins with "-" stays as it is.
func Line(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w, w != "")
	}
	return strings.Join(quoted, " ")
}

func quote(s string, plain bool) string {
	printable := true
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:+/@=-", c) >= 0:
		case c < ' ' || c >= 0x7f || c == '\'':
			plain, printable = false, false
		default:
			plain = false
		}
	}
	switch {
	case plain:
		return s
	case printable:
		return "'" + s + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
