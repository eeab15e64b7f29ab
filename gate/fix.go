package gate

import (
	"fmt"
	"strings"
)

// verify is the command that runs the claim's check again.
func (j *judge) verify() string {
	s := "striatum verifier run --check " + arg(j.req.CheckID)
	if j.in.RunID != "" {
		s += " --run " + arg(j.in.RunID)
	}
	return s
}

// judgeTree is the command that judges with a tree.
func (j *judge) judgeTree() string {
	if j.in.RunID == "" {
		return "striatum gate read"
	}
	return "striatum gate check " + arg(j.in.RunID) + " --commit FULL-ID"
}

func (j *judge) acceptPolicy() string {
	if j.in.OfferedPolicy == "" {
		return "striatum policy show"
	}
	return "striatum policy accept --digest " + arg(j.in.OfferedPolicy) + " --token-file FILE"
}

// noCommand is the fix of what no command of this version changes; the sentence
// says what it takes.
const noCommand = ""

// showReceipt is the command that tells what the receipt says, for what running
// the check again on the same tree does not change. The copy lies where the
// check ran.
func (j *judge) showReceipt() string {
	return "striatum receipt show .striatum/receipts/" + j.authored.ReceiptRef + ".receipt.json"
}

func explain(seal string) string {
	return "striatum receipt explain " + arg(seal) + " --reason TEXT --token-file FILE"
}

// arg quotes s for a POSIX-like shell so that it is one argument and prints no
// control character, whatever it holds.
func arg(s string) string {
	plain := s != "" && s[0] != '-'
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
