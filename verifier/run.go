package verifier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"striatum/baseline"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/snapshot"
	"striatum/verifier/gocheck"
	"striatum/verifier/journal"
	"striatum/verifier/modules"
	"striatum/verifier/toolchain"
	"striatum/workflow"
)

// tools is what was measured once for all checks of a request.
type tools struct {
	chain   toolchain.Toolchain
	closure toolchain.Closure
	modules *modules.Store
}

// run is one check on its way to a receipt.
type run struct {
	frozen
	lane    *Lane
	req     Request
	check   workflow.CheckRef
	engine  sandbox.Engine
	tools   tools
	closure toolchain.Closure // of the tools that the check runs
	roots   func() []string   // that it was measured below
	limits  sandbox.Limits
	number  *journal.Entry
	asked   snapshot.Snapshot // that the request is about; the embedded one is what runs

	everyMutant int // up to how many a rehearsal tries; 0: those of a run

	mu       sync.Mutex // guards what two runs side by side change in the body
	body     receipt.Receipt
	source   goSource
	modules  modules.Set
	anchors  []byte
	accepted baseline.Check // of the baseline in the tree
	proposal []byte         // what an operator may accept as the next
	entry    externalSource
	shown    []Failing
}

// errConcluded ends a check early: the body says why.
var errConcluded = errors.New("concluded")

// conclude takes a number, runs the check and seals what came of it. The error
// is one that prevented a receipt, or its recording.
func (r *run) conclude(ctx context.Context) (Outcome, error) {
	b, err := r.procedure()
	if err != nil {
		return Outcome{}, err
	}
	if r.limits, err = limits(b.limits); err != nil {
		return Outcome{}, err
	}
	if err := r.draft(b); err != nil {
		return Outcome{}, err
	}
	manifest := r.snap.ManifestPath // of the tree that was asked about
	judged := r.prepare(ctx, b)
	if r.number, err = r.session.Begin(r.body, r.req.Requester); err != nil {
		return Outcome{}, err
	}
	r.body = r.number.Draft
	if judged == nil {
		judged = b.run(ctx, r)
	}
	r.conclusion(ctx, judged)
	r.body.CreatedAt = r.lane.cfg.Now().UTC().Format(time.RFC3339)
	envelope, err := r.lane.seal(r.number, r.body)
	if err != nil {
		return Outcome{}, fmt.Errorf("seal the receipt of %q: %w", r.check.CheckID(), err)
	}
	r.step("record")
	if err := r.lane.recordPending(context.WithoutCancel(ctx), r.session); err != nil {
		return Outcome{}, err
	}
	ring, err := r.lane.cfg.Keyring(context.WithoutCancel(ctx))
	if err != nil {
		return Outcome{}, err
	}
	v, err := receipt.Open(envelope, ring)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Check: r.check, Receipt: v, Envelope: envelope, Manifest: manifest, Failing: r.shown, Census: r.proposal}, nil
}

// procedure returns what the check does.
func (r *run) procedure() (procedure, error) {
	if row, ok := r.sel.Externals[r.check.CheckID()]; ok && r.check.External() {
		return ofIntent(row), nil
	}
	b, _ := workflow.LookupBuiltin(r.check.Uses)
	p, ok := registry()[b.Plain()]
	if !ok {
		return procedure{}, problem.New(problem.Usage, fmt.Sprintf("check %q cannot be run", r.check.CheckID()),
			"it is neither a builtin of this version nor an entry of the intent", "name one of: "+strings.Join(Builtins(), ", "))
	}
	var err error
	p.limits, p.control = r.check.Limits, receipt.ControlPlanted
	p.check.ID, p.check.BacksClaim, p.check.Kind, p.check.PassWhen = r.check.CheckID(), r.check.BacksClaim, receipt.Builtin, "exit_zero"
	if b.Toolchain {
		p.check.Kind = receipt.BuiltinToolchain
	}
	p.check.Digest, err = r.check.Digest()
	return p, err
}

// step reports progress.
func (r *run) step(s string) { r.lane.progress(r.check.CheckID(), s) }

// draft fills what is known before anything runs.
func (r *run) draft(p procedure) error {
	nonce, err := r.lane.nonce()
	if err != nil {
		return err
	}
	c := r.lane.cfg
	r.body = receipt.Receipt{
		RepositoryID: r.req.RepositoryID, RunID: r.req.RunID, JobID: r.req.JobID, Nonce: nonce,
		Check: p.check,
		Tools: receipt.Tools{BuiltinID: r.check.Uses, StriatumVersion: c.Version, StriatumSHA256: c.SelfSHA256},
		Inputs: receipt.Inputs{
			TreeSHA256: r.snap.TreeSHA256, ManifestSHA256: r.snap.ManifestSHA256, GitCommit: r.snap.GitCommit,
			Files: r.snap.Files, Bytes: r.snap.Bytes, PolicySHA256: r.sel.PolicySHA256, IntentSHA256: r.sel.IntentSHA256,
		},
		Control: receipt.Control{Kind: p.control, MutationOf: ".", Outcome: receipt.NotReached, Why: "not_reached"},
		Limits: receipt.Limits{
			WallClockMS: r.limits.WallClock.Milliseconds(), MemoryBytes: r.limits.MemoryBytes, Pids: r.limits.Pids,
			MilliCPUs: r.limits.MilliCPUs, OutputBytes: r.limits.OutputBytes, DiskBytes: r.limits.DiskBytes,
		},
		Lane:      c.Lane,
		CreatedAt: c.Now().UTC().Format(time.RFC3339),
	}
	d := r.engine.Describe()
	r.body.Posture = receipt.Posture{
		Engine: d.Engine, EngineVersion: d.EngineVersion, Runtime: d.Runtime, RuntimeVersion: d.RuntimeVersion,
	}
	for _, f := range r.snap.Findings {
		r.finding(string(f.Code), f.Path, f.Detail)
	}
	return nil
}

// use notes which tools the check runs: what was measured of them and below which
// roots, the digest of the program, and that of the closure.
func (r *run) use(c toolchain.Closure, roots func() []string, binary, closure string) {
	r.closure, r.roots = c, roots
	r.body.Tools.BinarySHA256, r.body.Tools.ClosureSHA256 = binary, closure
	r.mergeFacet(receipt.Facet{
		Name: "tools_immutable", Required: "owned by root, written only by root",
		Observed: c.Observed, Observer: "lane", OK: c.Immutable,
	})
}

// conclusion turns the error of the steps into incidents. What the check itself
// judged stands in the body already.
func (r *run) conclusion(ctx context.Context, err error) {
	switch {
	case err == nil || errors.Is(err, errConcluded):
	case ctx.Err() != nil:
		r.incident(journal.AbortedCode, receipt.MakesIndeterminate, "the check was interrupted")
	default:
		r.incident("infrastructure", receipt.MakesIndeterminate, cut(err.Error()))
	}
	if len(r.closure.Roots) == 0 {
		return // nothing of the host was measured: it ended before, or has no tools there
	}
	same, now, err := r.meter(r.entry.observed.image).Unchanged(context.WithoutCancel(ctx), r.closure, r.roots()...)
	switch {
	case err != nil:
		r.incident("toolchain_drift", receipt.MakesIndeterminate, "the tools could not be measured again: "+cut(err.Error()))
	case !same:
		r.incident("toolchain_drift", receipt.MakesIndeterminate, fmt.Sprintf("the tools' closure was %s before and is %s after the runs", r.closure.SHA256, now.SHA256))
	}
}

// addNotes takes over what the intake scan saw. It returns errConcluded when
// an incident decides already.
func (r *run) addNotes(n gocheck.Notes) error {
	r.body.Findings = append(r.body.Findings, n.Findings...)
	for _, i := range n.Incidents {
		r.incident(i.Code, i.Effect, i.Detail)
	}
	if len(n.Incidents) > 0 {
		return errConcluded
	}
	return nil
}

// show keeps a failing test or diagnostic for the person who asked.
func (r *run) show(name, tail string) {
	if len(r.shown) < MaxShown && !slices.ContainsFunc(r.shown, func(f Failing) bool { return f.Name == name }) {
		r.shown = append(r.shown, Failing{Name: name, Tail: tail})
	}
}

func (l *Lane) meter() toolchain.Meter {
	return toolchain.Meter{Cache: l.cfg.Dir + "/toolchain.json", Now: l.cfg.Now}
}

// measureFor measures the Go toolchain if one of the checks needs it.
func (l *Lane) measureFor(ctx context.Context, checks []workflow.CheckRef) (tools, error) {
	if !slices.ContainsFunc(checks, func(c workflow.CheckRef) bool { return !c.External() }) {
		return tools{}, nil
	}
	return l.measure(ctx)
}

// measure finds and measures the toolchain.
func (l *Lane) measure(ctx context.Context) (tools, error) {
	l.progress("", "measure the tools")
	chain, err := toolchain.Find(ctx, l.cfg.Toolchain)
	if err != nil {
		return tools{}, err
	}
	closure, err := l.meter().Measure(ctx, chain.Go, chain.Roots()...)
	if err != nil {
		return tools{}, err
	}
	mods, err := l.cfg.OpenModules(chain)
	if err != nil {
		return tools{}, err
	}
	return tools{chain: chain, closure: closure, modules: mods}, nil
}

// cut keeps the first 2,000 bytes of a detail, in whole characters.
func cut(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}
