// Package eventlog is the hash chain over everything that counts as evidence.
// It is pure: it computes and checks entries, and a store keeps them.
//
// Each entry names the digest of one record and the hash of the entry before
// it. The hash of an entry is the SHA-256, in lower-case hex, of six lines,
// each ended by a newline:
//
//	striatum.log_entry.v1
//	POSITION       decimal, from 1, without gaps
//	KIND           lower-case letters and underscores
//	RECORDED_AT    RFC 3339, UTC
//	DIGEST         SHA-256 of the record, 64 lower-case hex digits
//	PREV_HASH      hash of the entry at POSITION-1; 64 zeros at position 1
//
// So whoever knows one hash knows the whole log before it: a record that was
// changed, dropped, added or moved makes Verify fail. The chain alone does not
// show that the end was cut off, or that all of it was made anew; a hash that
// was noted elsewhere does.
package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is the first line of what is hashed.
const Version = "striatum.log_entry.v1"

// Genesis is the PrevHash of the first entry.
var Genesis = strings.Repeat("0", 64)

// Entry is one place in the log. Digest and both hashes are 64 lower-case hex
// digits.
type Entry struct {
	Position   int64
	Kind       string
	RecordedAt string
	Digest     string
	PrevHash   string
	Hash       string
}

// Next returns the entry that follows head (the zero Entry: the first one) for
// a record of the given kind. It panics when kind is not made of lower-case
// letters and underscores: kinds come from our code, never from outside.
func Next(head Entry, kind string, at time.Time, record []byte) Entry {
	if !validKind(kind) {
		panic("eventlog: invalid kind " + strconv.Quote(kind))
	}
	sum := sha256.Sum256(record)
	e := Entry{
		Position:   head.Position + 1,
		Kind:       kind,
		RecordedAt: at.UTC().Format(time.RFC3339Nano),
		Digest:     hex.EncodeToString(sum[:]),
		PrevHash:   head.Hash,
	}
	if head.Position == 0 {
		e.PrevHash = Genesis
	}
	e.Hash = hash(e)
	return e
}

// BrokenError says where the chain does not hold, and why.
type BrokenError struct {
	Position int64
	Why      string
}

// Error implements error.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("log entry %d: %s", e.Position, e.Why)
}

// Verify checks that e follows head (the zero Entry: that it is the first) and
// names record. The error is a *BrokenError. A walk calls it for each entry in
// turn with the one before.
func Verify(head, e Entry, record []byte) error {
	broken := func(why string) error { return &BrokenError{Position: e.Position, Why: why} }
	want := head.Hash
	if head.Position == 0 {
		want = Genesis
	}
	sum := sha256.Sum256(record)
	switch {
	case e.Position != head.Position+1:
		return broken(fmt.Sprintf("it follows entry %d", head.Position))
	case e.PrevHash != want:
		return broken("it does not name the hash of the entry before it")
	case e.Digest != hex.EncodeToString(sum[:]):
		return broken("its record is not the one that was logged")
	case !validKind(e.Kind) || !validTime(e.RecordedAt):
		return broken("its kind or time is malformed")
	case e.Hash != hash(e):
		return broken("its hash does not follow from its content")
	}
	return nil
}

func hash(e Entry) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{
		Version, strconv.FormatInt(e.Position, 10), e.Kind, e.RecordedAt, e.Digest, e.PrevHash, "",
	}, "\n")))
	return hex.EncodeToString(sum[:])
}

func validKind(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '_' {
			return false
		}
	}
	return s != ""
}

func validTime(s string) bool {
	t, err := time.Parse(time.RFC3339Nano, s)
	return err == nil && t.UTC().Format(time.RFC3339Nano) == s
}
