package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"striatum/internal/beneath"
	"striatum/internal/problem"
	"striatum/snapshot/internal/gitrepo"
)

const (
	// workFactor times Limits.Bytes is how many bytes resolving the deltas of one
	// commit may take. Git's own chains have 50 deltas at most.
	workFactor = 64
	// maxName and maxTarget are what Linux can store.
	maxName, maxTarget = 255, 4095
)

// FreezeCommit is Freeze for the tree of a commit of the repository in the
// worktree root: its blobs, whatever lies in the worktree. rev is a full id, HEAD,
// a branch or a tag. No git runs, and nothing outside the repository is read.
//
// Errors: *RefusedError for what cannot be part, and problems of the kinds Usage
// (rev names nothing, or there is no repository), Missing (one without all objects) and
// Refused (the repository is not sound).
func FreezeCommit(ctx context.Context, root, rev string, store Store, opt Options) (Snapshot, error) {
	return snapshotCommit(ctx, root, rev, &store, opt)
}

// DigestCommit describes the tree of a commit without copying it. Errors as for
// FreezeCommit.
func DigestCommit(ctx context.Context, root, rev string, opt Options) (Snapshot, error) {
	return snapshotCommit(ctx, root, rev, nil, opt)
}

func snapshotCommit(ctx context.Context, dir, rev string, store *Store, opt Options) (snap Snapshot, err error) {
	opt = opt.withDefaults()
	root, abs, err := begin(dir, store, opt)
	if err != nil {
		return Snapshot{}, err
	}
	defer root.Close()
	repo, err := gitrepo.Open(root, abs)
	if err != nil {
		return Snapshot{}, explainCommit(ctx, err, abs, rev)
	}
	defer repo.Close()
	repo.Work = workFactor * opt.Limits.Bytes
	c := committed{ctx: ctx, w: &walker{opt: opt}, wk: newWorker(), repo: repo}
	if store != nil {
		if c.w.out, err = store.begin(); err != nil {
			return Snapshot{}, explain(err, abs)
		}
		defer func() { err = errors.Join(err, c.w.out.close()) }()
	}
	if snap, err = c.take(rev); err != nil {
		return Snapshot{}, explainCommit(ctx, err, abs, rev)
	}
	return snap, nil
}

// committed takes the snapshot of one commit.
type committed struct {
	ctx  context.Context //nolint:containedctx // lives for one call of snapshotCommit
	w    *walker
	wk   *worker
	repo *gitrepo.Repo

	only       func(path string) bool // what is taken of it; nil: all
	submodules []string               // their paths
}

func (c *committed) take(rev string) (Snapshot, error) {
	commit, tree, err := c.repo.Commit(c.ctx, rev)
	if err != nil {
		return Snapshot{}, err
	}
	top := &node{mode: modeTree}
	if err := c.tree(tree, top, "", 0); err != nil {
		return Snapshot{}, err
	}
	top.finish()
	snap := describe(top, c.w.findings)
	snap.GitCommit = commit.String()
	snap.Files, snap.Bytes = c.w.files.Load(), contentBytes(top)
	if c.w.out != nil {
		if err := c.w.out.complete(top, &snap); err != nil {
			return Snapshot{}, err
		}
	}
	return snap, nil
}

// tree takes the tree id as the folder n, which lies at path.
func (c *committed) tree(id gitrepo.ID, n *node, path string, depth int64) (err error) {
	if depth > c.w.opt.Limits.Depth {
		return refuse(path, fmt.Sprintf("it lies more than %d folders deep", c.w.opt.Limits.Depth), "move it further up")
	}
	entries, err := c.repo.Tree(c.ctx, id)
	if err != nil {
		return at(path, err)
	}
	if c.w.entries.Add(int64(len(entries))) > entriesPerFile*c.w.opt.Limits.Files {
		return refuse(path, fmt.Sprintf("the commit has more than %d entries", entriesPerFile*c.w.opt.Limits.Files), `raise "snapshot_files" in config.json`)
	}
	fo := &folder{w: c.w, n: n, path: path}
	defer func() {
		if fo.dst != nil {
			err = errors.Join(err, fo.dst.Close())
		}
	}()
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		at := fo.join(e.Name)
		if err := soundName(e.Name, at, seen[e.Name]); err != nil {
			return err
		}
		seen[e.Name] = true
		if int64(len(at)) > c.w.opt.Limits.PathBytes {
			return c.w.longPath(at)
		}
		if err := c.entry(fo, e, at, depth); err != nil {
			return err
		}
	}
	return nil
}

// soundName refuses the names that no work tree can hold, or that lead elsewhere.
func soundName(name, path string, again bool) error {
	var why string
	switch {
	case again:
		why = "the commit has two entries of this name"
	case name == "" || name == "." || name == ".." || name == ".git" || strings.Contains(name, "/"):
		why = "the commit has an entry of this name, which git never makes"
	case len(name) > maxName:
		why = fmt.Sprintf("its name has %d bytes, and Linux takes %d", len(name), maxName)
	default:
		return nil
	}
	return refuse(path, why, "make the commit anew with git")
}

// entry takes one entry of a tree. Only the kind and the owner's execute bit of
// a mode count, as in git.
func (c *committed) entry(fo *folder, e gitrepo.TreeEntry, path string, depth int64) error {
	k := &node{name: e.Name, parent: fo.n}
	kind := beneath.Regular
	switch e.Mode & 0o170000 {
	case 0o040000:
		k.mode, kind = modeTree, beneath.Directory
	case 0o100000:
		k.mode = modeFile
		if e.Mode&0o100 != 0 {
			k.mode = modeExec
		}
	case 0o120000:
		k.mode, kind = modeLink, beneath.Symlink
	case 0o160000:
		c.w.find(Submodule, path, "the commit names a commit of another repository here; its files are not part")
		c.submodules = append(c.submodules, path)
		return nil
	default:
		return refuse(path, fmt.Sprintf("it has the mode %o, which git never makes", e.Mode), "make the commit anew with git")
	}
	if fo.path == "" && e.Name == ".striatum" && kind != beneath.Symlink {
		c.w.find(TrackedStriatum, path, trackedStriatum)
		return nil
	}
	if fo.path == "" {
		if _, err := c.w.ours(e.Name, kind); err != nil {
			return err
		}
	}
	if c.only != nil && k.mode != modeTree && !c.only(path) {
		return nil
	}
	fo.n.kids = append(fo.n.kids, k)
	switch k.mode {
	case modeTree:
		return c.tree(e.ID, k, path, depth+1)
	case modeLink:
		return c.link(fo, e.ID, k, path)
	case modeFile, modeExec:
	}
	return c.file(fo, e.ID, k, path)
}

func (c *committed) file(fo *folder, id gitrepo.ID, k *node, path string) (err error) {
	obj, err := c.repo.Open(c.ctx, id, gitrepo.KindBlob)
	if err != nil {
		return at(path, err)
	}
	defer obj.Close()
	if obj.Size > c.w.opt.Limits.FileBytes {
		return c.w.tooLong(path, obj.Size)
	}
	if err := c.w.count(path, obj.Size); err != nil {
		return err
	}
	var dst *beneath.File
	if c.w.out != nil {
		if dst, err = fo.create(k); err != nil {
			return err
		}
	}
	err = c.wk.content(obj, obj.Size, writerOrNil(dst), k)
	if err == nil {
		err = obj.Verify()
	}
	if err != nil {
		err = at(path, err)
	}
	if dst == nil {
		return err
	}
	if cerr := dst.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("copy %s: %w", Quote(path), cerr)
	}
	if err == nil {
		err = fo.settle(k)
	}
	return err
}

func (c *committed) link(fo *folder, id gitrepo.ID, k *node, path string) error {
	target, err := c.repo.ReadAll(c.ctx, id, gitrepo.KindBlob, maxTarget)
	if err != nil && !errors.Is(err, gitrepo.ErrObjectSize) {
		return at(path, err)
	}
	if err != nil || len(target) == 0 || bytes.IndexByte(target, 0) >= 0 {
		return refuse(path, "it is a symbolic link with a target that Linux cannot store", "make the commit anew with git")
	}
	k.link(string(target))
	if err := c.w.count(path, k.size); err != nil {
		return err
	}
	if c.w.out != nil {
		return fo.copyLink(k)
	}
	return nil
}

// at names the path at which reading failed.
func at(path string, err error) error {
	if path == "" {
		return err
	}
	return fmt.Errorf("read %s: %w", Quote(path), err)
}

// explainCommit gives what is wrong with a name or a repository its kind and hint.
func explainCommit(ctx context.Context, err error, abs, rev string) error {
	var known *problem.Problem
	if context.Cause(ctx) != nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, beneath.ErrHeld) || errors.Is(err, beneath.ErrFUSE) {
		return explain(err, abs) // before what it may be the reason of
	}
	what := fmt.Sprintf("take a snapshot of the commit %s of %s", Quote(rev), Quote(abs))
	wrap := func(kind problem.Kind, hint string) error { return problem.Wrap(kind, err, what, hint) }
	switch {
	case errors.Is(err, gitrepo.ErrUnknownRevision):
		return wrap(problem.Usage, "name a commit by its full id (git rev-parse REV prints it), a branch, a tag or HEAD")
	case errors.Is(err, gitrepo.ErrAmbiguous):
		return wrap(problem.Usage, "name it in full: refs/heads/NAME or refs/tags/NAME")
	case errors.Is(err, gitrepo.ErrNone):
		return wrap(problem.Usage, "name a worktree with a git repository, or leave the commit out to take the files as they are")
	case errors.Is(err, gitrepo.ErrObjectMissing):
		return wrap(problem.Missing, "fetch what is missing (git fetch), copy borrowed objects (git repack -a -d), then try again")
	case errors.Is(err, gitrepo.ErrForeign), errors.Is(err, beneath.ErrLink):
		return wrap(problem.Refused, "use a repository that lies in the worktree itself, or a linked worktree of it")
	case errors.Is(err, gitrepo.ErrFormat):
		return wrap(problem.Refused, "let git write it anew (git repack -a -d), or name the commit by its full id")
	case errors.Is(err, gitrepo.ErrObject), errors.Is(err, gitrepo.ErrObjectSize),
		errors.Is(err, beneath.ErrTooLong), errors.Is(err, beneath.ErrNotRegular):
		return wrap(problem.Refused, "look at it with git fsck, in a copy that you trust")
	}
	if err := explain(err, abs); errors.As(err, &known) {
		return err
	}
	return wrap(problem.Indeterminate, "try again")
}
