package verifier_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/verifier"
	"striatum/workflow"
)

// partlyTested has a function that its own tests hold, one that only another
// package's tests hold, and one that nobody does.
const partlyTested = `-- go.mod --
module example.test/m

go 1.24
-- a/a.go --
package a

func Own(n int) int { return n + 1 }

func Lent(n int) int { return n * 3 }

func Loose(n int) bool { return n > 4 }
-- a/a_test.go --
package a

import "testing"

func TestOwn(t *testing.T) {
	if Own(1) != 2 || Own(5) != 6 {
		t.Error("Own")
	}
	Lent(1)
	Loose(1)
}
-- b/b_test.go --
package b

import (
	"testing"

	"example.test/m/a"
)

func TestLent(t *testing.T) {
	if a.Lent(2) != 6 || a.Lent(7) != 21 {
		t.Error("Lent")
	}
}
`

// TestEveryMutantIsRehearsed tries all mutants, and names those that no test of
// any package notices.
func TestEveryMutantIsRehearsed(t *testing.T) {
	l := open(t)
	rehearse := func(tree string, most int) verifier.MutantsRehearsed {
		t.Helper()
		l.mu.Lock()
		defer l.mu.Unlock()
		stored := len(l.stored)
		done, err := l.lane(t, nil).RehearseMutants(t.Context(), verifier.Request{
			RepositoryID: "repo-test", Requester: "local", Root: testenv.Tree(t, tree), Wait: time.Minute,
			Select: func(string) (verifier.Selection, error) {
				return verifier.Selection{Checks: []workflow.CheckRef{goTest}}, nil
			},
		}, most)
		if err != nil || len(done) != 1 || len(l.stored) != stored {
			t.Fatalf("%d rehearsals, %d new receipts, %v", len(done), len(l.stored)-stored, err)
		}
		return done[0]
	}
	all := rehearse(partlyTested, 1000)
	m := all.Facts.Mutants
	if all.Facts.Classification != receipt.Asserted || m == nil || m.Killed < 2 || m.Asked != m.Killed+m.Survived+m.NotCompiled+m.CutShort {
		t.Fatalf("%s, %+v, %+v", all.Facts.Classification, m, all.Facts.Reasons)
	}
	if int64(len(m.Survivors)) != m.Survived || m.Survived == 0 {
		t.Errorf("%d survivors are named of %d", len(m.Survivors), m.Survived)
	}
	for _, s := range m.Survivors {
		if s.Path != "a/a.go" || s.Line != 7 {
			t.Errorf("%s:%d %s survived, and only Loose is held by no test", s.Path, s.Line, s.Operator)
		}
	}
	if few := rehearse(partlyTested, 1).Facts.Mutants; few.Asked != 1 || few.Killed+few.Survived+few.NotCompiled+few.CutShort != 1 {
		t.Errorf("of one: %+v", few)
	}
	bad := rehearse(strings.Replace(partlyTested, "a.Lent(2) != 6", "a.Lent(2) != 7", 1), 1000)
	if bad.Facts.Classification != receipt.Failed || bad.Facts.Mutants != nil || !slices.ContainsFunc(bad.Failing, func(f verifier.Failing) bool { return strings.Contains(f.Name, "TestLent") }) {
		t.Errorf("where a test fails: %s, %+v, %s", bad.Facts.Classification, bad.Facts.Mutants, fmt.Sprint(bad.Failing))
	}
}
