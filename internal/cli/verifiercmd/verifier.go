// Package verifiercmd is `striatum verifier`: the commands that run checks.
package verifiercmd

import (
	"github.com/spf13/cobra"

	"striatum/internal/cli"
)

// New returns the command with those below it.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("verifier", "Run checks in sandboxes", "  striatum verifier run --all", newRun(f), newPin(f), newRehearse(f), newAttest(f), newBaseline(f))
}
