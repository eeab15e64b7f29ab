package ignore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitCheck runs stock git check-ignore in a repository of the test's own making
// and returns, per path, whether it is ignored. A path that ends in '/' is a
// folder.
func gitCheck(t *testing.T, dir string, paths []string) []bool {
	t.Helper()
	cmd := gitCommand(dir, "check-ignore", "-z", "--stdin", "--verbose", "--non-matching", "--no-index")
	// A final slash is for us: git looks at the tree, and matches the slash as text.
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(strings.Join(paths, "\x00")+"\x00", "/\x00", "\x00"))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 1) {
		t.Fatalf("git check-ignore: %v", err)
	}
	fields := strings.Split(string(out), "\x00")
	if len(fields) != 4*len(paths)+1 {
		t.Fatalf("git check-ignore: %d fields for %d paths", len(fields), len(paths))
	}
	got := make([]bool, len(paths))
	for i := range paths {
		source, pattern := fields[4*i], fields[4*i+2]
		got[i] = source != "" && !strings.HasPrefix(pattern, "!")
	}
	return got
}

func gitCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
	}
	return cmd
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
}

// tree is a set of .gitignore files by folder.
type tree map[string]string

// ignored applies the files as the walk of a snapshot does.
func (tr tree) ignored(path string) bool {
	path, isDir := strings.CutSuffix(path, "/")
	rules := Parse([]byte(tr[""]), "", nil)
	parts := strings.Split(path, "/")
	for i := 1; i < len(parts); i++ {
		dir := strings.Join(parts[:i], "/")
		if rules.Ignored(dir, true, nil) {
			return true
		}
		rules = Parse([]byte(tr[dir]), dir, rules)
	}
	return rules.Ignored(path, isDir, nil)
}

// compare demands git's answer for every path; the folders are made, so that
// git knows what is a folder.
func compare(t *testing.T, dir string, tr tree, paths []string) {
	t.Helper()
	for i, want := range gitCheck(t, dir, paths) {
		if got := tr.ignored(paths[i]); got != want {
			t.Errorf("path %q: got ignored %v, git says %v; rules %q", paths[i], got, want, map[string]string(tr))
		}
	}
}

func initRepo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := gitCommand(dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	return dir
}

func writeTree(t *testing.T, dir string, tr tree) {
	t.Helper()
	for at, data := range tr {
		if err := os.MkdirAll(filepath.Join(dir, at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, at, ".gitignore"), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var named = []string{
	"foo", "foo/", "/foo", "!foo", "foo/bar", "foo/*", "foo/**", "**/foo", "**/foo/", "a/**/foo", "foo**/bar", "foo**bar", "f**/b",
	"**", "***", "*", "*/", "/*", "/**", "**/", "a/**/", "/**/", "**/**/foo", "a/***/b", "*.o", "*.", ".*", "*foo", "*foo/", "*/foo", "?oo", "f?o",
	"[f]oo", "[!f]oo", "[^f]oo", "[]f]oo", "[!]f]oo", "[f", "[", "[]", "[!]", "[a-f]oo", "[f-a]oo", "[a-]oo", "[-f]oo", "[--0]oo", "[a-c-f]oo", "[\\f]oo", "[\\]f]oo",
	"[[:alpha:]]oo", "[[:alpha:]", "[[:bad:]]oo", "[[:alpha]oo]", "[[:digit:]-f]oo", "[[:upper:]f]oo", "[[:]oo", "[[::]]oo", "[a\\-z]oo", "[\\a-\\z]oo", "foo[/]bar", "a[b/c]d",
	"foo\\", "\\foo", "\\!foo", "\\#foo", "#foo", "foo\\ ", "foo ", "foo  ", "foo\\  ", " foo", "foo\\\\ ", "foo\\", "foo\\/bar", "foo\\/", "**\\/foo", "a/**\\/b",
	"foo\r", "foo \r", "foo\t", "\xef\xbb\xbffoo", "fo\x00o", "!", "/", "//", "!/", "foo//", "//foo", "foo//bar", "/foo/", "./foo", "a/b/../foo", "*a*b*", "*a/b*", "a*/b", "*/*", "*/*/*",
	"\xff", "\xc3\xa9", "?\xa9", "[\xc3]\xa9", "[\x80-\xff]*", "FOO", "foo.*.bar", "**/*.o", "a**", "a**/", "/a/*/", "f*o*/b?r", "*[ab]", "\\*", "\\?oo", "\\[f]oo", "a/\\*", "a\\*b",
}

var targets = []string{
	"foo", "foo/", "foo/bar", "foo/bar/", "foo/bar/baz", "a/foo", "a/foo/", "a/b/foo", "a/b", "a/b/", "a/b/c", "ab", "a/x/b", "a/x/y/b", "foobar", "foo.o", "x.o", "a/x.o",
	".hidden", "goo", "]oo", "-oo", "0oo", "!oo", "^oo", "\\oo", "Foo", "FOO", "foo\\", "foo ", "foo  ", "foo\\ ", " foo", "#foo", "!foo", "foo\r", "foo\t", "\xff", "\xc3\xa9",
	"foo.x.bar", "acbd", "aXb", "a*b", "*", "?oo", "[f]oo", "foo]", "aboo]", "foox/bar", "foox/y/bar", "fb", "f/b", "fx/b", "fx/y/b", "a", "a/", "zoo", "coo", "eoo", "7oo", "foo/.gitignore",
}

// putTargets makes the folders of targets that do not clash with files.
func putTargets(t *testing.T, dir string, paths []string) []string {
	t.Helper()
	var kept []string
	for _, p := range paths {
		full := filepath.Join(dir, p)
		if strings.HasSuffix(p, "/") {
			if os.MkdirAll(full, 0o755) == nil {
				kept = append(kept, p)
			}
			continue
		}
		if os.MkdirAll(filepath.Dir(full), 0o755) != nil {
			continue
		}
		if st, err := os.Lstat(full); err == nil && st.IsDir() {
			continue
		}
		if err := os.WriteFile(full, nil, 0o644); err == nil {
			kept = append(kept, p)
		}
	}
	return kept
}

func TestNamedPatternsAgreeWithGit(t *testing.T) {
	needGit(t)
	dir := initRepo(t)
	paths := putTargets(t, dir, targets)
	for _, pattern := range named {
		for _, form := range []string{"%s\n", "%s", "*\n!%s\n", "%s\r\n", "!a/\n%s\n!foo/bar\n"} {
			tr := tree{"": fmt.Sprintf(form, pattern)}
			writeTree(t, dir, tr)
			compare(t, dir, tr, paths)
		}
	}
}

func TestEveryClassAgreesWithGitForEveryByte(t *testing.T) {
	needGit(t)
	dir := initRepo(t)
	var paths []string
	for c := 1; c < 256; c++ {
		if c != '/' && c != '.' {
			paths = append(paths, "x"+string([]byte{byte(c)}))
		}
	}
	paths = putTargets(t, dir, paths)
	for _, class := range []string{"alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit", "none"} {
		for _, form := range []string{"x[[:%s:]]\n", "x[![:%s:]]\n", "/x[[:%s:]_]\n"} {
			tr := tree{"": fmt.Sprintf(form, class)}
			writeTree(t, dir, tr)
			compare(t, dir, tr, paths)
		}
	}
}

// randomPattern draws from few pieces, so that matches are common.
func randomPattern(r *rand.Rand) string {
	pieces := []string{
		"a", "b", "ab", "a.o", "c", "*", "**", "?", "/", "/", "/", "**/", "/**", "/**/", "[ab]", "[!a]", "[a-c]", "*.o", "\\", "\\a", " ", "[", "]", "-", "[[:alpha:]]", "[]", "^", "!", "#", "***", ".",
	}
	var b strings.Builder
	if r.IntN(5) == 0 {
		b.WriteByte('!')
	}
	for range 1 + r.IntN(5) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

func randomFile(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(randomPattern(r))
		b.WriteByte('\n')
	}
	return b.String()
}

func randomPath(r *rand.Rand) string {
	names := []string{"a", "b", "ab", "a.o", "b.o", "c", "ba", "aab", "a-b", ".o", "a b", "]"}
	parts := make([]string, 1+r.IntN(4))
	for i := range parts {
		parts[i] = names[r.IntN(len(names))]
	}
	p := strings.Join(parts, "/")
	if r.IntN(3) == 0 {
		p += "/"
	}
	return p
}

func TestGeneratedPatternsAgreeWithGit(t *testing.T) {
	needGit(t)
	r := rand.New(rand.NewPCG(1, 2))
	dir := initRepo(t)
	var paths []string
	for range 150 {
		paths = append(paths, randomPath(r))
	}
	paths = putTargets(t, dir, paths)
	var folders []string
	for _, p := range paths {
		if f, ok := strings.CutSuffix(p, "/"); ok {
			folders = append(folders, f)
		}
	}
	for range 400 {
		tr := tree{"": randomFile(r)}
		for range r.IntN(4) {
			tr[folders[r.IntN(len(folders))]] = randomFile(r)
		}
		writeTree(t, dir, tr)
		compare(t, dir, tr, paths)
		for at := range tr {
			if err := os.Remove(filepath.Join(dir, at, ".gitignore")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestBudgetBoundsHostilePatterns(t *testing.T) {
	b := NewBudget(1000)
	rules := Parse([]byte(strings.Repeat("*a", 2000)+"\n"), "", nil)
	text := strings.Repeat("a", 4000)
	for range 10 {
		rules.Ignored(text, false, b)
	}
	if !b.Spent() {
		t.Fatal("a pattern of 4000 bytes against 4000 bytes spent no budget")
	}
	if rules.Ignored("a", false, nil) {
		t.Fatal("a pattern of 2000 letters matched one letter")
	}
}

// FuzzIgnore: any bytes have a meaning, and working out that meaning stays
// within the budget.
func FuzzIgnore(f *testing.F) {
	for _, p := range named {
		f.Add([]byte(p+"\n"), "a/foo/b.o")
	}
	f.Add(bytes.Repeat([]byte("*?[a"), 100), "aaa")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		if strings.Trim(path, "/") != path || path == "" {
			t.Skip("no relative path")
		}
		b := NewBudget(1 << 20)
		first := Parse(data, "", nil).Ignored(path, false, b)
		if !b.Spent() && Parse(data, "", nil).Ignored(path, false, nil) != first {
			t.Fatal("the budget changed an answer without being spent")
		}
	})
}
