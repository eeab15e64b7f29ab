// Package rootcmd puts the commands of striatum together.
package rootcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/doctorcmd"
	"striatum/internal/cli/gatecmd"
	"striatum/internal/cli/initcmd"
	"striatum/internal/cli/lanecmd"
	"striatum/internal/cli/policycmd"
	"striatum/internal/cli/receiptcmd"
	"striatum/internal/cli/tokencmd"
	"striatum/internal/cli/verifiercmd"
	"striatum/internal/cli/versioncmd"
	"striatum/internal/cli/workflowcmd"
)

// New returns the root command with every command below it.
func New(f *cli.Factory) *cobra.Command {
	root := cli.Parent("striatum", "Make a completion claim a checked property",
		"  striatum workflow generate --shape verification_gate --write\n  striatum verifier run --all\n  striatum gate read",
		doctorcmd.New(f),
		gatecmd.New(f),
		initcmd.New(f),
		lanecmd.New(f),
		policycmd.New(f),
		receiptcmd.New(f),
		tokencmd.New(f),
		verifiercmd.New(f),
		versioncmd.New(f),
		workflowcmd.New(f),
	)
	root.Long = `Striatum makes a completion claim ("the tests pass") a checked property. An
agent names a check; a verifier lane runs it in a sandbox, negative control
first, then twice on a frozen snapshot; a signed receipt records it; and a gate
that executes nothing says what each claim has earned:
VERIFIED > ASSERTED > DESIGNED.

Exit codes: 0 yes, 1 no, 2 usage, 3 refused, 4 indeterminate, 5 void,
6 invalid document, 7 this machine lacks something, 8 template unfilled.`
	root.PersistentFlags().StringVar(&f.Socket, "socket", "", "work with the daemon on this unix `socket` (default: STRIATUM_SOCKET, else the store in the home)")
	root.Version = versioncmd.Read().Version // makes the flag --version
	root.SetVersionTemplate("striatum {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetOut(f.Streams.Out) // the completion command takes the stream of now
	completion(root)
	return root
}

// completion gives cobra's own command an example, as every other has one.
func completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Example = "  source <(striatum completion bash)"
		for _, shell := range cmd.Commands() {
			shell.Example = fmt.Sprintf("  striatum completion %s >FILE", shell.Name())
		}
	}
}
