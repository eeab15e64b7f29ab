package anchors

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Verdict is what an execution of the check amounts to.
type Verdict uint8

// The verdicts. Inconclusive: what was printed is not what Run prints for
// these anchors, so the execution says nothing.
const (
	_ Verdict = iota
	Passed
	Failed
	Inconclusive
)

// Reason is a stable code with a sentence.
type Reason struct{ Code, Detail string }

// Judge is the check's own word on an execution of Run over the anchors file
// with these bytes, from its standard output and exit code. The reasons of
// Failed name each anchor that does not hold; result is what agreement
// compares (the lines, which are deterministic).
func Judge(anchors, stdout []byte, exit int) (v Verdict, reasons []Reason, result []byte) {
	list, err := Parse(anchors)
	if err != nil {
		return Failed, []Reason{{"anchors_invalid", err.Error()}}, stdout
	}
	if len(list) == 0 {
		return Failed, []Reason{{"nothing_to_check", "the anchors file names no file"}}, stdout
	}
	states, err := parseResult(list, stdout)
	if err != nil {
		return Inconclusive, []Reason{{"anchors_output_malformed", err.Error()}}, nil
	}
	for i, st := range states {
		if st != ok {
			reasons = append(reasons, reason(st, list[i].Path))
		}
	}
	if (exit == 0) != (len(reasons) == 0) || exit > 1 || exit < 0 {
		return Inconclusive, []Reason{{"anchors_output_malformed", fmt.Sprintf("exit code %d does not follow from the lines", exit)}}, nil
	}
	if len(reasons) > 0 {
		return Failed, reasons, stdout
	}
	return Passed, nil, stdout
}

func reason(st state, path string) Reason {
	switch st {
	case differs:
		return Reason{"anchor_differs", fmt.Sprintf("%q has other bytes than its anchor says", path)}
	case absent:
		return Reason{"anchor_absent", fmt.Sprintf("%q is not in the tree; an ignored file never is", path)}
	case irregular:
		return Reason{"anchor_irregular", fmt.Sprintf("%q is no plain file of the tree, or lies behind a link", path)}
	case unreadable:
		return Reason{"anchor_unreadable", fmt.Sprintf("%q cannot be read", path)}
	case ok:
	}
	return Reason{}
}

// JudgeControl says whether a control did its work: Run over the mutated
// anchors file must report every single anchor, and exit 1. why completes "the
// control did not fail: ", or for Inconclusive "the control is invalid: ".
func JudgeControl(mutated, stdout []byte, exit int) (v Verdict, why string) {
	list, err := Parse(mutated)
	if err != nil {
		return Inconclusive, err.Error()
	}
	states, err := parseResult(list, stdout)
	if err != nil {
		return Inconclusive, err.Error()
	}
	for i, st := range states {
		if st == ok {
			return Passed, fmt.Sprintf("the wrong digest of %q was not noticed", list[i].Path)
		}
	}
	switch exit {
	case 0:
		return Passed, "exit code 0"
	case 1:
		return Failed, ""
	}
	return Inconclusive, fmt.Sprintf("exit code %d", exit)
}

// Mutate is the negative control: the same anchors, each with one hex digit of
// its digest replaced by a wrong one. rnd chooses which.
func Mutate(anchors []byte, rnd io.Reader) ([]byte, error) {
	list, err := Parse(anchors)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("the anchors file names no file")
	}
	const digits = "0123456789abcdef"
	choice := make([]byte, 2*len(list))
	if _, err := io.ReadFull(rnd, choice); err != nil {
		return nil, fmt.Errorf("mutate anchors: %w", err)
	}
	for i := range list {
		sum := []byte(list[i].SHA256)
		at := int(choice[2*i]) % len(sum)
		was := strings.IndexByte(digits, sum[at])
		sum[at] = digits[(was+1+int(choice[2*i+1])%15)%16]
		list[i].SHA256 = string(sum)
	}
	return Encode(list)
}

// parseResult reads what Run printed for exactly these anchors.
func parseResult(list []Anchor, stdout []byte) ([]state, error) {
	lines := strings.Split(string(stdout), "\n")
	count := strconv.Itoa(len(list))
	if len(lines) != len(list)+3 || lines[0] != resultMarker+" "+count || lines[len(lines)-2] != "end "+count || lines[len(lines)-1] != "" {
		return nil, fmt.Errorf("%d lines, the first %.100q", len(lines), lines[0])
	}
	states := make([]state, len(list))
	for i, a := range list {
		line := lines[i+1]
		word, rest, _ := strings.Cut(line, " ")
		sum, path, _ := strings.Cut(rest, " ")
		st := state(word)
		good := path == strconv.Quote(a.Path)
		switch st {
		case ok:
			good = good && sum == a.SHA256
		case differs:
			good = good && validDigest(sum) && sum != a.SHA256
		case absent, irregular, unreadable:
			good = good && sum == "-"
		default:
			good = false
		}
		if !good {
			return nil, fmt.Errorf("line %d is %.200q", i+2, line)
		}
		states[i] = st
	}
	return states, nil
}
