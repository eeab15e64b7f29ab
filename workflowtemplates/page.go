package workflowtemplates

import (
	"fmt"
	"strings"

	"striatum/workflow"
)

// Page returns docs/reference/workflow-catalog.md.
func (c Catalog) Page() []byte {
	var b strings.Builder
	b.WriteString("# Workflow catalog\n\n")
	b.WriteString("Generated from `workflowtemplates/catalog.json`; do not edit. `striatum workflow shapes` prints the same list.\n\n")
	b.WriteString("| shape | tier | what it is for |\n| --- | --- | --- |\n")
	for _, s := range c.Shapes {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", s.ID, s.ID, s.Tier, s.Summary)
	}
	b.WriteString("\nTiers: `experimental` shapes may change their files from release to release; `supported` ones do so only with a note on what to do.\n")
	for _, s := range c.Shapes {
		s.section(&b)
	}
	return []byte(b.String())
}

func (s Shape) section(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n%s (`%s`).\n\n", s.ID, s.Title, s.Tier)
	fmt.Fprintf(b, "```sh\nstriatum workflow generate --shape %s           # print the plan, write nothing\nstriatum workflow generate --shape %s --write\n```\n\n", s.ID, s.ID)
	var floors []string
	for _, f := range s.Floors {
		floors = append(floors, fmt.Sprintf("`%s`", f))
	}
	fmt.Fprintf(b, "Floors: %s (the first is the default). A floor of `%s` is refused where a claim rests on a plain builtin, which stops at ASSERTED.\n\n", strings.Join(floors, ", "), workflow.FloorVerified)
	for _, l := range s.Languages {
		fmt.Fprintf(b, "Default checks for `--lang %s`: `%s`. `--check ID` names others instead, and may be repeated.\n\n", l.ID, strings.Join(l.DefaultChecks, "`, `"))
	}
	b.WriteString("| job | type | objective |\n| --- | --- | --- |\n")
	for _, j := range s.Jobs {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", j.ID, j.Type, j.Objective)
	}
	fmt.Fprintf(b, "\nA review may send the work back to `build` at most %d times.\n\n", s.Rounds)
	b.WriteString("| builtin | claim | statement |\n| --- | --- | --- |\n")
	for _, id := range workflow.Builtins() {
		if c, ok := s.Check(id); ok {
			fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", id, c.Claim, c.Statement)
		}
	}
	b.WriteString("\nAny other id is an external check: it becomes an unfilled entry of the intent, backing the claim `ID-holds`.\n\n")
	b.WriteString("| file | purpose |\n| --- | --- |\n")
	for _, f := range s.Files {
		fmt.Fprintf(b, "| `%s` | %s |\n", f.Path, f.Purpose)
	}
}

// Check returns the claim that a builtin backs in the shape. A builtin and its
// toolchain twin back the same one.
func (s Shape) Check(builtin string) (Check, bool) {
	if _, ok := workflow.LookupBuiltin(builtin); !ok {
		return Check{}, false
	}
	_, name, _ := strings.Cut(builtin, ":")
	for _, c := range s.Checks {
		if c.ID == name {
			return c, true
		}
	}
	return Check{}, false
}
