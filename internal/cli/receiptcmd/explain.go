package receiptcmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/problem"
	"striatum/seal"
)

func newExplain(f *cli.Factory) *cobra.Command {
	var reason, tokenFile string
	cmd := &cobra.Command{
		Use:   "explain SEAL",
		Short: "Record why a failed receipt or a hole in a chain may stand (operator)",
		Long: `Record an operator's reason for a receipt that failed, so that it no longer
speaks against later ones for the same inputs, or for a receipt that is missing
from a lane's chain. The reason is a new row in the store; nothing is changed or
taken away, and the gate's reports show it. SEAL may be the first 8 digits or
more of the seal of a receipt that the worktree has a copy of.

It takes the operator token that "striatum init" showed: in a file named by
--token-file or by STRIATUM_TOKEN_FILE.`,
		Example: "  striatum receipt explain SEAL --reason 'the proxy was down' --token-file ~/operator.token",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return explain(cmd.Context(), f, args[0], reason, tokenFile)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, one `text` of at most 2,000 bytes")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`file` that holds the operator token")
	return cmd
}

func explain(ctx context.Context, f *cli.Factory, name, reason, tokenFile string) (err error) {
	if !seal.ValidDigest(name) {
		path, err := find(f, "explain the receipt", name)
		if err != nil {
			return err
		}
		name, _ = strings.CutSuffix(filepath.Base(path), suffix)
	}
	if !seal.ValidDigest(name) {
		return problem.New(problem.Usage, "explain the receipt", fmt.Sprintf("%q is not a seal of 64 hex digits", name), "take it from `striatum gate read -v` or `striatum receipt show`")
	}
	s, err := service.Open(ctx, f, tokenFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Explain(ctx, name, reason); err != nil {
		return err
	}
	f.Streams.Notef("explained %s", name)
	return nil
}
