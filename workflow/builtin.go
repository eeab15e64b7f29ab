package workflow

import (
	"slices"
	"strings"
	"sync"
)

// Prefixes of builtin ids. A plain builtin stops at ASSERTED: it shows that
// striatum called the tool, not which tool answered. A builtin+toolchain names
// the same check with its toolchain pinned and attested.
const (
	builtinPrefix   = "builtin:"
	toolchainPrefix = "builtin+toolchain:"
)

// Builtin is a check that the binary carries.
type Builtin struct {
	ID string
	// Revision counts the changes of the check's judgement, from 1.
	Revision int
	// Toolchain: the opt-in that may be pinned and attested.
	Toolchain bool
	// Parameters are the keys of a check that this builtin takes.
	Parameters []string
	// Command is what the builtin stands for, for people.
	Command string
}

// builtins lists every builtin, sorted by id. Nobody changes the list.
var builtins = sync.OnceValue(func() []Builtin {
	build := []string{"dir", "packages", "tags", "go_work", "limits", "protected_inputs"}
	test := append([]string{"allow_skips", "mutants"}, build...)
	goChecks := []Builtin{
		{ID: "go-build", Revision: 1, Parameters: build, Command: "go build"},
		{ID: "go-test", Revision: 2, Parameters: test, Command: "go test"},
		{ID: "go-vet", Revision: 1, Parameters: build, Command: "go vet"},
	}
	list := []Builtin{{
		ID: builtinPrefix + "artifact-anchor-integrity", Revision: 1,
		Parameters: []string{"limits"}, Command: "compare anchored artifacts",
	}}
	for _, toolchain := range []bool{false, true} {
		for _, b := range goChecks {
			b.Toolchain = toolchain
			b.ID = map[bool]string{false: builtinPrefix, true: toolchainPrefix}[toolchain] + b.ID
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b Builtin) int { return strings.Compare(a.ID, b.ID) })
	return list
})

// Builtins returns the ids of all builtins, sorted.
func Builtins() []string {
	var ids []string
	for _, b := range builtins() {
		ids = append(ids, b.ID)
	}
	return ids
}

// LookupBuiltin returns the builtin of that id.
func LookupBuiltin(id string) (Builtin, bool) {
	for _, b := range builtins() {
		if b.ID == id {
			return b, true
		}
	}
	return Builtin{}, false
}

// BuiltinRevision returns the revision of a builtin, from 1, or 0 for an id
// that is none.
func BuiltinRevision(id string) int {
	b, _ := LookupBuiltin(id)
	return b.Revision
}

// Argv is Command as words, which a pin names.
func (b Builtin) Argv() []string { return strings.Fields(b.Command) }

// Plain is the id of the same check without the pinned toolchain.
func (b Builtin) Plain() string {
	_, name, _ := strings.Cut(b.ID, ":")
	return builtinPrefix + name
}

// ToolchainBuiltin reports whether uses names a builtin whose toolchain is to be
// pinned and attested.
func ToolchainBuiltin(uses string) bool {
	b, ok := LookupBuiltin(uses)
	return ok && b.Toolchain
}

// PlainBuiltin reports whether uses names a builtin whose claim stops at
// ASSERTED.
func PlainBuiltin(uses string) bool {
	b, ok := LookupBuiltin(uses)
	return ok && !b.Toolchain
}

// ReservedID reports whether an id is kept for builtins: the intent may not
// use it.
func ReservedID(id string) bool { return strings.HasPrefix(id, "builtin") }
