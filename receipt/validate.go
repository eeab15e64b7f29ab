package receipt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"striatum/seal"
)

// FirstPrevSeal is the prev_seal of the first receipt of a chain.
const FirstPrevSeal = "0000000000000000000000000000000000000000000000000000000000000000"

// checker collects what is wrong with a receipt, by JSON name.
type checker struct{ errs []error }

func (c *checker) want(ok bool, field, what string, args ...any) {
	if !ok {
		c.fault(field, what, args...)
	}
}

// fault notes what is wrong. The methods for single values ask first and call
// it then, so that a value in order is not boxed for a message.
func (c *checker) fault(field, what string, args ...any) {
	const most = 300 // bytes: a value may be long
	if len(c.errs) < 10 {
		text := fmt.Sprintf(what, args...)
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "…"
		}
		c.errs = append(c.errs, fmt.Errorf("%s: %s", field, text))
	}
}

func (c *checker) err() error { return errors.Join(c.errs...) }

func (c *checker) id(field, s string) {
	if !validID(s) {
		c.fault(field, "%q is not an id", s)
	}
}

func (c *checker) maybeID(field, s string) {
	if s != "" {
		c.id(field, s)
	}
}

func (c *checker) digest(field, s string) {
	if !seal.ValidDigest(s) {
		c.fault(field, "%q is not a SHA-256 digest", s)
	}
}

func (c *checker) maybeDigest(field, s string) {
	if s != "" {
		c.digest(field, s)
	}
}

func (c *checker) code(field, s string) {
	if !validCode(s) {
		c.fault(field, "%q is not a code", s)
	}
}

func (c *checker) text(field, s string) {
	if len(s) > maxText {
		c.fault(field, "%d bytes are more than %d", len(s), maxText)
	}
}

func (c *checker) natural(field string, n int64) {
	if n < 0 {
		c.fault(field, "%d is negative", n)
	}
}

func (c *checker) time(field, s string) {
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil || !strings.HasSuffix(s, "Z") {
		c.fault(field, "%q is not a time in RFC 3339 and UTC", s)
	}
}

// validID accepts up to 200 letters, digits and ._:+/@-, not beginning with a
// sign that a command line could take for an option.
func validID(s string) bool {
	if s == "" || len(s) > 200 || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i]) && strings.IndexByte("._:+/@-", s[i]) < 0 {
			return false
		}
	}
	return true
}

func alnum(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}

// validCode accepts up to 64 of a-z, 0-9 and ._-, beginning with a letter.
func validCode(s string) bool {
	if s == "" || len(s) > 64 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if b := s[i]; (!alnum(b) || b >= 'A' && b <= 'Z') && strings.IndexByte("._-", b) < 0 {
			return false
		}
	}
	return true
}

// validate checks the facts of r against the format. Derived fields must have
// been computed; seal_digest is not looked at.
func validate(r *Receipt) error {
	c := &checker{}
	c.want(r.SchemaVersion == SchemaVersion, "schema_version", "%q where %q is due", r.SchemaVersion, SchemaVersion)
	c.id("receipt_id", r.ReceiptID)
	c.position(r.LaneEpoch, r.Sequence, r.PrevSeal)
	c.id("repository_id", r.RepositoryID)
	c.maybeID("run_id", r.RunID) // empty outside any run
	c.maybeID("job_id", r.JobID)
	c.id("nonce", r.Nonce)
	c.check(r.Check)
	c.tools(r)
	c.inputs(r.Inputs)
	if r.Compile != nil {
		c.want(r.Compile.Outcome.valid(), "compile/outcome", "%q is not known", r.Compile.Outcome)
		c.maybeExecution("compile/execution", r.Compile.Execution)
	}
	c.control(r)
	c.want(len(r.Executions) <= realExecutions, "executions", "%d are more than %d", len(r.Executions), realExecutions)
	for i, e := range r.Executions {
		c.execution(fmt.Sprintf("executions/%d", i), e)
		c.want(e.Judgement != Pass || e.ResultSHA256 != "" || r.Check.Agreement == "exit_code",
			fmt.Sprintf("executions/%d/result_sha256", i), "a passed execution has none")
	}
	c.census(r.Census)
	c.mutants(r.Mutants)
	c.baseline(r.Baseline)
	c.notes(r)
	c.posture(r.Posture)
	c.limits(r.Limits)
	c.lane(r.Lane)
	c.time("created_at", r.CreatedAt)
	if r.Classification.mayPass() {
		c.complete(r)
	}
	return c.err()
}

// Parts are parts of a receipt that stand in another document of a lane.
type Parts struct {
	RepositoryID string
	Check        Check
	Inputs       Inputs
	Controls     []Control
	Executions   []Execution
	Incidents    []Incident
	Posture      Posture
	Limits       Limits
	Lane         Lane
}

// Validate checks the parts as Open checks those of a receipt.
func (p Parts) Validate() error {
	c := &checker{}
	c.id("repository_id", p.RepositoryID)
	c.check(p.Check)
	c.inputs(p.Inputs)
	for _, k := range p.Controls {
		c.control(&Receipt{Check: p.Check, Control: k})
	}
	for _, e := range p.Executions {
		c.execution("execution", e)
	}
	c.notes(&Receipt{Incidents: p.Incidents})
	c.posture(p.Posture)
	c.limits(p.Limits)
	c.lane(p.Lane)
	return c.err()
}

// position checks the place in the chain of a lane.
func (c *checker) position(epoch string, sequence int64, prev string) {
	c.id("lane_epoch", epoch)
	c.want(sequence >= 1, "sequence", "%d is below 1", sequence)
	c.digest("prev_seal", prev)
	c.want((sequence == 1) == (prev == FirstPrevSeal), "prev_seal", "64 zeros stand before the first of a chain, and only there")
}

func (c *checker) lane(l Lane) {
	c.id("lane/lane_id", l.LaneID)
	c.id("lane/host_fingerprint", l.HostFingerprint)
	c.id("lane/os", l.OS)
	c.id("lane/arch", l.Arch)
}

// complete checks that a receipt which says that the check passed leaves nothing
// open about what was judged, and by what.
func (c *checker) complete(r *Receipt) {
	c.digest("inputs/manifest_sha256", r.Inputs.ManifestSHA256)
	c.digest("posture/seccomp_sha256", r.Posture.SeccompSHA256)
	c.want(r.Tools.ClosureSHA256 != "" || r.Tools.Image != "", "tools/closure_sha256", "neither a closure nor an image")
}

func (c *checker) check(k Check) {
	c.id("check/id", k.ID)
	c.want(k.Kind.valid(), "check/kind", "%q is not known", k.Kind)
	c.digest("check/check_digest", k.Digest)
	c.want(k.Kind != External || len(k.Argv) > 0 && k.Argv[0] != "", "check/argv", "an external check has none")
	c.maybeID("check/backs_claim", k.BacksClaim) // empty when no workflow declares one
}

func (c *checker) tools(r *Receipt) {
	t := r.Tools
	c.maybeDigest("tools/binary_sha256", t.BinarySHA256)
	c.maybeDigest("tools/closure_sha256", t.ClosureSHA256)
	if _, digest, ok := strings.Cut(t.Image, "@sha256:"); t.Image != "" {
		c.want(ok && seal.ValidDigest(digest), "tools/image", "%q is not named by its digest", t.Image)
	}
	c.maybeID("tools/builtin_id", t.BuiltinID)
	c.want((t.BuiltinID == "") == (r.Check.Kind == External), "tools/builtin_id", "builtins have one, external checks none")
	c.maybeDigest("tools/striatum_sha256", t.StriatumSHA256)
	c.maybeDigest("tools/environment_sha256", t.EnvironmentSHA)
}

func (c *checker) inputs(in Inputs) {
	c.digest("inputs/tree_sha256", in.TreeSHA256)
	c.maybeDigest("inputs/manifest_sha256", in.ManifestSHA256) // empty when the lane died before it was made
	if in.GitCommit != "" {
		c.commit("inputs/git_commit", in.GitCommit)
	}
	c.natural("inputs/files", in.Files)
	c.natural("inputs/bytes", in.Bytes)
	c.maybeDigest("inputs/policy_sha256", in.PolicySHA256)
	c.maybeDigest("inputs/intent_sha256", in.IntentSHA256)
	c.maybeDigest("inputs/pins_sha256", in.PinsSHA256)
	c.maybeDigest("inputs/definition_sha256", in.DefinitionSHA256)
	c.maybeDigest("inputs/cache_sha256", in.CacheSHA256)
	if d := in.Dependencies; d != nil {
		c.digest("inputs/dependencies/digest", d.Digest)
		for _, n := range []int64{d.SumDB, d.Accepted, d.FirstSeen, d.Self} {
			c.natural("inputs/dependencies", n)
		}
	}
	c.protected(in.Protected)
}

// commit accepts the full ids of SHA-1 and SHA-256 repositories.
func (c *checker) commit(field, s string) {
	padded := s
	if len(padded) == 40 {
		padded += FirstPrevSeal[:24]
	}
	c.want(seal.ValidDigest(padded), field, "%q is not a full commit id", s)
}

func (c *checker) protected(p *Protected) {
	if p == nil {
		return
	}
	c.commit("inputs/protected/commit", p.Commit)
	c.want(len(p.Paths) > 0 && len(p.Paths) <= MaxProtected, "inputs/protected/paths", "%d patterns", len(p.Paths))
	for _, pattern := range p.Paths {
		c.text("inputs/protected/paths", pattern)
	}
	c.want(p.Files > 0, "inputs/protected/files", "no file of the commit")
	c.want(p.Restored.Count+p.Added.Count <= p.Files, "inputs/protected/files", "more came from the commit than the patterns match")
	for _, l := range p.lists() {
		c.list("inputs/protected", *l)
		c.want(len(l.Names) <= MaxProtected, "inputs/protected", "%d names are more than %d", len(l.Names), MaxProtected)
	}
	c.digest("inputs/protected/tree_sha256", p.TreeSHA256)
	c.digest("inputs/protected/manifest_sha256", p.ManifestSHA256)
}

func (c *checker) control(r *Receipt) {
	k := r.Control
	c.want(k.Kind.valid(), "control/kind", "%q is not known", k.Kind)
	c.want(k.Outcome.valid(), "control/outcome", "%q is not known", k.Outcome)
	c.want(k.Kind == ControlNone || (k.Kind == ControlPlanted) == (r.Check.Kind != External),
		"control/kind", "%q does not fit a check of kind %q", k.Kind, r.Check.Kind)
	c.maybeDigest("control/mutation_sha256", k.MutationSHA256)
	c.text("control/mutation_of", k.MutationOf)
	c.text("control/why", k.Why)
	c.maybeExecution("control/baseline", k.Baseline)
	c.maybeExecution("control/emptied", k.Emptied)
	c.maybeExecution("control/execution", k.Execution)
	if k.Differs != nil {
		c.want(k.Outcome == FailedAsRequired && k.Differs.Count > 0, "control/differs", "there are none, or the control did not fail as required")
		c.list("control/differs", *k.Differs)
	}
	explained := k.Outcome == Invalid || k.Outcome == NotReached
	c.want(explained == (k.Why != ""), "control/why", "invalid and not_reached have one, the other outcomes none")
	switch k.Outcome {
	case FailedAsRequired:
		e := k.Execution
		c.want(k.Kind != ControlNone && e != nil && e.Judgement == Fail && e.Signal == "" && !e.TimedOut && !e.OOM,
			"control/outcome", "failed_as_required without an execution that failed by the check's own judgement")
		c.want(k.Kind != ControlFixture || k.Baseline != nil && k.Baseline.Judgement == Pass,
			"control/baseline", "the fixture was not seen to pass unmutated")
	case DidNotFail:
		c.want(k.Kind != ControlNone && k.Execution != nil && k.Execution.Judgement == Pass,
			"control/outcome", "did_not_fail without an execution that passed")
	case Invalid, NotReached:
	}
}

func (c *checker) maybeExecution(field string, e *Execution) {
	if e != nil {
		c.execution(field, *e)
	}
}

func (c *checker) execution(field string, e Execution) {
	c.want(e.Judgement.valid(), field+"/judgement", "%q is not known", e.Judgement)
	c.reasons(field+"/reasons", e.Reasons)
	c.want(e.ExitCode >= -1 && e.ExitCode <= 255, field+"/exit_code", "%d is outside -1 to 255", e.ExitCode)
	c.want(e.Signal == "" || strings.HasPrefix(e.Signal, "SIG") && validID(e.Signal), field+"/signal", "%q is not a signal", e.Signal)
	c.want(e.Judgement != Pass || e.ExitCode == 0 && e.Signal == "", field+"/judgement", "passed with exit code %d, signal %q", e.ExitCode, e.Signal)
	c.maybeDigest(field+"/stdout_sha256", e.StdoutSHA256)
	c.maybeDigest(field+"/stderr_sha256", e.StderrSHA256)
	c.maybeDigest(field+"/result_sha256", e.ResultSHA256)
	for _, n := range []int64{e.StdoutBytes, e.StderrBytes, e.DurationMS, e.MaxRSSBytes, e.CPUMS} {
		c.natural(field, n)
	}
	c.time(field+"/started_at", e.StartedAt)
}

func (c *checker) reasons(field string, reasons []Reason) {
	c.want(len(reasons) <= maxNotes+1, field, "%d are too many", len(reasons))
	for _, r := range reasons {
		c.code(field, r.Code)
		c.text(field, r.Detail)
	}
}

func (c *checker) census(s *Census) {
	if s == nil {
		return
	}
	for _, n := range []int64{s.Discovered, s.Run, s.Passed, s.Failed, s.Skipped, s.Subtests} {
		c.natural("census", n)
	}
	c.list("census/passed_tests", s.PassedTests)
	c.list("census/skipped_tests", s.SkippedTests)
	c.list("census/failed_tests", s.FailedTests)
	c.list("census/not_run", s.NotRun)
}

func (c *checker) mutants(m *Mutants) {
	if m == nil {
		return
	}
	for _, n := range []int64{m.Asked, m.Statements, m.Reached, m.Killed, m.Survived, m.CutShort, m.NotCompiled} {
		c.natural("mutants", n)
	}
	c.want(m.Reached <= m.Statements, "mutants/reached", "%d of %d statements", m.Reached, m.Statements)
	c.want(m.Statements > 0 || m.planted() == 0, "mutants", "%d were planted in no statement", m.planted())
	c.want(len(m.Survivors) <= MaxSurvivors && int64(len(m.Survivors)) <= m.Survived, "mutants/survivors", "%d of %d", len(m.Survivors), m.Survived)
	for _, s := range m.Survivors {
		c.text("mutants/survivors/path", s.Path)
		c.natural("mutants/survivors/line", s.Line)
		c.code("mutants/survivors/operator", s.Operator)
	}
}

func (c *checker) baseline(b *Baseline) {
	if b == nil {
		return
	}
	c.maybeDigest("baseline/sha256", b.SHA256)
	c.maybeDigest("baseline/census_sha256", b.CensusSHA256)
	c.want(!b.Entry || b.SHA256 != "", "baseline/entry", "an entry of no baseline")
	differs := int64(0)
	for _, l := range b.lists() {
		differs += l.Count
	}
	c.want(b.Entry || differs == 0, "baseline", "%d differences to no entry", differs)
	c.list("baseline/tests_removed", b.TestsRemoved)
	c.list("baseline/tests_newly_skipped", b.TestsNewlySkipped)
	c.list("baseline/test_inputs_changed", b.TestInputsChanged)
}

func (c *checker) list(field string, l List) {
	n := int64(len(l.Names))
	c.want(n <= MaxList && n <= l.Count, field, "%d names, a count of %d and a limit of %d", n, l.Count, MaxList)
	c.want(slices.IsSorted(l.Names), field, "not sorted")
	for _, name := range l.Names {
		c.want(!strings.Contains(name, "\n"), field, "a newline in a name")
	}
	c.digest(field+"/sha256", l.SHA256)
	c.want(n < l.Count || l.SHA256 == linesDigest(l.Names), field+"/sha256", "not the digest of the names")
}

// notes checks findings and incidents.
func (c *checker) notes(r *Receipt) {
	c.want(len(r.Findings) <= maxNotes+1, "findings", "%d are too many", len(r.Findings))
	for _, f := range r.Findings {
		c.code("findings", f.Code)
		c.text("findings/path", f.Path)
		c.text("findings/detail", f.Detail)
	}
	c.want(len(r.Incidents) <= maxNotes+1, "incidents", "%d are too many", len(r.Incidents))
	for _, i := range r.Incidents {
		c.code("incidents", i.Code)
		c.text("incidents/detail", i.Detail)
		c.want(i.Effect.valid(), "incidents/effect", "%q is not known", i.Effect)
	}
}

func (c *checker) posture(p Posture) {
	c.maybeDigest("posture/seccomp_sha256", p.SeccompSHA256)
	seen := map[string]bool{}
	for _, f := range p.Facets {
		c.code("posture/facets", f.Name)
		c.want(!seen[f.Name], "posture/facets", "%q is there twice", f.Name)
		c.want(f.Observer == "init" || f.Observer == "lane", "posture/facets", "%q is not an observer", f.Observer)
		c.text("posture/facets/required", f.Required)
		c.text("posture/facets/observed", f.Observed)
		seen[f.Name] = true
	}
}

func (c *checker) limits(l Limits) {
	for _, n := range []int64{l.WallClockMS, l.MemoryBytes, l.Pids, l.MilliCPUs, l.OutputBytes, l.DiskBytes} {
		c.natural("limits", n)
	}
	known := []string{"", "wall_clock", "memory", "pids", "output", "disk"}
	c.want(slices.Contains(known, l.Hit), "limits/hit", "%q is not a limit", l.Hit)
}
