package clitest

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// needed are flags that a command refuses to do without, though cobra does not
// know it.
var needed = map[string][]string{
	"striatum workflow generate": {"shape"},
	"striatum policy accept":     {"digest", "token-file"},
	"striatum receipt explain":   {"reason", "token-file"},
}

// CheckCommand reports what keeps line, as a shell reads it, from being a
// complete command of root: an unknown command or flag, or one that is missing.
func CheckCommand(t testing.TB, root *cobra.Command, line string) error {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "-c", `eval "set -- $0"; printf '%s\0' "$@"`, line).Output()
	if err != nil {
		return fmt.Errorf("a shell does not read it: %w", err)
	}
	words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if words[0] != root.Name() {
		return fmt.Errorf("it begins with %q", words[0])
	}
	cmd, args, err := root.Find(words[1:])
	if err != nil {
		return err
	}
	if cmd.HasSubCommands() {
		return fmt.Errorf("%q only groups commands", cmd.CommandPath())
	}
	cmd.SetOut(&bytes.Buffer{})
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return err
	}
	given := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for _, name := range needed[cmd.CommandPath()] {
		if !given[name] {
			return fmt.Errorf("%q needs --%s", cmd.CommandPath(), name)
		}
	}
	return nil
}
