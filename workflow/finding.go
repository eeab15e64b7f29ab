package workflow

// Code names a rule that a document broke.
type Code string

// The codes of findings.
const (
	Malformed        Code = "malformed"             // no strict JSON
	SchemaViolation  Code = "schema"                // the JSON Schema says no
	InvalidID        Code = "invalid_id"            // an id that ids may not be
	DuplicateID      Code = "duplicate_id"          // two things of one kind with one id
	InvalidPath      Code = "invalid_path"          // not clean, or out of the worktree
	UnknownRole      Code = "unknown_role"          // role_id names no role
	UnknownLane      Code = "unknown_lane"          // lane_id names no lane
	EdgeUnknownJob   Code = "edge_unknown_job"      // an edge to or from nowhere
	EdgeSelf         Code = "edge_to_itself"        // a job that waits for itself
	EdgeDuplicate    Code = "duplicate_edge"        // the same two jobs twice
	EdgeCondition    Code = "edge_condition"        // approved without review, green without gate
	UndeclaredCycle  Code = "undeclared_cycle"      // edges that lead back
	CycleUnknownJob  Code = "cycle_unknown_job"     // a cycle to or from nowhere
	CycleNotReview   Code = "cycle_not_review"      // only a review gives a verdict
	CycleNotBack     Code = "cycle_not_back"        // a way back to what is not before
	CycleDuplicate   Code = "duplicate_cycle"       // the same way back twice
	VerifyNoChecks   Code = "verify_without_checks" // a verify job that verifies nothing
	ChecksOutside    Code = "checks_outside_verify"
	UnknownBuiltin   Code = "unknown_builtin"     // uses names no builtin
	UnknownCheck     Code = "unknown_check"       // no entry of the intent
	ParameterUnknown Code = "parameter_not_taken" // the check does not take it
	InvalidLimit     Code = "invalid_limit"
	UnknownClaim     Code = "unknown_claim" // backs_claim names no claim
	ClaimTwoChecks   Code = "claim_with_two_checks"
	ClaimNoCheck     Code = "claim_without_check"
	ClaimMismatch    Code = "claim_mismatch" // workflow and intent disagree
	NoClaims         Code = "no_claims"      // a gate over nothing
	NoGate           Code = "no_gate"
	GateNoVerify     Code = "gate_without_verify" // no verify job before the gate
	CommitNoGate     Code = "commit_without_gate" // no gate before the commit
	IntentWritable   Code = "intent_not_forbidden"
	FloorUnreachable Code = "floor_unsatisfiable"
	IntentMissing    Code = "intent_missing" // no file at intent_path
	EntryUnfilled    Code = "unfilled"       // a template that nobody filled
	EntryUnpinned    Code = "unpinned"       // no bytes observed on this host
)

// Finding is one broken rule. File is empty for the workflow itself, else a
// path relative to the top of the worktree; Pointer is an RFC 6901 JSON pointer
// into that file. Unfilled marks findings that filling or pinning ends.
type Finding struct {
	File     string `json:"file,omitempty"`
	Pointer  string `json:"pointer"`
	Code     Code   `json:"code"`
	What     string `json:"what"`
	Hint     string `json:"hint,omitempty"`
	Unfilled bool   `json:"unfilled"`
}

// View is what the rules may know of the world outside the document. The zero
// View knows nothing, and an external check is then an unknown check.
type View struct {
	// IntentFound: there is a file at intent_path and it is valid. IntentInvalid:
	// there is one, and others say what is wrong with it.
	IntentFound, IntentInvalid bool
	// Externals are the entries of the intent, joined with this host's pins.
	Externals []External
	// Unpinned are the checks with a toolchain to be pinned that have no pin of
	// this host that counts, by id, each with the reason.
	Unpinned map[string]string
	// PinCommand is the literal command that ends it.
	PinCommand string
}

// External is an entry of the intent as this host sees it.
type External struct {
	ID         string
	BacksClaim string
	// Pointer is the entry's place in the intent, such as "/checks/0".
	Pointer string
	// Unfilled are the pointers of what nobody filled.
	Unfilled []string
	// Unpinned says why no pin of this host counts; empty: pinned.
	Unpinned string
	// FixCommand is the literal command that ends Unpinned.
	FixCommand string
	// Stops says why the entry's claim stops at ASSERTED; empty: it may rise.
	Stops string
}
