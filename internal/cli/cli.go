// Package cli is what every command of striatum shares: the streams it reads
// and writes, the factory from which it takes what it needs, how an error is
// shown and which exit code it has. Each command is a package below this one.
//
// Data goes to Streams.Out; everything else goes to Streams.Err. An error has
// three parts (what, why, hint) and one exit code; package problem has the
// table. Text that came from outside is escaped before it reaches a terminal.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"striatum/internal/problem"
	"striatum/seal"
)

// Streams are the process's streams, or a test's.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// ErrIsTerminal says whether progress may be drawn on Err, and with
	// InIsTerminal whether a question may be asked there.
	ErrIsTerminal, InIsTerminal bool
}

// Factory carries what commands take from the process. Its fields are plain
// values, so that a test builds one by hand and help needs nothing else.
type Factory struct {
	Streams Streams
	Getenv  func(string) string
	Getwd   func() (string, error)
	Now     func() time.Time
	Rand    io.Reader
	// Socket is the --socket flag.
	Socket string
}

// DaemonSocket returns the socket of the daemon that the user named with --socket
// or STRIATUM_SOCKET, "" where none was. It is never looked for anywhere else.
func (f *Factory) DaemonSocket() string {
	if f.Socket != "" {
		return f.Socket
	}
	return f.Getenv("STRIATUM_SOCKET")
}

// Output is the --output flag: how a command prints its data.
type Output string

// The output forms.
const (
	Table Output = "table"
	JSON  Output = "json"
)

// AddOutput adds --output to cmd.
func AddOutput(cmd *cobra.Command, out *Output) {
	*out = Table
	cmd.Flags().Var((*outputValue)(out), "output", `how to print: "table" or "json"`)
	Values(cmd, "output", string(Table), string(JSON))
}

// Values has a shell complete the flag of cmd with the values that it takes.
func Values(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined by the caller, once
	}
}

type outputValue Output

func (o *outputValue) String() string { return string(*o) }
func (o *outputValue) Type() string   { return "table|json" }
func (o *outputValue) Set(s string) error {
	switch Output(s) {
	case Table, JSON:
		*o = outputValue(s)
		return nil
	}
	return fmt.Errorf(`want "table" or "json"`)
}

// WriteJSON prints v as indented JSON with a final newline, in which every
// character that a terminal could act on is a \u escape.
func (s Streams) WriteJSON(v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(s.Out, escapeLines(b.String()))
	return err
}

// Notef prints one line for people to the error stream.
func (s Streams) Notef(format string, args ...any) {
	fmt.Fprintf(s.Err, "striatum: "+format+"\n", args...)
}

// Token returns the token that the user gave: the content of file, or
// of the file that STRIATUM_TOKEN_FILE names, or "" when neither is set. It is
// never looked for in the home or in a worktree.
func (f *Factory) Token(file string, read func(path string, limit int64) ([]byte, error)) (string, error) {
	if file == "" {
		file = f.Getenv("STRIATUM_TOKEN_FILE")
	}
	if file == "" {
		return "", nil
	}
	data, err := read(file, 4096)
	if err != nil {
		return "", problem.Wrap(problem.Usage, err, fmt.Sprintf("read the token file %q", file), "--token-file or STRIATUM_TOKEN_FILE names a file that holds the token alone, and that you may read")
	}
	return strings.TrimSpace(string(data)), nil
}

// SilentError ends a command with an exit code and no further message: what
// there is to say has been printed.
type SilentError struct{ Kind problem.Kind }

func (e SilentError) Error() string { return fmt.Sprintf("exit %d", e.Kind.ExitCode()) }

// Run executes root and returns the process's exit code; what went wrong is on
// the error stream.
func Run(ctx context.Context, root *cobra.Command, s Streams) int {
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return problem.New(problem.Usage, err.Error(), "", fmt.Sprintf("run %q", cmd.CommandPath()+" --help"))
	})
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if silent, ok := errors.AsType[SilentError](err); ok {
		return silent.Kind.ExitCode()
	}
	p := Explain(err)
	if p.Kind == problem.Internal && isUsage(err) {
		p = misused(cmd, err)
	}
	fmt.Fprintf(s.Err, "striatum: %s\n", escapeLines(p.Error()))
	if p.Hint != "" {
		fmt.Fprintf(s.Err, "striatum: hint: %s\n", escapeLines(p.Hint))
	}
	return p.Kind.ExitCode()
}

// isUsage recognises cobra's own complaints, which have no type.
func isUsage(err error) bool {
	for _, prefix := range []string{"unknown command", "unknown flag", "accepts ", "requires ", "required flag", "if any flags in the group", "at least one of the flags in the group"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return false
}

// misused tells of a cobra complaint about cmd how it is called. What cobra calls
// an unknown command is an argument where cmd has none below it.
func misused(cmd *cobra.Command, err error) *problem.Problem {
	what, hint := err.Error(), fmt.Sprintf("run %q", cmd.CommandPath()+" --help")
	if strings.HasPrefix(what, "accepts ") {
		hint = fmt.Sprintf("it is called as %q; run %q", cmd.UseLine(), cmd.CommandPath()+" --help")
	}
	if rest, ok := strings.CutPrefix(what, "unknown command "); ok && !cmd.HasSubCommands() {
		what = "unexpected argument " + rest
	}
	return problem.New(problem.Usage, what, "", hint)
}

// Explain turns any error into the problem that the user reads. A strict
// decoding error is an invalid document; a cancelled context is indeterminate.
func Explain(err error) *problem.Problem {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		return p
	}
	var d *seal.DecodeError
	switch {
	case errors.As(err, &d):
		return problem.Wrap(problem.Invalid, err, "the document is not valid", "")
	case errors.Is(err, context.Canceled):
		return problem.New(problem.Indeterminate, "interrupted", "nothing was decided", "run the command again")
	}
	return problem.Of(err)
}

// Escape makes text from outside safe to show on one line of a terminal: every
// control character, bidirectional override and invalid byte is quoted.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\uFFFD', r < 0x20, r >= 0x7f && r < 0xa0, isBidi(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isBidi(r rune) bool {
	return r == 0x061c || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x2069 || r == 0xfeff
}

// escapeLines escapes each line of s and keeps the line breaks.
func escapeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = Escape(l)
	}
	return strings.Join(lines, "\n")
}

// Parent returns a command that only groups others.
func Parent(use, short, example string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				hint := fmt.Sprintf("run %q", cmd.CommandPath()+" --help")
				if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
					hint = fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+near[0])
				}
				return problem.New(problem.Usage, fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath()), "", hint)
			}
			return nil
		},
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(children...)
	return cmd
}
