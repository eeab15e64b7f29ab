package verifiercmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/cli"
	"striatum/internal/problem"
	"striatum/internal/schemacheck"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/verifier"
	"striatum/workflow"
)

// outcome is a check's, with a receipt of changed facts.
func outcome(t *testing.T, uses string, change func(r *receipt.Receipt)) verifier.Outcome {
	t.Helper()
	r := receipttest.Facts()
	r.Check.ID, r.Tools.BuiltinID = uses, uses
	change(&r)
	v := receipttest.Verified(t, r, receipttest.Key(t, 1))
	return verifier.Outcome{Check: workflow.CheckRef{Uses: uses, BacksClaim: "tests-pass"}, Receipt: v}
}

func printed(t *testing.T, o runOptions, outcomes ...verifier.Outcome) string {
	t.Helper()
	var out bytes.Buffer
	if err := o.print(cli.Streams{Out: &out}, "repo-1", outcomes); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var notChecked = receipt.Finding{Code: "module_not_checked", Path: "tools/go.mod", Detail: "no check names this module"}

func skipTwo(r *receipt.Receipt) {
	r.Census = &receipt.Census{
		Discovered: 3, Run: 3, Passed: 1, Skipped: 2, PassedTests: receipt.NewList([]string{"m TestA"}),
		SkippedTests: receipt.NewList([]string{"m TestB", "m TestC"}),
	}
}

// TestAPassNamesTheBytesThatDidNotCount: files of the tree that protected inputs
// replaced; nothing where the tree has them as they are.
func TestAPassNamesTheBytesThatDidNotCount(t *testing.T) {
	protects := func(ran string) verifier.Outcome {
		return outcome(t, "builtin:go-test", func(r *receipt.Receipt) {
			r.Census = nil
			r.Inputs.Protected = &receipt.Protected{
				Commit: strings.Repeat("c", 40), Paths: []string{"**/*_test.go"}, Files: 2, TreeSHA256: ran, ManifestSHA256: receipttest.Digest("m"),
				Restored: receipt.NewList(nil), Added: receipt.NewList(nil), Removed: receipt.NewList([]string{"main_test.go"}),
			}
			if ran == r.Inputs.TreeSHA256 {
				r.Inputs.Protected.Removed = receipt.NewList(nil)
			}
		})
	}
	other := receipttest.Digest("ran")
	want := "  builtin:go-test: the tree's own protected files: it ran on tree " + other[:12] + ", which has the 2 protected files of commit cccccccccccc: 0 restored, 0 added, 1 removed; what the checked tree has there did not count\n"
	if got := notes([]verifier.Outcome{protects(other)}); !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want at its end %s", got, want)
	}
	if got := notes([]verifier.Outcome{protects(receipttest.Facts().Inputs.TreeSHA256)}); got != "" {
		t.Errorf("got %s", got)
	}
}

func TestTestsLostSinceTheBaselineAreNamed(t *testing.T) {
	got := printed(t, runOptions{}, outcome(t, "builtin:go-test", func(r *receipt.Receipt) {
		r.Baseline = &receipt.Baseline{
			SHA256: receipttest.Digest("baseline"), Entry: true,
			TestsRemoved:      receipt.NewList([]string{"m TestA", "m TestB", "m TestC", "m TestD\u202e", "m TestE", "m TestF"}),
			TestInputsChanged: receipt.NewList([]string{"testdata/x: it is gone"}),
		}
	}))
	for _, want := range []string{
		"  builtin:go-test: tests_removed: since the baseline: m TestA, m TestB, m TestC, m TestD\\u202e, m TestE and 1 more\n",
		"  builtin:go-test: test_inputs_changed: since the baseline: testdata/x: it is gone\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "tests_newly_skipped") {
		t.Errorf("it names what there is none of:\n%s", got)
	}
}

func TestAPassNamesWhatItDoesNotSpeakFor(t *testing.T) {
	build := outcome(t, "builtin:go-build", func(r *receipt.Receipt) {
		r.Census, r.Findings = nil, []receipt.Finding{notChecked}
	})
	test := outcome(t, "builtin:go-test", func(r *receipt.Receipt) {
		skipTwo(r)
		r.Findings = []receipt.Finding{
			{Code: "test_file_excluded", Path: "a_\x1b_test.go", Detail: "its name leaves it out"}, notChecked, receipt.FindingsLeftOut("test_file_excluded", 7),
		}
	})
	want := strings.ReplaceAll(`CHECK             CLAIM       RESULT    RECEIPT
builtin:go-build  tests-pass  asserted  BUILD
builtin:go-test   tests-pass  asserted  TEST

A pass does not speak for:
  builtin:go-test: 2 skipped and 1 passed: m TestB, m TestC
  builtin:go-build, builtin:go-test: module_not_checked tools/go.mod: no check names this module
  builtin:go-test: test_file_excluded a_\u001b_test.go: its name leaves it out
  builtin:go-test: test_file_excluded: and 7 more
`, "BUILD", build.Receipt.Seal()[:12])
	want = strings.ReplaceAll(want, "TEST\n", test.Receipt.Seal()[:12]+"\n")
	if diff := cmp.Diff(want, printed(t, runOptions{}, build, test)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	plain := outcome(t, "builtin:go-test", func(*receipt.Receipt) {})
	if got := printed(t, runOptions{}, plain); strings.Contains(got, "speak for") {
		t.Errorf("nothing was left out:\n%s", got)
	}
}

func TestNotesAreBoundedAndCountTheRest(t *testing.T) {
	many := outcome(t, "builtin:go-test", func(r *receipt.Receipt) {
		skipTwo(r)
		for i := range 60 {
			r.Findings = append(r.Findings, receipt.Finding{Code: "go_file_ignored", Path: fmt.Sprintf("p%02d_test.go", 59-i), Detail: "git ignores it"})
		}
		r.Findings = append(r.Findings, receipt.FindingsLeftOut("go_file_ignored", 900))
	})
	got := printed(t, runOptions{}, many)
	if n := strings.Count(got, "\n  "); n != maxNotes+1 || !strings.Contains(got, "\n  and 941 more; the receipts have all") || !strings.Contains(got, "p18_test.go") || strings.Contains(got, "p19_test.go") {
		t.Errorf("%d lines:\n%s", n, got)
	}
}

func TestRunJSONFollowsItsSchema(t *testing.T) {
	schema, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "schemas", "verifier_run.v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	failed := outcome(t, "builtin:go-test", func(r *receipt.Receipt) {
		for i := range r.Executions {
			r.Executions[i] = receipttest.Execution(receipt.Fail)
			r.Executions[i].Reasons = []receipt.Reason{{Code: "exit_nonzero", Detail: "m: exit status 1"}, {Code: "tests_failed", Detail: "m: TestAdd"}}
		}
	})
	failed.Failing = []verifier.Failing{{Name: "m TestAdd", Tail: "want 3\n"}}
	skips := outcome(t, "builtin:go-test", func(r *receipt.Receipt) { skipTwo(r); r.Findings = []receipt.Finding{notChecked} })
	build := outcome(t, "builtin:go-build", func(r *receipt.Receipt) { r.Census = nil })
	for _, outcomes := range [][]verifier.Outcome{nil, {failed, skips, build}} {
		text := printed(t, runOptions{output: cli.JSON, run: "run-1"}, outcomes...)
		bad, err := schemacheck.Check(schema, []byte(text))
		if err != nil || len(bad) > 0 {
			t.Errorf("%v, %v in\n%s", err, bad, text)
		}
		if !strings.HasPrefix(text, "{\n  \"schema_version\": \"striatum.verifier_run.v1\",\n") {
			t.Errorf("the marker is not the first field:\n%s", text)
		}
		var back runJSON
		if err := json.Unmarshal([]byte(text), &back); err != nil || len(back.Checks) != len(outcomes) {
			t.Fatalf("%v, %d checks", err, len(back.Checks))
		}
		if len(outcomes) == 0 {
			continue
		}
		reasons := []receipt.Reason{{Code: "tests_failed", Detail: "m: TestAdd"}, {Code: "exit_nonzero", Detail: "m: exit status 1"}}
		if diff := cmp.Diff(reasons, back.Checks[0].Reasons); diff != "" {
			t.Errorf("reasons (-want +got):\n%s", diff)
		}
		if c := back.Checks[1]; c.Tests == nil || c.Tests.Skipped != 2 || len(c.Tests.SkippedTests) != 2 || c.Findings.Count != 1 || c.Receipt != skips.Receipt.Seal() {
			t.Errorf("got %+v", c)
		}
		if back.Checks[2].Tests != nil {
			t.Errorf("a build has the tests %+v", back.Checks[2].Tests)
		}
	}
}

func TestAFailureIsToldOnceWithWhatFailed(t *testing.T) {
	failed := outcome(t, "builtin:go-test", func(r *receipt.Receipt) {
		for i := range r.Executions {
			r.Executions[i] = receipttest.Execution(receipt.Fail)
			r.Executions[i].Reasons = []receipt.Reason{{Code: "exit_nonzero", Detail: "m: exit status 1"}}
			for k := range 30 {
				r.Executions[i].Reasons = append(r.Executions[i].Reasons, receipt.Reason{Code: "tests_failed", Detail: fmt.Sprintf("m/p%d: TestAdd", k)})
			}
		}
	})
	if got := printed(t, runOptions{}, failed); !strings.Contains(got, "failed tests_failed +30  ") {
		t.Errorf("got\n%s", got)
	}
	var errs bytes.Buffer
	p := progress{streams: cli.Streams{Err: &errs}}
	p.concluded(failed)
	got := errs.String()
	if strings.Count(got, "m/p0: TestAdd\n") != 1 || strings.Contains(got, "check_failed") || !strings.HasSuffix(got, "    and 11 more\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestADriftNamesWhatShowsIt wants the command only where a pin is what differs.
func TestADriftNamesWhatShowsIt(t *testing.T) {
	const hint = "    hint: see what changed with: striatum verifier pin --host-here --diff-only\n"
	for uses, want := range map[string]bool{"": true, "builtin+toolchain:go-test": true, "builtin:go-test": false} {
		for code, drifted := range map[string]bool{"toolchain_drift": true, "aborted": false} {
			var out bytes.Buffer
			p := &progress{streams: cli.Streams{Err: &out}}
			o := outcome(t, "builtin:go-test", func(r *receipt.Receipt) {
				r.Incidents = []receipt.Incident{{Code: code, Effect: receipt.MakesIndeterminate, Detail: "x"}}
			})
			o.Check = workflow.CheckRef{ID: "schema", Uses: uses}
			p.concluded(o)
			if got := strings.Contains(out.String(), hint); got != (want && drifted) || !strings.Contains(out.String(), code) {
				t.Errorf("uses %q, %s: got %q", uses, code, out.String())
			}
		}
	}
}

func TestAnInterruptionSaysWhatWasReached(t *testing.T) {
	for ended, want := range map[int]string{0: "context canceled", 2: "interrupted: each check above has its receipt"} {
		err := interrupted(fmt.Errorf("run: %w", context.Canceled), ended)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, context.Canceled) || cli.Explain(err).Kind != problem.Indeterminate {
			t.Errorf("%d ended: got %v", ended, err)
		}
	}
	other := errors.New("the disk is full")
	if err := interrupted(other, 2); !errors.Is(err, other) || cli.Explain(err).Kind == problem.Indeterminate {
		t.Errorf("got %v", err)
	}
}
