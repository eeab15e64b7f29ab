package external

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"striatum/allowlist"
)

// TestWhatRunsIsPartOfTheDefinition gives each way for a command to run bytes of the
// tree that nothing binds, beside those that are bound.
func TestWhatRunsIsPartOfTheDefinition(t *testing.T) {
	type tree map[string]string // a link has "-> " before its target
	for name, c := range map[string]struct {
		tree  tree
		argv  string
		globs string
		seen  string
		want  string // of the error
	}{
		"a script":                       {tree{"tools/a.py": ""}, "python3 tools/a.py", "", "", ""},
		"a script by its place inside":   {tree{"tools/a": ""}, "/workspace/tools/a", "", "tools/a", ""},
		"an option's file":               {tree{"a.toml": ""}, "lint --config=a.toml .", "", "", ""},
		"a folder, the subject":          {tree{"src/a": ""}, "lint {target}/src", "", "", ""},
		"nothing of the tree":            {tree{"src/a": ""}, "lint /usr/share/x ../up no/such -v", "", "", ""},
		"a link to the host's tools":     {tree{"tool": "-> /usr/bin/tool"}, "./tool", "", "", ""},
		"an interpreter in the tree":     {tree{"a.sh": "", "bin/i": ""}, "./a.sh", "", "a.sh bin/i", `runs "bin/i"`},
		"an interpreter that is listed":  {tree{"a.sh": "", "bin/i": ""}, "./a.sh", "bin/i", "a.sh bin/i", ""},
		"a link to a script":             {tree{"a.py": "-> impl.py", "impl.py": ""}, "python3 a.py", "", "", `leads to "impl.py"`},
		"both are listed":                {tree{"a.py": "-> impl.py", "impl.py": ""}, "python3 a.py", "impl.py", "", ""},
		"a link to it by its place":      {tree{"a.py": "-> /workspace/impl.py", "impl.py": ""}, "python3 a.py", "", "", `leads to "impl.py"`},
		"a folder behind a link":         {tree{"tools": "-> src", "src/a.py": ""}, "python3 tools/a.py", "", "", `through the link "tools"`},
		"a folder behind a listed link":  {tree{"tools": "-> src", "src/a.py": ""}, "python3 tools/a.py", "tools", "", `"src/a.py", which is no part`},
		"a link to nothing":              {tree{"a.py": "-> later.py"}, "python3 a.py", "", "", "a link to nothing"},
		"links in a circle":              {tree{"a.py": "-> b.py", "b.py": "-> a.py"}, "python3 a.py", "b.py", "", "too many links"},
		"a link in the definition":       {tree{"t/a": "", "t/l": "-> ../other"}, "sh t/a", "t", "", "a link to nothing"},
		"a linked folder":                {tree{"t/a": "", "t/l": "-> ../lib", "lib/x": ""}, "sh t/a", "t", "", `leads to "lib/x"`},
		"a linked folder that is listed": {tree{"t/a": "", "t/l": "-> ../lib", "lib/x": ""}, "sh t/a", "t lib", "", ""},
		"a link out of the tree":         {tree{"t/a": "", "t/l": "-> ../../up"}, "sh t/a", "t", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var manifest strings.Builder
			for file, text := range c.tree {
				at := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				mode := "100755"
				err := os.WriteFile(at, []byte(text), 0o755)
				if target, ok := strings.CutPrefix(text, "-> "); ok {
					mode = "120000"
					if err = os.Remove(at); err == nil {
						err = os.Symlink(target, at)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&manifest, "%s aa 1 %s\n", mode, file)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = root.Close() }()
			e := allowlist.Entry{Argv: allowlist.Argv{Words: strings.Fields(c.argv)}, Definition: strings.Fields(c.globs)}
			d, err := Define(e, []byte(manifest.String()))
			if err != nil {
				t.Fatal(err)
			}
			err = d.Bound(root, e.Argv.Words, strings.Fields(c.seen))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q; definition %q", err, c.want, d.Paths)
			}
		})
	}
}
