package gatecmd

import (
	"fmt"
	"io"
	"strings"

	"striatum/gate"
	"striatum/internal/cli"
)

// show prints the report: as JSON its canonical bytes and a newline.
func show(s cli.Streams, o Options, r gate.Report) error {
	if o.Output == cli.JSON {
		data, err := r.Encode()
		if err != nil {
			return err
		}
		_, err = s.Out.Write(append(data, '\n'))
		return err
	}
	_, err := io.WriteString(s.Out, table(r, o.All))
	return err
}

// table is the report for people. Nothing of it that came from outside reaches
// the terminal unescaped.
func table(r gate.Report, all bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "trust: %s, store: %s in %s\n", r.Trust, cli.Escape(r.Store.Name), cli.Escape(r.Store.Home))
	if r.Store.Problem != "" {
		fmt.Fprintf(&b, "store: %s\n", cli.Escape(r.Store.Problem))
	}
	fmt.Fprintf(&b, "repository: %s, run: %s, tree: %s\n", or(r.RepositoryID, "not met yet"), or(r.RunID, "none"), treeName(r.Tree))
	fmt.Fprintf(&b, "policy: %s, floor: %s\n\n", or(r.PolicySHA256, "none accepted"), r.Floor)

	width := len("CLAIM")
	for _, c := range r.Claims {
		width = max(width, len(cli.Escape(c.ID)))
	}
	row := func(claim, authored, effective, signal, basis string) {
		fmt.Fprintf(&b, "%-*s  %-8s  %-9s  %-6s  %s\n", width, claim, authored, effective, signal, basis)
	}
	if len(r.Claims) > 0 {
		row("CLAIM", "AUTHORED", "EFFECTIVE", "SIGNAL", "FIRST BASIS")
	}
	said := map[gate.Basis]string{} // a basis in full, and the claim below which it stands
	for _, c := range r.Claims {
		basis := "none"
		if n := len(c.Bases); n > 0 {
			basis = string(c.Bases[0].Code)
			if n > 1 {
				basis += fmt.Sprintf(" +%d", n-1)
			}
		}
		row(cli.Escape(c.ID), c.Authored.String(), c.Effective.String(), string(c.Signal), basis)
		fmt.Fprintf(&b, "    %s\n", cli.Escape(c.Statement))
		fmt.Fprintf(&b, "    %s\n", cli.Escape(c.Says))
		for i, basis := range c.Bases {
			if i > 0 && !all {
				break
			}
			if above, ok := said[basis]; ok {
				fmt.Fprintf(&b, "    %s (%s): as for %s\n", basis.Code, basis.Effect, cli.Escape(above))
				continue
			}
			said[basis] = c.ID
			fmt.Fprintf(&b, "    %s (%s): %s\n", basis.Code, basis.Effect, cli.Escape(basis.Sentence))
			if basis.Fix != "" {
				fmt.Fprintf(&b, "        fix: %s\n", cli.Escape(basis.Fix))
			}
		}
		if all {
			for _, f := range c.Findings.Details {
				fmt.Fprintf(&b, "    finding: %s %s: %s\n", f.Code, cli.Escape(f.Path), cli.Escape(f.Detail))
			}
			if more := c.Findings.Count - int64(len(c.Findings.Details)); more > 0 {
				fmt.Fprintf(&b, "    finding: and %d more, all in the receipt\n", more)
			}
		}
		if all && c.Receipt != "" {
			fmt.Fprintf(&b, "    check %s, receipt %s, lane %s\n", cli.Escape(c.CheckID), c.Receipt, cli.Escape(c.LaneID))
		}
	}
	for _, u := range r.Undeclared {
		fmt.Fprintf(&b, "%s: undeclared, never counts (authored %s by %s)\n", cli.Escape(u.ID), u.Authored, cli.Escape(u.Author))
	}
	fmt.Fprintf(&b, "\n%s\n", r.Verdict)
	return b.String()
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return cli.Escape(s)
}

func treeName(t gate.Tree) string {
	if t.SHA256 == "" {
		return "none judged"
	}
	return fmt.Sprintf("%s (%s)", t.SHA256, or(t.Source, "source unknown"))
}
