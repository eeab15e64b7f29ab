package lanecmd_test

import (
	"testing"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/initcmd"
	"striatum/internal/cli/lanecmd"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(f *cli.Factory) []*cobra.Command { return []*cobra.Command{initcmd.New(f), lanecmd.New(f)} })
}

func TestScripts(t *testing.T) { clitest.Run(t, nil) }
