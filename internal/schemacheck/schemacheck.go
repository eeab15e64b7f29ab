// Package schemacheck applies one embedded JSON Schema (draft 2020-12) to a
// document and lists every violation by JSON pointer.
//
// It loads no schema from a file or a network: a reference that leaves the
// given schema is an error. Duplicate keys, depth and size are not its
// business; documents are decoded strictly (package seal) before they come
// here.
package schemacheck

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// MaxViolations bounds the list that Check returns.
const MaxViolations = 200

// maxText bounds a pointer and a reason, in bytes: both quote the document.
const maxText = 300

// Violation is one place of a document that breaks the schema. Pointer is an
// RFC 6901 JSON pointer; "" is the whole document. Where it or the reason would
// have more than 300 bytes, it is cut and ends in "…".
type Violation struct{ Pointer, Reason string }

// location is the base of the schema's own references. Nothing is fetched
// from it.
const location = "striatum:///schema.json"

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema may not refer to %q", url)
}

// Schema is a schema that was compiled. It may be used by several goroutines.
type Schema struct{ compiled *jsonschema.Schema }

// Compile compiles a schema.
func Compile(schema []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return &Schema{compiled}, nil
}

// Check compiles schema for the one document: see Schema.Check.
func Check(schema, document []byte) ([]Violation, error) {
	s, err := Compile(schema)
	if err != nil {
		return nil, err
	}
	return s.Check(document)
}

// Check returns the violations of document, at most MaxViolations, ordered by
// pointer. The error tells of a document that is no JSON at all.
func (s *Schema) Check(document []byte) ([]Violation, error) {
	inst, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	err = s.compiled.Validate(inst)
	if err == nil {
		return nil, nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, fmt.Errorf("apply schema: %w", err)
	}
	p := message.NewPrinter(language.English)
	out := collect(nil, invalid, p)
	for i, v := range out {
		out[i] = Violation{cut(v.Pointer), cut(v.Reason)}
	}
	slices.SortStableFunc(out, func(a, b Violation) int {
		return strings.Compare(a.Pointer+"\x00"+a.Reason, b.Pointer+"\x00"+b.Reason)
	})
	out = slices.Compact(out)
	return out[:min(len(out), MaxViolations)], nil
}

// collect appends the leaves of e, which are the violations themselves.
func collect(out []Violation, e *jsonschema.ValidationError, p *message.Printer) []Violation {
	for _, c := range e.Causes {
		out = collect(out, c, p)
	}
	if len(e.Causes) > 0 {
		return out
	}
	at := Pointer(e.InstanceLocation...)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			out = append(out, Violation{at + Pointer(name), "unknown key"})
		}
	case *kind.Required:
		for _, name := range k.Missing {
			out = append(out, Violation{at, fmt.Sprintf("missing key %q", name)})
		}
	default:
		out = append(out, Violation{at, e.ErrorKind.LocalizedString(p)})
	}
	return out
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// Pointer joins reference tokens to an RFC 6901 JSON pointer.
func Pointer(tokens ...string) string {
	var b strings.Builder
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(escape.Replace(t))
	}
	return b.String()
}
