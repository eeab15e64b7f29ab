package receipt

// SchemaVersion marks a receipt body of this format.
const SchemaVersion = "striatum.receipt.v1"

// Receipt is the sealed transcript of one check: what ran, on what, under
// which measured posture, and what came of it. Facts are written by the lane;
// Agreement, Classification and Reasons are derived from them by Derive, and
// Open refuses a receipt whose derived fields do not follow from its facts.
// All digests are lower-case hex SHA-256, all times RFC 3339 UTC, and all
// sizes bytes. A receipt's envelope is at most MaxBytes long. Which fields may be
// empty is written beside each check in validate.go.
type Receipt struct {
	SchemaVersion string `json:"schema_version"`
	ReceiptID     string `json:"receipt_id"`
	LaneEpoch     string `json:"lane_epoch"`
	Sequence      int64  `json:"sequence"`
	PrevSeal      string `json:"prev_seal"`
	RepositoryID  string `json:"repository_id"`
	RunID         string `json:"run_id"`
	JobID         string `json:"job_id"`
	Nonce         string `json:"nonce"`

	Check      Check       `json:"check"`
	Tools      Tools       `json:"tools"`
	Inputs     Inputs      `json:"inputs"`
	Compile    *Compile    `json:"compile,omitempty"`
	Control    Control     `json:"control"`
	Executions []Execution `json:"executions"`
	Census     *Census     `json:"census,omitempty"`
	Mutants    *Mutants    `json:"mutants,omitempty"`
	Baseline   *Baseline   `json:"baseline,omitempty"`
	Findings   []Finding   `json:"findings"`
	Incidents  []Incident  `json:"incidents"`
	Posture    Posture     `json:"posture"`
	Limits     Limits      `json:"limits"`

	Agreement      Agreement      `json:"agreement"`
	Classification Classification `json:"classification"`
	Reasons        []Reason       `json:"reasons"`

	Lane       Lane   `json:"lane"`
	CreatedAt  string `json:"created_at"`
	SealDigest string `json:"seal_digest,omitempty"`
}

// Check says which check ran. Digest is over the check's definition, so a
// weaker check of the same name has another one.
type Check struct {
	ID         string    `json:"id"`
	Kind       CheckKind `json:"kind"`
	Digest     string    `json:"check_digest"`
	Argv       []string  `json:"argv"`
	BacksClaim string    `json:"backs_claim"`
	PassWhen   string    `json:"pass_when"`
	Agreement  string    `json:"agreement"`
}

// Tools says what executed the check. ClosureSHA256 covers every byte of the
// declared toolchain; BuiltinID is set for builtins only.
type Tools struct {
	BinarySHA256    string `json:"binary_sha256"`
	ClosureSHA256   string `json:"closure_sha256"`
	Image           string `json:"image"`
	BuiltinID       string `json:"builtin_id"`
	StriatumVersion string `json:"striatum_version"`
	StriatumSHA256  string `json:"striatum_sha256"`
	EnvironmentSHA  string `json:"environment_sha256"`
}

// Inputs says what the check ran on. TreeSHA256 is git's SHA-256 tree id of the
// snapshot, ManifestSHA256 the digest of the tree manifest file, GitCommit the
// commit (when the tree is one; else empty).
type Inputs struct {
	TreeSHA256       string        `json:"tree_sha256"`
	ManifestSHA256   string        `json:"manifest_sha256"`
	GitCommit        string        `json:"git_commit"`
	Files            int64         `json:"files"`
	Bytes            int64         `json:"bytes"`
	PolicySHA256     string        `json:"policy_sha256"`
	IntentSHA256     string        `json:"intent_sha256"`
	PinsSHA256       string        `json:"pins_sha256"`
	DefinitionSHA256 string        `json:"definition_sha256"`
	Dependencies     *Dependencies `json:"dependencies,omitempty"`
	CacheSHA256      string        `json:"cache_sha256"`
	Protected        *Protected    `json:"protected,omitempty"`
}

// Dependencies is the set of modules that the check could read, and how their
// origin is known.
type Dependencies struct {
	Digest    string `json:"digest"`
	SumDB     int64  `json:"sumdb"`
	Accepted  int64  `json:"accepted"`
	FirstSeen int64  `json:"first_seen"`
	Self      int64  `json:"self"`
}

// Compile is the step that makes what the runs execute, for checks that have
// one. No code of the repository runs in it.
type Compile struct {
	Outcome   CompileOutcome `json:"outcome"`
	Execution *Execution     `json:"execution,omitempty"`
}

// Control is the negative control, run before the real executions. Of external
// checks, Baseline is the run on an unmutated fixture, and Emptied one on the same
// input with the mutated file emptied: it must not print what Execution printed.
// Of builtin:go-test, Differs names the tests that ended otherwise in the control
// than in both executions, each time it ran.
type Control struct {
	Kind           ControlKind    `json:"kind"`
	MutationOf     string         `json:"mutation_of"`
	MutationSHA256 string         `json:"mutation_sha256"`
	Baseline       *Execution     `json:"baseline,omitempty"`
	Emptied        *Execution     `json:"emptied,omitempty"`
	Execution      *Execution     `json:"execution,omitempty"`
	Differs        *List          `json:"differs,omitempty"`
	Outcome        ControlOutcome `json:"outcome"`
	Why            string         `json:"why"` // for invalid and not_reached; else empty
}

// Execution is one sandboxed run. Judgement is the check's own word on it.
type Execution struct {
	Judgement       Judgement `json:"judgement"`
	Reasons         []Reason  `json:"reasons"`
	ExitCode        int       `json:"exit_code"`
	Signal          string    `json:"signal"`
	TimedOut        bool      `json:"timed_out"`
	OOM             bool      `json:"oom"`
	OutputTruncated bool      `json:"output_truncated"`
	StdoutSHA256    string    `json:"stdout_sha256"`
	StderrSHA256    string    `json:"stderr_sha256"`
	StdoutBytes     int64     `json:"stdout_bytes"`
	StderrBytes     int64     `json:"stderr_bytes"`
	ResultSHA256    string    `json:"result_sha256"`
	StartedAt       string    `json:"started_at"`
	DurationMS      int64     `json:"duration_ms"`
	MaxRSSBytes     int64     `json:"max_rss_bytes"`
	CPUMS           int64     `json:"cpu_ms"`
}

// Reason is a stable code with a sentence for people.
type Reason struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Census counts what a test check discovered and saw. Each list names tests as
// "import/path TestName" or "import/path TestName/subtest".
type Census struct {
	Discovered int64 `json:"discovered"`
	Run        int64 `json:"run"`
	Passed     int64 `json:"passed"`
	Failed     int64 `json:"failed"`
	Skipped    int64 `json:"skipped"`
	Subtests   int64 `json:"subtests"`

	PassedTests  List `json:"passed_tests"`
	SkippedTests List `json:"skipped_tests"`
	FailedTests  List `json:"failed_tests"`
	NotRun       List `json:"not_run"`
}

// Mutants says what came of small defects that were planted in the product after
// the check had passed, each in a tree of its own. Killed: the tests failed.
// Statements are those of the check's packages outside of tests, Reached those of them in
// functions that tests reach by name. Survivors are at most MaxSurvivors.
type Mutants struct {
	Asked       int64      `json:"asked"`
	Statements  int64      `json:"statements"`
	Reached     int64      `json:"reached"`
	Killed      int64      `json:"killed"`
	Survived    int64      `json:"survived"`
	CutShort    int64      `json:"cut_short"` // by a limit: neither killed nor survived
	NotCompiled int64      `json:"not_compiled"`
	Survivors   []Survivor `json:"survivors"`
}

// MaxSurvivors is the most survivors that a receipt names.
const MaxSurvivors = 20

// Survivor is a defect that no test noticed.
type Survivor struct {
	Path     string `json:"path"`
	Line     int64  `json:"line"`
	Operator string `json:"operator"`
}

// Baseline compares the tests of the check with those of the baseline in the tree
// (package baseline). What of it an operator accepted is not known to the lane.
type Baseline struct {
	// SHA256 is that of the tree's baseline; empty: it has none.
	SHA256 string `json:"sha256"`
	// Entry says that the baseline has one for the check.
	Entry bool `json:"entry"`
	// CensusSHA256 is the digest of a baseline with this check's tests alone, as
	// they ran, for an operator to accept. Empty: they did not pass, or were too many.
	CensusSHA256 string `json:"census_sha256"`

	TestsRemoved      List `json:"tests_removed"`
	TestsNewlySkipped List `json:"tests_newly_skipped"`
	TestInputsChanged List `json:"test_inputs_changed"`
}

// List is a sorted list of names cut to at most MaxList entries. Count and SHA256
// (over the whole list, one name a line, each ended by a newline) cover what was
// cut. Make one by NewList.
type List struct {
	Names  []string `json:"names"`
	Count  int64    `json:"count"`
	SHA256 string   `json:"sha256"`
}

// Finding is something that the intake scan or the run saw and that a reader
// of the receipt should know. It does not decide the classification.
type Finding struct {
	Code   string `json:"code"`
	Path   string `json:"path"`
	Detail string `json:"detail"`
}

// Incident is a fact outside the check's own judgement that decides its
// classification: drift, a limit, trouble of the infrastructure (Effect
// indeterminate), or an input that was proven false (Effect failed).
type Incident struct {
	Code   string         `json:"code"`
	Effect IncidentEffect `json:"effect"`
	Detail string         `json:"detail"`
}

// Posture is the isolation as it was measured, merged over all executions of
// the check: a facet is OK only if it was OK in each of them.
type Posture struct {
	Engine         string  `json:"engine"`
	EngineVersion  string  `json:"engine_version"`
	Runtime        string  `json:"runtime"`
	RuntimeVersion string  `json:"runtime_version"`
	SeccompSHA256  string  `json:"seccomp_sha256"`
	Strict         bool    `json:"strict"`
	Facets         []Facet `json:"facets"`
}

// Facet is one measured property of the sandbox. Observer is "init" (seen from
// inside by striatum-init) or "lane" (from the kernel's files outside).
type Facet struct {
	Name     string `json:"name"`
	Required string `json:"required"`
	Observed string `json:"observed"`
	Observer string `json:"observer"`
	OK       bool   `json:"ok"`
}

// Limits are those in force for each execution; Hit names the one that was
// reached, or is empty.
type Limits struct {
	WallClockMS int64  `json:"wall_clock_ms"`
	MemoryBytes int64  `json:"memory_bytes"`
	Pids        int64  `json:"pids"`
	MilliCPUs   int64  `json:"milli_cpus"`
	OutputBytes int64  `json:"output_bytes"`
	DiskBytes   int64  `json:"disk_bytes"`
	Hit         string `json:"hit"`
}

// Lane says which lane ran the check, and where.
type Lane struct {
	LaneID          string `json:"lane_id"`
	HostFingerprint string `json:"host_fingerprint"`
	OS              string `json:"os"`
	Arch            string `json:"arch"`
}
