package verifiercmd

import (
	"fmt"
	"text/tabwriter"

	"striatum/internal/cli"
	"striatum/verifier"
)

// outcomeJSON is one element of what `verifier run --output json` prints.
type outcomeJSON struct {
	CheckID        string        `json:"check_id"`
	BacksClaim     string        `json:"backs_claim"`
	Classification string        `json:"classification"`
	Reasons        []reasonJSON  `json:"reasons"`
	Receipt        string        `json:"receipt"`
	TreeSHA256     string        `json:"tree_sha256"`
	GitCommit      string        `json:"git_commit"`
	Strict         bool          `json:"strict"`
	Failing        []failingJSON `json:"failing"`
}

type reasonJSON struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

type failingJSON struct {
	Name string `json:"name"`
	Tail string `json:"tail"`
}

// print writes one line, or one JSON object, for each outcome.
func (o *runOptions) print(s cli.Streams, outcomes []verifier.Outcome) error {
	if o.output == cli.JSON {
		list := make([]outcomeJSON, 0, len(outcomes))
		for _, out := range outcomes {
			list = append(list, asJSON(out))
		}
		return s.WriteJSON(list)
	}
	if len(outcomes) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tCLAIM\tRESULT\tRECEIPT")
	for _, out := range outcomes {
		r := out.Receipt.Receipt()
		result := string(r.Classification)
		if len(r.Reasons) > 0 {
			result += " " + r.Reasons[0].Code
			if more := len(r.Reasons) - 1; more > 0 {
				result += fmt.Sprintf(" +%d", more)
			}
		}
		claimID := out.Check.BacksClaim
		if claimID == "" {
			claimID = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cli.Escape(out.Check.CheckID()), cli.Escape(claimID), result, out.Receipt.Seal())
	}
	return w.Flush()
}

func asJSON(out verifier.Outcome) outcomeJSON {
	r := out.Receipt.Receipt()
	j := outcomeJSON{
		CheckID: out.Check.CheckID(), BacksClaim: out.Check.BacksClaim, Classification: string(r.Classification),
		Receipt: out.Receipt.Seal(), TreeSHA256: r.Inputs.TreeSHA256, GitCommit: r.Inputs.GitCommit, Strict: r.Posture.Strict,
		Reasons: []reasonJSON{}, Failing: []failingJSON{},
	}
	for _, x := range r.Reasons {
		j.Reasons = append(j.Reasons, reasonJSON{x.Code, x.Detail})
	}
	for _, x := range out.Failing {
		j.Failing = append(j.Failing, failingJSON{x.Name, x.Tail})
	}
	return j
}
