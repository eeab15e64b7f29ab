package allowlist

import (
	"slices"
	"testing"
)

func TestClosureDiffNamesEachPart(t *testing.T) {
	before := []ClosurePart{{Path: "/usr/bin/a", SHA256: "1"}, {Root: "/usr/lib/x", TreeSHA256: "2"}, {Tree: "definition", SHA256: "3"}, {Path: "/usr/bin/gone", SHA256: "4"}}
	after := []ClosurePart{{Path: "/usr/bin/a", SHA256: "9"}, {Root: "/usr/lib/x", TreeSHA256: "2"}, {Tree: "definition", SHA256: "8"}, {Path: "/usr/bin/new", SHA256: "5"}}
	want := []string{
		"/usr/bin/a was 1 and is 9", "the definition in the tree was 3 and is 8", "/usr/bin/new is new (5)", "/usr/bin/gone is no longer part of it",
	}
	if got := ClosureDiff(before, after); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ClosureDiff(before, before); got != nil {
		t.Errorf("equal closures differ: %q", got)
	}
}
