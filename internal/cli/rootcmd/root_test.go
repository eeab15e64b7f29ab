package rootcmd_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/rootcmd"
)

// run executes striatum with args, in an empty environment.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	f := &cli.Factory{
		Streams: cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs},
		Getenv:  func(string) string { return "" },
		Getwd:   func() (string, error) { return t.TempDir(), nil },
		Now:     func() time.Time { return time.Unix(0, 0) },
	}
	root := rootcmd.New(f)
	root.SetArgs(args)
	code = cli.Run(t.Context(), root, f.Streams)
	return code, out.String(), errs.String()
}

func TestCompletionIsPrintedForEachShell(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -o default", "zsh": "#compdef striatum", "fish": "complete -c striatum"} {
		code, stdout, stderr := run(t, "completion", shell)
		if code != 0 || !strings.Contains(stdout, want) || stderr != "" {
			t.Errorf("completion %s: exit %d, %d bytes without %q, stderr %q", shell, code, len(stdout), want, stderr)
		}
	}
}

func TestCommandsAreCompleted(t *testing.T) {
	code, stdout, _ := run(t, cobra.ShellCompRequestCmd, "gate", "")
	if code != 0 || !strings.Contains(stdout, "read\t") || !strings.Contains(stdout, "check\t") {
		t.Errorf("exit %d, got %q", code, stdout)
	}
}

func TestWhatAFlagTakesIsCompleted(t *testing.T) {
	for args, want := range map[string]string{
		"gate read --output": "table\njson\n:4", "gate check --floor": "asserted\nverified\n:4", "token mint --kind": "operator\nsession\nlane\n:4",
		"lane enrol --class": "shared\nisolated\n:4", "workflow generate --gate-floor": "asserted\nverified\n:4",
	} {
		code, stdout, _ := run(t, append([]string{cobra.ShellCompRequestCmd}, append(strings.Fields(args), "")...)...)
		if code != 0 || strings.TrimSpace(stdout) != want {
			t.Errorf("%s: exit %d, got %q, want %q", args, code, stdout, want)
		}
	}
}

func TestEveryCommandHasAnExampleAndOneLineOfWhatItDoes(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%q: short %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(rootcmd.New(&cli.Factory{}))
}

// The commands that need a home or a worktree have scripts of their own for it.
func TestJSONIsAnObjectThatBeginsWithItsMarker(t *testing.T) {
	for marker, args := range map[string][]string{
		"striatum.version.v1": {"version"}, "striatum.workflow_catalog.v1": {"workflow", "shapes"},
	} {
		code, stdout, stderr := run(t, append(args, "--output", "json")...)
		if want := "{\n  \"schema_version\": \"" + marker + "\",\n"; code != 0 || !strings.HasPrefix(stdout, want) {
			t.Errorf("%v: exit %d, got %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestUnknownCommandsAndFlagsAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{{"frobnicate"}, {"--frobnicate"}, {"gate", "frobnicate"}, {"gate", "read", "--frobnicate"}} {
		code, stdout, stderr := run(t, args...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, "hint:") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestAMisspeltCommandIsMetWithTheNearestOne(t *testing.T) {
	for args, want := range map[string]string{
		"gate chekc": `hint: did you mean "striatum gate check"?`, "verifer run": `hint: did you mean "striatum verifier"?`, "frobnicate": `hint: run "striatum --help"`,
	} {
		if code, _, stderr := run(t, strings.Fields(args)...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, stderr %q, want %q", args, code, stderr, want)
		}
	}
}

func TestWrongArgumentsAreMetWithTheCall(t *testing.T) {
	for args, want := range map[string][]string{
		"receipt show":            {"accepts 1 arg(s), received 0", `hint: it is called as "striatum receipt show FILE`},
		"token revoke a b":        {"accepts 1 arg(s), received 2", `hint: it is called as "striatum token revoke `},
		"token mint /tmp/x.token": {`unexpected argument "/tmp/x.token" for "striatum token mint"`, `hint: run "striatum token mint --help"`},
	} {
		code, _, stderr := run(t, strings.Fields(args)...)
		for _, text := range want {
			if code != 2 || !strings.Contains(stderr, text) {
				t.Errorf("%s: exit %d, stderr %q, want %q", args, code, stderr, text)
			}
		}
	}
}

func TestVersionIsAlsoAFlag(t *testing.T) {
	code, stdout, stderr := run(t, "--version")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "striatum ") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}
