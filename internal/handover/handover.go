// Package handover is how a client gives a lane a worktree and gets the results: on
// a unix socket, a line that names a request of the daemon, with the descriptor of
// the worktree, then lines of JSON until one that ends it.
//
// A Server admits, queues and runs one after the other. It trusts nothing that a
// client sends, waits for none of them, and lets no user keep the lane from others:
// the constants of this file, which docs/limits.md lists. A client that closes its
// side gives up what it asked for.
package handover

import (
	"time"

	"striatum/daemon/wire"
)

// The bounds of a server.
const (
	MaxConnections   = 64 // more are closed at once
	MaxConnectionsOf = 8  // of one user
	MaxQueue         = 16 // that wait for the lane
	MaxQueueOf       = 4  // of one user
	MaxAdmits        = 3  // that are admitted at once; the next wait for AdmitTimeout
	MaxOfferBytes    = 1 << 10
	OfferTimeout     = 5 * time.Second
	AdmitTimeout     = 20 * time.Second
	WriteTimeout     = 10 * time.Second // for one message
	StopTimeout      = 30 * time.Second // for what runs when the server is stopped
	maxHeldBytes     = 32 << 20         // of results that a client did not read yet
	maxText          = 1 << 10          // of a step
	acceptPause      = 100 * time.Millisecond
)

// MaxMessageBytes bounds one line that a client reads.
const MaxMessageBytes = 64 << 20

// Offer is the line that a client sends with the descriptor of a worktree.
type Offer struct {
	RequestID string `json:"request_id"`
}

// Message is one line of the answer: exactly one field is set.
type Message struct {
	Queued  *Queued  `json:"queued,omitempty"`
	Step    *Step    `json:"step,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	End     *End     `json:"end,omitempty"`
}

// Queued says how many others come before.
type Queued struct {
	Ahead int `json:"ahead"`
}

// Step says what is under way. Steps may be left out.
type Step struct {
	CheckID string `json:"check_id"`
	Text    string `json:"text"`
}

// Outcome is a check's receipt. Envelope and Ledger, the run's claim ledger, may be
// left out: the daemon has them. Census are the tests that the receipt names for an
// operator to accept.
type Outcome struct {
	Seal     string    `json:"seal"`
	Envelope []byte    `json:"envelope,omitempty"`
	Ledger   []byte    `json:"ledger,omitempty"`
	Census   []byte    `json:"census,omitempty"`
	Failing  []Failing `json:"failing,omitempty"`
}

// Failing is a failed test or diagnostic with the end of its output.
type Failing struct {
	Name string `json:"name"`
	Tail string `json:"tail"`
}

// End is the last line. Problem is why it ended early; nil if every check came to
// its receipt. Declares is whether the tree's workflow declares claims.
type End struct {
	Problem  *wire.Problem `json:"problem,omitempty"`
	Declares bool          `json:"declares"`
}
