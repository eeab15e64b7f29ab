package doctorcmd_test

import (
	"testing"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/doctorcmd"
	"striatum/internal/cli/initcmd"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(f *cli.Factory) []*cobra.Command {
		return []*cobra.Command{doctorcmd.New(f), initcmd.New(f)}
	})
}

func TestScripts(t *testing.T) { clitest.Run(t, nil) }
