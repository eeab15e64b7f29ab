package external

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"striatum/allowlist"
	"striatum/seal"
	"striatum/workflow"
)

// Definition is what of a tree belongs to a check and not to the work.
type Definition struct {
	// SHA256 is over the tree manifest's lines of the paths, in its order.
	SHA256 string
	Lines  string   // those lines
	Paths  []string // as the manifest has them
	// Absent are words of argv that read like a path in the tree and are none:
	// the command will hardly find them either.
	Absent []string
}

// Define finds the entry's definition in a tree by its manifest (the format is
// package snapshot's): every path that a glob of the definition matches or that
// lies below a folder it matches, and the files that argv names. The error names a
// glob that matches nothing.
func Define(e allowlist.Entry, manifest []byte) (Definition, error) {
	var d Definition
	var lines bytes.Buffer
	names := named(e.Argv.Words)
	matched := make([]bool, len(e.Definition))
	absent := map[string]string{} // the path in the tree, and the word
	for _, word := range e.Argv.Words[min(1, len(e.Argv.Words)):] {
		if name, ok := treePath(word); ok {
			absent[name] = word
		}
	}
	for line := range bytes.Lines(manifest) {
		_, quoted, ok := cutFields(string(line), 3)
		if !ok {
			return Definition{}, fmt.Errorf("the tree's manifest has the line %q", line)
		}
		name := unquote(quoted)
		for up := name; up != "."; up = path.Dir(up) {
			delete(absent, up)
		}
		_, part := names[name]
		for i, glob := range e.Definition {
			if workflow.MatchGlob(glob, name) {
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
	d.Absent = slices.Sorted(maps.Values(absent))
	d.SHA256, d.Lines = seal.SHA256Hex(lines.Bytes()), lines.String()
	return d, nil
}

// treePath returns the path in the tree that a word of argv seems to name: it is
// relative, no option, and has a folder or an extension.
func treePath(word string) (name string, ok bool) {
	name = path.Clean(strings.TrimPrefix(word, allowlist.Target+"/"))
	ok = !strings.HasPrefix(word, "-") && filepath.IsLocal(name) && name != "." &&
		(strings.Contains(name, "/") || path.Ext(name) != "") && !strings.ContainsAny(name, " *:=")
	return name, ok
}

// Names returns the paths as the file system has them.
func (d Definition) Names() []string {
	names := make([]string, len(d.Paths))
	for i, quoted := range d.Paths {
		names[i] = unquote(quoted)
	}
	return names
}

// Has reports whether a path is part of the definition.
func (d Definition) Has(name string) bool { return slices.Contains(d.Names(), name) }

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
