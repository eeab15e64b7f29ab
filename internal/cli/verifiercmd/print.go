package verifiercmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"striatum/internal/cli"
	"striatum/receipt"
	"striatum/verifier"
)

const (
	// schemaVersion marks what `verifier run --output json` prints.
	schemaVersion = "striatum.verifier_run.v1"
	// maxNotes bounds the findings and skips that follow the table, maxNamed the
	// tests that one of them names.
	maxNotes, maxNamed = 20, 5
	// maxListed bounds each list of findings and of skipped tests in the JSON.
	maxListed = 100
	// shortID is how much of a receipt's seal the table shows.
	shortID = 12
)

// runJSON is what `verifier run --output json` prints.
type runJSON struct {
	SchemaVersion string        `json:"schema_version"`
	RepositoryID  string        `json:"repository_id"`
	RunID         string        `json:"run_id"`
	Checks        []outcomeJSON `json:"checks"`
}

type outcomeJSON struct {
	CheckID        string           `json:"check_id"`
	BacksClaim     string           `json:"backs_claim"`
	Classification string           `json:"classification"`
	Reasons        []receipt.Reason `json:"reasons"`
	Receipt        string           `json:"receipt"`
	TreeSHA256     string           `json:"tree_sha256"`
	GitCommit      string           `json:"git_commit"`
	Strict         bool             `json:"strict"`
	Tests          *testsJSON       `json:"tests"`   // nil: the check has none
	Mutants        *receipt.Mutants `json:"mutants"` // nil: the check plants none, or came to none
	// Protected says which files of the tree did not count; absent: the check has no
	// protected inputs.
	Protected *receipt.Protected `json:"protected,omitempty"`
	Findings  receipt.Findings   `json:"findings"`
	Failing   []failingJSON      `json:"failing"`
}

type testsJSON struct {
	Discovered   int64    `json:"discovered"`
	Run          int64    `json:"run"`
	Passed       int64    `json:"passed"`
	Failed       int64    `json:"failed"`
	Skipped      int64    `json:"skipped"`
	SkippedTests []string `json:"skipped_tests"`
}

type failingJSON struct {
	Name string `json:"name"`
	Tail string `json:"tail"`
}

// print writes one line, or one JSON object, for each outcome, and what a pass
// among them does not speak for.
func (o *runOptions) print(s cli.Streams, repositoryID string, outcomes []verifier.Outcome) error {
	if o.output == cli.JSON {
		run := runJSON{SchemaVersion: schemaVersion, RepositoryID: repositoryID, RunID: o.run, Checks: []outcomeJSON{}}
		for _, out := range outcomes {
			run.Checks = append(run.Checks, asJSON(out))
		}
		return s.WriteJSON(run)
	}
	if len(outcomes) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tCLAIM\tRESULT\tRECEIPT")
	for _, out := range outcomes {
		r := out.Receipt.Receipt()
		result := string(r.Classification)
		if reasons := r.Explained(); len(reasons) > 0 {
			result += " " + reasons[0].Code
			if more := len(reasons) - 1; more > 0 {
				result += fmt.Sprintf(" +%d", more)
			}
		}
		claimID := out.Check.BacksClaim
		if claimID == "" {
			claimID = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cli.Escape(out.Check.CheckID()), cli.Escape(claimID), result, out.Receipt.Seal()[:shortID])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(s.Out, notes(outcomes))
	return err
}

func asJSON(out verifier.Outcome) outcomeJSON {
	r := out.Receipt.Receipt()
	j := outcomeJSON{
		CheckID: out.Check.CheckID(), BacksClaim: out.Check.BacksClaim, Classification: string(r.Classification),
		Receipt: out.Receipt.Seal(), TreeSHA256: r.Inputs.TreeSHA256, GitCommit: r.Inputs.GitCommit, Strict: r.Posture.Strict,
		Reasons: r.Explained(), Mutants: r.Mutants, Protected: r.Inputs.Protected, Findings: receipt.CountFindings(r.Findings, maxListed), Failing: []failingJSON{},
	}
	if c := r.Census; c != nil {
		j.Tests = &testsJSON{Discovered: c.Discovered, Run: c.Run, Passed: c.Passed, Failed: c.Failed, Skipped: c.Skipped, SkippedTests: []string{}}
		j.Tests.SkippedTests = append(j.Tests.SkippedTests, c.SkippedTests.Names[:min(len(c.SkippedTests.Names), maxListed)]...)
	}
	for _, x := range out.Failing {
		j.Failing = append(j.Failing, failingJSON{x.Name, x.Tail})
	}
	return j
}

// note is one line about what a pass does not speak for. It stands for count
// skips or findings, of each of the checks.
type note struct {
	checks []string
	text   string
	count  int64
}

// notes are the skipped tests, replaced files and surviving mutants of each check, and
// what its tests lost since the baseline, then the findings by kind. What
// several checks found stands there once, with their names.
func notes(outcomes []verifier.Outcome) string {
	var skips, found []note
	add := func(check, text string, count int64) {
		i := slices.IndexFunc(found, func(n note) bool { return n.text == text })
		if i < 0 {
			found = append(found, note{text: text, count: count})
			i = len(found) - 1
		}
		found[i].checks = append(found[i].checks, check)
	}
	for _, out := range outcomes {
		check, r := out.Check.CheckID(), out.Receipt.Receipt()
		if c := r.Census; c != nil && c.Skipped > 0 {
			skips = append(skips, note{[]string{check}, skipped(c), c.Skipped})
		}
		if p := r.Inputs.Protected; p != nil && p.TreeSHA256 != r.Inputs.TreeSHA256 {
			skips = append(skips, note{[]string{check}, "the tree's own protected files: it " + p.String(), 1})
		}
		if m := r.Mutants; m != nil && m.Survived > 0 {
			skips = append(skips, note{[]string{check}, survived(m), 1})
		}
		if b := r.Baseline; b != nil {
			for _, x := range []struct {
				code string
				list receipt.List
			}{{"tests_removed", b.TestsRemoved}, {"tests_newly_skipped", b.TestsNewlySkipped}, {"test_inputs_changed", b.TestInputsChanged}} {
				if x.list.Count > 0 {
					skips = append(skips, note{[]string{check}, x.code + ": since the baseline: " + someOf(x.list), x.list.Count})
				}
			}
		}
		findings := receipt.CountFindings(r.Findings, len(r.Findings))
		left := map[string]int64{}
		for _, k := range findings.Kinds {
			left[k.Code] = k.Count
		}
		for _, f := range findings.Details {
			left[f.Code]--
			add(check, fmt.Sprintf("%s %s: %s", f.Code, f.Path, f.Detail), 1)
		}
		for _, k := range findings.Kinds {
			if n := left[k.Code]; n > 0 {
				add(check, fmt.Sprintf("%s: and %d more", k.Code, n), n)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b note) int { return strings.Compare(a.text, b.text) })
	all := append(skips, found...)
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprint(&b, "\nA pass does not speak for:\n")
	var more int64
	for i, n := range all {
		if i >= maxNotes {
			more += n.count
			continue
		}
		fmt.Fprintf(&b, "  %s: %s\n", cli.Escape(strings.Join(n.checks, ", ")), cli.Escape(n.text))
	}
	if more > 0 {
		fmt.Fprintf(&b, "  and %d more; the receipts have all: striatum receipt show SEAL\n", more)
	}
	return b.String()
}

// survived says which mutants no test noticed.
func survived(m *receipt.Mutants) string {
	var names []string
	for _, s := range m.Survivors[:min(len(m.Survivors), maxNamed)] {
		names = append(names, fmt.Sprintf("%s:%d %s", s.Path, s.Line, s.Operator))
	}
	text := fmt.Sprintf("%d of %d mutants survived, in %d statements: %s", m.Survived, m.Killed+m.Survived, m.Statements, strings.Join(names, ", "))
	if more := m.Survived - int64(min(len(m.Survivors), maxNamed)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// skipped says how many tests were skipped, and which.
func skipped(c *receipt.Census) string {
	return fmt.Sprintf("%d skipped and %d passed: %s", c.Skipped, c.Passed, someOf(c.SkippedTests))
}

// someOf names the first of a list and says how many there are more.
func someOf(l receipt.List) string {
	names := l.Names[:min(len(l.Names), maxNamed)]
	text := strings.Join(names, ", ")
	if more := l.Count - int64(len(names)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
