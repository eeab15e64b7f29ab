package allowlist

import (
	"encoding/json"
	"fmt"

	"striatum/seal"
	"striatum/workflow"
)

// IntentSchemaVersion marks an intent of this format.
const IntentSchemaVersion = "striatum.verifier_allowlist_intent.v1"

// Bounds of every document of this package.
const (
	MaxBytes = 1 << 20
	MaxDepth = 32
)

// Target is the word of argv that stands for the folder under check.
const Target = "{target}"

// Intent is the committed list of sanctioned external checks.
type Intent struct {
	SchemaVersion string  `json:"schema_version"`
	Checks        []Entry `json:"checks"`
}

// Entry is one sanctioned check.
type Entry struct {
	ID               string           `json:"id"`
	Argv             Argv             `json:"argv"`
	Definition       []string         `json:"definition,omitzero"`
	DefinitionReason string           `json:"definition_reason,omitempty"`
	ExternalReason   string           `json:"external_reason,omitempty"`
	PassWhen         PassWhen         `json:"pass_when"`
	BacksClaim       string           `json:"backs_claim"`
	Agreement        Agreement        `json:"agreement"`
	NegativeControl  NegativeControl  `json:"negative_control"`
	Toolchain        *Toolchain       `json:"toolchain,omitempty"`
	Limits           *workflow.Limits `json:"limits,omitempty"`
	Description      string           `json:"description,omitempty"`
	// ProtectedInputs are paths whose bytes come from a commit; nil: none.
	ProtectedInputs *workflow.ProtectedInputs `json:"protected_inputs,omitempty"`
}

// Argv is the exact command, without a shell, or an unfilled template.
type Argv struct {
	Words    []string
	Unfilled string // what to write here; empty: filled
}

// PassForm says what a pass needs besides exit 0, no signal and no limit hit.
type PassForm uint8

// The forms of pass_when.
const (
	_               PassForm = iota
	ExitZero                 // nothing more
	StdoutContains           // Text stands in stdout
	ArtifactPresent          // the file Text was made in this execution
	Tests                    // the counts of a test format
	PassUnfilled             // an unfilled template; Text says what to write
)

// PassWhen is the condition under which one execution passes.
type PassWhen struct {
	Form  PassForm
	Text  string
	Tests TestCounts
}

// TestCounts is what the tests that a format reports must come to.
type TestCounts struct {
	MustPass   []string `json:"must_pass,omitzero"`
	MinPassed  int64    `json:"min_passed,omitempty"`
	AllowSkips []string `json:"allow_skips,omitzero"`
}

// Agreement says what two executions are compared by.
type Agreement string

// The agreements. The last three are formats of test output: the tested
// code's own testimony, which may lower a result and never raises one.
const (
	ByExitCode   Agreement = "exit_code"
	ByStdout     Agreement = "stdout"
	ByGoTestJSON Agreement = "go-test-json"
	ByJUnit      Agreement = "junit"
	ByTAP        Agreement = "tap"
)

// TestFormat reports whether a is a format of test output.
func (a Agreement) TestFormat() bool { return a == ByGoTestJSON || a == ByJUnit || a == ByTAP }

// NegativeControl is the known-bad input that a check must fail on, as a
// mutation of a passing one, or an unfilled template.
type NegativeControl struct {
	// MutationOf is "." for the worktree, whose real run is the paired passing
	// run, or a fixture folder that must pass unmutated first.
	MutationOf string
	Mutations  []Mutation
	// FailsWith is a regular expression (Go syntax) that the failing output
	// must match, and the passing one must not.
	FailsWith string
	Unfilled  string // what to write here; empty: filled

	list bool // the document has a list, even of one
}

// Mutation replaces one line of a file: Find matches exactly once.
type Mutation struct {
	File    string `json:"file"`
	Find    string `json:"find"`
	Replace string `json:"replace"`
}

// Toolchain names the bytes that belong to the tool: folders of the host, or an
// OCI image by digest.
type Toolchain struct {
	Roots []string `json:"roots,omitzero"`
	Image string   `json:"image,omitempty"`
}

// OnSubject reports whether the control mutates the worktree itself. A claim
// whose check has only fixture controls stops at ASSERTED.
func (c NegativeControl) OnSubject() bool { return c.MutationOf == "." }

type unfilled struct {
	Unfilled string `json:"unfilled"`
}

// MarshalJSON writes the list or the template.
func (a Argv) MarshalJSON() ([]byte, error) {
	if a.Unfilled != "" {
		return plain(unfilled{a.Unfilled})
	}
	return plain(append([]string{}, a.Words...))
}

// UnmarshalJSON reads the list or the template.
func (a *Argv) UnmarshalJSON(data []byte) error {
	*a = Argv{}
	if isObject(data) {
		var u unfilled
		err := decode(data, &u)
		a.Unfilled = u.Unfilled
		return err
	}
	return decode(data, &a.Words)
}

type passObject struct {
	StdoutContains  string      `json:"stdout_contains,omitempty"`
	ArtifactPresent string      `json:"artifact_present,omitempty"`
	Tests           *TestCounts `json:"tests,omitempty"`
	Unfilled        string      `json:"unfilled,omitempty"`
}

// MarshalJSON writes the form.
func (p PassWhen) MarshalJSON() ([]byte, error) {
	switch p.Form {
	case ExitZero:
		return plain("exit_zero")
	case StdoutContains:
		return plain(passObject{StdoutContains: p.Text})
	case ArtifactPresent:
		return plain(passObject{ArtifactPresent: p.Text})
	case Tests:
		return plain(passObject{Tests: &p.Tests})
	case PassUnfilled:
		return plain(passObject{Unfilled: p.Text})
	}
	return nil, fmt.Errorf("pass_when has no form")
}

// UnmarshalJSON reads the form.
func (p *PassWhen) UnmarshalJSON(data []byte) error {
	*p = PassWhen{}
	if !isObject(data) {
		var s string
		if err := decode(data, &s); err != nil {
			return err
		}
		if s != "exit_zero" {
			return fmt.Errorf(`pass_when: want "exit_zero" or an object`)
		}
		p.Form = ExitZero
		return nil
	}
	var o passObject
	if err := decode(data, &o); err != nil {
		return err
	}
	switch {
	case o.StdoutContains != "":
		*p = PassWhen{Form: StdoutContains, Text: o.StdoutContains}
	case o.ArtifactPresent != "":
		*p = PassWhen{Form: ArtifactPresent, Text: o.ArtifactPresent}
	case o.Tests != nil:
		*p = PassWhen{Form: Tests, Tests: *o.Tests}
	case o.Unfilled != "":
		*p = PassWhen{Form: PassUnfilled, Text: o.Unfilled}
	default:
		return fmt.Errorf("pass_when: the object is empty")
	}
	return nil
}

// String returns the form's canonical JSON, as a receipt shows it.
func (p PassWhen) String() string {
	data, err := p.MarshalJSON()
	if err != nil {
		return ""
	}
	if p.Form == ExitZero {
		return "exit_zero"
	}
	return string(data)
}

type controlObject struct {
	MutationOf string          `json:"mutation_of,omitempty"`
	Mutation   json.RawMessage `json:"mutation,omitempty"`
	FailsWith  string          `json:"fails_with,omitempty"`
	Unfilled   string          `json:"unfilled,omitempty"`
}

// MarshalJSON writes the control or the template.
func (c NegativeControl) MarshalJSON() ([]byte, error) {
	if c.Unfilled != "" {
		return plain(unfilled{c.Unfilled})
	}
	var m any = c.Mutations
	if len(c.Mutations) == 1 && !c.list {
		m = c.Mutations[0]
	}
	raw, err := plain(m)
	if err != nil {
		return nil, err
	}
	return plain(controlObject{MutationOf: c.MutationOf, Mutation: raw, FailsWith: c.FailsWith})
}

// UnmarshalJSON reads the control or the template.
func (c *NegativeControl) UnmarshalJSON(data []byte) error {
	*c = NegativeControl{}
	var o controlObject
	if err := decode(data, &o); err != nil {
		return err
	}
	*c = NegativeControl{MutationOf: o.MutationOf, FailsWith: o.FailsWith, Unfilled: o.Unfilled}
	switch {
	case o.Unfilled != "":
		return nil
	case isObject(o.Mutation):
		c.Mutations = make([]Mutation, 1)
		return decode(o.Mutation, &c.Mutations[0])
	}
	c.list = true
	return decode(o.Mutation, &c.Mutations)
}

// Document returns what the check digest is of: the canonical JSON of the entry
// without its description.
func (e Entry) Document() ([]byte, error) {
	e.Description = ""
	data, err := seal.Canonical(e)
	if err != nil {
		return nil, fmt.Errorf("encode entry %q: %w", e.ID, err)
	}
	return data, nil
}

// Digest returns the check digest: lower-case hex SHA-256 of Document.
func (e Entry) Digest() (string, error) {
	data, err := e.Document()
	if err != nil {
		return "", err
	}
	return seal.SHA256Hex(data), nil
}

// Entry returns the entry of that id and its JSON pointer.
func (in Intent) Entry(id string) (e Entry, pointer string, ok bool) {
	for i, e := range in.Checks {
		if e.ID == id {
			return e, fmt.Sprintf("/checks/%d", i), true
		}
	}
	return Entry{}, "", false
}

// Encode writes the intent as indented JSON with a final newline.
func (in Intent) Encode() ([]byte, error) {
	if in.Checks == nil {
		in.Checks = []Entry{}
	}
	if _, err := seal.Canonical(in); err != nil { // refuses what JSON cannot hold exactly
		return nil, fmt.Errorf("encode intent: %w", err)
	}
	return workflow.Indent(in)
}

func isObject(data []byte) bool { return len(data) > 0 && data[0] == '{' }

// decode reads a part of a document whose whole is already bounded.
func decode(data []byte, v any) error {
	return seal.Decode(data, v, seal.Limits{Bytes: MaxBytes, Depth: MaxDepth})
}

// plain encodes without escaping HTML.
func plain(v any) ([]byte, error) { return seal.Canonical(v) }
