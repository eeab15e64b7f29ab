package eventlog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"striatum/eventlog"
)

type logged struct {
	entry  eventlog.Entry
	record []byte
}

func history(n int) []logged {
	var head eventlog.Entry
	var out []logged
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for i := range n {
		record := fmt.Appendf(nil, "record %d", i)
		head = eventlog.Next(head, "receipt", at.Add(time.Duration(i)*time.Second), record)
		out = append(out, logged{head, record})
	}
	return out
}

func verify(log []logged) error {
	var head eventlog.Entry
	for _, l := range log {
		if err := eventlog.Verify(head, l.entry, l.record); err != nil {
			return err
		}
		head = l.entry
	}
	return nil
}

func TestVerifyAcceptsWhatNextMade(t *testing.T) {
	if err := verify(history(5)); err != nil {
		t.Fatal(err)
	}
	if err := verify(nil); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyRefusesEveryChange(t *testing.T) {
	changes := map[string]func(log []logged) []logged{
		"record changed":      func(l []logged) []logged { l[2].record = []byte("other"); return l },
		"digest changed":      func(l []logged) []logged { l[2].entry.Digest = eventlog.Genesis; return l },
		"kind changed":        func(l []logged) []logged { l[2].entry.Kind = "opened"; return l },
		"kind malformed":      func(l []logged) []logged { l[2].entry.Kind = "a\nb"; return l },
		"time changed":        func(l []logged) []logged { l[2].entry.RecordedAt = "2026-01-02T00:00:00Z"; return l },
		"time not canonical":  func(l []logged) []logged { l[2].entry.RecordedAt = "2026-01-02T03:04:07.000006000Z"; return l },
		"position changed":    func(l []logged) []logged { l[2].entry.Position = 7; return l },
		"hash changed":        func(l []logged) []logged { l[2].entry.Hash = eventlog.Genesis; return l },
		"first dropped":       func(l []logged) []logged { return l[1:] },
		"middle dropped":      func(l []logged) []logged { return append(l[:2:2], l[3:]...) },
		"two exchanged":       func(l []logged) []logged { l[2], l[3] = l[3], l[2]; return l },
		"one twice":           func(l []logged) []logged { return append(l[:3:3], l[2:]...) },
		"tail of another log": func(l []logged) []logged { return append(l[:2:2], history(4)[3]) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			err := verify(change(history(5)))
			if _, ok := errors.AsType[*eventlog.BrokenError](err); !ok {
				t.Fatalf("got %v, want a BrokenError", err)
			}
		})
	}
}

// The bytes that are hashed are a format: this hash may never change.
func TestHashIsFrozen(t *testing.T) {
	got := history(2)[1].entry.Hash
	const want = "49962f9c7e7d431f955d7595160bc9bb896447bd6068c1d3960fa257cbf25f64"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
