package gocheck

import (
	"bytes"
	"encoding/json"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// maxLogBytes bounds what a ToolLog remembers of one stream.
const maxLogBytes = 4 << 20

// ToolLog reads what one call of the go command writes: JSON events on standard
// output (go test -json, go build -json), lines on standard error. It remembers
// failures and diagnostics up to fixed bounds, and the end of standard error.
type ToolLog struct {
	stdout, stderr lineWriter
	mu             sync.Mutex // guards what follows
	held           int

	outcome map[string]string   // last pass, fail or skip of each tested package
	output  map[string][]string // lines of each failed build, by its import path
	failed  []string            // import paths with a build-fail, in order
	cached  bool
	unclear string // the first thing on standard output that was not understood

	text []string // lines of standard error
	tail []byte
}

// NewToolLog returns an empty log.
func NewToolLog() *ToolLog {
	l := &ToolLog{outcome: map[string]string{}, output: map[string][]string{}}
	l.stdout = lineWriter{mu: &l.mu, line: l.event}
	l.stderr = lineWriter{mu: &l.mu, line: l.message}
	return l
}

// StdoutWriter takes standard output while the command runs. It never fails.
func (l *ToolLog) StdoutWriter() io.Writer { return &l.stdout }

// StderrWriter takes standard error while the command runs. It never fails, and
// may be written to by another goroutine than StdoutWriter.
func (l *ToolLog) StderrWriter() io.Writer { return &l.stderr }

// Close must be called once, when the command has ended and before it is judged.
func (l *ToolLog) Close() {
	l.stdout.close()
	l.stderr.close()
}

// Tail is the end of standard error, for people.
func (l *ToolLog) Tail() string { return string(l.tail) }

// lineWriter calls line for every line without its end. Of a line over MaxLineBytes
// it passes on the beginning, with cut set.
type lineWriter struct {
	mu   *sync.Mutex // of the log
	line func(text string, cut bool)
	buf  []byte
	cut  bool
}

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		if room := MaxLineBytes - len(w.buf); len(part) > room {
			part, w.cut = part[:room], true
		}
		w.buf = append(w.buf, part...)
		if end < 0 {
			return n, nil
		}
		w.flush()
		p = p[end+1:]
	}
	return n, nil
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line(strings.TrimSuffix(string(w.buf), "\r"), w.cut)
	w.buf, w.cut = w.buf[:0], false
}

func (w *lineWriter) close() {
	if len(w.buf) > 0 {
		w.flush()
	}
}

// hold accounts for n more bytes of memory; false: there is no room.
func (l *ToolLog) hold(n int) bool {
	if l.held+n > 2*maxLogBytes {
		return false
	}
	l.held += n
	return true
}

func (l *ToolLog) strange(why string) {
	if l.unclear == "" {
		l.unclear = why
	}
}

func (l *ToolLog) event(text string, cut bool) {
	if text == "" {
		return
	}
	var e struct{ ImportPath, Action, Output, Package, Test, FailedBuild string }
	if err := json.Unmarshal([]byte(text), &e); err != nil || cut {
		l.strange("a line on standard output that is no event")
		return
	}
	switch e.Action {
	case "build-output":
		if l.hold(len(e.Output) + len(e.ImportPath)) {
			l.output[e.ImportPath] = append(l.output[e.ImportPath], strings.TrimRight(e.Output, "\n"))
		}
	case "build-fail":
		if l.hold(len(e.ImportPath)) {
			l.failed = append(l.failed, e.ImportPath)
		} else {
			l.strange("more failed builds than are read")
		}
	case "pass", "fail", "skip":
		if e.Test == "" && l.hold(len(e.Package)+len(e.Action)) {
			l.outcome[e.Package] = e.Action
		}
	case "output":
		if e.Test == "" && strings.HasPrefix(e.Output, "ok  \t") && strings.Contains(e.Output, "(cached)") {
			l.cached = true
		}
	case "start", "run", "pause", "cont", "bench", "attr", "artifacts":
	default:
		l.strange("an event with the action " + strconv.Quote(e.Action[:min(len(e.Action), 40)]))
	}
}

func (l *ToolLog) message(text string, _ bool) {
	l.tail = append(append(l.tail, text...), '\n')
	if len(l.tail) > 2*tailBytes {
		l.tail = l.tail[:copy(l.tail, l.tail[len(l.tail)-tailBytes:])]
	}
	if len(l.text) < MaxDiagnostics && l.hold(len(text)) {
		l.text = append(l.text, text)
	} else {
		l.strange("more lines on standard error than are read")
	}
}

// End is how a call of the go command ended.
type End struct {
	ExitCode int
	Signal   string // "SIGKILL"; empty: it exited
	// Cut says what ended the command or kept it from starting, if that was not
	// its own doing. Nothing of a cut command is judged.
	Cut string
}

// Diagnostic is one line of a compiler or of vet about a place in the tree.
type Diagnostic struct {
	Path      string // slash-separated, relative to the tree; as printed if it is not in it
	Line, Col int    // Col is 0 if it was not printed
	Message   string // with its continuation lines
	typeError bool   // vet could not type-check the package
}

// String is the diagnostic as compilers print it.
func (d Diagnostic) String() string {
	s := d.Path + ":" + strconv.Itoa(d.Line)
	if d.Col > 0 {
		s += ":" + strconv.Itoa(d.Col)
	}
	return s + ": " + d.Message
}

var position = regexp.MustCompile(`^(vet: )?(.+?\.[A-Za-z]+):(\d+)(?::(\d+))?: (.*)$`)

// parseDiagnostic reads a line that the go command printed in folder dir of the
// tree.
func parseDiagnostic(dir, text string) (Diagnostic, bool) {
	m := position.FindStringSubmatch(text)
	if m == nil {
		return Diagnostic{}, false
	}
	line, err := strconv.Atoi(m[3])
	if err != nil {
		return Diagnostic{}, false
	}
	col := 0
	if m[4] != "" {
		if col, err = strconv.Atoi(m[4]); err != nil {
			return Diagnostic{}, false
		}
	}
	file := path.Clean(m[2])
	if rest, ok := strings.CutPrefix(file, WorkDir+"/"); ok {
		file = rest
	} else if !path.IsAbs(file) {
		file = path.Join(dir, file)
	}
	if strings.HasPrefix(path.Base(file), ".") {
		return Diagnostic{}, false // no compiler reads such a file
	}
	return Diagnostic{Path: file, Line: line, Col: col, Message: m[5], typeError: m[1] != ""}, true
}

// lookupDisabled is the go command's word for a module that is in no cache.
var lookupDisabled = regexp.MustCompile(`^(go: |[^" ]+\.go:\d+:\d+: )?([^" ]+@[^" ]+: )?module lookup disabled by GOPROXY=off$`)

// needsNewerGo is its word for a module that asks for a newer Go.
var needsNewerGo = regexp.MustCompile(`^(go: |go: errors parsing )?.*requires go >= [0-9][0-9a-z.]* \(running go [0-9][0-9a-z.]*`)

// missingDependency returns the line that says that a dependency is in no
// cache, and newerGo one that says that a dependency needs a newer toolchain.
func (l *ToolLog) missingDependency() (string, bool) { return l.find(lookupDisabled) }

func (l *ToolLog) newerGo() (string, bool) {
	for _, text := range l.text {
		if strings.HasPrefix(text, "go: ") && needsNewerGo.MatchString(text) {
			return text, true
		}
	}
	return "", false
}

func (l *ToolLog) find(re *regexp.Regexp) (string, bool) {
	for _, id := range l.failed {
		for _, text := range l.output[id] {
			if re.MatchString(text) {
				return text, true
			}
		}
	}
	for _, text := range l.text {
		if re.MatchString(text) {
			return text, true
		}
	}
	return "", false
}
