package snapshot

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// git runs stock git in dir, a repository of the test's own making, with no
// configuration but its defaults.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return gitInput(t, dir, "", args...)
}

func gitInput(t testing.TB, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=gc.auto", "GIT_CONFIG_VALUE_0=0", // nothing goes on in the background
		"GIT_CONFIG_KEY_1=maintenance.auto", "GIT_CONFIG_VALUE_1=false",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_AUTHOR_DATE=2000-01-01T00:00:00Z",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_COMMITTER_DATE=2000-01-01T00:00:00Z",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func needGit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
}

const rawAttributes = "* -text -eol -ident -filter -working-tree-encoding\n"

// gitInit makes dir a repository whose ids are SHA-256 and which takes bytes as
// they are.
func gitInit(t testing.TB, dir, format string) {
	t.Helper()
	git(t, dir, "init", "-q", "-b", "main", "--object-format="+format)
	put(t, dir+"/.git/info/attributes", rawAttributes, 0o644)
}

// gitTree returns git's id of everything in dir that is not ignored.
func gitTree(t testing.TB, dir string) string {
	t.Helper()
	git(t, dir, "add", "-A")
	return git(t, dir, "write-tree")
}

func put(t testing.TB, path, data string, perm os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), perm); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, perm); err != nil {
		t.Fatal(err)
	}
}
