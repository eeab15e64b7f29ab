// Package workflowcmd is `striatum workflow`: generate a workflow, list the
// shapes, validate a document. None of them executes anything or accepts a
// policy.
package workflowcmd

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/workflowtemplates"
)

// New returns the command with its children.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("workflow", "Generate and validate the workflow of a worktree",
		"  striatum workflow generate --shape verification_gate --write\n  striatum workflow validate verification/workflow.json",
		newGenerate(f), newShapes(f), newValidate(f),
	)
}

func newShapes(f *cli.Factory) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "shapes",
		Short: "List the shapes that can be generated, with their tiers",
		Long: `Shapes lists the catalog. An experimental shape may change its files from release
to release; a supported one does so only with a note on what to do.`,
		Example: "  striatum workflow shapes\n  striatum workflow shapes --output json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runShapes(f, out) },
	}
	cli.AddOutput(cmd, &out)
	return cmd
}

func runShapes(f *cli.Factory, out cli.Output) error {
	catalog, err := workflowtemplates.Load()
	if err != nil {
		return err
	}
	if out == cli.JSON {
		return f.Streams.WriteJSON(catalog)
	}
	w := tabwriter.NewWriter(f.Streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHAPE\tTIER\tSUMMARY")
	for _, s := range catalog.Shapes {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.ID, s.Tier, s.Summary)
	}
	return w.Flush()
}
