package gate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"striatum/gate"
	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/rootcmd"
	"striatum/seal"
)

// fixes evaluates every turn alone, in a run and outside one, and returns each fix that came up.
func fixes(t *testing.T) map[string]gate.Code {
	t.Helper()
	l := newLane(t, laneID, seal.ClassIsolated)
	out := map[string]gate.Code{}
	for _, turn := range turns() {
		w := newWorld(t, l)
		turn.apply(w)
		in := w.build()
		for _, run := range []string{in.RunID, ""} {
			in.RunID = run
			for _, b := range only(t, gate.Evaluate(in)).Bases {
				out[b.Fix] = b.Code
			}
		}
	}
	return out
}

func TestEveryFixIsACommandThatThisVersionHas(t *testing.T) {
	all := fixes(t)
	if len(all) < 10 {
		t.Fatalf("only the fixes %v came up", slices.Collect(maps.Keys(all)))
	}
	for fix, code := range all {
		if fix == "" {
			continue
		}
		if err := clitest.CheckCommand(t, rootcmd.New(&cli.Factory{}), fix); err != nil {
			t.Errorf("the fix of %s, %q: %v", code, fix, err)
		}
	}
}

// TestAFailureIsNotMetWithTheSameRunAgain: running a check on the unchanged tree
// mends none of these.
func TestAFailureIsNotMetWithTheSameRunAgain(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	for _, turn := range turns() {
		w := newWorld(t, l)
		turn.apply(w)
		for _, b := range only(t, gate.Evaluate(w.build())).Bases {
			switch b.Code { //nolint:exhaustive // the others are not about what the check saw
			case gate.CheckNotPassing, gate.NegativeControlDidNotFail, gate.NegativeControlInvalid, gate.ControlDetected, gate.NoMutantKilled, gate.NoReexecutionAgreement:
				if strings.HasPrefix(b.Fix, "striatum verifier run") || !strings.Contains(b.Fix, w.own.Seal()) {
					t.Errorf("%s: the fix is %q", b.Code, b.Fix)
				}
			}
		}
	}
}
