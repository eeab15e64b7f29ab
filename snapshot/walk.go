package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"striatum/internal/beneath"
	"striatum/snapshot/internal/gitrepo"
	"striatum/snapshot/internal/ignore"
)

const (
	// ignoreSteps bounds the matching of ignore rules of one snapshot: about ten
	// seconds. 10,000 files against 100 rules take about a million.
	ignoreSteps = 4_000_000_000
	// entriesPerFile times Limits.Files entries, ignored ones included, are looked
	// at.
	entriesPerFile = 4
	// chunk is how many files of one folder make one task.
	chunk = 128
)

// walker takes one snapshot of a worktree, in one attempt.
type walker struct {
	opt    Options
	root   *beneath.Dir
	index  *gitrepo.Index
	budget *ignore.Budget
	out    *frozen // nil for a digest
	memory *memory // nil: nothing is remembered
	reuse  bool    // take digests from memory
	pool   *pool

	files, bytes, entries atomic.Int64

	mu       sync.Mutex
	findings []Finding
	ignored  ignored
	rules    []ruleFile
}

// ruleFile is a .gitignore as its rules were read; the tree must hold the same.
type ruleFile struct {
	dir  *node
	blob digest
}

// changedError means that path changed while it was read; a further attempt may
// succeed.
type changedError struct{ path string }

func (e *changedError) Error() string { return fmt.Sprintf("%s: %s", ErrChanged, Quote(e.path)) }
func (e *changedError) Unwrap() error { return ErrChanged }

// vanished turns the failure to open what a folder listed into a reason to begin
// anew, unless it is another failure.
func (w *walker) vanished(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, beneath.ErrLink) || notAFolderError(err) {
		return &changedError{path: path}
	}
	if errors.Is(err, syscall.EXDEV) {
		return refuse(path, "another file system is mounted there, which a lane that serves others does not read", "let .gitignore name it, or put the files themselves there")
	}
	if errors.Is(err, fs.ErrPermission) {
		return refuse(path, "it cannot be read: permission denied", "run as root, or make it readable")
	}
	return w.unread(path, err)
}

// unread names the path that could not be read, where that is a failure of its own.
func (w *walker) unread(path string, err error) error {
	switch _, refused := errors.AsType[*RefusedError](err); {
	case refused:
		return err
	case errors.Is(err, beneath.ErrFUSE):
		return refuse(path, beneath.ErrFUSE.Error(), "put the files themselves there, on a file system of the machine")
	}
	return fmt.Errorf("read %s: %w", Quote(cmp.Or(path, ".")), err)
}

func (w *walker) irregular(path string, kind beneath.Kind) error {
	return refuse(path, fmt.Sprintf("it is a %s, which has no content to hash", kind), "let .gitignore name it, or name the folder of the project with --worktree")
}

func (w *walker) longPath(path string) error {
	return refuse(path, fmt.Sprintf("its path has %d bytes, and at most %d are taken", len(path), w.opt.Limits.PathBytes), "shorten it")
}

func (w *walker) tooLong(path string, size int64) error {
	return refuse(path, fmt.Sprintf("it has %d bytes, and a file of a snapshot has at most %d", size, w.opt.Limits.FileBytes),
		"let .gitignore name it")
}

// count adds one file or link of size bytes.
func (w *walker) count(path string, size int64) error {
	if w.files.Add(1) > w.opt.Limits.Files {
		return refuse("", fmt.Sprintf("the tree has more than %d files that are not ignored", w.opt.Limits.Files),
			`let .gitignore name what is not part of the work, or raise "snapshot_files" in config.json`)
	}
	if w.bytes.Add(size) > w.opt.Limits.Bytes {
		return refuse("", fmt.Sprintf("the tree has more than %d bytes that are not ignored; the limit was met at %s", w.opt.Limits.Bytes, Quote(path)),
			`let .gitignore name what is not part of the work, or raise "snapshot_bytes" in config.json`)
	}
	return nil
}

func (w *walker) find(code Code, path, detail string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = append(w.findings, Finding{Code: code, Path: Quote(path), Detail: detail})
}

// folder is an open folder of the worktree and its copy. It is closed when the
// last of the tasks that hold it is done.
type folder struct {
	w    *walker
	n    *node
	path string // "" for the top
	src  *beneath.Dir
	refs atomic.Int32

	once sync.Once
	dst  *beneath.Dir
	err  error
}

func (fo *folder) join(name string) string {
	if fo.path == "" {
		return name
	}
	return fo.path + "/" + name
}

func (fo *folder) release() {
	if fo.refs.Add(-1) > 0 {
		return
	}
	fo.src.Close()
	if fo.dst != nil {
		fo.dst.Close()
	}
}

// dir is the task of one folder: list it, decide what belongs, and make the
// tasks for that. ignored is true for an ignored folder with tracked files below.
func (w *walker) dir(wk *worker, n *node, path string, depth int64, rules *ignore.Rules, ignored bool) error {
	if depth > w.opt.Limits.Depth {
		return refuse(path, fmt.Sprintf("it lies more than %d folders deep", w.opt.Limits.Depth), "let .gitignore name it")
	}
	src, err := w.root.Dir(cmp.Or(path, "."))
	if err != nil {
		return w.vanished(path, err)
	}
	fo := &folder{w: w, n: n, path: path, src: src}
	fo.refs.Store(1)
	defer fo.release()
	entries, err := w.list(fo)
	if err != nil {
		return err
	}
	if !ignored {
		if rules, err = w.readRules(fo, entries, rules); err != nil {
			return err
		}
	}
	var files []*node
	for _, e := range entries {
		k, err := w.entry(fo, e, depth, rules, ignored)
		if err != nil {
			return err
		}
		if k != nil {
			files = append(files, k)
		}
	}
	n.kids = append(n.kids, files...)
	if w.budget.Spent() {
		return refuse(path, fmt.Sprintf("its ignore rules take more than %d steps to match", int64(ignoreSteps)), "write fewer or simpler patterns")
	}
	for len(files) > chunk {
		part := files[:chunk]
		files = files[chunk:]
		fo.refs.Add(1)
		w.pool.push(func(wk *worker) error {
			defer fo.release()
			return w.take(wk, fo, part)
		}, fo.release)
	}
	return w.take(wk, fo, files)
}

// list returns the entries of fo in a state that was the same before and after.
func (w *walker) list(fo *folder) ([]beneath.Entry, error) {
	most := entriesPerFile * w.opt.Limits.Files
	for range fileTries {
		before, err := fo.src.Stat()
		if err != nil {
			return nil, w.unread(fo.path, err)
		}
		entries, err := fo.src.Entries(func(n int) error {
			if w.entries.Load()+int64(n) > most {
				return refuse(fo.path, fmt.Sprintf("the tree has more than %d entries, ignored ones included", most), `remove what is not needed, or raise "snapshot_files" in config.json`)
			}
			return nil
		})
		if err != nil {
			return nil, w.unread(fo.path, err)
		}
		after, err := fo.src.Stat()
		if err != nil {
			return nil, w.unread(fo.path, err)
		}
		if before == after {
			w.entries.Add(int64(len(entries)))
			return entries, nil
		}
	}
	return nil, &changedError{path: fo.path}
}

// readRules adds the rules of fo's own .gitignore.
func (w *walker) readRules(fo *folder, entries []beneath.Entry, up *ignore.Rules) (*ignore.Rules, error) {
	if !slices.ContainsFunc(entries, func(e beneath.Entry) bool { return e.Name == ".gitignore" }) {
		return up, nil
	}
	data, err := fo.src.ReadFile(".gitignore", ignore.MaxFileBytes)
	path := fo.join(".gitignore")
	switch {
	case errors.Is(err, beneath.ErrLink), errors.Is(err, beneath.ErrNotRegular):
		return up, nil // git does not read it either
	case errors.Is(err, beneath.ErrTooLong):
		return nil, refuse(path, fmt.Sprintf("an ignore file has at most %d bytes", ignore.MaxFileBytes), "shorten it")
	case err != nil:
		return nil, w.vanished(path, err)
	}
	w.mu.Lock()
	w.rules = append(w.rules, ruleFile{dir: fo.n, blob: objectID("blob", data)})
	w.mu.Unlock()
	return ignore.Parse(data, fo.path, up), nil
}

// entry decides about one entry of fo. It returns the node of a file or link that
// belongs, and makes the task of a folder that does.
func (w *walker) entry(fo *folder, e beneath.Entry, depth int64, rules *ignore.Rules, ignored bool) (*node, error) {
	path := fo.join(e.Name)
	if e.Name == ".git" {
		if fo.path != "" {
			w.find(NestedRepository, fo.path, "its files are taken as plain files, without its .git")
		}
		return nil, nil
	}
	kind := e.Kind
	if kind == beneath.Unknown {
		st, err := fo.src.Lstat(e.Name)
		if err != nil {
			return nil, w.vanished(path, err)
		}
		kind = st.Kind
	}
	if fo.path == "" {
		if skip, err := w.ours(e.Name, kind); skip || err != nil {
			return nil, err
		}
	}
	out := ignored || rules.Ignored(path, kind == beneath.Directory, w.budget)
	folder := kind == beneath.Directory
	submodule := folder && w.index.IsSubmodule(path)
	if out && !submodule && !w.tracked(path, folder) {
		w.mu.Lock()
		w.ignored.add(path, folder)
		w.mu.Unlock()
		return nil, nil
	}
	if int64(len(path)) > w.opt.Limits.PathBytes {
		return nil, w.longPath(path)
	}
	if folder {
		if submodule {
			w.find(Submodule, path, "git tracks it as a commit of another repository; its files are taken as they are")
			out = false
		}
		k := &node{name: e.Name, mode: modeTree, parent: fo.n}
		fo.n.kids = append(fo.n.kids, k)
		w.pool.push(func(wk *worker) error { return w.dir(wk, k, path, depth+1, rules, out) }, nil)
		return nil, nil
	}
	k := &node{name: e.Name, parent: fo.n}
	switch kind {
	case beneath.Regular:
		k.mode = modeFile
	case beneath.Symlink:
		k.mode = modeLink
	case beneath.Directory, beneath.Unknown, beneath.FIFO, beneath.Socket, beneath.Device:
		return nil, w.irregular(path, kind)
	}
	return k, nil
}

const trackedStriatum = "git tracks it, and it is never part of a snapshot: a digest cannot contain what is said about it"

// tracked says whether git tracks the file, or something below the folder, path.
func (w *walker) tracked(path string, folder bool) bool {
	if folder {
		return w.index.HasBelow(path)
	}
	return w.index.Has(path)
}

// ours handles the two names at the top that are Striatum's. skip is true for
// what is never part.
func (w *walker) ours(name string, kind beneath.Kind) (skip bool, err error) {
	if name != ".striatum" && name != "verification" {
		return false, nil
	}
	if kind == beneath.Symlink {
		return false, refuse(name, "it is a symbolic link, and Striatum's own folder must be a folder", "remove the link")
	}
	if name == "verification" {
		return false, nil
	}
	if w.index.Has(name) || w.index.HasBelow(name) {
		w.find(TrackedStriatum, name, trackedStriatum)
	}
	return true, nil
}

// take is the task of some files and links of one folder.
func (w *walker) take(wk *worker, fo *folder, nodes []*node) error {
	for _, n := range nodes {
		var err error
		if n.mode == modeLink {
			err = w.symlink(fo, n)
		} else {
			err = w.file(wk, fo, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) symlink(fo *folder, n *node) error {
	path := fo.join(n.name)
	before, err := fo.src.Lstat(n.name)
	if err != nil {
		return w.vanished(path, err)
	}
	target, err := fo.src.Readlink(n.name)
	if errors.Is(err, beneath.ErrHeld) {
		return w.unread(path, err)
	}
	if err != nil {
		return &changedError{path: path}
	}
	after, err := fo.src.Lstat(n.name)
	if errors.Is(err, beneath.ErrHeld) {
		return w.unread(path, err)
	}
	if err != nil || before != after || strings.ContainsRune(target, 0) {
		return &changedError{path: path}
	}
	n.link(target)
	if err := w.count(path, n.size); err != nil {
		return err
	}
	if w.out != nil {
		return fo.copyLink(n)
	}
	return nil
}

// checkRules demands that the ignore rules that were applied are those that the
// tree holds.
func (w *walker) checkRules() error {
	for _, r := range w.rules {
		for _, k := range r.dir.kids {
			if k.name == ".gitignore" && k.blob != r.blob {
				return &changedError{path: strings.TrimPrefix(r.dir.path()+"/.gitignore", "/")}
			}
		}
	}
	return nil
}
