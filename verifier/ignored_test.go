package verifier_test

import (
	"slices"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
)

// TestTestsThatGitIgnoresAreNamed: a failing test that .gitignore hides is not
// in the snapshot, so both runs pass without it, and the receipt says so. What is
// left of the tests notices no mutant.
func TestTestsThatGitIgnoresAreNamed(t *testing.T) {
	l := open(t)
	r := l.receiptOf(t, testenv.Tree(t, `-- .gitignore --
add_test.go
hidden/
-- go.mod --
module m
-- add.go --
// Package m adds.
package m

// Add returns the sum of a and b.
func Add(a, b int) int { return a - b }
-- add_test.go --
package m

import "testing"

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Error("wrong")
	}
}
-- hidden/h_test.go --
package hidden

import "testing"

func TestHidden(t *testing.T) { t.Error("wrong") }
-- other_test.go --
package m

import "testing"

func TestOther(t *testing.T) {}
`), goTest)
	if r.Classification != receipt.Void || r.Census == nil || r.Census.Discovered != 1 {
		t.Fatalf("%s, census %+v, reasons %v", r.Classification, r.Census, r.Reasons)
	}
	for code, path := range map[string]string{"go_file_ignored": "add_test.go", "folder_ignored": "hidden"} {
		if !slices.ContainsFunc(r.Findings, func(f receipt.Finding) bool { return f.Code == code && f.Path == path }) {
			t.Errorf("no finding %s %s in %+v", code, path, r.Findings)
		}
	}
}
