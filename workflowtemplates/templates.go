// Package workflowtemplates holds the catalog of workflow shapes (catalog.json)
// and the text templates of the documents that a generated workflow consists
// of. Both are part of the binary; nothing is read from a disk.
//
// The catalog is the one list of shapes: a test reconciles it with the
// registry of package workflowgenerate and with the page
// docs/reference/workflow-catalog.md, which is generated from it.
//
// A tier says what a shape may promise: "experimental" shapes may change their
// files, "supported" ones change only with a note to whoever generated them.
package workflowtemplates

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"text/template"

	"striatum/workflow"
)

//go:generate go test . -run TestCatalogPageIsCurrent -update

//go:embed catalog.json verification_gate
var files embed.FS

// SchemaVersion marks a catalog of this format.
const SchemaVersion = "striatum.workflow_catalog.v1"

// Tier is how far a shape is supported.
type Tier string

// The tiers.
const (
	Experimental Tier = "experimental"
	Supported    Tier = "supported"
)

// Catalog lists every shape.
type Catalog struct {
	SchemaVersion string  `json:"schema_version"`
	Shapes        []Shape `json:"shapes"`
}

// Shape is one kind of workflow that can be generated.
type Shape struct {
	ID        string           `json:"id"`
	Title     string           `json:"title"`
	Tier      Tier             `json:"tier"`
	Summary   string           `json:"summary"`
	Languages []Language       `json:"languages"`
	Floors    []workflow.Floor `json:"floors"`
	Jobs      []Job            `json:"jobs"`
	// Rounds bounds the way back from review to build.
	Rounds int     `json:"rounds"`
	Files  []File  `json:"files"`
	Checks []Check `json:"checks"`
}

// Language is what --lang names: the checks that stand for it.
type Language struct {
	ID            string   `json:"id"`
	DefaultChecks []string `json:"default_checks"`
}

// Job is one job of a shape.
type Job struct {
	ID        string           `json:"id"`
	Type      workflow.JobType `json:"type"`
	Objective string           `json:"objective"`
}

// File is one file of a shape. Without Template its bytes come from a model.
type File struct {
	Path     string `json:"path"`
	Template string `json:"template,omitempty"`
	Purpose  string `json:"purpose"`
}

// Check is the claim that a builtin backs in a shape. ID is the part after the
// colon, so that a builtin and its toolchain twin share the claim.
type Check struct {
	ID        string `json:"id"`
	Claim     string `json:"claim"`
	Statement string `json:"statement"`
}

// Load returns the catalog.
func Load() (Catalog, error) {
	data, err := files.ReadFile("catalog.json")
	if err != nil {
		return Catalog{}, fmt.Errorf("read catalog: %w", err)
	}
	var c Catalog
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Catalog{}, fmt.Errorf("read catalog: %w", err)
	}
	return c, nil
}

// Shape returns the shape of that id.
func (c Catalog) Shape(id string) (Shape, bool) {
	for _, s := range c.Shapes {
		if s.ID == id {
			return s, true
		}
	}
	return Shape{}, false
}

// Language returns the language of that id.
func (s Shape) Language(id string) (Language, bool) {
	for _, l := range s.Languages {
		if l.ID == id {
			return l, true
		}
	}
	return Language{}, false
}

// Render fills one template of a shape. Data must hold only text that is safe
// in Markdown: templates do not escape.
func (s Shape) Render(name string, data any) ([]byte, error) {
	text, err := files.ReadFile(s.ID + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("render %q: %w", name, err)
	}
	t, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	return b.Bytes(), nil
}
