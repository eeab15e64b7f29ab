package gate

// Effect is what a failed condition does to a claim. The zero Effect is none.
type Effect string

// The effects, heaviest first.
const (
	Against Effect = "against"
	Missing Effect = "missing"
	Cap     Effect = "cap"
)

// Code is the stable name of a failed condition.
type Code string

// The codes, in the order of the thirteen conditions.
const (
	// Condition 0: the store answered.
	StoreUnavailable Code = "store_unavailable"
	// Condition 1: the claim names the newest receipt for its inputs.
	NoReceiptRef       Code = "no_receipt_ref"
	ReceiptUnavailable Code = "receipt_unavailable"
	SupersededReceipt  Code = "superseded_receipt"
	// Condition 2: it is a receipt and its seal recomputes.
	ReceiptUnparseable  Code = "receipt_unparseable"
	ReceiptSealMismatch Code = "receipt_seal_mismatch"
	// Condition 3: a lane that was enrolled and not revoked signed it.
	InvalidSignature Code = "signature_invalid"
	LaneUnknown      Code = "unknown_lane"
	LaneRevoked      Code = "lane_revoked"
	// Condition 4: it was made for this repository and run.
	WrongRepository Code = "wrong_repository"
	WrongRun        Code = "wrong_run"
	// Condition 5: it is about the tree that is judged.
	ClaimUnbound          Code = "claim_unbound"
	EvidenceDigestDecayed Code = "evidence_digest_decayed"
	StaleTree             Code = "stale_tree"
	TreeNotComparable     Code = "tree_not_comparable"
	TreeNotJudged         Code = "tree_not_judged"
	// Condition 6: the accepted policy has this check back this claim.
	CheckDoesNotBackClaim Code = "check_does_not_back_claim"
	PolicyDrift           Code = "policy_drift"
	PolicyNotAccepted     Code = "policy_not_accepted"
	// Condition 7: the check was seen to fail on a known-bad input.
	NegativeControlMissing    Code = "negative_control_missing"
	NegativeControlDidNotFail Code = "negative_control_did_not_fail"
	NegativeControlInvalid    Code = "negative_control_invalid"
	ControlDetected           Code = "control_detected"
	NoMutantKilled            Code = "no_mutant_killed"
	ControlNotOnSubject       Code = "control_not_on_subject"
	// Condition 8: it passed twice, alike.
	CheckNotPassing        Code = "check_not_passing"
	NoReexecutionAgreement Code = "no_reexecution_agreement"
	CheckIndeterminate     Code = "check_indeterminate"
	SkipsNotAllowed        Code = "skips_not_allowed"
	BaselineNotCompared    Code = "baseline_not_compared"
	TestsRemoved           Code = "tests_removed"
	TestsNewlySkipped      Code = "tests_newly_skipped"
	TestInputsChanged      Code = "test_inputs_changed"
	// Condition 9: under a strict sandbox.
	SandboxNotStrict Code = "sandbox_not_strict"
	// Condition 10: and it is not a plain builtin.
	BuiltinCap        Code = "builtin_cap"
	WeakerThanBuiltin Code = "weaker_than_builtin"
	// Condition 11: an operator stood behind the bytes.
	AttestationMissing Code = "attestation_missing"
	AttestationRevoked Code = "attestation_revoked"
	// Condition 12: the history does not tell otherwise.
	ReceiptChainGap       Code = "receipt_chain_gap"
	AttemptUnsealed       Code = "attempt_unsealed"
	LaneEquivocated       Code = "lane_equivocated"
	ContradictedByFailure Code = "contradicted_by_failure"
	// Condition 13: out of the agent's reach.
	LaneNotIsolated  Code = "lane_not_isolated"
	StoreNotIsolated Code = "store_not_isolated"
	// The author set a lower status than the evidence allows.
	AuthoredBelowFloor Code = "authored_below_floor"
)

// effect returns what c does to a claim; Against for a code that is not known,
// so that none can be added and forgotten here.
func (c Code) effect() Effect {
	switch c {
	case ReceiptUnparseable, ReceiptSealMismatch, InvalidSignature, NegativeControlDidNotFail,
		NegativeControlInvalid, ControlDetected, NoMutantKilled, CheckNotPassing, ContradictedByFailure:
		return Against
	case StoreUnavailable, NoReceiptRef, ReceiptUnavailable, SupersededReceipt, LaneUnknown, LaneRevoked,
		WrongRepository, WrongRun, ClaimUnbound, EvidenceDigestDecayed, StaleTree, TreeNotComparable,
		TreeNotJudged, CheckDoesNotBackClaim, PolicyDrift, NegativeControlMissing, NoReexecutionAgreement,
		CheckIndeterminate, SkipsNotAllowed, BaselineNotCompared, TestsRemoved, TestsNewlySkipped, TestInputsChanged, SandboxNotStrict, ReceiptChainGap, AttemptUnsealed,
		LaneEquivocated, AuthoredBelowFloor:
		return Missing
	case PolicyNotAccepted, ControlNotOnSubject, BuiltinCap, WeakerThanBuiltin, AttestationMissing,
		AttestationRevoked, LaneNotIsolated, StoreNotIsolated:
		return Cap
	}
	return Against
}

// Basis is one condition that failed: why a claim reads no higher. Sentence is
// for people; text from outside in it is quoted. Fix is a literal command, empty
// where none of this version changes it; then the sentence says what would.
type Basis struct {
	Code     Code   `json:"code"`
	Effect   Effect `json:"effect"`
	Sentence string `json:"sentence"`
	Fix      string `json:"fix"`
}

// rank orders bases: against, missing, builtin_cap, other caps. Within a rank
// the order of the conditions stays.
func (b Basis) rank() int {
	switch b.Effect {
	case Against:
		return 0
	case Missing:
		return 1
	case Cap:
		if b.Code == BuiltinCap {
			return 2
		}
		return 3
	}
	return 0
}
