package external

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"striatum/allowlist"
	"striatum/receipt"
	"striatum/seal"
)

// Opener opens a stream of an execution from its beginning.
type Opener func() (io.ReadCloser, error)

// Output is what an execution printed.
type Output struct {
	Stdout, Stderr Opener
	StdoutSHA256   string
}

// Run is one execution of a check.
type Run struct {
	ExitCode int
	Signal   string // "SIGKILL"; empty: it exited
	// Cut says what ended the program or kept it from starting, if that was not
	// its own doing. Nothing of it is judged.
	Cut string
	Output
	// Artifact reports whether the file of artifact_present was there after the
	// run, regular and not empty.
	Artifact bool
}

// Judged is the word of a check on one execution.
type Judged struct {
	Judgement receipt.Judgement
	Reasons   []receipt.Reason
	// ResultSHA256 is what two executions are compared by.
	ResultSHA256 string
	Census       *receipt.Census // only of a format of test output
}

// Judge judges one execution by the entry's pass_when and agreement. The error is
// one of reading the streams.
func Judge(e allowlist.Entry, r Run) (Judged, error) {
	if r.Cut != "" {
		return Judged{
			Judgement: receipt.Inconclusive, Reasons: []receipt.Reason{{Code: "execution_cut_short", Detail: r.Cut}},
			ResultSHA256: seal.SHA256Hex(nil),
		}, nil
	}
	j := Judged{Judgement: receipt.Pass}
	switch {
	case r.Signal != "":
		j.fail("exit_nonzero", "ended by "+r.Signal)
	case r.ExitCode != 0:
		j.fail("exit_nonzero", fmt.Sprintf("exit code %d", r.ExitCode))
	}
	switch e.Agreement {
	case allowlist.ByExitCode:
		j.ResultSHA256 = seal.SHA256Hex(fmt.Appendf(nil, "exit_code %d %s\n", r.ExitCode, r.Signal))
	case allowlist.ByStdout:
		j.ResultSHA256 = r.StdoutSHA256
	case allowlist.ByGoTestJSON, allowlist.ByJUnit, allowlist.ByTAP:
		if err := j.report(e, r.Stdout); err != nil {
			return Judged{}, err
		}
	}
	switch e.PassWhen.Form {
	case allowlist.StdoutContains:
		found, err := scan(r.Stdout, func(r *reader) bool { return r.contains(e.PassWhen.Text) })
		if err != nil {
			return Judged{}, err
		}
		if !found {
			j.fail("stdout_lacks_text", fmt.Sprintf("stdout does not contain %q", e.PassWhen.Text))
		}
	case allowlist.ArtifactPresent:
		if !r.Artifact {
			j.fail("artifact_missing", fmt.Sprintf("the run left no regular, non-empty file %q", e.PassWhen.Text))
		}
	case allowlist.ExitZero, allowlist.Tests, allowlist.PassUnfilled:
	}
	return j, nil
}

func (j *Judged) fail(code, detail string) {
	j.Judgement = receipt.Fail
	j.Reasons = append(j.Reasons, receipt.Reason{Code: code, Detail: detail})
}

// report reads the report of tests, which may lower the judgement.
func (j *Judged) report(e allowlist.Entry, stdout Opener) error {
	in, err := stdout()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	rep, err := Parse(e.Agreement, in)
	if f, ok := errors.AsType[*FormatError](err); ok {
		j.ResultSHA256 = seal.SHA256Hex(nil)
		j.Reasons = append(j.Reasons, receipt.Reason{Code: "report_unreadable", Detail: f.Error()})
		if j.Judgement == receipt.Pass {
			j.Judgement = receipt.Inconclusive
		}
		return nil
	}
	if err != nil {
		return err
	}
	j.ResultSHA256 = rep.SHA256()
	census := rep.Census()
	j.Census = &census
	if n := census.Failed; n > 0 {
		j.fail("tests_failed", fmt.Sprintf("%d reported failed: %s", n, some(census.FailedTests.Names)))
	}
	switch {
	case len(rep.Tests) == 0:
		j.fail("nothing_to_check", "no test was reported")
	case census.Skipped == int64(len(rep.Tests)):
		j.fail("nothing_to_check", "every test was skipped")
	}
	if e.PassWhen.Form != allowlist.Tests {
		return nil
	}
	want := e.PassWhen.Tests
	var lacking []string
	for _, name := range want.MustPass {
		if rep.Tests[name] != Passed {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) > 0 {
		j.fail("tests_not_passed", "did not pass: "+some(lacking))
	}
	if census.Passed < want.MinPassed {
		j.fail("too_few_passed", fmt.Sprintf("%d tests passed, at least %d must", census.Passed, want.MinPassed))
	}
	return nil
}

// some names at most five.
func some(names []string) string {
	const most = 5
	shown := slices.Clone(names[:min(len(names), most)])
	for i, n := range shown {
		shown[i] = fmt.Sprintf("%q", n)
	}
	s := strings.Join(shown, ", ")
	if more := len(names) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// reader keeps the first error that is not the end.
type reader struct {
	*bufio.Reader
	err error
}

// ReadRune is bufio's, remembering what went wrong.
func (r *reader) ReadRune() (rune, int, error) {
	c, n, err := r.Reader.ReadRune()
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return c, n, err
}

// contains reads on until text was seen or the stream ends.
func (r *reader) contains(text string) bool {
	want := []byte(text)
	buf := make([]byte, 0, len(want)+64<<10)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if bytes.Contains(buf, want) {
			return true
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			return false
		}
		keep := min(len(buf), len(want)-1)
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}

// scan asks about a stream.
func scan(open Opener, ask func(*reader) bool) (bool, error) {
	in, err := open()
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }() // only read
	r := &reader{Reader: bufio.NewReaderSize(in, 64<<10)}
	found := ask(r)
	if r.err != nil {
		return false, fmt.Errorf("read a stream: %w", r.err)
	}
	return found, nil
}
