package verifier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"striatum/allowlist"
	"striatum/internal/crew"
	"striatum/internal/execpath"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/verifier/external"
	"striatum/verifier/gocheck"
	"striatum/verifier/images"
	"striatum/verifier/journal"
	"striatum/verifier/toolchain"
	"striatum/workflow"
)

// externalPath is where a name is looked up, inside.
const externalPath = "/usr/local/bin:/usr/bin:/bin"

// externalEnv is the whole environment of an external check's program, besides
// PWD.
var externalEnv = []string{
	"HOME=" + gocheck.HomeDir, "LANG=C.UTF-8", "PATH=" + externalPath, "TMPDIR=" + gocheck.TempDir, "TZ=UTC",
}

// resolveLimits bound the sandbox in which a command is resolved.
var resolveLimits = sandbox.Limits{
	WallClock: 2 * time.Minute, MemoryBytes: 512 << 20, Pids: 16, MilliCPUs: 1000, OutputBytes: 1 << 20, DiskBytes: 1 << 20,
}

// observed is what the lane saw of an entry's command on this host and in a tree.
type observed struct {
	definition external.Definition
	resolution execpath.Resolution
	asked      []string     // files and folders of the host
	image      images.Image // where the tools come from an image
	tools      toolchain.Closure
	parts      []allowlist.ClosurePart
	sha256     string // of parts
}

// externalSource is what the intake of an external check read.
type externalSource struct {
	row      allowlist.Row
	observed observed
	file     string // that the control changes, from the top of the tree
	mode     uint32
	original []byte
	mutated  []byte
	fault    string // why there is no control
}

// errUnobserved says why a command cannot be observed: the check's own matter,
// not the machine's.
type unobserved struct{ code, detail string }

func (e unobserved) Error() string { return e.detail }

func unobservedIn(err error) (unobserved, bool) { return errors.AsType[unobserved](err) }

// ofIntent is the procedure of an entry of the intent.
func ofIntent(row allowlist.Row) procedure {
	e := row.Entry
	return procedure{
		check: receipt.Check{
			ID: e.ID, Kind: receipt.External, Digest: row.CheckDigest, Argv: e.Argv.Words,
			BacksClaim: e.BacksClaim, PassWhen: e.PassWhen.String(), Agreement: string(e.Agreement),
		},
		limits: e.Limits, control: receipt.ControlNone, prepare: prepareExternal, run: runExternal,
	}
}

// prepareExternal observes the command, holds it against the pin, and makes the
// known-bad input.
func prepareExternal(ctx context.Context, r *run) error {
	x := &r.entry
	x.row = r.sel.Externals[r.check.CheckID()]
	r.body.Tools.EnvironmentSHA = seal.SHA256Hex([]byte(strings.Join(externalEnv, "\n") + "\n"))
	r.body.Inputs.PinsSHA256 = r.sel.PinsSHA256
	r.step("observe the command")
	var err error
	x.observed, err = r.observe(ctx, x.row.Entry)
	if u, ok := unobservedIn(err); ok {
		r.incident(u.code, receipt.MakesIndeterminate, u.detail)
		return errConcluded
	}
	if err != nil {
		return err
	}
	if f, ok := ignoredFinding(r.snap); ok {
		r.body.Findings = append(r.body.Findings, f)
	}
	o := x.observed
	r.use(o.tools, func() []string { return o.asked }, o.resolution.Files[0].SHA256, o.sha256)
	if o.image.Root != "" {
		r.body.Tools.Image = x.row.Entry.Toolchain.Image
	}
	r.body.Inputs.DefinitionSHA256 = o.definition.SHA256
	if pinned := x.row.Pin; pinned.ClosureSHA256 != o.sha256 || pinned.ResolvedPath != o.resolution.Path || pinned.BinarySHA256 != o.resolution.Files[0].SHA256 {
		r.incident("toolchain_drift", receipt.MakesIndeterminate, "the pinned command and what runs here differ: "+
			cut(strings.Join(slices.Concat(allowlist.DefinitionDiff(pinned.Definition, o.definition.Lines), allowlist.ClosureDiff(pinned.Closure, o.parts)), "; ")))
		return errConcluded
	}
	mutations := x.row.Entry.NegativeControl.Mutations
	return x.control(r, mutations[external.Pick(len(mutations), r.body.Nonce)])
}

// ignoredFinding tells that the check never sees what git ignores. The pins, which
// lie beside the intent, are always ignored, and no part of the work.
func ignoredFinding(snap snapshot.Snapshot) (receipt.Finding, bool) {
	left := slices.DeleteFunc(slices.Concat(snap.Ignored, snap.IgnoredFiles), func(name string) bool {
		return strings.HasPrefix(name, path.Dir(workflow.DefaultIntentPath)+"/allowlist.pins.") && strings.HasSuffix(name, ".json")
	})
	slices.Sort(left)
	more := snap.IgnoredMore + snap.IgnoredFilesMore
	detail := "git ignores it, so it is not in the snapshot, and the check did not see it"
	switch {
	case len(left) == 0 && more == 0:
		return receipt.Finding{}, false
	case len(left) == 0:
		return receipt.Finding{Code: "files_ignored", Detail: fmt.Sprintf("git ignores %d more files, which the check did not see", more)}, true
	case int64(len(left))-1+more > 0:
		detail += fmt.Sprintf("; and %d more", int64(len(left))-1+more)
	}
	return receipt.Finding{Code: "files_ignored", Path: strings.ToValidUTF8(left[0], "\uFFFD"), Detail: detail}, true
}

// control reads the file that a mutation changes, and changes it.
func (x *externalSource) control(r *run, m allowlist.Mutation) error {
	c := x.row.Entry.NegativeControl
	r.body.Control = receipt.Control{Kind: receipt.ControlWorktree, MutationOf: c.MutationOf, Outcome: receipt.NotReached, Why: "not_reached"}
	if !c.OnSubject() {
		r.body.Control.Kind = receipt.ControlFixture
	}
	x.file, x.mode, x.original, x.mutated, x.fault = m.File, 0, nil, nil, ""
	switch {
	case !c.OnSubject() && !strings.HasPrefix(m.File, c.MutationOf+"/"):
		x.fault = fmt.Sprintf("the mutation changes %q, which is not part of the fixture %q", m.File, c.MutationOf)
	case x.observed.definition.Has(m.File):
		x.fault = fmt.Sprintf("the mutation changes %q, which is part of the check's definition", m.File)
	}
	if x.fault != "" {
		return nil
	}
	root, err := os.OpenRoot(r.snap.Dir)
	if err != nil {
		return fmt.Errorf("open the frozen tree: %w", err)
	}
	defer func() { _ = root.Close() }() // a read-only handle
	st, err := root.Lstat(m.File)
	if err != nil || !st.Mode().IsRegular() {
		x.fault = fmt.Sprintf("the tree has no regular file %q to mutate", m.File)
		return nil
	}
	x.mode = uint32(st.Mode().Perm())
	if st.Size() > external.MaxMutated {
		x.fault = fmt.Sprintf("%q is larger than %d bytes", m.File, external.MaxMutated)
		return nil
	}
	if x.original, err = root.ReadFile(m.File); err != nil {
		return fmt.Errorf("read the file to mutate: %w", err)
	}
	if x.mutated, err = external.Mutate(x.original, m); err != nil {
		x.fault = err.Error()
		return nil
	}
	d := newDigest()
	d.field(m.File)
	d.field(string(x.mutated))
	r.body.Control.MutationSHA256 = d.sum()
	return nil
}

// observe finds the entry's definition in the tree, what its command runs in a
// sandbox's view, and the digests of all that belongs to it.
func (r *run) observe(ctx context.Context, e allowlist.Entry) (observed, error) {
	var o observed
	manifest, err := r.snap.ReadManifest()
	if err != nil {
		return o, err
	}
	if o.definition, err = external.Define(e, manifest); err != nil {
		return o, unobserved{"definition_unmatched", err.Error()}
	}
	if e.Toolchain != nil && e.Toolchain.Image != "" {
		return o, r.observeImage(ctx, e, &o)
	}
	if e.Toolchain != nil {
		o.asked = slices.Clone(e.Toolchain.Roots)
	}
	for _, root := range o.asked {
		if !allowlist.ToolRoot(root) {
			return o, unobserved{"tool_outside", fmt.Sprintf("the toolchain root %q is not where tools are installed (below /usr or /opt)", root)}
		}
	}
	if o.resolution, err = r.resolve(ctx, e.Argv.Words[0], sandbox.Spec{Mounts: externalMounts(r.snap.Dir, o.asked)}); err != nil {
		return o, err
	}
	if err := o.bound(r.snap.Dir, e); err != nil {
		return o, err
	}
	binary := ""
	for _, f := range o.resolution.Files {
		if rel, ok := strings.CutPrefix(f.Path, gocheck.WorkDir+"/"); ok {
			loaded, err := toolchain.Loaded(path.Join(r.snap.Dir, rel))
			if err != nil {
				return o, err
			}
			o.asked = append(o.asked, loaded...)
			continue
		}
		binary = cmp.Or(binary, f.Path)
		o.asked = append(o.asked, f.Path)
	}
	slices.Sort(o.asked)
	o.asked = slices.Compact(o.asked)
	o.tools = toolchain.Closure{Immutable: true, Observed: "every tool is a file of the tree"}
	if len(o.asked) > 0 {
		if o.tools, err = r.lane.meter().Measure(ctx, binary, o.asked...); err != nil {
			return o, err
		}
	}
	return o, o.seal()
}

// bound says which file of the tree the command runs that its definition does not
// have: nothing would tell when that changes.
func (o *observed) bound(tree string, e allowlist.Entry) (err error) {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return fmt.Errorf("open the frozen tree: %w", err)
	}
	defer func() { _ = root.Close() }() // a read-only handle
	var seen []string
	for _, f := range o.resolution.Files {
		if rel, ok := strings.CutPrefix(f.Path, gocheck.WorkDir+"/"); ok {
			seen = append(seen, rel)
		}
	}
	if err := o.definition.Bound(root, e.Argv.Words, seen); err != nil {
		return unobserved{"definition_unmatched", err.Error()}
	}
	return nil
}

// seal makes the closure of what was measured, and holds it against what the
// sandbox saw.
func (o *observed) seal() error {
	seen := map[string]string{}
	for _, f := range o.resolution.Files {
		seen[f.Path] = f.SHA256
	}
	var parts []toolchain.Part
	for _, p := range o.tools.Parts {
		if !allowlist.ToolRoot(p.Path) {
			if !slices.Contains(o.asked, p.Path) {
				continue // a link in a root leads there, and inside it leads to nothing
			}
			return unobserved{"tool_outside", fmt.Sprintf("the command needs %q, which is not where tools are installed (below /usr or /opt)", p.Path)}
		}
		parts = append(parts, p)
		if inside, ok := seen[p.Path]; ok && inside != p.SHA256 {
			return unobserved{"toolchain_drift", fmt.Sprintf("%q has other bytes inside the sandbox than outside", p.Path)}
		}
	}
	o.tools.Roots = slices.DeleteFunc(slices.Clone(o.tools.Roots), func(path string) bool { return !allowlist.ToolRoot(path) })
	return o.close(closureParts(parts)...)
}

// close makes the closure of the tools' parts and the definition.
func (o *observed) close(tools ...allowlist.ClosurePart) (err error) {
	o.parts = append(tools, allowlist.ClosurePart{Tree: "definition", SHA256: o.definition.SHA256})
	o.sha256, err = allowlist.ClosureDigest(o.parts)
	return err
}

// resolve asks a sandbox that sees what the runs see, spec but for its limits,
// which files a command word runs there. No program but striatum-init runs in it.
func (r *run) resolve(ctx context.Context, word string, spec sandbox.Spec) (execpath.Resolution, error) {
	spec.Limits = resolveLimits
	boxes, err := r.prepareBoxes(ctx, spec)
	if err != nil {
		return execpath.Resolution{}, err
	}
	defer discard(boxes)
	stdout, stderr := &capped{left: 1 << 20}, &capped{left: 4 << 10}
	x, err := r.execute(ctx, boxes, []sandbox.Program{
		program(sandbox.InitPath, []string{"resolve", word, gocheck.WorkDir, externalPath}, gocheck.WorkDir, externalEnv),
	}, func(int) (io.Writer, io.Writer) { return stdout, stderr })
	if err != nil {
		return execpath.Resolution{}, err
	}
	if end := x.end(0); !x.finished() || end.ExitCode != 0 || end.Signal != "" {
		return execpath.Resolution{}, unobserved{CommandNotFound, strings.TrimSpace(strings.TrimPrefix(stderr.String(), "striatum-init: "))}
	}
	var found execpath.Resolution
	if err := seal.Decode(stdout.Bytes(), &found, seal.Limits{Bytes: 1 << 20, Depth: 8}); err != nil {
		return execpath.Resolution{}, fmt.Errorf("read what a command resolves to: %w", err)
	}
	if found.SchemaVersion != execpath.SchemaVersion || len(found.Files) == 0 || found.Files[0].Path != found.Path {
		return execpath.Resolution{}, errors.New("read what a command resolves to: it is incomplete")
	}
	return found, nil
}

// spec is what the program of an external check sees, with the tree at a folder
// of the host.
func (o *observed) spec(tree string) sandbox.Spec {
	if o.image.Root != "" {
		return sandbox.Spec{Root: o.image.Root, Mounts: externalMounts(tree, nil)}
	}
	return sandbox.Spec{Mounts: externalMounts(tree, o.tools.Roots)}
}

// externalMounts are what the program of an external check sees: the tree at a
// folder of the host, and tools.
func externalMounts(tree string, roots []string) []sandbox.Mount {
	return append(toolMounts(toolchain.Closure{Roots: roots}),
		sandbox.Mount{Kind: sandbox.Layer, Source: tree, Target: gocheck.WorkDir},
		sandbox.Mount{Kind: sandbox.Scratch, Target: gocheck.HomeDir},
		sandbox.Mount{Kind: sandbox.Scratch, Target: gocheck.TempDir},
	)
}

// trial is one execution of an external check: which files are other than in the
// tree, and on which folder.
type trial struct {
	files   []sandbox.File
	target  string
	real    bool // a run on the tree itself, which counts
	x       *execution
	judged  external.Judged
	printed bool // what fails_with matches
}

// changed is the file that the control changes, with that content. It is written
// also where nothing is changed, so that no time tells a control from a run.
func (x *externalSource) changed(content []byte) []sandbox.File {
	if x.fault != "" {
		return nil
	}
	return []sandbox.File{{Path: path.Join(gocheck.WorkDir, x.file), Mode: x.mode, Data: content}}
}

// runs are the trials on the tree itself.
func (x *externalSource) runs() []*trial {
	real := func() *trial { return &trial{files: x.changed(x.original), target: gocheck.WorkDir, real: true} }
	return []*trial{real(), real()}
}

// knownBad is the known-bad input of an external check, and what it is held
// against: the same input with the whole file emptied and, for a fixture, as it
// is.
type knownBad struct{ control, emptied, baseline *trial }

func (x *externalSource) knownBad() knownBad {
	on := func(content []byte) *trial {
		return &trial{files: x.changed(content), target: path.Join(gocheck.WorkDir, x.row.Entry.NegativeControl.MutationOf)}
	}
	return knownBad{on(x.mutated), on([]byte{}), on(x.original)}
}

// trials are those that run: none where there is no control.
func (x *externalSource) trials(k knownBad) []*trial {
	switch {
	case x.fault != "":
		return nil
	case x.row.Entry.NegativeControl.OnSubject():
		return []*trial{k.control, k.emptied}
	}
	return []*trial{k.control, k.emptied, k.baseline}
}

// externalBoxes makes n sandboxes with the tree at a folder of the host.
func (r *run) externalBoxes(ctx context.Context, tree string, n int) ([]sandbox.Sandbox, error) {
	spec := r.entry.observed.spec(tree)
	spec.Limits = r.limits
	return r.prepareBoxes(ctx, slices.Repeat([]sandbox.Spec{spec}, n)...)
}

// runExternal is an external check: the control and its companions first, then
// the tree itself twice.
func runExternal(ctx context.Context, r *run) error {
	s := &r.entry
	bad, runs := s.knownBad(), s.runs()
	controls := s.trials(bad)
	boxes, err := r.externalBoxes(ctx, r.snap.Dir, len(controls)+len(runs))
	if err != nil {
		return err
	}
	defer discard(boxes)
	if len(controls) > 0 {
		r.step("negative control")
	}
	if err := r.tryControl(ctx, boxes[:len(controls)], bad); err != nil {
		return err
	}
	r.step("both runs")
	if err := r.trials(ctx, boxes[len(controls):], runs); err != nil {
		return err
	}
	r.specific(runs)
	return nil
}

// tryControl runs the control with its companions and notes what came of it.
func (r *run) tryControl(ctx context.Context, boxes []sandbox.Sandbox, k knownBad) error {
	s, c := &r.entry, &r.body.Control
	c.Outcome, c.Why = receipt.Invalid, s.fault
	if s.fault != "" {
		return nil
	}
	if err := r.trials(ctx, boxes, s.trials(k)); err != nil {
		return err
	}
	if k.baseline.x != nil {
		c.Baseline = &k.baseline.x.fact
	}
	c.Emptied = &k.emptied.x.fact
	r.controlled(k.control.x, func() (receipt.ControlOutcome, string) { return externalControl(k.control, k.emptied, k.baseline) })
	return nil
}

// specific holds what the control printed against the runs on the tree itself: if
// one that passed prints that too, it says nothing.
func (r *run) specific(runs []*trial) {
	c := &r.body.Control
	for _, t := range runs {
		if t.printed && t.judged.Judgement == receipt.Pass && c.Outcome == receipt.FailedAsRequired {
			c.Outcome, c.Why = receipt.Invalid, "fails_with_unspecific: a passing run prints what fails_with matches"
		}
	}
}

// externalControl says what came of the control, which ran to its own end.
func externalControl(control, emptied, baseline *trial) (receipt.ControlOutcome, string) {
	end := control.x.end(0)
	switch {
	case end.Cut != "":
		return receipt.Invalid, end.Cut
	case end.Signal != "":
		return receipt.Invalid, "it was ended by " + end.Signal
	case end.ExitCode == 126 || end.ExitCode == 127:
		return receipt.Invalid, fmt.Sprintf("exit code %d: a command in it was not found or not executable", end.ExitCode)
	case baseline.x != nil && baseline.judged.Judgement != receipt.Pass:
		return receipt.Invalid, "the fixture does not pass unmutated"
	case control.judged.Judgement == receipt.Pass:
		return receipt.DidNotFail, "the check passed although one line of its input was wrong"
	case control.judged.Judgement == receipt.Inconclusive:
		return receipt.Invalid, "its output could not be judged"
	case !control.printed:
		return receipt.Invalid, "it failed without printing what fails_with matches"
	case baseline.printed:
		return receipt.Invalid, "fails_with_unspecific: the unmutated fixture prints what fails_with matches"
	case !emptied.x.finished():
		return receipt.Invalid, "the run with the file emptied did not come to its end"
	case emptied.printed:
		return receipt.Invalid, "fails_with_unspecific: the run with the whole file emptied prints what fails_with matches"
	}
	return receipt.FailedAsRequired, ""
}

// trials runs executions side by side, each in its own sandbox, and judges them.
func (r *run) trials(ctx context.Context, boxes []sandbox.Sandbox, trials []*trial) error {
	errs := make([]error, len(trials))
	var all crew.Group
	for i, t := range trials {
		all.Go(func() {
			errs[i] = r.trial(ctx, boxes[i], t)
			boxes[i].Discard()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *run) trial(ctx context.Context, box sandbox.Sandbox, t *trial) error {
	s := &r.entry
	e := s.row.Entry
	words := make([]string, len(e.Argv.Words))
	for i, w := range e.Argv.Words {
		words[i] = strings.ReplaceAll(w, allowlist.Target, t.target)
	}
	p := sandbox.Program{Path: s.observed.resolution.Path, Args: words, Dir: gocheck.WorkDir, Env: externalEnv, Files: t.files}
	if e.PassWhen.Form == allowlist.ArtifactPresent {
		p.Collect, p.CollectBytes = []string{path.Join(gocheck.WorkDir, e.PassWhen.Text)}, 1
	}
	var said tail
	x, err := r.execute(ctx, []sandbox.Sandbox{box}, []sandbox.Program{p}, said.streams)
	if err != nil {
		return err
	}
	t.x = x
	end := x.end(0)
	one := external.Run{ExitCode: end.ExitCode, Signal: end.Signal, Cut: end.Cut, Output: external.Output{
		Stdout: r.stream(x.fact.StdoutSHA256), Stderr: r.stream(x.fact.StderrSHA256), StdoutSHA256: x.fact.StdoutSHA256,
	}}
	if len(x.programs[0].Collected) > 0 {
		c := x.programs[0].Collected[0]
		one.Artifact = c.Regular && len(c.Data) > 0 && !r.inTree(e.PassWhen.Text)
	}
	if t.judged, err = external.Judge(e, one); err != nil {
		return fmt.Errorf("judge an execution: %w", err)
	}
	if t.printed, err = external.Printed(regexp.MustCompile(e.NegativeControl.FailsWith), one.Output); err != nil {
		return fmt.Errorf("judge an execution: %w", err)
	}
	x.fact.Judgement, x.fact.Reasons, x.fact.ResultSHA256 = t.judged.Judgement, t.judged.Reasons, t.judged.ResultSHA256
	if !t.real {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.body.Executions = append(r.body.Executions, x.fact)
	if t.judged.Census != nil {
		r.census(*t.judged.Census, t.judged.Judgement)
	}
	if t.judged.Judgement != receipt.Pass {
		r.show(e.ID, said.String())
	}
	return r.note(t.judged.Judgement)
}

// inTree reports whether the frozen tree has something at a path.
func (r *run) inTree(name string) bool {
	_, err := os.Lstat(path.Join(r.snap.Dir, name))
	return err == nil
}

// stream opens a stream that an execution printed.
func (r *run) stream(sha string) external.Opener {
	return func() (io.ReadCloser, error) { return journal.OpenOutput(r.outputs.Dir(), sha) }
}
