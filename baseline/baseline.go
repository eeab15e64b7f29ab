// Package baseline is the census of the tests that an operator accepted: which
// tests a check had, which of them were skipped, the constraints of their files
// and the digests of their data. A later census that has less is said to differ;
// what an agent removed, skipped or changed so waits for an operator.
//
// The file, verification/baseline.json, at most MaxBytes, has one form:
//
//	{"schema_version":"striatum.verification_baseline.v1","checks":[
//	{"id":"builtin:go-test","packages":[
//	{"import_path":"example.com/m","tests":[
//	{"body":"8d0f…","name":"TestAdd","subtests":3},
//	{"body":"03c1…","name":"TestSub","skipped":true}]}],"test_files":[
//	{"helpers":"77ab…","path":"m_test.go"}],"test_data":[
//	{"path":"testdata/golden.txt","sha256":"…"}]}]}
//
// Every list is ascending and names nothing twice. Paths are as in a tree
// manifest: C-quoted where they hold anything but printable ASCII.
//
// The package is pure. It neither runs tests nor reads a tree.
package baseline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"striatum/seal"
)

// SchemaVersion marks a baseline of this format.
const SchemaVersion = "striatum.verification_baseline.v1"

// Path is where a baseline stands, relative to the top of the worktree.
const Path = "verification/baseline.json"

// MaxBytes bounds the file. It is part of every call that reads the gate, and of
// such a call a session may make 1 MiB.
const MaxBytes = 512 << 10

// maxText bounds a name, an import path, a path and a constraint, in bytes.
const maxText = 4096

// Baseline is what a file holds: an entry for each check.
type Baseline struct {
	SchemaVersion string  `json:"schema_version"`
	Checks        []Check `json:"checks"`
}

// Check is the census of one check, named by its id in the workflow.
type Check struct {
	ID       string    `json:"id"`
	Packages []Package `json:"packages"`
	Files    []File    `json:"test_files"`
	Data     []Data    `json:"test_data"`
}

// Package are the tests of one package and of its external test package.
type Package struct {
	ImportPath string `json:"import_path"`
	Tests      []Test `json:"tests"`
}

// Test is a test, fuzz target or example that the sources declare.
type Test struct {
	Name string `json:"name"`
	// Namesakes is how many of that name there are beside it: 1 where the package
	// and its external test package both have one.
	Namesakes int  `json:"namesakes,omitempty"`
	Skipped   bool `json:"skipped,omitempty"` // it, or a namesake
	// Subtests is how many subtests passed, at any depth; SkippedSubtests how many
	// were skipped.
	Subtests        int64 `json:"subtests,omitempty"`
	SkippedSubtests int64 `json:"skipped_subtests,omitempty"`
	// Body is the beginning of a digest of its source: 16 hex digits.
	Body string `json:"body"`
}

// File is a test file, and Constraint its build constraint, normalised. Excluded
// ones are those that the check did not compile.
type File struct {
	Path       string `json:"path"`
	Constraint string `json:"constraint,omitempty"`
	Excluded   bool   `json:"excluded,omitempty"`
	// Helpers is the beginning of a digest of what it declares beside tests: 16
	// hex digits, empty where it is excluded.
	Helpers string `json:"helpers,omitempty"`
}

// Data is a file that tests read: below a folder testdata, or embedded by a test
// file and no Go source.
type Data struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// Parse reads a baseline strictly: what it takes, Encode gives back byte for byte.
func Parse(data []byte) (Baseline, error) {
	var b Baseline
	if err := seal.Decode(data, &b, seal.Limits{Bytes: MaxBytes, Depth: 10}); err != nil {
		return Baseline{}, fmt.Errorf("read baseline: %w", err)
	}
	again, err := b.Encode()
	if err != nil {
		return Baseline{}, fmt.Errorf("read baseline: %w", err)
	}
	if !bytes.Equal(again, data) {
		return Baseline{}, errors.New("read baseline: it is not in its one form: it was not written by `striatum verifier baseline accept`")
	}
	return b, nil
}

// Encode writes b. The error says what in it is not valid, or that it is longer
// than MaxBytes (ErrTooLong).
func (b Baseline) Encode() ([]byte, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	w := writer{}
	w.WriteString(`{"schema_version":"` + SchemaVersion + `","checks":[`)
	for i, c := range b.Checks {
		w.item(i)
		w.WriteString(`{"id":`)
		w.value(c.ID)
		w.WriteString(`,"packages":[`)
		for i, p := range c.Packages {
			w.item(i)
			w.WriteString(`{"import_path":`)
			w.value(p.ImportPath)
			w.WriteString(`,"tests":[`)
			for i, t := range p.Tests {
				w.item(i)
				w.value(t)
			}
			w.WriteString("]}")
		}
		w.WriteString(`],"test_files":[`)
		for i, f := range c.Files {
			w.item(i)
			w.value(f)
		}
		w.WriteString(`],"test_data":[`)
		for i, d := range c.Data {
			w.item(i)
			w.value(d)
		}
		w.WriteString("]}")
	}
	w.WriteString("]}\n")
	if w.err != nil {
		return nil, fmt.Errorf("encode baseline: %w", w.err)
	}
	if w.Len() > MaxBytes {
		return nil, fmt.Errorf("encode baseline: %w: %d bytes", ErrTooLong, w.Len())
	}
	return w.Bytes(), nil
}

// ErrTooLong says that a baseline has more than MaxBytes.
var ErrTooLong = fmt.Errorf("it has more than %d bytes", MaxBytes)

// writer writes lists with a line for each item.
type writer struct {
	bytes.Buffer
	err error
}

func (w *writer) item(i int) {
	if i > 0 {
		w.WriteByte(',')
	}
	w.WriteByte('\n')
}

func (w *writer) value(v any) {
	data, err := seal.Canonical(v)
	w.err = cmp.Or(w.err, err)
	w.Write(data)
}

func (b Baseline) validate() error {
	if b.SchemaVersion != SchemaVersion {
		return fmt.Errorf("/schema_version: %.80q is not %q", b.SchemaVersion, SchemaVersion)
	}
	if err := ascending("/checks", b.Checks, func(c Check) string { return c.ID }); err != nil {
		return err
	}
	for i, c := range b.Checks {
		if err := c.validate(fmt.Sprintf("/checks/%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (c Check) validate(at string) error {
	if err := errors.Join(
		ascending(at+"/packages", c.Packages, func(p Package) string { return p.ImportPath }),
		ascending(at+"/test_files", c.Files, func(f File) string { return f.Path }),
		ascending(at+"/test_data", c.Data, func(d Data) string { return d.Path }),
	); err != nil {
		return err
	}
	for i, p := range c.Packages {
		at := fmt.Sprintf("%s/packages/%d/tests", at, i)
		if err := ascending(at, p.Tests, func(t Test) string { return t.Name }); err != nil {
			return err
		}
		for i, t := range p.Tests {
			if t.Namesakes < 0 || t.Subtests < 0 || t.SkippedSubtests < 0 || !shortDigest(t.Body) {
				return fmt.Errorf("%s/%d: a number is negative, or the body is not 16 hex digits", at, i)
			}
		}
	}
	for i, f := range c.Files {
		if f.Excluded != (f.Helpers == "") || f.Helpers != "" && !shortDigest(f.Helpers) || !text(f.Constraint) {
			return fmt.Errorf("%s/test_files/%d: helpers are 16 hex digits, and there only where it is not excluded", at, i)
		}
	}
	for i, d := range c.Data {
		if !seal.ValidDigest(d.SHA256) {
			return fmt.Errorf("%s/test_data/%d/sha256: %.80q is not a digest", at, i, d.SHA256)
		}
	}
	return nil
}

// ascending says which item of a list has no name, a long one, or stands behind
// one that it should stand before.
func ascending[T any](at string, list []T, name func(T) string) error {
	if list == nil {
		return fmt.Errorf("%s: there is no list", at)
	}
	for i, item := range list {
		switch n := name(item); {
		case n == "" || !text(n):
			return fmt.Errorf("%s/%d: %.80q is no name", at, i, n)
		case i > 0 && name(list[i-1]) >= n:
			return fmt.Errorf("%s/%d: %.80q is not behind the one before", at, i, n)
		}
	}
	return nil
}

func text(s string) bool { return len(s) <= maxText && utf8.ValidString(s) }

// shortDigestLen is how many hex digits of a digest are kept where it only says
// that something was edited.
const shortDigestLen = 16

func shortDigest(s string) bool {
	return len(s) == shortDigestLen && strings.Trim(s, "0123456789abcdef") == ""
}

// Short returns the beginning of the digest of source.
func Short(source []byte) string { return seal.SHA256Hex(source)[:shortDigestLen] }

// Find returns the entry of a check.
func (b Baseline) Find(id string) (Check, bool) {
	i, ok := slices.BinarySearchFunc(b.Checks, id, func(c Check, id string) int { return strings.Compare(c.ID, id) })
	if !ok {
		return Check{}, false
	}
	return b.Checks[i], true
}

// With returns b with c in the place of the entry of the same check, if there is
// one. b stays as it is.
func (b Baseline) With(c Check) Baseline {
	b.SchemaVersion = SchemaVersion
	b.Checks = slices.DeleteFunc(slices.Clone(b.Checks), func(old Check) bool { return old.ID == c.ID })
	b.Checks = append(b.Checks, c)
	slices.SortFunc(b.Checks, func(a, b Check) int { return strings.Compare(a.ID, b.ID) })
	return b
}
