// Package clitest runs testscripts against commands: the real command tree, in
// a process of its own, with a home of its own.
//
// Scripts may use, beside testscript's own commands:
//
//	exitcode N COMMAND…   the command must exit with N
//	save FILE             writes the last stdout to FILE with mode 0600
//	subst FILE NAME       sets the variable NAME to FILE's content, trimmed
//	field A.B NAME        sets NAME to the string B of object A of the JSON last printed
//	sql FILE STATEMENT…   runs the statements on a SQLite file, past the store
package clitest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"striatum/internal/cli"
)

// Main runs the tests of m; "exec striatum" in a script runs the commands that
// children makes.
func Main(m *testing.M, children func(*cli.Factory) []*cobra.Command) {
	testscript.Main(m, map[string]func(){"striatum": func() {
		f := &cli.Factory{
			Streams: cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
			Getenv:  os.Getenv, Getwd: os.Getwd,
			Now: time.Now, Rand: rand.Reader, //nolint:forbidigo // the main of a script's striatum
		}
		os.Exit(cli.Run(context.Background(), cli.Parent("striatum", "test", "", children(f)...), f.Streams)) //nolint:forbidigo // likewise
	}})
}

// Run runs the scripts in testdata/script. STRIATUM_HOME is $WORK/home.
func Run(t *testing.T, commands map[string]func(*testscript.TestScript, bool, []string)) {
	all := map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitcode, "save": save, "subst": subst, "field": field, "sql": statements}
	maps.Copy(all, commands)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("STRIATUM_HOME", filepath.Join(e.WorkDir, "home"))
			return nil
		},
		Cmds: all,
	})
}

func exitcode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit interface{ ExitCode() int } // *exec.ExitError, for packages that start nothing
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit %d, want %d", got, want)
	}
}

func save(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ts.ReadFile("stdout")), 0o600))
}

func subst(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[1], strings.TrimSpace(ts.ReadFile(args[0])))
}

func field(ts *testscript.TestScript, _ bool, args []string) {
	var value any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &value))
	for key := range strings.SplitSeq(args[0], ".") {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	text, ok := value.(string)
	if !ok {
		ts.Fatalf("the output has no string %q", args[0])
	}
	ts.Setenv(args[1], text)
}

// statements uses the driver that the commands under test bring along.
func statements(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	for _, statement := range args[1:] {
		_, execErr := db.ExecContext(context.Background(), statement)
		err = errors.Join(err, execErr)
	}
	ts.Check(errors.Join(err, db.Close()))
}
