package snapshot

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/problem"
)

func mustDigestCommit(t testing.TB, dir, rev string) Snapshot {
	t.Helper()
	s, err := DigestCommit(context.Background(), dir, rev, Options{})
	if err != nil {
		t.Fatalf("DigestCommit(%q): %v", rev, err)
	}
	return s
}

// commitAll commits all that lies in dir, ignored files too.
func commitAll(t testing.TB, dir string) string {
	t.Helper()
	git(t, dir, "add", "-A", "-f")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
	return git(t, dir, "rev-parse", "HEAD")
}

// treeSHA256 returns git's SHA-256 id of all that lies in dir but its .git.
func treeSHA256(t testing.TB, dir string) string {
	t.Helper()
	other := t.TempDir()
	gitInit(t, other, "sha256")
	args := []string{"--git-dir=" + other + "/.git", "--work-tree=" + dir}
	git(t, dir, append(args, "add", "-A", "-f")...)
	return git(t, dir, append(args, "write-tree")...)
}

func wantProblem(t *testing.T, err error, kind problem.Kind, part string) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != kind || p.Hint == "" || !strings.Contains(err.Error(), part) {
		t.Errorf("got error %v (%#v), want kind %d, a hint, and %q", err, p, kind, part)
	}
}

func TestCommitTreeEqualsStockGit(t *testing.T) {
	needGit(t)
	store := newStore(t)
	for seed := range uint64(32) {
		r := rand.New(rand.NewPCG(seed, 8))
		dir := t.TempDir()
		format := []string{"sha1", "sha256"}[seed%2]
		gitInit(t, dir, format)
		var commits, trees []string
		for range 3 {
			for _, name := range append(oddNames, ".gitignore") {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			randomTree(t, r, dir, 0)
			text := strings.Repeat("line of a file that changes a little\n", 300) + fmt.Sprint(r.Uint64())
			put(t, dir+"/long", text, 0o644)
			commits, trees = append(commits, commitAll(t, dir)), append(trees, treeSHA256(t, dir))
		}
		switch r.IntN(4) {
		case 0:
			git(t, dir, "repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50")
		case 1:
			git(t, dir, "-c", "repack.useDeltaBaseOffset=false", "repack", "-q", "-a", "-d", "-f")
		case 2:
			git(t, dir, "-c", "pack.indexVersion=2", "gc", "-q", "--aggressive", "--prune=now")
		}
		for i, rev := range commits {
			got := mustDigestCommit(t, dir, rev)
			if i == 1 {
				var err error
				if got, err = FreezeCommit(context.Background(), dir, rev, store, Options{}); err != nil {
					t.Fatal(err)
				}
				if in := treeSHA256(t, got.Dir); in != trees[i] {
					t.Errorf("seed %d: the frozen tree is %s, want %s", seed, in, trees[i])
				}
			}
			if got.TreeSHA256 != trees[i] || got.GitCommit != rev {
				t.Errorf("seed %d: got tree %s of commit %s, want %s of %s", seed, got.TreeSHA256, got.GitCommit, trees[i], rev)
			}
		}
	}
}

// A clean worktree and its commit are one state, frozen in one place.
func TestCommitAndWorktreeFreezeToTheSame(t *testing.T) {
	needGit(t)
	dir, store := t.TempDir(), newStore(t)
	gitInit(t, dir, "sha1")
	put(t, dir+"/a/run", "#!/bin/sh\n", 0o755)
	put(t, dir+"/b", "text\r\n", 0o644)
	put(t, dir+"/.gitattributes", "* text=auto\n*.x export-ignore\nb ident\n", 0o644)
	if err := os.Symlink("../outside", dir+"/a/l"); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "-c", "core.autocrlf=false", "add", "-A")
	git(t, dir, "commit", "-q", "-m", "x")
	tree := mustFreeze(t, dir, store, Options{})
	commit, err := FreezeCommit(context.Background(), dir, "HEAD", store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	commit.GitCommit = ""
	if diff := cmp.Diff(tree, commit); diff != "" {
		t.Errorf("worktree and commit differ (-worktree +commit):\n%s", diff)
	}
	if left := list(store.tmpDir()); len(left) != 0 {
		t.Errorf("left in tmp: %v", left)
	}
}

func TestRevisionsAreResolvedLikeGit(t *testing.T) {
	needGit(t)
	for _, packed := range []bool{false, true} {
		dir := t.TempDir()
		gitInit(t, dir, "sha1")
		put(t, dir+"/f", "1", 0o644)
		first := commitAll(t, dir)
		git(t, dir, "tag", "light")
		git(t, dir, "tag", "-m", "x", "heavy")
		git(t, dir, "tag", "-m", "x", "heavier", "heavy")
		git(t, dir, "branch", "feature/one")
		git(t, dir, "branch", "same")
		git(t, dir, "tag", "same")
		git(t, dir, "branch", "both")
		put(t, dir+"/f", "2", 0o644)
		second := commitAll(t, dir)
		git(t, dir, "tag", "both")
		git(t, dir, "update-ref", "refs/remotes/origin/main", first)
		git(t, dir, "symbolic-ref", "refs/heads/alias", "refs/heads/feature/one")
		if packed {
			git(t, dir, "pack-refs", "--all")
			git(t, dir, "branch", "-f", "feature/one", first) // loose wins over packed
		}
		for rev, want := range map[string]string{
			first: first, second: second, strings.ToUpper(first): first, "HEAD": second, "main": second, "light": first, "heavy": first, "heavier": first,
			"feature/one": first, "same": first, "alias": first, "origin/main": first, "refs/heads/both": first, "refs/tags/both": second, "refs/tags/heavy": first,
		} {
			if got := mustDigestCommit(t, dir, rev).GitCommit; got != want {
				t.Errorf("packed %v: %q is %s, want %s", packed, rev, got, want)
			}
		}
		for _, rev := range []string{
			"", "-", "nothing", "HEAD~1", "HEAD^", "main@{0}", ":/x", first[:12], "feature", "../HEAD", "/HEAD", "refs/../HEAD", "a\x00b",
			"main:f", "index", "config", "refs/heads/main/x", "a\nb", strings.Repeat("0", 39),
		} {
			_, err := DigestCommit(context.Background(), dir, rev, Options{})
			wantProblem(t, err, problem.Usage, "no such revision")
		}
		_, err := DigestCommit(context.Background(), dir, "both", Options{})
		wantProblem(t, err, problem.Usage, "several refs")
		tree := git(t, dir, "rev-parse", "HEAD^{tree}")
		_, err = DigestCommit(context.Background(), dir, tree, Options{})
		wantProblem(t, err, problem.Usage, "leads to no commit")
	}
}

func TestLinkedWorktreesAreReadThroughTheirRepository(t *testing.T) {
	needGit(t)
	base := t.TempDir()
	dir, other := base+"/main", base+"/other"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	gitInit(t, dir, "sha1")
	put(t, dir+"/f", "1", 0o644)
	first := commitAll(t, dir)
	git(t, dir, "worktree", "add", "-q", "-b", "side", other)
	put(t, other+"/f", "2", 0o644)
	second := commitAll(t, other)
	for rev, want := range map[string]string{"HEAD": second, "main": first, "side": second} {
		if got := mustDigestCommit(t, other, rev).GitCommit; got != want {
			t.Errorf("%q is %s, want %s", rev, got, want)
		}
	}
	// A worktree that its repository does not know is not believed.
	stranger := base + "/stranger"
	data, err := os.ReadFile(other + "/.git")
	if err != nil {
		t.Fatal(err)
	}
	put(t, stranger+"/.git", string(data), 0o644)
	_, err = DigestCommit(context.Background(), stranger, "HEAD", Options{})
	wantProblem(t, err, problem.Refused, "does not belong to this worktree")
}

func TestCommitFindings(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	gitInit(t, dir, "sha1")
	put(t, dir+"/f", "1", 0o644)
	put(t, dir+"/.striatum/claims.json", "{}", 0o644)
	put(t, dir+"/sub/.striatum/kept", "{}", 0o644)
	first := commitAll(t, dir)
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+first+",lib/dep")
	git(t, dir, "commit", "-q", "-m", "x")
	s := mustDigestCommit(t, dir, "HEAD")
	got := map[Code]string{}
	for _, f := range s.Findings {
		got[f.Code] += f.Path
	}
	if diff := cmp.Diff(map[Code]string{Submodule: "lib/dep", TrackedStriatum: ".striatum"}, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if s.Files != 2 || strings.Contains(string(s.Manifest), " .striatum") || !strings.Contains(string(s.Manifest), " sub/.striatum/kept") {
		t.Errorf("manifest of %d files:\n%s", s.Files, s.Manifest)
	}
}

func TestCommitLimits(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	gitInit(t, dir, "sha1")
	put(t, dir+"/a/b/c", "12345", 0o644)
	put(t, dir+"/d", "12345", 0o644)
	commitAll(t, dir)
	for _, c := range []struct {
		lim  Limits
		part string
	}{
		{Limits{Files: 1}, "more than 1 files"},
		{Limits{Bytes: 9}, "more than 9 bytes"},
		{Limits{FileBytes: 4}, "at most 4"},
		{Limits{Depth: 1}, "more than 1 folders deep"},
		{Limits{PathBytes: 4}, "at most 4 are taken"},
	} {
		store := newStore(t)
		_, err := FreezeCommit(context.Background(), dir, "HEAD", store, Options{Limits: c.lim})
		wantProblem(t, err, problem.Refused, c.part)
		if left := append(list(store.tmpDir()), list(store.treesDir())...); len(left) != 0 {
			t.Errorf("%v: left in the store: %v", c.lim, left)
		}
	}
	if s, err := DigestCommit(context.Background(), dir, "HEAD", Options{Limits: Limits{Files: 2, Bytes: 10, FileBytes: 5, Depth: 2, PathBytes: 5}}); err != nil {
		t.Errorf("just within the limits: %v, %v", s, err)
	}
}

// plant writes a loose object with the id of its content and returns the id.
func plant(t testing.TB, dir, kind, body string) string {
	t.Helper()
	return plantAs(t, dir, "", fmt.Sprintf("%s %d\x00%s", kind, len(body), body))
}

// plantAs writes a loose object whose bytes, header and all, are raw.
func plantAs(t testing.TB, dir, id, raw string) string {
	t.Helper()
	if id == "" {
		sum := sha1.Sum([]byte(raw))
		id = hex.EncodeToString(sum[:])
	}
	var buf bytes.Buffer
	z := zlib.NewWriter(&buf)
	if _, err := z.Write([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, ".git/objects", id[:2], id[2:])
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	put(t, at, buf.String(), 0o644)
	return id
}

func raw(id string) string {
	b, _ := hex.DecodeString(id)
	return string(b)
}

// A repository is made by whoever may do harm. Each of these is told from sound
// ones, in bounded time, without a byte left in the store.
func TestHostileRepositoriesAreRefused(t *testing.T) {
	needGit(t)
	commitOf := func(t *testing.T, dir, tree string) string {
		return plant(t, dir, "commit", "tree "+tree+"\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nx\n")
	}
	treeOf := func(entries ...string) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string {
			blob := raw(plant(t, dir, "blob", "x"))
			body := ""
			for _, e := range entries {
				body += e + "\x00" + blob
			}
			return commitOf(t, dir, plant(t, dir, "tree", body))
		}
	}
	for _, c := range []struct {
		name string
		rev  func(t *testing.T, dir string) string // makes the repository
		kind problem.Kind
		part string
	}{
		{"dot", treeOf("100644 ."), problem.Refused, "git never makes"},
		{"dot dot", treeOf("100644 .."), problem.Refused, "git never makes"},
		{"dot git", treeOf("100644 .git"), problem.Refused, "git never makes"},
		{"slash", treeOf("100644 ../../etc/passwd"), problem.Refused, "git never makes"},
		{"empty name", treeOf("100644 "), problem.Refused, "git never makes"},
		{"twice", treeOf("100644 a", "100755 a"), problem.Refused, "two entries"},
		{"long name", treeOf("100644 " + strings.Repeat("n", 256)), problem.Refused, "256 bytes"},
		{"device mode", treeOf("60644 a"), problem.Refused, "mode"},
		{"no mode", treeOf("a"), problem.Refused, "malformed"},
		{"wide mode", treeOf("77777777777777777 a"), problem.Refused, "malformed"},
		{"cut tree", func(t *testing.T, dir string) string {
			return commitOf(t, dir, plant(t, dir, "tree", "100644 a\x00short"))
		}, problem.Refused, "malformed"},
		{"blob as folder", treeOf("40000 a"), problem.Refused, "is a blob and should be a tree"},
		{"striatum link", treeOf("120000 .striatum"), problem.Refused, "symbolic link"},
		{"verification link", treeOf("120000 verification"), problem.Refused, "symbolic link"},
		{"link to nothing", func(t *testing.T, dir string) string {
			return commitOf(t, dir, plant(t, dir, "tree", "120000 a\x00"+raw(plant(t, dir, "blob", ""))))
		}, problem.Refused, "cannot store"},
		{"link with NUL", func(t *testing.T, dir string) string {
			return commitOf(t, dir, plant(t, dir, "tree", "120000 a\x00"+raw(plant(t, dir, "blob", "a\x00b"))))
		}, problem.Refused, "cannot store"},
		{"long link", func(t *testing.T, dir string) string {
			return commitOf(t, dir, plant(t, dir, "tree", "120000 a\x00"+raw(plant(t, dir, "blob", strings.Repeat("a", 4096)))))
		}, problem.Refused, "cannot store"},
		{"missing blob", func(t *testing.T, dir string) string {
			return commitOf(t, dir, plant(t, dir, "tree", "100644 a\x0001234567890123456789"))
		}, problem.Missing, "not complete"},
		{"missing tree", func(t *testing.T, dir string) string { return commitOf(t, dir, strings.Repeat("1", 40)) }, problem.Missing, "not complete"},
		{"missing commit", func(t *testing.T, dir string) string { return strings.Repeat("2", 40) }, problem.Missing, "not complete"},
		{"missing commit sha256", func(t *testing.T, dir string) string { return strings.Repeat("2", 64) }, problem.Missing, "not complete"},
		{"alternates", func(t *testing.T, dir string) string {
			other := t.TempDir()
			gitInit(t, other, "sha1")
			id := commitAll(t, other)
			put(t, dir+"/.git/objects/info/alternates", other+"/.git/objects\n", 0o644)
			return id
		}, problem.Missing, "borrows objects"},
		{"other bytes", func(t *testing.T, dir string) string {
			id := plant(t, dir, "blob", "x")
			plantAs(t, dir, id, "blob 1\x00y")
			return commitOf(t, dir, plant(t, dir, "tree", "100644 a\x00"+raw(id)))
		}, problem.Refused, "do not have this id"},
		{"shorter than said", func(t *testing.T, dir string) string {
			id := plantAs(t, dir, "", "blob 10\x00y")
			return commitOf(t, dir, plant(t, dir, "tree", "100644 a\x00"+raw(id)))
		}, problem.Refused, "ends early"},
		{"longer than said", func(t *testing.T, dir string) string {
			id := plant(t, dir, "blob", "x")
			plantAs(t, dir, id, "blob 1\x00xyz")
			return commitOf(t, dir, plant(t, dir, "tree", "100644 a\x00"+raw(id)))
		}, problem.Refused, "does not end"},
		{"huge size", func(t *testing.T, dir string) string {
			id := plantAs(t, dir, "", "blob 4000000000000000000\x00y")
			return commitOf(t, dir, plant(t, dir, "tree", "100644 a\x00"+raw(id)))
		}, problem.Refused, "work"}, // more than all objects together may have
		{"negative size", func(t *testing.T, dir string) string {
			return plantAs(t, dir, strings.Repeat("3", 40), "commit -5\x00tree")
		}, problem.Refused, "malformed"},
		{"no header", func(t *testing.T, dir string) string {
			return plantAs(t, dir, strings.Repeat("3", 40), strings.Repeat("x", 1000))
		}, problem.Refused, "header"},
		{"no zlib", func(t *testing.T, dir string) string {
			id := strings.Repeat("4", 40)
			put(t, dir+"/.git/objects/44/"+id[2:], "plain text", 0o644)
			return id
		}, problem.Refused, "damaged"},
		{"commit without tree", func(t *testing.T, dir string) string { return plant(t, dir, "commit", "hello\n") }, problem.Refused, "has no line"},
		{"commit of a sha256 tree", func(t *testing.T, dir string) string {
			return plant(t, dir, "commit", "tree "+strings.Repeat("a", 64)+"\n")
		}, problem.Refused, "has no line"},
		{"deep tags", func(t *testing.T, dir string) string {
			id := commitAll(t, dir)
			for range 20 {
				id = plant(t, dir, "tag", "object "+id+"\ntype tag\n")
			}
			return id
		}, problem.Usage, "leads to no commit"},
		{"refs in a circle", func(t *testing.T, dir string) string {
			put(t, dir+"/.git/refs/heads/a", "ref: refs/heads/b\n", 0o644)
			put(t, dir+"/.git/refs/heads/b", "ref: refs/heads/a\n", 0o644)
			return "a"
		}, problem.Refused, "circle"},
		{"ref to a file outside", func(t *testing.T, dir string) string {
			put(t, dir+"/.git/refs/heads/a", "ref: refs/../../../etc/passwd\n", 0o644)
			return "a"
		}, problem.Refused, "malformed"},
		{"ref is a link", func(t *testing.T, dir string) string {
			commitAll(t, dir)
			if err := os.Symlink("main", dir+"/.git/refs/heads/a"); err != nil {
				t.Fatal(err)
			}
			return "a"
		}, problem.Refused, "symbolic link"},
		{"HEAD is huge", func(t *testing.T, dir string) string {
			put(t, dir+"/.git/HEAD", strings.Repeat("a", 10_000), 0o644)
			return "HEAD"
		}, problem.Refused, "too long"},
		{"reftable", func(t *testing.T, dir string) string {
			if err := os.Mkdir(dir+"/.git/reftable", 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, dir+"/.git/HEAD", "ref: refs/heads/.invalid\n", 0o644)
			return "HEAD"
		}, problem.Refused, "reftable"},
		{"objects is a link", func(t *testing.T, dir string) string {
			id := commitAll(t, dir)
			rename(t, dir+"/.git/objects", dir+"/moved")
			if err := os.Symlink("../moved", dir+"/.git/objects"); err != nil {
				t.Fatal(err)
			}
			return id
		}, problem.Refused, "symbolic link"},
		{".git is a link", func(t *testing.T, dir string) string {
			id := commitAll(t, dir)
			rename(t, dir+"/.git", dir+"/moved")
			if err := os.Symlink("moved", dir+"/.git"); err != nil {
				t.Fatal(err)
			}
			return id
		}, problem.Refused, "symbolic link"},
		{"no repository", func(t *testing.T, dir string) string {
			rename(t, dir+"/.git", dir+"/moved")
			return "HEAD"
		}, problem.Usage, "no git repository"},
		{"tree bomb", func(t *testing.T, dir string) string {
			id := plant(t, dir, "tree", "")
			for range 200 {
				body := ""
				for i := range 10 {
					body += fmt.Sprintf("40000 d%d\x00%s", i, raw(id))
				}
				id = plant(t, dir, "tree", body)
			}
			return commitOf(t, dir, id)
		}, problem.Refused, "entries"},
		{"blob bomb", func(t *testing.T, dir string) string {
			id := plant(t, dir, "blob", strings.Repeat("0", 1<<20))
			body := ""
			for i := range 200 {
				body += fmt.Sprintf("100644 f%d\x00%s", i, raw(id))
			}
			return commitOf(t, dir, plant(t, dir, "tree", body))
		}, problem.Refused, "more than 104857600 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, store := t.TempDir(), newStore(t)
			gitInit(t, dir, "sha1")
			rev := c.rev(t, dir)
			_, err := FreezeCommit(context.Background(), dir, rev, store, Options{Limits: Limits{Files: 10_000, Bytes: 100 << 20}})
			wantProblem(t, err, c.kind, c.part)
			if left := append(list(store.tmpDir()), list(store.treesDir())...); len(left) != 0 {
				t.Errorf("left in the store: %v", left)
			}
		})
	}
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// Whatever byte of a pack or an index is changed, the answer is the right tree or
// an error, never another tree.
func TestDamagedPacksNeverGiveAnotherTree(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	gitInit(t, dir, "sha1")
	text := strings.Repeat("a line that stays\n", 200)
	for i := range 4 {
		put(t, dir+"/f", text+fmt.Sprint(i), 0o644)
		put(t, fmt.Sprintf("%s/d/%d", dir, i), text[i:], 0o644)
		commitAll(t, dir)
	}
	git(t, dir, "repack", "-q", "-a", "-d", "-f")
	want := mustDigestCommit(t, dir, "HEAD").TreeSHA256
	files, err := filepath.Glob(dir + "/.git/objects/pack/*")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for _, file := range files {
		sound, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		for range 400 {
			broken := bytes.Clone(sound)
			for range 1 + r.IntN(3) {
				broken[r.IntN(len(broken))] ^= byte(1 << r.IntN(8))
			}
			if r.IntN(10) == 0 {
				broken = broken[:r.IntN(len(broken))]
			}
			if err := os.WriteFile(file, broken, 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := DigestCommit(context.Background(), dir, "HEAD", Options{Limits: Limits{Bytes: 1 << 20}})
			if err == nil && s.TreeSHA256 != want {
				t.Errorf("%s: got tree %s", filepath.Base(file), s.TreeSHA256)
			}
			if err != nil {
				refused++
				if _, ok := errors.AsType[*problem.Problem](err); !ok {
					t.Errorf("%s: %v is no problem", filepath.Base(file), err)
				}
			}
		}
		if err := os.WriteFile(file, sound, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if refused < 100 {
		t.Errorf("only %d damages were met", refused)
	}
}

func TestCommitSnapshotEndsWithItsContext(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	gitInit(t, dir, "sha1")
	put(t, dir+"/f", "1", 0o644)
	commitAll(t, dir)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	if _, err := DigestCommit(ctx, dir, "HEAD", Options{}); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}
