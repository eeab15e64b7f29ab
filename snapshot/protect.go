package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"striatum/internal/beneath"
	"striatum/internal/problem"
	"striatum/snapshot/internal/gitrepo"
)

// The codes of a ProtectError.
const (
	ProtectedUnreadable Code = "protected_commit_unreadable" // no such commit here, or not all of it
	ProtectedUnmatched  Code = "protected_path_unmatched"    // a pattern that no file of the commit matches
	ProtectedConflict   Code = "protected_path_conflict"     // the tree does not take the commit's files, or keeps a way around them
	ProtectedEverything Code = "protected_everything"        // nothing of the tree itself is left
)

// ProtectError says why the tree with protected files cannot be made. It is about
// the repository, the patterns or the tree, not about the machine.
type ProtectError struct {
	Code   Code
	Detail string // why, and what to do
}

func (e *ProtectError) Error() string { return e.Detail }

// Protection says which files of a tree are to be those of a commit.
type Protection struct {
	Commit string                          // its full object id
	Paths  []string                        // patterns
	Match  func(pattern, path string) bool // of a path from the top, unquoted
}

// Protected is a tree whose protected files are the commit's. The lists are in the
// form of the manifest and its order: files of the commit that the tree has
// otherwise, in content or mode; those that it does not have; and those of the tree
// that the commit does not have, which are gone.
type Protected struct {
	Snapshot
	Files                    int64 // of the commit that a pattern matches
	Restored, Added, Removed []string
}

// Protect makes, in store, the tree of base, a frozen one of that store, with the
// files that a pattern matches taken from a commit of the repository in the worktree
// dir, and none other that matches. The worktree stays as it is. No git runs, and of
// the commit only matching files are read.
//
// A protected link leads, over protected links only, to protected files or to
// nothing: else the tree itself would say what is behind it.
//
// Errors: *ProtectError, the cause of ctx, and those of Freeze that are a machine's.
func Protect(ctx context.Context, dir string, base Snapshot, p Protection, store Store, opt Options) (Protected, error) {
	opt = opt.withDefaults()
	out, err := protect(ctx, dir, base, p, &store, opt, true)
	if errors.Is(err, errNoLink) {
		out, err = protect(ctx, dir, base, p, &store, opt, false)
	}
	return out, err
}

// protection is one attempt.
type protection struct {
	committed
	Protection
	base  Snapshot
	link  bool // link the tree's own files to base's
	top   *node
	nodes map[string]*node // of top, by path
	out   Protected
	own   int64 // files of base that stay
}

func protect(ctx context.Context, dir string, base Snapshot, how Protection, store *Store, opt Options, link bool) (_ Protected, err error) {
	root, abs, err := begin(dir, store, opt)
	if err != nil {
		return Protected{}, err
	}
	defer root.Close()
	repo, err := gitrepo.Open(root, abs)
	if err != nil {
		return Protected{}, unreadable(explainCommit(ctx, err, abs, how.Commit))
	}
	defer repo.Close()
	repo.Work = workFactor * opt.Limits.Bytes
	p := &protection{Protection: how, base: base, link: link, top: &node{mode: modeTree}, nodes: map[string]*node{}}
	p.committed = committed{ctx: ctx, w: &walker{opt: opt}, wk: newWorker(), repo: repo, only: p.protects}
	if p.w.out, err = store.begin(); err != nil {
		return Protected{}, explain(err, abs)
	}
	defer func() { err = errors.Join(err, p.w.out.close()) }()
	if p.w.out.prev, err = beneath.Open(base.Dir); err != nil {
		return Protected{}, err
	}
	if err := p.fromCommit(); err != nil {
		return Protected{}, unreadable(explainCommit(ctx, err, abs, how.Commit))
	}
	if err := p.matched(); err != nil {
		return Protected{}, err
	}
	if err := p.fromTree(); err != nil {
		return Protected{}, err
	}
	return p.complete()
}

// unreadable tells what is wrong with a commit from what is wrong with the machine.
func unreadable(err error) error {
	known, ok := errors.AsType[*problem.Problem](err)
	if !ok || known.Kind == problem.Indeterminate || known.Kind == problem.Internal {
		return err
	}
	return &ProtectError{ProtectedUnreadable, fmt.Sprintf("%v; %s", err, known.Hint)}
}

func (p *protection) protects(name string) bool {
	for _, pattern := range p.Paths {
		if p.Match(pattern, name) {
			return true
		}
	}
	return false
}

// fromCommit takes the commit's protected files.
func (p *protection) fromCommit() error {
	commit, tree, err := p.repo.Commit(p.ctx, p.Commit)
	if err == nil && commit.String() != p.Commit {
		err = fmt.Errorf("%w: %q is a tag of the commit %s", gitrepo.ErrUnknownRevision, p.Commit, commit)
	}
	if err != nil {
		return err
	}
	if err := p.tree(tree, p.top, "", 0); err != nil {
		return err
	}
	p.top.finish() // drops the folders with nothing protected
	p.list(p.top, "")
	return nil
}

// matched counts the commit's protected files; each pattern must match one.
func (p *protection) matched() error {
	matched := make([]bool, len(p.Paths))
	p.top.walk("", func(name string, _ *node) {
		p.out.Files++
		if p.ctx.Err() != nil {
			return
		}
		for i, pattern := range p.Paths {
			matched[i] = matched[i] || p.Match(pattern, name)
		}
	})
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	for i, ok := range matched {
		if !ok {
			return &ProtectError{ProtectedUnmatched, fmt.Sprintf("no file of the commit %s matches %q, so it would protect nothing; mend the pattern, or name a commit that has such files", p.Commit, p.Paths[i])}
		}
	}
	return nil
}

// list notes n and what is below it.
func (p *protection) list(n *node, at string) {
	p.nodes[at] = n
	for _, k := range n.kids {
		p.list(k, path.Join(at, k.name))
	}
}

// fromTree takes what of the tree itself stays, and notes what the commit changes.
func (p *protection) fromTree() error {
	manifest, err := p.base.ReadManifest()
	if err != nil {
		return err
	}
	had := map[string]bool{}
	for line := range strings.Lines(string(manifest)) {
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		e, err := parseLine(line)
		if err != nil {
			return err
		}
		if !p.protects(e.path) {
			p.own++
			if err := p.keep(e); err != nil {
				return err
			}
			continue
		}
		for _, sub := range p.submodules {
			if strings.HasPrefix(e.path, sub+"/") {
				return p.conflict(e.path, fmt.Sprintf("a pattern matches it, and the commit has another repository's commit at %s, whose files it does not hold", Quote(sub)))
			}
		}
		switch n := p.nodes[e.path]; {
		case n == nil || n.mode == modeTree:
			p.out.Removed = append(p.out.Removed, e.quoted)
		case n.mode != e.mode || n.sum != e.sum:
			p.out.Restored = append(p.out.Restored, e.quoted)
			had[e.path] = true
		default:
			had[e.path] = true
		}
	}
	for _, sub := range p.submodules {
		if p.protects(sub) {
			return p.conflict(sub, "a pattern matches it, and the commit has another repository's commit there, whose files it does not hold")
		}
	}
	if p.own == 0 {
		return &ProtectError{ProtectedEverything, "the patterns match every file of the tree, so the check would be about the commit alone; name the examination, not what it examines"}
	}
	p.top.walk("", func(name string, _ *node) {
		if p.ctx.Err() == nil && !had[name] && p.protects(name) {
			p.out.Added = append(p.out.Added, Quote(name))
		}
	})
	return context.Cause(p.ctx)
}

func (p *protection) conflict(name, why string) error {
	return &ProtectError{ProtectedConflict, fmt.Sprintf("%s: %s; mend the tree, or let the patterns leave it out", Quote(name), why)}
}

// keep takes an entry of the tree that is not protected.
func (p *protection) keep(e line) error {
	if p.nodes[e.path] != nil {
		return p.conflict(e.path, "it is a file of the tree, and the commit has protected files below a folder of that name")
	}
	parent, err := p.folder(parentOf(e.path), e.path)
	if err != nil {
		return err
	}
	k := &node{name: path.Base(e.path), mode: e.mode, parent: parent}
	fo := &folder{w: p.w, n: parent, path: parentOf(e.path)}
	if err := p.copy(fo, k, e); err != nil {
		return fmt.Errorf("protect inputs: take %s: %w", e.quoted, err)
	}
	if k.sum != e.sum {
		return problem.New(problem.Internal, "protect inputs", fmt.Sprintf("the frozen %s has other bytes than its manifest says", e.quoted), "take the snapshot again")
	}
	parent.kids = append(parent.kids, k)
	p.nodes[e.path] = k
	return p.w.count(e.path, k.size)
}

// folder returns the node of a folder, made where it is missing; name is what lies
// in it.
func (p *protection) folder(at, name string) (*node, error) {
	n := p.nodes[at]
	if n == nil && at == "" {
		n = p.top
	}
	if n == nil {
		parent, err := p.folder(parentOf(at), name)
		if err != nil {
			return nil, err
		}
		n = &node{name: path.Base(at), mode: modeTree, parent: parent}
		parent.kids = append(parent.kids, n)
		p.nodes[at] = n
	}
	if n.mode != modeTree {
		return nil, p.conflict(name, fmt.Sprintf("the commit has the protected file %s, where the tree has a folder with other files", Quote(at)))
	}
	return n, nil
}

// copy hashes an entry of base's tree into k and copies it, or leaves that to a
// link.
func (p *protection) copy(fo *folder, k *node, e line) (err error) {
	defer func() {
		if fo.dst != nil {
			err = errors.Join(err, fo.dst.Close())
		}
	}()
	src := p.w.out.prev
	if e.mode == modeLink {
		dir, err := src.Dir(path.Dir(e.path))
		if err != nil {
			return err
		}
		defer dir.Close()
		target, err := dir.Readlink(k.name)
		if err != nil {
			return err
		}
		k.link(target)
		return fo.copyLink(k)
	}
	f, err := src.File(e.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if k.linked = p.link; k.linked {
		return p.wk.content(f, e.size, nil, k)
	}
	dst, err := fo.create(k)
	if err != nil {
		return err
	}
	if err := errors.Join(p.wk.content(f, e.size, dst, k), dst.Close()); err != nil {
		return err
	}
	return fo.settle(k)
}

// complete finishes the tree, once no protected link leads around the commit.
func (p *protection) complete() (Protected, error) {
	p.top.finish()
	var around error
	p.top.walk("", func(name string, n *node) {
		if around == nil && n.mode == modeLink && p.protects(name) && !p.within(n) {
			around = p.conflict(name, fmt.Sprintf("it is a protected link to %s, which is not protected", Quote(n.target)))
		}
	})
	if around != nil {
		return Protected{}, around
	}
	s := describe(p.top, nil)
	s.Files, s.Bytes = p.w.files.Load(), contentBytes(p.top)
	s.Ignored, s.IgnoredMore = p.base.Ignored, p.base.IgnoredMore
	s.IgnoredFiles, s.IgnoredFilesMore = p.base.IgnoredFiles, p.base.IgnoredFilesMore
	p.out.Snapshot = s
	return p.out, p.w.out.complete(p.top, &p.out.Snapshot)
}

// within reports whether all that the protected link n leads to is protected.
func (p *protection) within(n *node) bool {
	ok, steps := true, 0
	to, out := follow(n.parent, n.target, &steps, func(link *node) { ok = ok && p.protects(link.path()) })
	switch {
	case out:
		return false
	case to == nil:
		return ok
	case to.mode == modeTree:
		to.walk(to.path(), func(name string, _ *node) { ok = ok && p.protects(name) })
		return ok
	}
	return ok && p.protects(to.path())
}

// line is one of a manifest.
type line struct {
	content
	size         int64
	path, quoted string
}

// ManifestLine is a line of a tree manifest, as a reader outside of this package
// wants it.
type ManifestLine struct {
	Path, Quoted string // of the entry, and as the manifest writes it
	SHA256       string // of the file, or of the link's target
	Link         bool
}

// ParseManifestLine reads a line of a manifest, with its end or without.
func ParseManifestLine(text string) (ManifestLine, error) {
	e, err := parseLine(text)
	return ManifestLine{e.path, e.quoted, hex.EncodeToString(e.sum[:]), e.mode == modeLink}, err
}

// parseLine reads what appendLine wrote.
func parseLine(text string) (e line, err error) {
	fields := strings.SplitN(strings.TrimSuffix(text, "\n"), " ", 4)
	if len(fields) != 4 || len(fields[1]) != 2*len(e.sum) {
		return e, fmt.Errorf("read tree manifest: it has the line %q", text)
	}
	bits, merr := strconv.ParseUint(fields[0], 8, 32)
	_, serr := hex.Decode(e.sum[:], []byte(fields[1]))
	e.size, err = strconv.ParseInt(fields[2], 10, 64)
	e.mode, e.path, e.quoted = mode(bits), fields[3], fields[3]
	var qerr error
	if strings.HasPrefix(e.quoted, `"`) {
		e.path, qerr = strconv.Unquote(e.quoted) // its escapes are Go's too
	}
	if err := errors.Join(merr, serr, err, qerr); err != nil {
		return e, fmt.Errorf("read tree manifest: %w", err)
	}
	return e, nil
}
