package workflow

import (
	"encoding/json"
	"errors"
	"fmt"

	"striatum/seal"
)

// CheckRef names one check of a verify job. A builtin has Uses and may have
// parameters; an external check has an ID of the intent and nothing more.
type CheckRef struct {
	ID         string `json:"id,omitempty"`
	Uses       string `json:"uses,omitempty"`
	BacksClaim string `json:"backs_claim"`

	// Dir is the folder of the module; absent: "." if go.mod is there, else
	// the only module below it.
	Dir string `json:"dir,omitempty"`
	// Packages are package patterns relative to Dir; absent: "./...".
	Packages []string `json:"packages,omitempty"`
	// Tags are build tags.
	Tags []string `json:"tags,omitempty"`
	// GoWork lets go.work count; absent: GOWORK=off.
	GoWork bool `json:"go_work,omitempty"`
	// AllowSkips says which skipped tests do not mar a pass; absent: none.
	AllowSkips AllowSkips `json:"allow_skips,omitzero"`
	// Limits replace the lane's own, each by itself.
	Limits *Limits `json:"limits,omitempty"`
	// Mutants is how many mutants of the product a go-test plants; absent: 3. It
	// cannot plant none.
	Mutants int `json:"mutants,omitempty"`
	// ProtectedInputs are paths whose bytes come from a commit; absent: none.
	ProtectedInputs *ProtectedInputs `json:"protected_inputs,omitempty"`
}

// CheckID returns the id that the check is known by.
func (c CheckRef) CheckID() string {
	if c.ID != "" {
		return c.ID
	}
	return c.Uses
}

// External reports whether the check is an entry of the intent.
func (c CheckRef) External() bool { return c.Uses == "" }

// AllowSkips is "any", or a list of tests named "import/path TestName". The
// zero value allows none.
type AllowSkips struct {
	Any   bool
	Tests []string
}

// IsZero reports whether nothing was said.
func (a AllowSkips) IsZero() bool { return !a.Any && a.Tests == nil }

// MarshalJSON writes "any" or the list.
func (a AllowSkips) MarshalJSON() ([]byte, error) {
	if a.Any {
		return []byte(`"any"`), nil
	}
	return json.Marshal(append([]string{}, a.Tests...))
}

// UnmarshalJSON reads "any" or a list of strings.
func (a *AllowSkips) UnmarshalJSON(data []byte) error {
	*a = AllowSkips{}
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		if s != "any" {
			return fmt.Errorf(`want "any" or a list of tests`)
		}
		a.Any = true
		return nil
	}
	a.Tests = []string{}
	return json.Unmarshal(data, &a.Tests)
}

// parameters is the part of a builtin check that its digest covers, besides
// its name and revision.
type parameters struct {
	Dir             string           `json:"dir,omitempty"`
	Packages        []string         `json:"packages,omitempty"`
	Tags            []string         `json:"tags,omitempty"`
	GoWork          bool             `json:"go_work,omitempty"`
	AllowSkips      AllowSkips       `json:"allow_skips,omitzero"`
	Limits          *Limits          `json:"limits,omitempty"`
	Mutants         int              `json:"mutants,omitempty"`
	ProtectedInputs *ProtectedInputs `json:"protected_inputs,omitempty"`
}

func (c CheckRef) parameters() parameters {
	return parameters{
		Dir: c.Dir, Packages: c.Packages, Tags: c.Tags, GoWork: c.GoWork,
		AllowSkips: c.AllowSkips, Limits: c.Limits, Mutants: c.Mutants,
		ProtectedInputs: c.ProtectedInputs,
	}
}

// given lists the names of the parameters that the check gives.
func (p parameters) given() []string {
	var names []string
	add := func(name string, is bool) {
		if is {
			names = append(names, name)
		}
	}
	add("dir", p.Dir != "")
	add("packages", p.Packages != nil)
	add("tags", p.Tags != nil)
	add("go_work", p.GoWork)
	add("allow_skips", !p.AllowSkips.IsZero())
	add("limits", p.Limits != nil)
	add("mutants", p.Mutants != 0)
	add("protected_inputs", p.ProtectedInputs != nil)
	return names
}

// ErrNotBuiltin tells that a check has no digest of its own: an external
// check's digest is its intent entry's.
var ErrNotBuiltin = errors.New("not a known builtin")

// Document returns what the check digest of a builtin is of: the canonical JSON of
// uses, parameters and builtin revision. The error is ErrNotBuiltin for an
// external check or an unknown builtin.
func (c CheckRef) Document() ([]byte, error) {
	b, ok := LookupBuiltin(c.Uses)
	if !ok {
		return nil, fmt.Errorf("encode check %q: %w", c.CheckID(), ErrNotBuiltin)
	}
	data, err := seal.Canonical(struct {
		Uses       string     `json:"uses"`
		Parameters parameters `json:"parameters"`
		Revision   int        `json:"builtin_revision"`
	}{c.Uses, c.parameters(), b.Revision})
	if err != nil {
		return nil, fmt.Errorf("encode check %q: %w", c.CheckID(), err)
	}
	return data, nil
}

// Digest returns the check digest of a builtin: lower-case hex SHA-256 of
// Document, whose errors it has.
func (c CheckRef) Digest() (string, error) {
	data, err := c.Document()
	if err != nil {
		return "", err
	}
	return seal.SHA256Hex(data), nil
}
