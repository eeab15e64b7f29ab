package gocheck

import (
	"hash/maphash"
	"strings"
	"sync"

	"striatum/receipt"
)

// What of failing tests' output is kept for people.
const (
	tailBytes   = 4 << 10   // of one test
	tailsBytes  = 256 << 10 // of all open tests of a package together
	maxFailures = 50        // of one execution
)

// Failure is a test that was seen failing, with the end of its output.
type Failure struct {
	Test string
	Tail string
}

// Tally reads one test binary's standard output while it runs, and remembers
// what it says of each test. It holds no output but the ends of that of open
// and failing tests, within fixed bounds.
type Tally struct {
	conv     *Converter
	tests    map[string]*seen
	room     *Room
	only     string          // of a control: the planted test, the one that is remembered by name
	others   map[uint64]seen // of a control: the other tests, by the hash of their names
	over     bool
	odd      string // the first event that no honest run has
	final    Action // the package's, if the output is complete
	tails    map[string][]byte
	held     int // bytes in tails
	failures []Failure
	failing  bool // a test failed
}

// seen counts the events of one test name. A name has several runs when the
// internal and the external test package both declare it, or when TestMain runs
// the tests more than once.
type seen struct{ runs, passed, failed, skipped int32 }

func (s seen) ended() int32 { return s.passed + s.failed + s.skipped }

// count adds one event: Run, Passed, Failed or Skipped.
func (s *seen) count(a Action) {
	switch a { //nolint:exhaustive // the callers sort the others out
	case Run:
		s.runs++
	case Passed:
		s.passed++
	case Failed:
		s.failed++
	case Skipped:
		s.skipped++
	}
}

// Room is what the tallies of one execution may remember together: MaxTests
// tests, MaxNameBytes bytes of names, and 50 failures.
type Room struct {
	mu       sync.Mutex
	tests    int
	bytes    int
	failures int
}

// take reports whether one more test of that name may be remembered.
func (r *Room) take(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tests >= MaxTests || r.bytes+len(name) > MaxNameBytes {
		return false
	}
	r.tests++
	r.bytes += len(name)
	return true
}

// takeFailure reports whether the output of one more failing test may be kept.
func (r *Room) takeFailure() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures >= maxFailures {
		return false
	}
	r.failures++
	return true
}

// NewTally returns a Tally for one test binary of the execution that room
// belongs to.
func NewTally(room *Room) *Tally {
	t := &Tally{tests: map[string]*seen{}, room: room, tails: map[string][]byte{}}
	t.conv = NewConverter(t.event)
	return t
}

// NewControlTally returns a Tally for one test binary of the control that room
// belongs to. It always has a place for the planted test, so that no other can
// crowd it out. Of the others it remembers how they ended, and no name.
func NewControlTally(planted string, room *Room) *Tally {
	t := NewTally(room)
	t.only, t.others = planted, map[uint64]seen{}
	return t
}

// Write takes the next bytes of the binary's standard output. It never fails.
func (t *Tally) Write(p []byte) (int, error) { return t.conv.Write(p) }

// Close must be called once, when the binary has ended and before it is judged.
func (t *Tally) Close() {
	t.conv.flush(0) // reports of a binary that died after them
	t.conv.Close()
	t.tails, t.held = nil, 0
}

// Failed reports whether a test was seen failing.
func (t *Tally) Failed() bool { return t.failing }

// Failures lists tests that were seen failing, in the order of their end: of the
// tallies of one execution the first 50.
func (t *Tally) Failures() []Failure { return t.failures }

func (t *Tally) strange(why string) {
	if t.odd == "" {
		t.odd = why
	}
}

func (t *Tally) event(e Event) {
	if e.Final {
		t.final = e.Action
		return
	}
	if t.only != "" && e.Test != t.only {
		t.beside(e)
		return
	}
	if e.Action == Output {
		t.keep(e.Test, e.Output)
		return
	}
	if e.Action != Run && e.Action != Passed && e.Action != Failed && e.Action != Skipped {
		return
	}
	if e.Test == "" {
		t.strange("an event without a test")
		return
	}
	name := receipt.Text(e.Test)
	s := t.tests[name]
	if s == nil {
		if t.only == "" && !t.room.take(name) {
			t.over = true
			return
		}
		s = &seen{}
		t.tests[strings.Clone(name)] = s
	}
	s.count(e.Action)
	if e.Action == Run {
		return
	}
	if e.Action == Failed {
		t.failing = true
		t.fail(e.Test)
	}
	if s.ended() > s.runs {
		t.strange("an end of " + name + " without its beginning")
	}
	t.drop(e.Test)
}

// beside counts an event of a test beside the planted one.
func (t *Tally) beside(e Event) {
	if e.Test == "" || e.Action != Run && e.Action != Passed && e.Action != Failed && e.Action != Skipped {
		return
	}
	name := receipt.Text(e.Test)
	key := maphash.String(nameSeed, name)
	s, known := t.others[key]
	if !known && !t.room.take(name) {
		t.over = true
		return
	}
	s.count(e.Action)
	t.others[key] = s
}

// keep appends to the tail of an open test. A tail grows to twice its size
// before it is cut, so that a flood of short lines costs little.
func (t *Tally) keep(test string, p []byte) {
	if len(p) > tailBytes {
		p = p[len(p)-tailBytes:]
	}
	tail, open := t.tails[test]
	if t.held+len(p) > tailsBytes {
		return
	}
	t.held -= len(tail)
	tail = append(tail, p...)
	if len(tail) > 2*tailBytes {
		tail = tail[:copy(tail, tail[len(tail)-tailBytes:])]
	}
	t.held += len(tail)
	if !open {
		test = strings.Clone(test)
	}
	t.tails[test] = tail
}

func (t *Tally) drop(test string) {
	t.held -= len(t.tails[test])
	delete(t.tails, test)
}

func (t *Tally) fail(test string) {
	if t.room.takeFailure() {
		tail := t.tails[test]
		t.failures = append(t.failures, Failure{Test: strings.Clone(test), Tail: string(tail[max(0, len(tail)-tailBytes):])})
	}
}
