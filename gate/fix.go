package gate

import "striatum/internal/shellquote"

// verify is the command that runs the claim's check again.
func (j *judge) verify() string {
	s := "striatum verifier run --check " + shellquote.Word(j.req.CheckID)
	if j.in.RunID != "" {
		s += " --run " + shellquote.Word(j.in.RunID)
	}
	return s
}

// judgeTree is the command that judges with a tree.
func (j *judge) judgeTree() string {
	if j.in.RunID == "" {
		return "striatum gate read"
	}
	return "striatum gate check " + shellquote.Word(j.in.RunID) + " --commit FULL-ID"
}

// acceptBaseline is the command that shows how the tests differ from the accepted
// baseline, and accepts them.
const acceptBaseline = "striatum verifier baseline accept"

// showPolicy is the command that shows the difference to what was accepted. It
// names the one that accepts; a fix that did would be followed unseen.
const showPolicy = "striatum policy show"

// probeLane is the command that looks again whether a lane is isolated, as root on
// its host.
const probeLane = "striatum lane probe"

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
	return "striatum receipt explain " + shellquote.Word(seal) + " --reason TEXT --token-file FILE"
}
