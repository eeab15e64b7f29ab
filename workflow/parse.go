package workflow

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"striatum/internal/schemacheck"
	"striatum/seal"
)

//go:generate go test . -run TestSchemaInDocsIsACopy -update

//go:embed workflow.v1.json
var schema string

// Schema returns the JSON Schema of a workflow document.
func Schema() []byte { return []byte(schema) }

var compiled = sync.OnceValues(func() (*schemacheck.Schema, error) { return schemacheck.Compile(Schema()) })

// InvalidError tells that a document breaks rules. It has at least one finding.
type InvalidError struct{ Findings []Finding }

// Error names the first finding and how many there are.
func (e *InvalidError) Error() string {
	f := e.Findings[0]
	s := fmt.Sprintf("workflow is not valid at %q: %s", f.Pointer, f.What)
	if n := len(e.Findings) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// Parse reads a document of at most MaxBytes and applies every rule that needs
// no knowledge of the intent. The error is an *InvalidError.
func Parse(data []byte) (Workflow, error) {
	w, findings := Read(data)
	if findings == nil {
		findings = intrinsic(w)
	}
	if len(findings) > 0 {
		return Workflow{}, &InvalidError{findings}
	}
	return w, nil
}

// Read decodes a document strictly and applies the JSON Schema, and no other
// rule: it is for callers that have to look further before they Validate.
func Read(data []byte) (Workflow, []Finding) {
	lim := seal.Limits{Bytes: MaxBytes, Depth: MaxDepth}
	var doc any
	if err := seal.Decode(data, &doc, lim); err != nil {
		return Workflow{}, []Finding{decodeFinding(err)}
	}
	s, err := compiled()
	var violations []schemacheck.Violation
	if err == nil {
		violations, err = s.Check(data)
	}
	if err != nil {
		return Workflow{}, []Finding{{Code: Malformed, What: err.Error()}}
	}
	var findings []Finding
	for _, v := range violations {
		findings = append(findings, Finding{Pointer: v.Pointer, Code: SchemaViolation, What: v.Reason})
	}
	if findings != nil {
		return Workflow{}, findings
	}
	var w Workflow
	if err := seal.Decode(data, &w, lim); err != nil {
		return Workflow{}, []Finding{decodeFinding(err)}
	}
	return w, nil
}

func decodeFinding(err error) Finding {
	if d, ok := errors.AsType[*seal.DecodeError](err); ok {
		return Finding{Pointer: d.Pointer, Code: Malformed, What: d.Reason}
	}
	return Finding{Code: Malformed, What: err.Error()}
}

// Encode writes w as indented JSON with a final newline. Equal values give
// equal bytes.
func Encode(w Workflow) ([]byte, error) {
	if _, err := seal.Canonical(w); err != nil { // refuses what JSON cannot hold exactly
		return nil, fmt.Errorf("encode workflow: %w", err)
	}
	return Indent(w)
}

// Indent writes v as JSON for people: two spaces, keys in the order of the Go
// type, no escaping of HTML, a final newline.
func Indent(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return b.Bytes(), nil
}

// ValidID reports whether s is an id: [a-z0-9][a-z0-9._-]{0,63}.
func ValidID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}
