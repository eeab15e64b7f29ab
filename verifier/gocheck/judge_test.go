package gocheck

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
)

// ran is a binary that wrote the lines with the marker before each.
func ran(path string, exit int, lines ...string) PackageRun {
	t := NewTally(&Room{})
	for _, line := range lines {
		_, _ = t.Write([]byte("\x16" + line + "\n"))
	}
	t.Close()
	return PackageRun{ImportPath: path, ExitCode: exit, Tally: t}
}

func declares(path string, names ...string) Package {
	p := Package{ImportPath: path, Dir: path, Name: path, TestFiles: []string{"x_test.go"}}
	for _, name := range names {
		p.Tests = append(p.Tests, Test{Name: name, Kind: TestFunc})
	}
	return p
}

func reasonCodes(j Judged) string {
	var list []string
	for _, r := range j.Reasons {
		list = append(list, r.Code)
	}
	return strings.Join(list, " ")
}

func TestJudgeTestsFollowsTheCensusTable(t *testing.T) {
	const pass, fail, unsure = receipt.Pass, receipt.Fail, receipt.Inconclusive
	a := declares("a", "TestA", "TestB")
	good := []string{"=== RUN   TestA", "--- PASS: TestA (0.00s)", "=== RUN   TestB", "--- PASS: TestB (0.00s)", "PASS"}
	cut := func(r PackageRun, why string) PackageRun { r.Cut = why; return r }
	killed := func(r PackageRun, signal string) PackageRun { r.Signal = signal; return r }
	for name, c := range map[string]struct {
		packages []Package
		runs     []PackageRun
		want     receipt.Judgement
		reasons  string
	}{
		"all pass":          {[]Package{a}, []PackageRun{ran("a", 0, good...)}, pass, ""},
		"exit status":       {[]Package{a}, []PackageRun{ran("a", 2, good...)}, fail, "exit_nonzero"},
		"signal":            {[]Package{a}, []PackageRun{killed(ran("a", -1, good...), "SIGSEGV")}, fail, "exit_nonzero"},
		"a fail event":      {[]Package{a}, []PackageRun{ran("a", 1, "=== RUN   TestA", "--- FAIL: TestA (0.00s)", "=== RUN   TestB", "--- PASS: TestB (0.00s)", "FAIL")}, fail, "exit_nonzero tests_failed"},
		"fail and status 0": {[]Package{a}, []PackageRun{ran("a", 0, append([]string{"=== RUN   TestC", "--- FAIL: TestC (0.00s)"}, good...)...)}, fail, "tests_failed"},
		"FAIL and status 0": {[]Package{a}, []PackageRun{ran("a", 0, append(good[:4:4], "FAIL")...)}, fail, "tests_failed"},
		"a subtest fails":   {[]Package{a}, []PackageRun{ran("a", 0, append([]string{"=== RUN   TestA/x", "    --- FAIL: TestA/x (0.00s)"}, good...)...)}, fail, "test_without_end"}, // its end is nested deeper than what is open, so it is output
		"subtest, top line": {[]Package{a}, []PackageRun{ran("a", 0, append([]string{"=== RUN   TestA/x", "--- FAIL: TestA/x (0.00s)"}, good...)...)}, fail, "tests_failed"},
		"no end of a test":  {[]Package{a}, []PackageRun{ran("a", 0, "=== RUN   TestA", "--- PASS: TestA (0.00s)", "=== RUN   TestB", "PASS")}, fail, "test_without_end"},
		"no end at all":     {[]Package{a}, []PackageRun{ran("a", 0, good[:4]...)}, fail, "output_without_end"},
		"no event":          {[]Package{a}, []PackageRun{ran("a", 0, "=== RUN   TestA", "--- PASS: TestA (0.00s)", "PASS")}, fail, "tests_not_run"},
		"end, no beginning": {[]Package{a}, []PackageRun{ran("a", 0, append([]string{"--- PASS: TestA (0.00s)"}, good...)...)}, fail, "events_inconsistent"},
		"an end too many":   {[]Package{a}, []PackageRun{ran("a", 0, append(good[:4:4], "--- PASS: TestB (0.00s)", "PASS")...)}, fail, "events_inconsistent"},
		"an empty name":     {[]Package{a}, []PackageRun{ran("a", 0, append([]string{"=== RUN   "}, good...)...)}, fail, "events_inconsistent"},
		"a stranger":        {[]Package{a}, []PackageRun{ran("a", 0, append([]string{"=== RUN   TestC", "--- PASS: TestC (0.00s)"}, good...)...)}, pass, ""},
		"no test":           {[]Package{declares("a")}, []PackageRun{ran("a", 0, "PASS")}, fail, "nothing_to_check"},
		"no package":        {nil, nil, fail, "nothing_to_check"},
		"all skipped":       {[]Package{declares("a", "TestA")}, []PackageRun{ran("a", 0, "=== RUN   TestA", "--- SKIP: TestA (0.00s)", "PASS")}, fail, "nothing_to_check"},
		"one skipped":       {[]Package{a}, []PackageRun{ran("a", 0, append([]string{"=== RUN   TestA", "--- SKIP: TestA (0.00s)"}, good[2:]...)...)}, pass, ""},
		"cut":               {[]Package{a}, []PackageRun{cut(ran("a", -1, "=== RUN   TestA", "--- FAIL: TestA (0.00s)", "FAIL"), "wall_clock")}, unsure, "test_cut_short"},
		"cut before it ran": {[]Package{a}, []PackageRun{{ImportPath: "a", Cut: "memory"}}, unsure, "test_cut_short"},
		"not run":           {[]Package{a}, nil, unsure, "package_not_run"},
		"one cut, one bad": {
			[]Package{a, declares("b", "TestB")},
			[]PackageRun{cut(ran("a", -1), "wall_clock"), ran("b", 1, "=== RUN   TestB", "--- FAIL: TestB (0.00s)", "FAIL")},
			fail, "exit_nonzero tests_failed test_cut_short",
		},
		"one cut, one skipped": {
			[]Package{a, declares("b", "TestB")},
			[]PackageRun{cut(ran("a", -1), "wall_clock"), ran("b", 0, "=== RUN   TestB", "--- SKIP: TestB (0.00s)", "PASS")},
			unsure, "test_cut_short",
		},
		"namesakes": {
			[]Package{declares("a", "TestA", "TestA")},
			[]PackageRun{ran("a", 0, "=== RUN   TestA", "--- PASS: TestA (0.00s)", "=== RUN   TestA", "--- PASS: TestA (0.00s)", "PASS")},
			pass, "",
		},
		"one namesake missing": {
			[]Package{declares("a", "TestA", "TestA")},
			[]PackageRun{ran("a", 0, "=== RUN   TestA", "--- PASS: TestA (0.00s)", "PASS")},
			fail, "tests_not_run",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := JudgeTests(Discovery{Packages: c.packages}, c.runs)
			if j.Judgement != c.want || reasonCodes(j) != c.reasons {
				t.Errorf("got %q (%v), want %q (%s)", j.Judgement, j.Reasons, c.want, c.reasons)
			}
		})
	}
}

func TestJudgeTestsIsUnsureOfWhatIsOverABound(t *testing.T) {
	d := Discovery{Packages: []Package{declares("a", "TestA")}, Incomplete: []string{"a/big_test.go"}}
	good := []string{"=== RUN   TestA", "--- PASS: TestA (0.00s)", "PASS"}
	j := JudgeTests(d, []PackageRun{ran("a", 0, good...)})
	if j.Judgement != receipt.Inconclusive || reasonCodes(j) != "census_incomplete" {
		t.Errorf("got %+v", j)
	}
	d.Packages[0].Tests = nil // they are all in the file that was not read
	if j := JudgeTests(d, []PackageRun{ran("a", 0, good...)}); j.Judgement != receipt.Inconclusive || reasonCodes(j) != "census_incomplete" {
		t.Errorf("no test but in the file over the bound: %q %v", j.Judgement, j.Reasons)
	}
	d.Packages[0] = declares("a", "TestA")
	tally := NewTally(&Room{})
	for i := range MaxTests + 1 {
		_, _ = fmt.Fprintf(tally, "\x16=== RUN   TestA/%d\n\x16--- PASS: TestA/%d (0.00s)\n", i, i)
	}
	_, _ = tally.Write([]byte("\x16" + strings.Join(good, "\n\x16") + "\n"))
	tally.Close()
	d.Incomplete = nil
	j = JudgeTests(d, []PackageRun{{ImportPath: "a", Tally: tally}})
	if j.Judgement != receipt.Inconclusive || reasonCodes(j) != "events_over_bound" {
		t.Errorf("got %q %v", j.Judgement, j.Reasons)
	}
	if j.Census.PassedTests.Count != MaxTests || len(j.Census.PassedTests.Names) != receipt.MaxList {
		t.Errorf("%d passed, %d named", j.Census.PassedTests.Count, len(j.Census.PassedTests.Names))
	}
}

func TestTalliesOfOneExecutionShareTheirBounds(t *testing.T) {
	room := &Room{}
	first, second := NewTally(room), NewTally(room)
	for i := range MaxTests - 1 {
		_, _ = fmt.Fprintf(first, "\x16=== RUN   T%d\n\x16--- PASS: T%d (0.00s)\n", i, i)
	}
	good := "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== RUN   TestB\n\x16--- PASS: TestB (0.00s)\n\x16PASS\n"
	control := NewControlTally("TestB", room)
	for _, tally := range []*Tally{second, control} {
		_, _ = tally.Write([]byte(good))
		tally.Close()
	}
	if len(first.tests) != MaxTests-1 || len(second.tests) != 1 {
		t.Errorf("remembered %d and %d tests, want %d together", len(first.tests), len(second.tests), MaxTests)
	}
	d := Discovery{Packages: []Package{declares("b", "TestA", "TestB")}}
	j := JudgeTests(d, []PackageRun{{ImportPath: "b", Tally: second}})
	if j.Judgement != receipt.Inconclusive || reasonCodes(j) != "events_over_bound" {
		t.Errorf("got %q %v", j.Judgement, j.Reasons)
	}
	if s := control.tests["TestB"]; len(control.tests) != 1 || s == nil || s.passed != 1 {
		t.Errorf("a control remembers %v, want TestB alone", control.tests)
	}
}

func TestCensusCountsAndNames(t *testing.T) {
	d := Discovery{Packages: []Package{declares("a", "TestA", "TestB", "TestC", "TestD"), {ImportPath: "none"}}}
	j := JudgeTests(d, []PackageRun{ran("a", 1,
		"=== RUN   TestA", "=== RUN   TestA/x", "=== RUN   TestA/y", "--- FAIL: TestA (0.00s)", "    --- PASS: TestA/x (0.00s)", "    --- FAIL: TestA/y (0.00s)",
		"=== RUN   TestB", "--- SKIP: TestB (0.00s)", "=== RUN   TestC", "--- PASS: TestC (0.00s)", "=== RUN   TestZ", "--- PASS: TestZ (0.00s)", "FAIL")})
	want := receipt.Census{
		Discovered: 4, Run: 3, Passed: 3, Failed: 2, Skipped: 1, Subtests: 2,
		PassedTests:  receipt.NewList([]string{"a TestA/x", "a TestC", "a TestZ"}),
		FailedTests:  receipt.NewList([]string{"a TestA", "a TestA/y"}),
		SkippedTests: receipt.NewList([]string{"a TestB"}),
		NotRun:       receipt.NewList([]string{"a TestD"}),
	}
	if diff := cmp.Diff(want, j.Census); diff != "" {
		t.Error(diff)
	}
	if got := codes(j.Findings)["test_not_declared"]; got != "a" {
		t.Errorf("findings %+v", j.Findings)
	}
	wantLines := "a\tTestA\tfailed|a\tTestA/x\tpassed|a\tTestA/y\tfailed|a\tTestB\tskipped|a\tTestC\tpassed|a\tTestZ\tpassed"
	var lines []string
	for _, r := range j.Results {
		lines = append(lines, r.String())
	}
	if got := strings.Join(lines, "|"); got != wantLines {
		t.Errorf("lines %s", got)
	}
}

// TestNoEventMakesAFailedRunPass adds any event to a run that failed.
func TestNoEventMakesAFailedRunPass(t *testing.T) {
	d := Discovery{Packages: []Package{declares("a", "TestA", "TestB")}}
	lines := []string{"=== RUN   TestA", "--- FAIL: TestA (0.00s)", "=== RUN   TestB", "--- PASS: TestB (0.00s)", "FAIL"}
	for _, exit := range []int{0, 1} {
		for at := range len(lines) + 1 {
			for _, extra := range []string{"=== RUN   TestA", "--- PASS: TestA (0.00s)", "--- SKIP: TestA (0.00s)", "PASS", "=== PASS  TestA", "=== NAME  TestB", "    --- PASS: TestA (0.00s)", "FAIL"} {
				forged := append(append(append([]string{}, lines[:at]...), extra), lines[at:]...)
				if j := JudgeTests(d, []PackageRun{ran("a", exit, forged...)}); j.Judgement != receipt.Fail {
					t.Errorf("%q before line %d, status %d: %q", extra, at, exit, j.Judgement)
				}
			}
		}
	}
}

func TestJudgeTestControlWantsEachPlantedFailureSeen(t *testing.T) {
	planted := []Planted{{ImportPath: "a", Test: "TestP"}, {ImportPath: "b", Test: "TestQ"}}
	failing := func(path, test string) PackageRun {
		return ran(path, 1, "=== RUN   "+test, "--- FAIL: "+test+" (0.00s)", "FAIL")
	}
	cut := failing("b", "TestQ")
	cut.Cut = "memory"
	killed := failing("b", "TestQ")
	killed.Signal = "SIGKILL"
	for name, c := range map[string]struct {
		b    []PackageRun
		want receipt.ControlOutcome
	}{
		"both seen":            {[]PackageRun{failing("b", "TestQ")}, receipt.FailedAsRequired},
		"another name":         {[]PackageRun{failing("b", "TestP")}, receipt.Invalid},
		"status 0":             {[]PackageRun{ran("b", 0, "=== RUN   TestQ", "--- FAIL: TestQ (0.00s)", "FAIL")}, receipt.DidNotFail},
		"passed":               {[]PackageRun{ran("b", 1, "=== RUN   TestQ", "--- PASS: TestQ (0.00s)", "FAIL")}, receipt.DidNotFail},
		"skipped":              {[]PackageRun{ran("b", 1, "=== RUN   TestQ", "--- SKIP: TestQ (0.00s)", "FAIL")}, receipt.DidNotFail},
		"failed and passed":    {[]PackageRun{ran("b", 1, "=== RUN   TestQ", "--- FAIL: TestQ (0.00s)", "=== RUN   TestQ", "--- PASS: TestQ (0.00s)", "FAIL")}, receipt.DidNotFail},
		"never begun":          {[]PackageRun{ran("b", 2)}, receipt.Invalid},
		"never ended":          {[]PackageRun{ran("b", 2, "=== RUN   TestQ")}, receipt.Invalid},
		"cut":                  {[]PackageRun{cut}, receipt.Invalid},
		"killed":               {[]PackageRun{killed}, receipt.Invalid},
		"package not run":      {nil, receipt.Invalid},
		"silent, and status 0": {[]PackageRun{ran("b", 0)}, receipt.DidNotFail},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := JudgeTestControl(planted, append([]PackageRun{failing("a", "TestP")}, c.b...))
			if got != c.want || (why == "") != (got == receipt.FailedAsRequired) {
				t.Errorf("got %q (%s), want %q", got, why, c.want)
			}
		})
	}
	if got, _ := JudgeTestControl(nil, nil); got != receipt.Invalid {
		t.Errorf("nothing planted: %q", got)
	}
}

func results(lines ...string) Results {
	var rs Results
	for _, line := range lines {
		test, outcome, _ := strings.Cut(line, " ")
		rs = append(rs, Result{Package: "p", Test: test, Outcome: outcome})
	}
	return rs.sorted()
}

func TestCompareRunsCountsSubtestsWhoseNamesVary(t *testing.T) {
	for name, c := range map[string]struct {
		a, b  Results
		agree bool
		vary  []string
	}{
		"equal":            {results("T passed", "T/x passed"), results("T passed", "T/x passed"), true, nil},
		"other names":      {results("T passed", "T/12:30 passed"), results("T passed", "T/12:31 passed"), true, []string{"T"}},
		"other number":     {results("T passed", "T/1 passed"), results("T passed", "T/1 passed", "T/2 passed"), false, []string{"T"}},
		"other outcome":    {results("T passed", "T/1 passed"), results("T passed", "T/2 skipped"), false, []string{"T"}},
		"parents disagree": {results("T passed", "T/1 passed"), results("T failed", "T/2 passed"), false, nil},
		"only below":       {results("T passed", "T/a passed", "T/a/1 passed", "T/b passed"), results("T passed", "T/a passed", "T/a/2 passed", "T/b passed"), true, []string{"T/a"}},
		"all levels":       {results("T passed", "T/1 passed", "T/1/1 passed"), results("T passed", "T/2 passed", "T/2/2 passed"), true, []string{"T"}},
		"slash in a name":  {results("T passed", "T/a/b passed", "T/a/b/1 passed"), results("T passed", "T/a/b passed", "T/a/b/2 passed"), true, []string{"T/a/b"}},
		"another test":     {results("T passed"), results("U passed"), false, nil},
		"neighbours stay":  {results("T passed", "T/1 passed", "T# passed", "TA passed", "TA/x failed"), results("T passed", "T/2 passed", "T# passed", "TA passed", "TA/x passed"), false, []string{"T"}},
		"prefixes":         {results("T passed", "T#1 passed", "T#1/a passed", "T/a passed", "Ta passed"), results("T passed", "T#1 passed", "T#1/b passed", "T/b passed", "Ta passed"), true, []string{"T", "T#1"}},
		"outcome below":    {results("T passed", "T/x passed"), results("T passed", "T/x skipped"), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, findings := CompareRuns(c.a, c.b)
			if agree := cmp.Equal(a, b); agree != c.agree || (a.SHA256() == b.SHA256()) != c.agree {
				t.Errorf("agree %v, want %v\n%v\n%v", agree, c.agree, a, b)
			}
			var vary []string
			for _, f := range findings {
				vary = append(vary, strings.TrimSuffix(f.Detail, ": its subtests have other names in the second execution; only their number is compared"))
			}
			if diff := cmp.Diff(c.vary, vary); diff != "" {
				t.Error(diff)
			}
			b2, a2, _ := CompareRuns(c.b, c.a)
			if a.SHA256() != a2.SHA256() || b.SHA256() != b2.SHA256() {
				t.Error("the order of the executions matters")
			}
		})
	}
}

func TestPlantedNamesAreRandomAndOfTheRightPackage(t *testing.T) {
	d := Discovery{Packages: []Package{
		{ImportPath: "m/a", Dir: "a", Name: "a", GoFiles: []string{"a.go"}, TestFiles: []string{"a_test.go"}, XTestFiles: []string{"x_test.go"}, XTestName: "a_test"},
		{ImportPath: "m/x", Dir: "x", Name: "x", GoFiles: []string{"x.go"}, XTestFiles: []string{"x_test.go"}, XTestName: "x_test"},
		{ImportPath: "m/o", Dir: "o", Name: "o", XTestFiles: []string{"o_test.go"}, XTestName: "o_test"},
		{ImportPath: "m/n", Dir: "n", Name: "n", GoFiles: []string{"n.go"}},
	}}
	l := &lab{t: t}
	for _, c := range []struct {
		plant   func(Discovery) ([]Planted, error)
		clauses string
	}{
		{func(d Discovery) ([]Planted, error) { return PlantTest(d, l.random()) }, "a_test x_test o_test"},
		{func(d Discovery) ([]Planted, error) { return PlantVet(d, l.random()) }, "a x o_test n"},
		{func(d Discovery) ([]Planted, error) { return PlantBuild(d, l.random()) }, "a x n"},
	} {
		all, err := c.plant(d)
		if err != nil {
			t.Fatal(err)
		}
		var clauses []string
		seen := map[string]bool{}
		for _, p := range all {
			line, _, _ := strings.Cut(string(p.Data), "\n")
			clauses = append(clauses, strings.TrimPrefix(line, "package "))
			if seen[p.Path[2:]] || !strings.HasPrefix(p.Path[2:], "zz_") {
				t.Errorf("path %q", p.Path)
			}
			seen[p.Path[2:]] = true
			if strings.Contains(strings.ToLower(string(p.Data)), "plant") || strings.Contains(string(p.Data), "striatum") {
				t.Errorf("a mark in %s", p.Data)
			}
			if p.Test != "" && !strings.Contains(string(p.Data), "func "+p.Test+"(") {
				t.Errorf("no %s in %s", p.Test, p.Data)
			}
		}
		if got := strings.Join(clauses, " "); got != c.clauses {
			t.Errorf("clauses %q, want %q", got, c.clauses)
		}
	}
	if _, err := PlantTest(d, strings.NewReader("short")); err == nil {
		t.Error("planted without randomness")
	}
}

func TestTalliesOfOneExecutionKeepAFewFailures(t *testing.T) {
	room, kept := &Room{}, 0
	for range 3 {
		tally := NewTally(room)
		for i := range maxFailures - 1 {
			_, _ = fmt.Fprintf(tally, "\x16=== RUN   T%d\n\x16--- FAIL: T%d (0.00s)\n", i, i)
		}
		tally.Close()
		kept += len(tally.Failures())
	}
	if kept != maxFailures {
		t.Errorf("kept %d, want %d", kept, maxFailures)
	}
}

func TestTallyKeepsTheEndOfAFailingTestsOutput(t *testing.T) {
	tally := NewTally(&Room{})
	_, _ = fmt.Fprintf(tally, "\x16=== RUN   TestA\n%slast words\n\x16--- FAIL: TestA (0.00s)\n\x16FAIL\n", strings.Repeat("blah blah\n", 100_000))
	tally.Close()
	f := tally.Failures()
	if len(f) != 1 || f[0].Test != "TestA" || !strings.Contains(f[0].Tail, "last words\n") || len(f[0].Tail) > tailBytes {
		t.Errorf("%d failures, tail of %d bytes", len(f), len(f[0].Tail))
	}
}

func TestControlDiffersNamesWhatBothRunsEndAlike(t *testing.T) {
	control := NewControlTally("TestPlanted", &Room{})
	_, _ = control.Write([]byte("\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== RUN   TestB\n\x16--- FAIL: TestB (0.00s)\n\x16=== RUN   TestPlanted\n\x16--- FAIL: TestPlanted (0.00s)\n\x16FAIL\n"))
	control.Close()
	results := func(pairs ...string) Results {
		var rs Results
		for i := 0; i < len(pairs); i += 2 {
			rs = append(rs, Result{Package: "m", Test: pairs[i], Outcome: pairs[i+1]})
		}
		return rs
	}
	runs := []PackageRun{{ImportPath: "m", ExitCode: 1, Tally: control}}
	a := results("TestA", "passed", "TestB", "passed", "TestC", "skipped", "TestD", "passed", "TestE/x1", "passed")
	b := results("TestA", "passed", "TestB", "passed", "TestC", "skipped", "TestD", "skipped", "TestE/x2", "passed")
	if diff := cmp.Diff([]string{"m TestB", "m TestC"}, ControlDiffers(runs, a, b)); diff != "" {
		t.Error(diff)
	}
}
