package external

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"striatum/allowlist"
	"striatum/seal"
)

// Definition is what of a tree belongs to a check and not to the work.
type Definition struct {
	// SHA256 is over the tree manifest's lines of the paths, in its order.
	SHA256 string
	Paths  []string // as the manifest has them
}

// Define finds the entry's definition in a tree by its manifest (the format is
// package snapshot's): every path that a glob of the definition matches or that
// lies below a folder it matches, and the files that argv names. The error names a
// glob that matches nothing.
func Define(e allowlist.Entry, manifest []byte) (Definition, error) {
	var d Definition
	var lines bytes.Buffer
	matched := make([]bool, len(e.Definition))
	for line := range bytes.Lines(manifest) {
		_, quoted, ok := cutFields(string(line), 3)
		if !ok {
			return Definition{}, fmt.Errorf("the tree's manifest has the line %q", line)
		}
		name := unquote(quoted)
		part := slices.Contains(e.Argv.Words, name) || slices.Contains(e.Argv.Words, "./"+name) ||
			slices.Contains(e.Argv.Words, allowlist.Target+"/"+name)
		for i, glob := range e.Definition {
			if matches(glob, name) {
				matched[i], part = true, true
			}
		}
		if part {
			lines.Write(line)
			d.Paths = append(d.Paths, quoted)
		}
	}
	for i, ok := range matched {
		if !ok {
			return Definition{}, fmt.Errorf("nothing in the tree matches the definition %q", e.Definition[i])
		}
	}
	d.SHA256 = seal.SHA256Hex(lines.Bytes())
	return d, nil
}

// Has reports whether a path is part of the definition.
func (d Definition) Has(name string) bool {
	return slices.ContainsFunc(d.Paths, func(quoted string) bool { return unquote(quoted) == name })
}

// matches reports whether the glob matches name or a folder above it.
func matches(glob, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if doublestar.MatchUnvalidated(glob, name) {
			return true
		}
	}
	return false
}

// cutFields splits a line after n fields.
func cutFields(line string, n int) (fields []string, rest string, ok bool) {
	parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", n+1)
	if len(parts) != n+1 {
		return nil, "", false
	}
	return parts[:n], parts[n], true
}

// unquote undoes the manifest's C quoting, whose escapes are Go's too.
func unquote(quoted string) string {
	if strings.HasPrefix(quoted, `"`) {
		if name, err := strconv.Unquote(quoted); err == nil {
			return name
		}
	}
	return quoted
}
