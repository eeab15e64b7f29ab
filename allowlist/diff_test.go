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

func TestDefinitionDiffNamesEachFile(t *testing.T) {
	const before = "100644 aa 1 conf.yml\n100755 bb 2 \"tools/\\303\\244 b.py\"\n100644 cc 3 gone\n"
	const after = "100644 aa 1 conf.yml\n100644 bb 2 \"tools/\\303\\244 b.py\"\n100644 dd 4 new\n"
	want := []string{
		`"tools/\303\244 b.py" was 100755 bb 2 and is 100644 bb 2`, "new is new in the definition (100644 dd 4)", "gone is no longer in the definition",
	}
	if got := DefinitionDiff(before, after); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := append(DefinitionDiff(before, before), DefinitionDiff("", after)...); got != nil {
		t.Errorf("equal or unknown definitions differ: %q", got)
	}
}
