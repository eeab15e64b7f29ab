package receipt

// CheckKind tells a check of the binary's registry from one of the intent.
type CheckKind string

// The kinds of check. BuiltinToolchain is a builtin whose toolchain was pinned
// and may be attested, by an explicit opt-in; only it and External can be
// verified_eligible.
const (
	Builtin          CheckKind = "builtin"
	BuiltinToolchain CheckKind = "builtin+toolchain"
	External         CheckKind = "external"
)

// Judgement is a check's own word on one execution.
type Judgement string

// The judgements. Inconclusive: the execution was cut short (a limit, trouble
// of the infrastructure), so the check said nothing.
const (
	Pass         Judgement = "passed"
	Fail         Judgement = "failed"
	Inconclusive Judgement = "indeterminate"
)

// CompileOutcome says whether the snapshot compiled.
type CompileOutcome string

// The outcomes of the compile step.
const (
	Compiled            CompileOutcome = "compiled"
	CompileFailed       CompileOutcome = "failed"
	CompileInconclusive CompileOutcome = "indeterminate"
)

// ControlKind says how the known-bad input was made.
type ControlKind string

// The kinds of negative control.
const (
	ControlPlanted  ControlKind = "planted"           // builtins: random, automatic
	ControlWorktree ControlKind = "worktree_mutation" // external, mutation_of "."
	ControlFixture  ControlKind = "fixture_mutation"  // external, mutation_of a fixture
	ControlNone     ControlKind = "none"              // not reached before a kind was known
)

// ControlOutcome says whether the control did its work.
type ControlOutcome string

// The outcomes of a negative control.
const (
	FailedAsRequired ControlOutcome = "failed_as_required"
	DidNotFail       ControlOutcome = "did_not_fail"
	Invalid          ControlOutcome = "invalid"
	NotReached       ControlOutcome = "not_reached"
)

// IncidentEffect is what an incident does to the classification.
type IncidentEffect string

// The effects of an incident.
const (
	MakesFailed        IncidentEffect = "failed"
	MakesIndeterminate IncidentEffect = "indeterminate"
)

// Agreement compares the two real executions.
type Agreement string

// The agreements. NotCompared: there were not two executions with a judgement.
const (
	Agreed      Agreement = "agreed"
	Disagreed   Agreement = "disagreed"
	NotCompared Agreement = "not_compared"
)

// Classification is what the whole receipt amounts to.
type Classification string

// The classifications, worst first in the order of the rules that give them.
const (
	Failed           Classification = "failed"
	Void             Classification = "void"
	Indeterminate    Classification = "indeterminate"
	Asserted         Classification = "asserted"
	VerifiedEligible Classification = "verified_eligible"
)

func (k CheckKind) valid() bool {
	switch k {
	case Builtin, BuiltinToolchain, External:
		return true
	}
	return false
}

func (j Judgement) valid() bool {
	switch j {
	case Pass, Fail, Inconclusive:
		return true
	}
	return false
}

func (o CompileOutcome) valid() bool {
	switch o {
	case Compiled, CompileFailed, CompileInconclusive:
		return true
	}
	return false
}

func (k ControlKind) valid() bool {
	switch k {
	case ControlPlanted, ControlWorktree, ControlFixture, ControlNone:
		return true
	}
	return false
}

func (o ControlOutcome) valid() bool {
	switch o {
	case FailedAsRequired, DidNotFail, Invalid, NotReached:
		return true
	}
	return false
}

func (e IncidentEffect) valid() bool {
	switch e {
	case MakesFailed, MakesIndeterminate:
		return true
	}
	return false
}

// mayPass reports whether a receipt of class c says that the check passed.
func (c Classification) mayPass() bool {
	switch c {
	case Asserted, VerifiedEligible:
		return true
	case Failed, Void, Indeterminate:
		return false
	}
	return false
}
