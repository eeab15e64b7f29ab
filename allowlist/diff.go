package allowlist

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// name is what a part of a closure is known by.
func (c ClosurePart) name() string {
	switch {
	case c.Path != "":
		return c.Path
	case c.Root != "":
		return c.Root + "/"
	case c.Tree != "":
		return "the definition in the tree"
	}
	return c.Image
}

func (c ClosurePart) digest() string {
	if c.Root != "" {
		return c.TreeSHA256
	}
	return c.SHA256
}

// ClosureDiff says, in one sentence for each part, what tells the second closure
// from the first; none if nothing does.
func ClosureDiff(before, after []ClosurePart) []string {
	var out []string
	old := map[string]string{}
	for _, p := range before {
		old[p.name()] = p.digest()
	}
	for _, p := range after {
		was, ok := old[p.name()]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s is new (%s)", p.name(), p.digest()))
		case was != p.digest():
			out = append(out, fmt.Sprintf("%s was %s and is %s", p.name(), was, p.digest()))
		}
		delete(old, p.name())
	}
	for _, p := range before {
		if _, gone := old[p.name()]; gone {
			out = append(out, fmt.Sprintf("%s is no longer part of it", p.name()))
		}
	}
	return out
}

// DefinitionDiff says which files tell two definitions apart, by their lines of
// the tree's manifest ("mode sha256 size path"); nil if either is not known.
func DefinitionDiff(before, after string) []string {
	if before == "" || after == "" {
		return nil
	}
	var out []string
	old := map[string]string{}
	for line := range strings.Lines(before) {
		name, state := definitionLine(line)
		old[name] = state
	}
	for line := range strings.Lines(after) {
		name, state := definitionLine(line)
		was, ok := old[name]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s is new in the definition (%s)", name, state))
		case was != state:
			out = append(out, fmt.Sprintf("%s was %s and is %s", name, was, state))
		}
		delete(old, name)
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		out = append(out, name+" is no longer in the definition")
	}
	return out
}

// definitionLine takes a line of the manifest apart: the path, as it is written
// there, and what is before it.
func definitionLine(line string) (name, state string) {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
	return fields[len(fields)-1], strings.Join(fields[:len(fields)-1], " ")
}
