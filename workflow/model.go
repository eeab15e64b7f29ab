package workflow

// SchemaVersion marks a workflow document of this format.
const SchemaVersion = "striatum.workflow.v1"

// Bounds of a workflow document.
const (
	MaxBytes = 1 << 20
	MaxDepth = 32
)

// DefaultPath is where a worktree keeps its workflow, and DefaultIntentPath
// where the intent lies that generated workflows name.
const (
	DefaultPath       = "verification/workflow.json"
	DefaultIntentPath = "verification/allowlist.intent.json"
)

// AllowlistStatus is what the generator saw of the intent.
type AllowlistStatus string

// The allowlist statuses.
const (
	TemplateUnfilled AllowlistStatus = "TEMPLATE_UNFILLED"
	Filled           AllowlistStatus = "FILLED"
)

// Floor is the least status that every claim must reach for a green gate.
type Floor string

// The floors.
const (
	FloorAsserted Floor = "asserted"
	FloorVerified Floor = "verified"
)

// JobType says what a job does.
type JobType string

// The job types. Only a verify job names checks; a gate job reads the claim
// ledger and runs nothing; a review job gives a verdict.
const (
	JobBuild  JobType = "build"
	JobVerify JobType = "verify"
	JobReview JobType = "review"
	JobGate   JobType = "gate"
	JobCommit JobType = "commit"
)

// Condition is what lets an edge be followed.
type Condition string

// The conditions: the job ended; a review approved; a gate was green.
const (
	OnCompleted Condition = "completed"
	OnApproved  Condition = "approved"
	OnGreen     Condition = "green"
)

// Verdict is what a review may send back.
type Verdict string

// NeedsRevision sends the work back to an earlier job.
const NeedsRevision Verdict = "needs_revision"

// Workflow is one document. A value made by Parse obeys every rule that needs
// no knowledge of the intent.
type Workflow struct {
	SchemaVersion   string          `json:"schema_version"`
	WorkflowID      string          `json:"workflow_id"`
	Name            string          `json:"name"`
	Shape           string          `json:"shape"`
	AllowlistStatus AllowlistStatus `json:"allowlist_status"`
	GateFloor       Floor           `json:"gate_floor"`
	IntentPath      string          `json:"intent_path"`
	Lanes           []Lane          `json:"lanes"`
	Roles           []Role          `json:"roles"`
	Jobs            []Job           `json:"jobs"`
	Claims          []Claim         `json:"claims"`
	Edges           []Edge          `json:"edges"`
	Cycles          []Cycle         `json:"cycles"`
}

// Lane is a place where jobs are done.
type Lane struct {
	ID          string `json:"id"`
	Description string `json:"description"`
}

// Role is who does a job. Document is the path of its description.
type Role struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Document string `json:"document"`
}

// Job is one step. TaskPrompt is the path of the document that tells its
// holder what to do.
type Job struct {
	ID                string     `json:"id"`
	Type              JobType    `json:"type"`
	RoleID            string     `json:"role_id"`
	LaneID            string     `json:"lane_id"`
	Objective         string     `json:"objective"`
	TaskPrompt        string     `json:"task_prompt"`
	WriteScope        WriteScope `json:"write_scope"`
	Checks            []CheckRef `json:"checks,omitzero"`
	ExpectedArtifacts []Artifact `json:"expected_artifacts"`
}

// WriteScope is what a job's holder may write in the worktree.
type WriteScope struct {
	AllowedPaths   []string `json:"allowed_paths"`
	ForbiddenPaths []string `json:"forbidden_paths"`
}

// Artifact is what a job leaves behind.
type Artifact struct {
	Path        string `json:"path"`
	Description string `json:"description"`
}

// Claim is a sentence about the work, backed by exactly one check.
type Claim struct {
	ID        string `json:"id"`
	Statement string `json:"statement"`
}

// Edge orders two jobs.
type Edge struct {
	From string    `json:"from"`
	To   string    `json:"to"`
	On   Condition `json:"on"`
}

// Cycle is a declared way back from a review job to an earlier job, taken at
// most MaxIterations times.
type Cycle struct {
	From          string  `json:"from"`
	To            string  `json:"to"`
	OnVerdict     Verdict `json:"on_verdict"`
	MaxIterations int     `json:"max_iterations"`
}

// Checks returns every check of the workflow in document order, each with the
// job that names it.
func (w Workflow) Checks() []JobCheck {
	var out []JobCheck
	for _, j := range w.Jobs {
		for _, c := range j.Checks {
			out = append(out, JobCheck{JobID: j.ID, CheckRef: c})
		}
	}
	return out
}

// JobCheck is a check and the id of the job that names it.
type JobCheck struct {
	JobID string
	CheckRef
}

// Claim returns the claim of that id.
func (w Workflow) Claim(id string) (Claim, bool) {
	for _, c := range w.Claims {
		if c.ID == id {
			return c, true
		}
	}
	return Claim{}, false
}
