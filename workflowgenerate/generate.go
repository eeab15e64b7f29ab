// Package workflowgenerate turns a Spec into a Plan: the files of one workflow,
// with their bytes. It is pure and deterministic: equal specs give equal bytes.
// It writes nothing, knows no clock, and accepts no policy.
//
// Everything generated lies in verification/. What comes from the Spec is an id
// of a closed form or a member of a closed set, so no text of a caller reaches
// a template. Generate validates what it made with the rules that validate a
// stranger's document, and returns nothing that breaks one (a template that is
// still to be filled aside).
package workflowgenerate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"striatum/allowlist"
	"striatum/workflow"
	"striatum/workflowtemplates"
)

// MaxChecks bounds Spec.Checks.
const MaxChecks = 100

// Spec says what to generate.
type Spec struct {
	Shape string
	// Floor is the gate's; empty: asserted.
	Floor workflow.Floor
	// Language chooses the default checks; empty: go.
	Language string
	// Checks are builtins or ids of external checks, in order; none: the
	// language's defaults.
	Checks []string
	// Entries are those of the intent that is there. An external check that one of
	// them fills, for the same claim, keeps it.
	Entries []allowlist.Entry
}

// Plan is what Generate made. Files are ordered by path.
type Plan struct {
	Workflow workflow.Workflow
	Intent   allowlist.Intent
	Files    []File
}

// File is one file of a plan. Path is relative to the top of the worktree,
// with slashes; Mode is 0644.
type File struct {
	Path string
	Mode uint32
	Data []byte
}

// SpecError tells that a spec asks for what is not there.
type SpecError struct{ What, Hint string }

func (e *SpecError) Error() string { return e.What }

// FloorError tells that no gate of this spec could ever be green: these checks
// are plain builtins, which stop at ASSERTED.
type FloorError struct{ Builtins []string }

func (e *FloorError) Error() string {
	return fmt.Sprintf("the floor %q cannot be reached: a claim that rests on a plain builtin stops at ASSERTED, since the builtin shows that striatum called the tool, not which tool answered (%s)",
		workflow.FloorVerified, strings.Join(e.Builtins, ", "))
}

// Hint names both ways out.
func (e *FloorError) Hint() string {
	return "name an external check instead (--check ID, then fill its entry, striatum verifier pin --host-here, striatum verifier attest --pin ID), or opt in to a pinned toolchain (--check " +
		strings.Join(twins(e.Builtins), " --check ") + "); or keep --gate-floor asserted: without an isolated lane and store (striatumd) nothing reads VERIFIED"
}

// twins are the toolchain twins of plain builtins, or all there are.
func twins(plain []string) []string {
	var out []string
	for _, p := range plain {
		twin := strings.Replace(p, "builtin:", "builtin+toolchain:", 1)
		if _, ok := workflow.LookupBuiltin(twin); ok {
			out = append(out, twin)
		}
	}
	if out == nil {
		out = []string{"builtin+toolchain:go-test"}
	}
	return out
}

// generator makes the workflow and the intent of one shape.
type generator func(shape workflowtemplates.Shape, floor workflow.Floor, checks []check) (workflow.Workflow, allowlist.Intent)

// registry maps each shape that can be generated to its generator.
func registry() map[string]generator {
	return map[string]generator{"verification_gate": verificationGate}
}

// Shapes returns the ids of the shapes that can be generated, sorted.
func Shapes() []string { return slices.Sorted(maps.Keys(registry())) }

// check is one check of a spec with the claim that it backs.
type check struct {
	ID, Claim, Statement string
	External             bool
	Filled               *allowlist.Entry // of the intent that is there; nil: a template
}

// Generate makes the plan of a spec. The error is a *SpecError, a *FloorError,
// or a fault of this program.
func Generate(spec Spec) (Plan, error) {
	catalog, err := workflowtemplates.Load()
	if err != nil {
		return Plan{}, err
	}
	gen, ok := registry()[spec.Shape]
	shape, listed := catalog.Shape(spec.Shape)
	if !ok || !listed {
		return Plan{}, &SpecError{fmt.Sprintf("there is no shape %q", spec.Shape), "the shapes are: " + strings.Join(Shapes(), ", ")}
	}
	floor, err := floorOf(spec, shape)
	if err != nil {
		return Plan{}, err
	}
	checks, err := checksOf(spec, shape)
	if err != nil {
		return Plan{}, err
	}
	if err := reachable(floor, checks); err != nil {
		return Plan{}, err
	}
	for i, c := range checks {
		k := slices.IndexFunc(spec.Entries, func(e allowlist.Entry) bool {
			return c.External && e.ID == c.ID && e.BacksClaim == c.Claim && len(e.UnfilledAt("")) == 0
		})
		if k >= 0 {
			checks[i].Filled = &spec.Entries[k]
		}
	}
	w, intent := gen(shape, floor, checks)
	plan := Plan{Workflow: w, Intent: intent}
	if plan.Files, err = files(shape, plan, checks); err != nil {
		return Plan{}, err
	}
	return plan, plan.verify()
}

func floorOf(spec Spec, shape workflowtemplates.Shape) (workflow.Floor, error) {
	if spec.Floor == "" {
		return shape.Floors[0], nil
	}
	if !slices.Contains(shape.Floors, spec.Floor) {
		var known []string
		for _, f := range shape.Floors {
			known = append(known, string(f))
		}
		return "", &SpecError{fmt.Sprintf("there is no gate floor %q", spec.Floor), "the floors are: " + strings.Join(known, ", ")}
	}
	return spec.Floor, nil
}

// checksOf resolves the checks of a spec and the claim that each backs.
func checksOf(spec Spec, shape workflowtemplates.Shape) ([]check, error) {
	name := spec.Language
	if name == "" {
		name = shape.Languages[0].ID
	}
	lang, ok := shape.Language(name)
	if !ok {
		var known []string
		for _, l := range shape.Languages {
			known = append(known, l.ID)
		}
		return nil, &SpecError{fmt.Sprintf("there are no default checks for language %q", name), "the languages are: " + strings.Join(known, ", ")}
	}
	ids := spec.Checks
	if len(ids) == 0 {
		ids = lang.DefaultChecks
	}
	if len(ids) > MaxChecks {
		return nil, &SpecError{fmt.Sprintf("%d checks are more than %d", len(ids), MaxChecks), "add the rest to the workflow by hand"}
	}
	var out []check
	seen := map[string]string{}
	for _, id := range ids {
		c, err := checkOf(id, shape)
		if err != nil {
			return nil, err
		}
		if first, dup := seen[c.Claim]; dup {
			return nil, &SpecError{fmt.Sprintf("checks %q and %q back the same claim %q", first, id, c.Claim), "one claim has one check: name one of them"}
		}
		seen[c.Claim] = id
		out = append(out, c)
	}
	return out, nil
}

func checkOf(id string, shape workflowtemplates.Shape) (check, error) {
	if c, ok := shape.Check(id); ok {
		return check{ID: id, Claim: c.Claim, Statement: c.Statement}, nil
	}
	if workflow.ReservedID(id) {
		return check{}, &SpecError{fmt.Sprintf("there is no builtin %q", id), "the builtins are: " + strings.Join(workflow.Builtins(), ", ")}
	}
	claim := id + "-holds"
	if !workflow.ValidID(id) || !workflow.ValidID(claim) {
		return check{}, &SpecError{fmt.Sprintf("%q is not an id for a check", id), "want lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 58 characters"}
	}
	return check{ID: id, Claim: claim, External: true, Statement: fmt.Sprintf("What the external check %q proves holds.", id)}, nil
}

// reachable refuses a floor that some claim can never reach.
func reachable(floor workflow.Floor, checks []check) error {
	if floor != workflow.FloorVerified {
		return nil
	}
	var plain []string
	for _, c := range checks {
		if workflow.PlainBuiltin(c.ID) {
			plain = append(plain, c.ID)
		}
	}
	if plain != nil {
		return &FloorError{plain}
	}
	return nil
}
