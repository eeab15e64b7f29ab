package policycmd_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/initcmd"
	"striatum/internal/cli/policycmd"
	"striatum/internal/cli/workflowcmd"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(f *cli.Factory) []*cobra.Command {
		return []*cobra.Command{policycmd.New(f), initcmd.New(f), workflowcmd.New(f)}
	})
}

func TestScripts(t *testing.T) {
	clitest.Run(t, map[string]func(*testscript.TestScript, bool, []string){"edit": edit})
}

// edit FILE OLD NEW: replaces the first OLD in the file.
func edit(ts *testscript.TestScript, _ bool, args []string) {
	before := ts.ReadFile(args[0])
	after := strings.Replace(before, args[1], args[2], 1)
	if after == before {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(after), 0o644))
}
