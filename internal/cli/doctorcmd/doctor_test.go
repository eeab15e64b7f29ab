package doctorcmd_test

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/doctorcmd"
	"striatum/internal/cli/initcmd"
	"striatum/internal/schemacheck"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(f *cli.Factory) []*cobra.Command {
		return []*cobra.Command{doctorcmd.New(f), initcmd.New(f)}
	})
}

func TestScripts(t *testing.T) {
	schema, err := os.ReadFile("../../../docs/schemas/doctor.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, map[string]func(*testscript.TestScript, bool, []string){
		// valid: what was printed last is valid by the report's JSON Schema.
		"valid": func(ts *testscript.TestScript, _ bool, _ []string) {
			violations, err := schemacheck.Check(schema, []byte(ts.ReadFile("stdout")))
			ts.Check(err)
			if len(violations) > 0 {
				ts.Fatalf("%v", violations)
			}
		},
	})
}
