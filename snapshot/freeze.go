package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"striatum/internal/beneath"
	"striatum/internal/problem"
	"striatum/snapshot/internal/gitrepo"
	"striatum/snapshot/internal/ignore"
)

// begin opens the worktree dir, whose absolute path it returns too, and makes
// ready the store unless it is nil. The caller closes root.
func begin(dir string, store *Store, opt Options) (root *beneath.Dir, abs string, err error) {
	if abs, err = filepath.Abs(dir); err != nil {
		return nil, "", fmt.Errorf("take a snapshot: %w", err)
	}
	if opt.Dir != nil {
		if root, err = opt.Dir.Dir("."); err != nil {
			err = explain(err, abs)
		}
	} else {
		root, err = openRoot(abs)
	}
	if err != nil {
		return nil, "", err
	}
	if store != nil {
		if err := store.prepare(abs); err != nil {
			return nil, "", errors.Join(err, root.Close())
		}
	}
	return root, abs, nil
}

// snapshotTree takes a snapshot of a worktree, into store unless it is nil, and
// begins anew when the tree changed meanwhile.
func snapshotTree(ctx context.Context, dir string, store *Store, opt Options) (Snapshot, error) {
	opt = opt.withDefaults()
	root, abs, err := begin(dir, store, opt)
	if err != nil {
		return Snapshot{}, err
	}
	defer root.Close()
	s := session{ctx: ctx, opt: opt, root: root, path: abs, store: store, link: true}
	for attempt := 1; ; attempt++ {
		snap, err := s.attempt()
		switch {
		case err == nil:
			return snap, nil
		case errors.Is(err, errNoLink):
			s.link = false
		case errors.Is(err, ErrChanged) && attempt < opt.Attempts:
		case errors.Is(err, ErrChanged):
			return Snapshot{}, problem.Wrap(problem.Indeterminate, err, "take a snapshot of "+Quote(abs),
				fmt.Sprintf("it changed during each of %d attempts; stop what writes there, or let .gitignore name it", opt.Attempts))
		default:
			return Snapshot{}, explain(err, abs)
		}
	}
}

func openRoot(abs string) (*beneath.Dir, error) {
	root, err := beneath.Open(abs)
	switch {
	case err == nil:
		return root, nil
	case errors.Is(err, os.ErrNotExist) || notAFolderError(err):
		return nil, notAFolder(abs, err)
	}
	return nil, explain(err, abs)
}

func notAFolderError(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// explain gives the failures of a machine their kind and their hint.
func explain(err error, abs string) error {
	what := "take a snapshot of " + Quote(abs)
	switch {
	case errors.Is(err, beneath.ErrUnsupported):
		return problem.Wrap(problem.Missing, err, what, "use Linux 5.6 or newer, outside a filter that hides openat2")
	case errors.Is(err, beneath.ErrHeld):
		return problem.Wrap(problem.Indeterminate, err, what, "see why its file system hangs, and run the command again")
	case errors.Is(err, beneath.ErrFUSE):
		return problem.Wrap(problem.Refused, err, what, "put the files themselves on a file system of the machine")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem.Wrap(problem.Indeterminate, err, what, "make room on the disk that holds the home (striatum doctor shows it)")
	case errors.Is(err, syscall.EROFS):
		return problem.Wrap(problem.Missing, err, what, "let STRIATUM_HOME name a folder on a disk that can be written")
	case errors.Is(err, os.ErrPermission):
		return problem.Wrap(problem.Refused, err, what, "run as root, or as the user who owns the folder")
	}
	return err
}

// session is what the attempts of one snapshot share.
type session struct {
	ctx   context.Context //nolint:containedctx // lives for one call of snapshotTree
	opt   Options
	root  *beneath.Dir
	path  string
	store *Store
	link  bool // link unchanged files to the previous frozen tree's
}

func (s *session) attempt() (snap Snapshot, err error) {
	w := &walker{opt: s.opt, root: s.root, budget: ignore.NewBudget(ignoreSteps), pool: newPool()}
	w.memory = s.openMemory()
	w.reuse = s.store == nil && w.memory != nil
	if err := s.readIndex(w); err != nil {
		return Snapshot{}, err
	}
	if s.store != nil {
		if w.out, err = s.store.begin(); err != nil {
			return Snapshot{}, err
		}
		defer func() { err = errors.Join(err, w.out.close()) }()
		if s.link {
			w.out.follow(s.store, w.memory)
		}
	}
	top := &node{mode: modeTree}
	w.pool.push(func(wk *worker) error { return w.dir(wk, top, "", 0, nil, false) }, nil)
	if err := w.pool.run(s.ctx, s.opt.Workers); err != nil {
		return Snapshot{}, err
	}
	top.finish()
	if err := w.checkRules(); err != nil {
		return Snapshot{}, err
	}
	snap = describe(top, w.findings)
	snap.Ignored, snap.IgnoredMore = w.ignored.paths.list(MaxIgnored)
	snap.IgnoredFiles, snap.IgnoredFilesMore = w.ignored.files.list(MaxIgnoredFiles)
	snap.Files, snap.Bytes = w.files.Load(), contentBytes(top)
	if w.out != nil {
		if err := w.out.complete(top, &snap); err != nil {
			return Snapshot{}, err
		}
	}
	if err := w.memory.save(snap.TreeSHA256, w.out != nil); err != nil && w.out != nil {
		return Snapshot{}, err
	}
	return snap, nil // a digest needs no home that can be written
}

// openMemory returns what may be remembered here, or nil.
func (s *session) openMemory() *memory {
	store := s.store
	if store == nil {
		store = s.opt.Reuse
	}
	if store == nil || s.opt.Now == nil {
		return nil
	}
	return store.memory(s.root, s.opt.Now())
}

// readIndex learns which files git tracks. What cannot be read is a finding, but
// what another's rights do not reach, or whoever handed the folder over mounted
// something over, is refused.
func (s *session) readIndex(w *walker) error {
	repo, err := gitrepo.Open(s.root, s.path)
	if errors.Is(err, gitrepo.ErrNone) {
		return nil
	}
	if err == nil {
		w.index, err = repo.Index()
		err = errors.Join(err, repo.Close())
	}
	if err != nil && s.opt.Dir != nil && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EXDEV) || errors.Is(err, beneath.ErrFUSE) || errors.Is(err, beneath.ErrHeld)) {
		return w.vanished(".git", err)
	}
	if err != nil {
		w.index = nil
		w.find(IndexUnreadable, ".git", "tracked files that are ignored are left out: "+printable(err.Error()))
	}
	return nil
}

// printable escapes what a file in the tree may have put into an error.
func printable(s string) string { return strings.Trim(Quote(s), `"`) }

// describe fills what follows from a finished tree.
func describe(top *node, found []Finding) Snapshot {
	manifest := top.manifest()
	sum := sha256.Sum256(manifest)
	out := Snapshot{TreeSHA256: hex.EncodeToString(top.blob[:]), ManifestSHA256: hex.EncodeToString(sum[:]), Manifest: manifest, Findings: found}
	out.Findings = append(out.Findings, treeFindings(top, "")...)
	slices.SortFunc(out.Findings, func(a, b Finding) int {
		return strings.Compare(string(a.Code)+"\x00"+a.Path+"\x00"+a.Detail, string(b.Code)+"\x00"+b.Path+"\x00"+b.Detail)
	})
	return out
}

// treeFindings reports names and links of the finished folder n and all below.
func treeFindings(n *node, dir string) []Finding {
	out := nameFindings(n, dir)
	for _, k := range n.kids {
		at := path.Join(dir, k.name)
		switch k.mode {
		case modeTree:
			out = append(out, treeFindings(k, at)...)
		case modeLink:
			if leavesTree(k) {
				out = append(out, Finding{LinkLeavesTree, Quote(at), "it leads to " + Quote(k.target)})
			}
		case modeFile, modeExec:
		}
	}
	return out
}

// contentBytes is the size of all files; links count nothing.
func contentBytes(top *node) (sum int64) {
	top.walk("", func(_ string, n *node) {
		if n.mode != modeLink {
			sum += n.size
		}
	})
	return sum
}

// manifestMap returns the content of a manifest's paths, or nil.
func manifestMap(file string) map[string]content {
	data, err := os.ReadFile(file)
	if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
		return nil
	}
	return parseManifest(data)
}
