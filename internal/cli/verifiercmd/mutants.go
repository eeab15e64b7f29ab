package verifiercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"striatum/allowlist"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
	"striatum/internal/shellquote"
	"striatum/receipt"
	"striatum/verifier"
	"striatum/workflow"
)

// goTest is the builtin that plants mutants.
const goTest = "builtin:go-test"

// mostMutants reads --mutants: "all", or how many at most; 0 for none.
func mostMutants(text string) (int, error) {
	switch text {
	case "":
		return 0, nil
	case "all":
		return maxMutants, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxMutants {
		return 0, problem.New(problem.Usage, fmt.Sprintf("--mutants is %.40q", text), "", fmt.Sprintf(`want "all", or a number from 1 to %d`, maxMutants))
	}
	return n, nil
}

// tryMutants rehearses the go-test checks with these ids by mutants of their product.
func (o *rehearseOptions) tryMutants(ctx context.Context, f *cli.Factory, s *opened, ids []string, most int) error {
	done, err := s.lane.RehearseMutants(ctx, verifier.Request{
		RepositoryID: s.repo.ID, Requester: s.Is.Principal.String(), Root: s.worktree.Path, Wait: o.wait,
		Select: func(tree string) (verifier.Selection, error) {
			files, err := embedded.PolicyFiles(tree)
			if err != nil {
				return verifier.Selection{}, err
			}
			sel, _, err := selection(files, ids)
			if err != nil {
				return sel, err
			}
			if err := onlyGoTests(&sel, ids); err != nil {
				return sel, err
			}
			return sel, pinned(&sel, files, func(intentPath string) (*allowlist.Pins, string, error) {
				return s.pins(ctx, intentPath)
			}, s.fingerprint)
		},
	}, most)
	s.progress.end()
	if perr := o.printMutants(f.Streams, s.repo.ID, done); perr != nil {
		return errors.Join(err, perr)
	}
	if err != nil {
		return err
	}
	classes := make([]receipt.Classification, len(done))
	for i, x := range done {
		classes[i] = x.Facts.Classification
	}
	if kind, bad := worstOf(classes); bad {
		return cli.SilentError{Kind: kind}
	}
	return nil
}

// onlyGoTests leaves the go-test checks of sel. One that was named must be one.
func onlyGoTests(sel *verifier.Selection, ids []string) error {
	const hint = "name a check by " + goTest
	sel.Checks = slices.DeleteFunc(sel.Checks, func(c workflow.CheckRef) bool {
		return len(ids) == 0 && !plantsMutants(c)
	})
	for _, c := range sel.Checks {
		if !plantsMutants(c) {
			return problem.New(problem.Usage, fmt.Sprintf("try mutants with the check %q", c.CheckID()), "only "+goTest+" plants mutants", hint)
		}
	}
	if len(sel.Checks) == 0 {
		return problem.New(problem.Usage, "try mutants", "the workflow has no check by "+goTest, "run: striatum verifier rehearse --mutants all "+shellquote.Word(goTest))
	}
	return nil
}

func plantsMutants(c workflow.CheckRef) bool {
	b, ok := workflow.LookupBuiltin(c.Uses)
	return ok && b.Plain() == goTest
}

// mutantsJSON is what `verifier rehearse --mutants --output json` prints.
type mutantsJSON struct {
	SchemaVersion string             `json:"schema_version"` // striatum.verifier_rehearse_mutants.v1
	RepositoryID  string             `json:"repository_id"`
	Checks        []mutantsCheckJSON `json:"checks"`
}

type mutantsCheckJSON struct {
	CheckID        string           `json:"check_id"`
	Classification string           `json:"classification"`
	Reasons        []receipt.Reason `json:"reasons"`
	TreeSHA256     string           `json:"tree_sha256"`
	Mutants        *receipt.Mutants `json:"mutants"` // with every survivor; nil: it came to none
	Findings       receipt.Findings `json:"findings"`
	Failing        []failingJSON    `json:"failing"`
}

// printMutants writes what the tests noticed, and every mutant that they did not.
func (o *rehearseOptions) printMutants(s cli.Streams, repositoryID string, done []verifier.MutantsRehearsed) error {
	if o.output == cli.JSON {
		out := mutantsJSON{SchemaVersion: "striatum.verifier_rehearse_mutants.v1", RepositoryID: repositoryID, Checks: []mutantsCheckJSON{}}
		for _, x := range done {
			j := mutantsCheckJSON{
				CheckID: x.Check.CheckID(), Classification: string(x.Facts.Classification), Reasons: x.Facts.Explained(),
				TreeSHA256: x.Facts.Inputs.TreeSHA256, Mutants: x.Facts.Mutants,
				Findings: receipt.CountFindings(x.Facts.Findings, maxListed), Failing: []failingJSON{},
			}
			for _, f := range x.Failing {
				j.Failing = append(j.Failing, failingJSON{f.Name, f.Tail})
			}
			out.Checks = append(out.Checks, j)
		}
		return s.WriteJSON(out)
	}
	if len(done) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tRESULT\tKILLED\tSURVIVED\tCUT SHORT\tNOT COMPILED\tSTATEMENTS")
	var list strings.Builder
	for _, x := range done {
		id, result := cli.Escape(x.Check.CheckID()), string(x.Facts.Classification)
		if reasons := x.Facts.Explained(); len(reasons) > 0 {
			result += " " + reasons[0].Code
		}
		m := x.Facts.Mutants
		if m == nil {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\n", id, result)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", id, result, m.Killed, m.Survived, m.CutShort, m.NotCompiled, m.Statements)
		if len(m.Survivors) > 0 {
			fmt.Fprintf(&list, "\n%s: no test noticed\n", id)
		}
		for _, v := range m.Survivors {
			fmt.Fprintf(&list, "  %s:%d %s\n", cli.Escape(v.Path), v.Line, cli.Escape(v.Operator))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(s.Out, list.String())
	return err
}
