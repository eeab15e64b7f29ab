package gocheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"striatum/receipt"
)

// PackageRun is what came of one package's test binary.
type PackageRun struct {
	ImportPath string
	ExitCode   int
	Signal     string // "SIGSEGV"; empty: it exited
	// Cut says what ended the binary or kept it from starting, if that was not
	// its own doing: a limit of the sandbox, trouble of the infrastructure. What
	// a cut binary reported is not judged.
	Cut   string
	Tally *Tally // closed
}

// Judged is the word of a check on one execution, with what it rests on.
type Judged struct {
	Judgement receipt.Judgement
	Reasons   []receipt.Reason
	Findings  []receipt.Finding
	Census    receipt.Census // only of go-test
	Results   Results
}

// JudgeTests judges one execution of a test check against what its sources
// declare. Each of these makes it failed: a test or the binary that failed, one
// without an end, output without an end, a declared test without any event,
// events that no honest run has, no test at all or only skipped ones. A
// package that was cut short or is missing from runs, names over a bound and
// sources that could not be counted make it indeterminate, unless it failed.
// Skips pass and are listed. The census counts subtests in all but Discovered
// and Run; NotRun has the declared tests without an event.
func JudgeTests(d Discovery, runs []PackageRun) Judged {
	j := judging{discovery: d}
	byPath := map[string]PackageRun{}
	for _, r := range runs {
		byPath[r.ImportPath] = r
	}
	for _, p := range sortedByPath(d.Packages) {
		j.census.Discovered += int64(len(p.Tests))
		if p.HasTests() {
			r, ok := byPath[p.ImportPath]
			j.pack(p, r, ok)
		}
	}
	if len(d.Incomplete) > 0 {
		j.unsure("census_incomplete", fmt.Sprintf("over %d bytes: %s", MaxSourceBytes, nameSome(d.Incomplete)))
	}
	switch {
	case j.census.Discovered == 0 && len(d.Incomplete) == 0:
		j.bad("nothing_to_check", "no package of the check declares a test")
	case j.cut == 0 && j.topSkipped > 0 && j.topSkipped == j.census.Discovered:
		j.bad("nothing_to_check", "every test was skipped")
	}
	return j.word()
}

// JudgeMutant judges the tests of d with a mutant in the product: Fail, they
// noticed it; Pass, they did not; Inconclusive, a limit or somebody's kill ended
// them. That there is nothing to check among them does not notice anything.
func JudgeMutant(d Discovery, runs []PackageRun) receipt.Judgement {
	for i := range runs {
		if runs[i].Signal == "SIGKILL" && runs[i].Cut == "" {
			runs[i].Cut = "it was killed"
		}
	}
	j := JudgeTests(d, runs)
	notices := func(r receipt.Reason) bool {
		return !slices.Contains([]string{"nothing_to_check", "package_not_run", "test_cut_short", "census_incomplete", "events_over_bound"}, r.Code)
	}
	switch {
	case slices.ContainsFunc(j.Reasons, notices):
		return receipt.Fail
	case slices.ContainsFunc(j.Reasons, func(r receipt.Reason) bool { return r.Code != "nothing_to_check" }):
		return receipt.Inconclusive
	}
	return receipt.Pass
}

type judging struct {
	discovery  Discovery
	bads       []receipt.Reason
	unsures    []receipt.Reason
	findings   []receipt.Finding
	census     receipt.Census
	results    Results  // sorted, because packages and tests come sorted
	outcomes   []Action // of each result; 0: a test without an end
	notRun     []string
	cut        int
	topSkipped int64
}

func (j *judging) bad(code, detail string) {
	j.bads = append(j.bads, receipt.Reason{Code: code, Detail: detail})
}

func (j *judging) unsure(code, detail string) {
	j.unsures = append(j.unsures, receipt.Reason{Code: code, Detail: detail})
}

// word gives the judgement: reasons for a failure come first and decide.
func (j *judging) word() Judged {
	c := j.census
	c.PassedTests, c.FailedTests, c.SkippedTests = j.list(Passed), j.list(Failed), j.list(Skipped)
	c.Passed, c.Failed, c.Skipped = c.PassedTests.Count, c.FailedTests.Count, c.SkippedTests.Count
	c.NotRun = receipt.NewList(j.notRun)
	judged := Judged{Judgement: receipt.Pass, Findings: boundFindings(j.findings), Census: c, Results: j.results.sorted()}
	judged.Reasons = boundReasons(slices.Concat(j.bads, j.unsures))
	switch {
	case len(j.bads) > 0:
		judged.Judgement = receipt.Fail
	case len(j.unsures) > 0:
		judged.Judgement = receipt.Inconclusive
	}
	return judged
}

// list names the tests with an outcome. Their names are many, so none is copied.
func (j *judging) list(outcome Action) receipt.List {
	return receipt.SortedList(func(yield func(string) bool) {
		for i, o := range j.outcomes {
			if r := j.results[i]; o == outcome && !yield(r.Package+" "+r.Test) {
				return
			}
		}
	})
}

// pack judges one package.
func (j *judging) pack(p Package, r PackageRun, ran bool) {
	switch {
	case !ran || r.Tally == nil && r.Cut == "":
		j.cut++
		j.unsure("package_not_run", p.ImportPath)
		return
	case r.Cut != "":
		j.cut++
		j.unsure("test_cut_short", fmt.Sprintf("%s: %s", p.ImportPath, r.Cut))
		if r.Tally != nil {
			j.tests(p, r.Tally, true)
		}
		return
	}
	if r.Signal != "" {
		j.bad("exit_nonzero", fmt.Sprintf("%s: ended by %s", p.ImportPath, r.Signal))
	} else if r.ExitCode != 0 {
		j.bad("exit_nonzero", fmt.Sprintf("%s: exit status %d", p.ImportPath, r.ExitCode))
	}
	t := r.Tally
	if t.over {
		j.unsure("events_over_bound", p.ImportPath)
	}
	if t.odd != "" {
		j.bad("events_inconsistent", fmt.Sprintf("%s: %s", p.ImportPath, t.odd))
	}
	if t.final == 0 {
		j.bad("output_without_end", p.ImportPath)
	} else if t.final == Failed && r.ExitCode == 0 && r.Signal == "" {
		j.bad("tests_failed", p.ImportPath+": reported FAIL and exited with status 0")
	}
	j.tests(p, t, false)
}

// tests counts the tests of one package. Those of a binary that was cut short
// are counted and do not decide.
func (j *judging) tests(p Package, t *Tally, cut bool) {
	declared := map[string]int{}
	for _, test := range p.Tests {
		declared[test.Name]++
	}
	var failed, endless, missing, strangers []string
	for _, name := range sortedKeys(t.tests) {
		s := *t.tests[name]
		if s.runs == 0 && s.ended() == 0 {
			continue
		}
		sub := strings.Contains(name, "/")
		outcome := s.outcome()
		j.results = append(j.results, Result{Package: p.ImportPath, Test: name, Outcome: s.describe()})
		j.outcomes = append(j.outcomes, outcome)
		switch outcome { //nolint:exhaustive // seen has no other outcome
		case 0:
			endless = append(endless, name)
		case Failed:
			failed = append(failed, name)
		case Skipped:
			j.topSkipped += int64(declared[name])
		}
		switch {
		case sub:
			j.census.Subtests++
		case declared[name] == 0:
			strangers = append(strangers, name)
		}
	}
	for _, test := range p.Tests {
		s := t.tests[test.Name]
		if declared[test.Name] == 0 {
			continue // counted with its namesake
		}
		want := declared[test.Name]
		declared[test.Name] = 0
		got := 0
		if s != nil {
			got = min(want, int(s.runs))
		}
		j.census.Run += int64(got)
		for range want - got {
			missing = append(missing, test.Name)
			j.notRun = append(j.notRun, p.ImportPath+" "+test.Name)
		}
	}
	if len(strangers) > 0 {
		j.findings = append(j.findings, receipt.Finding{
			Code: "test_not_declared", Path: p.Dir,
			Detail: "reported, and no source declares it: " + nameSome(strangers),
		})
	}
	if cut {
		return
	}
	if t.over {
		missing = nil // their events may be among those that found no room
	}
	for _, r := range []struct {
		code  string
		names []string
	}{{"tests_failed", failed}, {"test_without_end", endless}, {"tests_not_run", missing}} {
		if len(r.names) > 0 {
			j.bad(r.code, fmt.Sprintf("%s: %s", p.ImportPath, nameSome(r.names)))
		}
	}
}

// outcome is the worst of a name's runs; 0 if one has no end.
func (s seen) outcome() Action {
	switch {
	case s.failed > 0:
		return Failed
	case s.ended() < s.runs:
		return 0
	case s.passed > 0:
		return Passed
	default:
		return Skipped
	}
}

// describe is the outcome in words, with counts if the name ran more than once.
func (s seen) describe() string {
	counts := []struct {
		n    int32
		word string
	}{{s.passed, "passed"}, {s.failed, "failed"}, {s.skipped, "skipped"}, {max(0, s.runs-s.ended()), "unfinished"}}
	var words []string
	for _, c := range counts {
		switch {
		case c.n == 1 && max(s.runs, s.ended()) == 1:
			return c.word
		case c.n > 0:
			words = append(words, fmt.Sprintf("%d %s", c.n, c.word))
		}
	}
	return strings.Join(words, ", ")
}

// sortedByPath is the packages in the order of their import paths.
func sortedByPath(packages []Package) []Package {
	return slices.SortedFunc(slices.Values(packages), func(a, b Package) int { return cmp.Compare(a.ImportPath, b.ImportPath) })
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare)
	return keys
}
