package gocheck

import (
	"bytes"
	"strings"
)

// marker begins every line of framing that a test binary writes.
const marker = 0x16

// maxFrameBytes is the longest line of framing that is one. A longer line is
// output, as it is for the go command.
const maxFrameBytes = 4096

// Action is what an Event says.
type Action uint8

// The actions. Attr covers attributes and artifacts. A Bench report has no
// outcome.
const (
	_ Action = iota
	Run
	Pause
	Cont
	Output
	Passed
	Failed
	Skipped
	Bench
	Attr
)

// Event is one step of a test binary's output. Only the last event of a complete
// output is Final.
type Event struct {
	Action Action
	Test   string
	Output []byte // for Output; valid only during the call
	Final  bool   // the package's own result, from Close
}

// Converter turns the framing of -test.v=test2json into events, in the order
// and with the meaning of the release's own test2json, and calls sink for each.
// It holds at most one line of framing and one report for each level of
// subtests that is open. Two things differ from test2json: a marker that
// follows an output of exactly a full buffer is seen (test2json loses it), and
// lines without a marker are never framing, not even before the first marker.
type Converter struct {
	sink       func(Event)
	line       []byte // unfinished line, at most maxFrameBytes
	mid        bool   // the beginning of the line was passed on already
	test       string // test that output belongs to
	reports    []Event
	result     Action // of the package; 0: none seen
	unmarkedOK bool   // lines without a marker are framing until the first with one
}

// NewConverter returns a Converter that calls sink.
func NewConverter(sink func(Event)) *Converter {
	return &Converter{sink: sink}
}

// Write takes the next bytes of the output. It never fails.
func (c *Converter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end, complete := lineEnd(p, len(c.line) > 0 || c.mid)
		if !complete {
			end = len(p)
		}
		c.add(p[:end])
		if complete {
			c.endLine()
		}
		p = p[end:]
	}
	return n, nil
}

// lineEnd returns where the line that p continues ends: after a newline, or
// before a marker. A marker at the very beginning belongs to the line, unless
// the line has begun already.
func lineEnd(p []byte, begun bool) (end int, complete bool) {
	from := 1
	if begun {
		from = 0
	}
	nl := bytes.IndexByte(p, '\n')
	head := p
	if nl >= 0 {
		head = p[:nl+1]
	}
	if from < len(head) {
		if m := bytes.IndexByte(head[from:], marker); m >= 0 {
			return from + m, true
		}
	}
	return nl + 1, nl >= 0
}

// add appends to the line; what does not fit is passed on as output.
func (c *Converter) add(p []byte) {
	if !c.mid && len(c.line)+len(p) <= maxFrameBytes {
		c.line = append(c.line, p...)
		return
	}
	if !c.mid {
		c.mid = true
		c.output(c.line)
		c.line = c.line[:0]
	}
	c.output(p)
}

func (c *Converter) endLine() {
	if !c.mid && len(c.line) > 0 {
		c.frame(c.line)
	}
	c.line, c.mid = c.line[:0], false
}

// Close takes the end of the output and calls sink with the package's result,
// if there was one.
func (c *Converter) Close() {
	if len(c.line) > 0 {
		c.output(c.line) // a line without an end is never framing
		c.line = c.line[:0]
	}
	if c.result != 0 {
		c.sink(Event{Action: c.result, Test: c.test, Final: true})
	}
}

func (c *Converter) output(p []byte) {
	if len(p) > 0 {
		c.sink(Event{Action: Output, Test: c.test, Output: p})
	}
}

var updates = map[string]Action{
	"RUN  ": Run, "PAUSE": Pause, "CONT ": Cont, "NAME ": 0,
	"PASS ": Passed, "FAIL ": Failed, "SKIP ": Skipped, "ATTR ": Attr,
}

var reports = map[string]Action{"PASS": Passed, "FAIL": Failed, "SKIP": Skipped, "BENCH": Bench}

// frame handles one whole line, marker and line end included.
func (c *Converter) frame(line []byte) {
	marked := line[0] == marker
	if !marked && !c.unmarkedOK {
		c.output(line)
		return
	}
	if marked {
		line = line[1:]
	}
	text, ended := strings.CutSuffix(string(line), "\n")
	if ended {
		text = strings.TrimSuffix(text, "\r")
	}
	if text == "=== NAME" {
		text += "  " // test2json repairs a line whose trailing blanks were lost
		line = []byte(text + "\n")
	}
	if text == "PASS" || text == "FAIL" || strings.HasPrefix(text, "FAIL\t") {
		c.flush(0)
		c.settle(marked)
		c.output(line)
		c.result = Failed
		if text == "PASS" {
			c.result = Passed
		}
		return
	}
	if c.update(string(line), line, marked) || c.report(line, marked) {
		return
	}
	if indent := indentOf(line); indent > 0 && indent <= len(c.reports) {
		c.test = c.reports[indent-1].Test
	}
	c.output(line)
}

// settle notes that a line of framing was accepted.
func (c *Converter) settle(marked bool) { c.unmarkedOK = !marked }

func indentOf(line []byte) int {
	n := 0
	for bytes.HasPrefix(line, []byte("    ")) {
		line = line[4:]
		n++
	}
	return n
}

// update handles a line like "=== RUN   TestX".
func (c *Converter) update(text string, line []byte, marked bool) bool {
	rest, ok := strings.CutPrefix(text, "=== ")
	if !ok {
		return false
	}
	var action Action
	var name string
	switch {
	case strings.HasPrefix(rest, "ARTIFACTS "):
		action, name = Attr, rest[len("ARTIFACTS "):]
	case len(rest) >= 6 && rest[5] == ' ':
		if action, ok = updates[rest[:5]]; !ok {
			return false
		}
		name = rest[6:]
	default:
		return false
	}
	name = strings.TrimSpace(name)
	if action == Attr {
		name, _, _ = strings.Cut(name, " ")
	}
	c.settle(marked)
	c.flush(0)
	c.test = name
	if action == 0 {
		return true // NAME only says whose output follows
	}
	if action == Pause {
		c.output(line)
	}
	c.sink(Event{Action: action, Test: name})
	if action != Pause {
		c.output(line)
	}
	return true
}

// report handles a line like "    --- FAIL: TestX/y (0.00s)", which ends a test
// once those of its subtests are out.
func (c *Converter) report(line []byte, marked bool) bool {
	indent := indentOf(line)
	rest, ok := strings.CutPrefix(string(line[4*indent:]), "--- ")
	if !ok {
		return false
	}
	word, name, ok := strings.Cut(rest, ": ")
	action, known := reports[word]
	if !ok || !known {
		return false
	}
	if len(c.reports) < indent {
		c.output(line) // nested deeper than what is open
		return true
	}
	name = strings.TrimSpace(name)
	if i := strings.Index(name, " ("); i >= 0 {
		name = name[:i]
	}
	c.settle(marked)
	c.flush(indent)
	c.test = name
	c.reports = append(c.reports, Event{Action: action, Test: name})
	c.output(line)
	return true
}

// flush emits the reports at depth and deeper, innermost first.
func (c *Converter) flush(depth int) {
	c.test = ""
	for len(c.reports) > depth {
		last := len(c.reports) - 1
		e := c.reports[last]
		c.reports = c.reports[:last]
		c.sink(e)
	}
}
