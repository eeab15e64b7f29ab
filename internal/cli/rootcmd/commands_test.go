package rootcmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/rootcmd"
)

// marks begin the bytes of formats and are no commands.
var marks = []string{"stat", "mutation"}

// mention is what reads like a command: at the start of a text, in backquotes,
// or after "run: ".
var mention = regexp.MustCompile("(?:^|`|[Rr]un:? (?:`)?|, )striatum ((?:[a-z<>A-Z.:/-]+ ?)+)")

// TestEveryCommandThatATextNamesIsThere reads the string literals of the whole
// module, so that no hint and no fix names a command or a flag that is not there.
func TestEveryCommandThatATextNamesIsThere(t *testing.T) {
	root := rootcmd.New(&cli.Factory{})
	found := map[string]bool{}
	top := filepath.Join("..", "..", "..")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "examples"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range mention.FindAllStringSubmatch(text, -1) {
				if why := unknown(root, strings.Fields(m[1]), found); why != "" {
					t.Errorf("%s: %q: %s", path, "striatum "+m[1], why)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"striatum verifier run", "striatum gate read", "striatum policy accept", "striatum receipt explain", "striatum doctor", "striatum verifier attest"} {
		if !found[want] {
			t.Errorf("no text that names %q was found: this test does not see what it should", want)
		}
	}
}

// find follows words down from root as far as they name commands.
func find(root *cobra.Command, words []string) (cmd *cobra.Command, rest []string) {
	cmd = root
	for len(words) > 0 && cmd.HasSubCommands() {
		i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == words[0] })
		if i < 0 {
			break
		}
		cmd, words = cmd.Commands()[i], words[1:]
	}
	return cmd, words
}

// unknown says why words do not begin a command of root, with its flags.
func unknown(root *cobra.Command, words []string, found map[string]bool) string {
	cmd, words := find(root, words)
	if cmd.HasSubCommands() {
		if cmd == root && len(words) > 0 && slices.Contains(marks, words[0]) {
			return ""
		}
		return "there is no such command"
	}
	found[cmd.CommandPath()] = true
	for _, w := range words {
		name, long := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(strings.TrimRight(name, ".:"), "=")
		if long && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil && name != "help" {
			return "there is no flag --" + name
		}
	}
	return ""
}
