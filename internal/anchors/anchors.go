// Package anchors is the check builtin:artifact-anchor-integrity: a file of
// the tree names other files of it with the digests that they must have, and
// striatum-init compares them inside a sandbox ("striatum-init anchors FILE
// ROOT"). The package holds both sides: what runs inside, and the pure
// judgement of its output outside. It imports the standard library only.
//
// The anchors file, verification/anchors.json, at most 1 MiB:
//
//	{"schema_version": "striatum.anchors.v1",
//	 "anchors": [{"path": "dist/app", "sha256": "<64 lower-case hex digits>"}]}
//
// A path is relative to the top of the tree, with slashes, clean, and named
// once. Both keys of each object must be there and no other.
//
// What Run prints, one line per anchor in the file's order, between a first
// and a last line that carry the count:
//
//	striatum.anchors_result.v1 2
//	ok <sha256> "dist/app"
//	differs <sha256 of what is there> "dist/lib"
//	end 2
//
// Instead of a digest, "absent -" (no such file in the tree), "irregular -"
// (not a plain file, or behind a link) or "unreadable -". A file that is no
// anchors file is the single line: invalid "reason". The exit code is 0 if
// there is at least one anchor and all are ok, else 1.
package anchors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// SchemaVersion marks an anchors file of this format.
const SchemaVersion = "striatum.anchors.v1"

// DefaultPath is where the check looks, relative to the top of the tree.
const DefaultPath = "verification/anchors.json"

// The bounds of an anchors file.
const (
	MaxBytes   = 1 << 20
	MaxAnchors = 10_000
)

// Anchor says which bytes a file of the tree must have.
type Anchor struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// file is the whole anchors file.
type file struct {
	SchemaVersion string   `json:"schema_version"`
	Anchors       []Anchor `json:"anchors"`
}

// Parse reads an anchors file strictly. The error names the JSON pointer.
func Parse(data []byte) ([]Anchor, error) {
	switch {
	case len(data) > MaxBytes:
		return nil, fmt.Errorf("anchors file has more than %d bytes", MaxBytes)
	case !utf8.Valid(data):
		return nil, errors.New("anchors file is not valid UTF-8")
	case !json.Valid(data):
		return nil, errors.New("anchors file is not valid JSON")
	}
	p := parser{json.NewDecoder(bytes.NewReader(data))}
	var f file
	err := p.object("", map[string]func(at string) error{
		"schema_version": func(at string) error { return p.text(at, &f.SchemaVersion) },
		"anchors": func(at string) error {
			return p.list(at, func(at string) error {
				var a Anchor
				err := p.object(at, map[string]func(at string) error{
					"path":   func(at string) error { return p.text(at, &a.Path) },
					"sha256": func(at string) error { return p.text(at, &a.SHA256) },
				})
				f.Anchors = append(f.Anchors, a)
				return err
			})
		},
	})
	if err != nil {
		return nil, err
	}
	return f.Anchors, f.validate()
}

func (f file) validate() error {
	if f.SchemaVersion != SchemaVersion {
		return fmt.Errorf("/schema_version: %.80q is not %q", f.SchemaVersion, SchemaVersion)
	}
	seen := map[string]bool{}
	for i, a := range f.Anchors {
		switch {
		case !fs.ValidPath(a.Path) || a.Path == "." || strings.ContainsRune(a.Path, 0):
			return fmt.Errorf("/anchors/%d/path: %.300q is not a clean relative path", i, a.Path)
		case seen[a.Path]:
			return fmt.Errorf("/anchors/%d/path: %.300q is named twice", i, a.Path)
		case !validDigest(a.SHA256):
			return fmt.Errorf("/anchors/%d/sha256: %.80q is not 64 lower-case hex digits", i, a.SHA256)
		}
		seen[a.Path] = true
	}
	return nil
}

// Encode writes an anchors file. Parse reads it back.
func Encode(anchors []Anchor) ([]byte, error) {
	f := file{SchemaVersion, append([]Anchor{}, anchors...)}
	if err := f.validate(); err != nil {
		return nil, fmt.Errorf("encode anchors: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f); err != nil {
		return nil, fmt.Errorf("encode anchors: %w", err)
	}
	if b.Len() > MaxBytes || len(anchors) > MaxAnchors {
		return nil, fmt.Errorf("encode anchors: more than %d bytes or %d anchors", MaxBytes, MaxAnchors)
	}
	return b.Bytes(), nil
}

func validDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// parser walks the tokens of a document that is known to be valid JSON.
type parser struct{ *json.Decoder }

// object reads an object that has exactly the given keys, each once.
func (p parser) object(at string, keys map[string]func(at string) error) error {
	if err := p.delim(at, '{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.More() {
		var key string
		if err := p.text(at, &key); err != nil {
			return err
		}
		read, ok := keys[key]
		if !ok {
			return fmt.Errorf("%s: unknown key %.100q", at, key)
		}
		if seen[key] {
			return fmt.Errorf("%s: key %q is there twice", at, key)
		}
		seen[key] = true
		if err := read(at + "/" + key); err != nil {
			return err
		}
	}
	if len(seen) != len(keys) {
		return fmt.Errorf("%s: %d keys where %d are due", at, len(seen), len(keys))
	}
	_, err := p.Token()
	return err
}

func (p parser) list(at string, read func(at string) error) error {
	if err := p.delim(at, '[', "an array"); err != nil {
		return err
	}
	for i := 0; p.More(); i++ {
		if i == MaxAnchors {
			return fmt.Errorf("%s: more than %d anchors", at, MaxAnchors)
		}
		if err := read(fmt.Sprintf("%s/%d", at, i)); err != nil {
			return err
		}
	}
	_, err := p.Token()
	return err
}

func (p parser) delim(at string, want json.Delim, what string) error {
	tok, err := p.Token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("%s: %.100q where %s is due", at, fmt.Sprint(tok), what)
	}
	return nil
}

func (p parser) text(at string, out *string) error {
	tok, err := p.Token()
	if err != nil {
		return err
	}
	s, ok := tok.(string)
	if !ok {
		return fmt.Errorf("%s: %.100q where a string is due", at, fmt.Sprint(tok))
	}
	*out = s
	return nil
}
