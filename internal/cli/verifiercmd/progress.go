package verifiercmd

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"striatum/allowlist"
	"striatum/internal/cli"
	"striatum/receipt"
	"striatum/verifier"
	"striatum/workflow"
)

// maxReasons is how many reasons of a check that did not pass are shown.
const maxReasons = 20

// progress shows which step of which check is under way and for how long: on a
// terminal in one line that is drawn again each second, elsewhere a line for
// each step.
type progress struct {
	streams cli.Streams
	now     func() time.Time
	stop    chan struct{}
	done    sync.WaitGroup

	mu      sync.Mutex
	text    string
	started time.Time
	drawn   bool
}

func newProgress(s cli.Streams, now func() time.Time) *progress {
	p := &progress{streams: s, now: now, stop: make(chan struct{})}
	if s.ErrIsTerminal {
		p.done.Go(p.redraw)
	}
	return p
}

func (p *progress) redraw() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		case <-p.stop:
			return
		}
	}
}

// step is told each step.
func (p *progress) step(check, step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.started = step, p.now()
	if check != "" {
		p.text = cli.Escape(check) + ": " + step
	}
	if p.streams.ErrIsTerminal {
		p.draw()
		return
	}
	fmt.Fprintf(p.streams.Err, "striatum: %s\n", p.text)
}

// draw shows the line. The caller holds the lock.
func (p *progress) draw() {
	if p.text != "" {
		fmt.Fprintf(p.streams.Err, "\r\x1b[K%s  %s", p.text, p.now().Sub(p.started).Round(time.Second))
		p.drawn = true
	}
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.streams.Err, "\r\x1b[K")
	}
	p.text, p.drawn = "", false
}

// concluded shows what failed in a check, with the tail of its output.
func (p *progress) concluded(o verifier.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	r := o.Receipt.Receipt()
	if r.Classification == receipt.Asserted || r.Classification == receipt.VerifiedEligible {
		return
	}
	reasons := r.Explained()
	p.explain(o.Check.CheckID(), string(r.Classification), reasons, fix(o.Check, reasons), o.Failing)
}

// rehearsed shows what failed in a rehearsal; the reasons stand in its result.
func (p *progress) rehearsed(x verifier.Rehearsed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if len(x.Failing) > 0 {
		p.explain(x.Check.ID, string(x.Verdict), nil, "", x.Failing)
	}
}

// explain says why a check came to what it did. The caller holds the lock.
func (p *progress) explain(check, outcome string, reasons []receipt.Reason, hint string, failing []verifier.Failing) {
	w := p.streams.Err
	fmt.Fprintf(w, "--- %s: %s\n", cli.Escape(check), outcome)
	for i, reason := range reasons {
		if i == maxReasons {
			fmt.Fprintf(w, "    and %d more\n", len(reasons)-maxReasons)
			break
		}
		fmt.Fprintf(w, "    %s: %s\n", reason.Code, cli.Escape(reason.Detail))
	}
	if hint != "" {
		fmt.Fprintf(w, "    hint: %s\n", hint)
	}
	for _, f := range failing {
		fmt.Fprintf(w, "    --- %s\n", cli.Escape(f.Name))
		for line := range strings.Lines(strings.TrimRight(f.Tail, "\n")) {
			fmt.Fprintf(w, "        %s\n", cli.Escape(strings.TrimRight(line, "\n")))
		}
	}
}

// fix says what mends a result, or nothing.
func fix(check workflow.CheckRef, reasons []receipt.Reason) string {
	drift := slices.ContainsFunc(reasons, func(r receipt.Reason) bool { return r.Code == "toolchain_drift" })
	if drift && (check.External() || workflow.ToolchainBuiltin(check.Uses)) {
		return "see what changed with: " + allowlist.PinCommand + " --diff-only"
	}
	return ""
}

// end stops drawing. Nothing may follow it.
func (p *progress) end() {
	close(p.stop)
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}
