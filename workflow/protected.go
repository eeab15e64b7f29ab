package workflow

import (
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// ProtectedInputs are the paths of a check whose bytes come from a commit, whatever
// the tree under check has there. Paths are globs as MatchGlob reads them.
type ProtectedInputs struct {
	Commit string   `json:"commit"` // its full object id
	Paths  []string `json:"paths"`
}

// The bounds of a glob, whose matching tries all combinations of its alternatives and
// all places of its stars.
const maxGlobGroups, maxGlobCommas, maxGlobStars = 3, 12, 8

// Fault returns the first rule that p breaks beyond the schema, and the JSON pointer
// below p's own of what breaks it. what is empty if there is none.
func (p ProtectedInputs) Fault() (pointer, what string) {
	for i, g := range p.Paths {
		at := fmt.Sprintf("/paths/%d", i)
		if !CleanPath(g) || g == "." {
			return at, fmt.Sprintf("%q is not a clean path relative to the top of the worktree", g)
		}
		if why := GlobFault(g); why != "" {
			return at, why
		}
	}
	return "", ""
}

// GlobFault says why MatchGlob must not be asked about g; empty if it may.
func GlobFault(g string) string {
	switch {
	case !doublestar.ValidatePattern(g):
		return fmt.Sprintf("%q is not a glob", g)
	case strings.Count(g, "{") > maxGlobGroups || strings.Count(g, ",") > maxGlobCommas:
		return fmt.Sprintf("%q has more than %d groups of alternatives or %d commas", g, maxGlobGroups, maxGlobCommas)
	case strings.Count(g, "*") > maxGlobStars:
		return fmt.Sprintf("%q has more than %d stars", g, maxGlobStars)
	}
	return ""
}

// MatchGlob reports whether a glob (*, **, ?, [a-z], {a,b}) matches the path name,
// or a folder above it. Case counts.
func MatchGlob(glob, name string) bool {
	return doublestar.MatchUnvalidated(glob, name) || doublestar.MatchUnvalidated(glob+"/**", name)
}
