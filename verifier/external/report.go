package external

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"striatum/allowlist"
	"striatum/receipt"
	"striatum/seal"
)

// Bounds of a report of tests.
const (
	MaxTests     = 50_000
	MaxNameBytes = 8 << 20 // of all names together
	maxLine      = 1 << 20
	maxXMLDepth  = 64
)

// Outcome is what a report says of a test; a larger one is worse.
type Outcome uint8

// The outcomes.
const (
	_ Outcome = iota
	Passed
	Skipped
	Failed
)

// String returns the outcome's word in a result line.
func (o Outcome) String() string {
	return [...]string{"", "passed", "skipped", "failed"}[o]
}

// Report is what a check said of its tests.
type Report struct {
	Tests map[string]Outcome
	bytes int
}

// FormatError says why a report cannot be read.
type FormatError struct{ Why string }

// Error implements error.
func (e *FormatError) Error() string { return e.Why }

func malformed(format string, args ...any) error {
	return &FormatError{Why: fmt.Sprintf(format, args...)}
}

// Parse reads a report. The error is a *FormatError, or that of the reader.
func Parse(format allowlist.Agreement, in io.Reader) (*Report, error) {
	r := &Report{Tests: map[string]Outcome{}}
	parse := map[allowlist.Agreement]func(*Report, io.Reader) error{
		allowlist.ByGoTestJSON: (*Report).goTestJSON, allowlist.ByJUnit: (*Report).junit, allowlist.ByTAP: (*Report).tap,
	}[format]
	if parse == nil {
		return nil, malformed("%q is no format of test output", format)
	}
	if err := parse(r, in); err != nil {
		return nil, err
	}
	return r, nil
}

// add notes a test; the worst outcome of a name stands.
func (r *Report) add(name string, o Outcome) error {
	name = strings.ToValidUTF8(name, "\uFFFD")
	have, ok := r.Tests[name]
	if !ok {
		r.bytes += len(name)
		if len(r.Tests) == MaxTests || r.bytes > MaxNameBytes {
			return malformed("it names more than %d tests or has more than %d bytes of names", MaxTests, MaxNameBytes)
		}
	}
	r.Tests[name] = max(have, o)
	return nil
}

// SHA256 is the digest of the sorted lines "name outcome", each ended by a
// newline, names quoted.
func (r *Report) SHA256() string {
	var lines bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(r.Tests)) {
		fmt.Fprintf(&lines, "%q %s\n", name, r.Tests[name])
	}
	return seal.SHA256Hex(lines.Bytes())
}

// Census counts the tests. Nothing was discovered by anyone but the report
// itself, so what it counts is all there is.
func (r *Report) Census() receipt.Census {
	var by [Failed + 1][]string
	for name, o := range r.Tests {
		by[o] = append(by[o], name)
	}
	n := func(o Outcome) int64 { return int64(len(by[o])) }
	return receipt.Census{
		Discovered: int64(len(r.Tests)), Run: int64(len(r.Tests)), Passed: n(Passed), Failed: n(Failed), Skipped: n(Skipped),
		PassedTests: receipt.NewList(by[Passed]), SkippedTests: receipt.NewList(by[Skipped]),
		FailedTests: receipt.NewList(by[Failed]), NotRun: receipt.NewList(nil),
	}
}

// lines calls fn for each line.
func lines(in io.Reader, fn func(string) error) error {
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if err := fn(strings.TrimSuffix(s.Text(), "\r")); err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return malformed("a line is longer than %d bytes", maxLine)
	}
	return s.Err()
}

// goTestJSON reads the events of test2json. A test that began and did not end
// failed, as did a package without a word of its end.
func (r *Report) goTestJSON(in io.Reader) error {
	open := map[string]bool{}
	err := lines(in, func(line string) error {
		if line == "" {
			return nil
		}
		var e struct{ Action, Package, Test string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return malformed("a line is no event of test2json: %.80q", line)
		}
		if e.Test == "" {
			if e.Action == "fail" {
				return r.add(e.Package, Failed)
			}
			return nil
		}
		name := e.Package + " " + e.Test
		o := map[string]Outcome{"pass": Passed, "skip": Skipped, "fail": Failed}[e.Action]
		switch {
		case o != 0:
			delete(open, name)
			return r.add(name, o)
		case e.Action == "run":
			if open[name] = true; len(open) > MaxTests {
				return malformed("more than %d tests are under way", MaxTests)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name := range open {
		if err := r.add(name, Failed); err != nil {
			return err
		}
	}
	return nil
}

// junit reads testcase elements wherever they stand.
func (r *Report) junit(in io.Reader) error {
	d := xml.NewDecoder(in)
	d.Entity = map[string]string{}
	var name string
	var outcome Outcome
	depth, at, seen := 0, 0, false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if !seen {
				return malformed("it has no testsuite element")
			}
			return nil
		}
		if _, bad := errors.AsType[*xml.SyntaxError](err); bad {
			return malformed("it is no XML: %v", err)
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth > maxXMLDepth {
				return malformed("its elements nest deeper than %d", maxXMLDepth)
			}
			switch t.Name.Local {
			case "testsuite", "testsuites":
				seen = true
			case "testcase":
				name, outcome, at = caseName(t), Passed, depth
			case "failure", "error":
				if at > 0 {
					outcome = max(outcome, Failed)
				} else if err := r.add("(suite)", Failed); err != nil {
					return err
				}
			case "skipped":
				outcome = max(outcome, Skipped)
			}
		case xml.EndElement:
			if depth == at {
				at = 0
				if err := r.add(name, outcome); err != nil {
					return err
				}
			}
			depth--
		}
	}
}

func caseName(t xml.StartElement) string {
	var class, name string
	for _, a := range t.Attr {
		switch a.Name.Local {
		case "classname":
			class = a.Value
		case "name":
			name = a.Value
		}
	}
	return strings.TrimSpace(class + " " + name)
}

// tap reads test points at the top level, which summarise those below them.
func (r *Report) tap(in io.Reader) error {
	points, plan, planned, yaml := 0, 0, false, false
	err := lines(in, func(line string) error {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(line, "  ") && (trimmed == "---" || trimmed == "...") {
			yaml = trimmed == "---"
			return nil
		}
		if yaml || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			return nil
		}
		switch {
		case strings.HasPrefix(line, "Bail out!"):
			return r.add("(bail out)", Failed)
		case strings.HasPrefix(line, "1.."):
			n, err := strconv.Atoi(append(strings.Fields(line[3:]), "")[0])
			if err != nil || planned || n < 0 {
				return malformed("its plan is %.80q", line)
			}
			plan, planned = n, true
			return nil
		}
		rest, notOK := strings.CutPrefix(line, "not ok")
		if !notOK {
			var ok bool
			if rest, ok = strings.CutPrefix(line, "ok"); !ok {
				return nil // a version, a comment, or output between
			}
		}
		if rest != "" && rest[0] != ' ' {
			return nil
		}
		points++
		return r.point(points, rest, notOK)
	})
	if err != nil {
		return err
	}
	if !planned {
		return malformed("it has no plan")
	}
	if points != plan {
		return r.add(fmt.Sprintf("(plan of %d, %d reported)", plan, points), Failed)
	}
	return nil
}

// point notes a test point. A todo that fails is no failure (TAP 14, "TODO").
func (r *Report) point(n int, rest string, notOK bool) error {
	text, directive, _ := strings.Cut(rest, " # ")
	text = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(text), "0123456789"))
	text = strings.TrimSpace(strings.TrimPrefix(text, "- "))
	if text == "" {
		text = strconv.Itoa(n)
	}
	outcome := Passed
	word := strings.ToUpper(directive)
	switch {
	case strings.HasPrefix(word, "SKIP"):
		outcome = Skipped
	case strings.HasPrefix(word, "TODO"):
		outcome = Skipped
	case notOK:
		outcome = Failed
	}
	return r.add(text, outcome)
}
