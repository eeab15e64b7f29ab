package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"striatum/internal/beneath"
	"striatum/internal/problem"
)

// Limits bound one snapshot. A zero field takes its default.
type Limits struct {
	Files     int64 // files and links that are part of it; 250,000
	Bytes     int64 // of all files together; 4 GiB
	FileBytes int64 // of one file; 1 GiB
	PathBytes int64 // of one path from the top; 4,000
	Depth     int64 // folders above a file; 256
}

// DefaultLimits returns the limits that zero fields stand for.
func DefaultLimits() Limits {
	return Limits{Files: 250_000, Bytes: 4 << 30, FileBytes: 1 << 30, PathBytes: 4_000, Depth: 256}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ field, def *int64 }{
		{&l.Files, &d.Files}, {&l.Bytes, &d.Bytes}, {&l.FileBytes, &d.FileBytes}, {&l.PathBytes, &d.PathBytes}, {&l.Depth, &d.Depth},
	} {
		if *f.field == 0 {
			*f.field = *f.def
		}
	}
	return l
}

// Options tune a snapshot. The zero value reads every byte and remembers nothing.
type Options struct {
	Limits Limits
	// Workers is how many folders and files are worked on side by side; 2.
	Workers int
	// Attempts is how often a tree that changes while it is read is begun anew
	// before ErrChanged; 3.
	Attempts int
	// Now is the wall clock. Without it nothing is remembered for reuse.
	Now func() time.Time
	// Reuse lets Digest take the digest of an unchanged file from this store's
	// memory instead of reading it, where the package comment says that this is
	// sound. It is for showing a state to people, never for what is sealed or for
	// a gate check. Freeze and the Commit functions ignore it.
	Reuse *Store
	// Dir is the open worktree, whose path then only names it; nil: it is opened at
	// its path. What cannot be read there is always refused.
	Dir *beneath.Dir
}

func (o Options) withDefaults() Options {
	o.Limits = o.Limits.withDefaults()
	if o.Workers <= 0 {
		o.Workers = 2
	}
	o.Workers = min(o.Workers, 4*runtime.GOMAXPROCS(0))
	if o.Attempts <= 0 {
		o.Attempts = 3
	}
	return o
}

// Code names a kind of finding.
type Code string

// The findings.
const (
	LinkLeavesTree   Code = "link_leaves_tree"  // a symbolic link that leads out of the tree
	NestedRepository Code = "nested_repository" // a .git below the top; left out, the files around it are taken
	Submodule        Code = "submodule"         // a path that the repository tracks as another one's commit
	TrackedStriatum  Code = "tracked_striatum"  // git tracks files of .striatum, which is never part
	IndexUnreadable  Code = "index_unreadable"  // tracked files that are ignored may be missing
	CollidingNames   Code = "colliding_names"   // names that are one on a case-folding or normalising file system
	BidiName         Code = "bidi_name"         // a name with characters that change the reading direction
	ControlName      Code = "control_name"      // a name with control characters or invalid UTF-8
)

// Finding is something that a person should know about the tree. It never stops
// a snapshot. Path is in the form of the manifest: C-quoted where it holds
// anything but printable ASCII; so is what Detail quotes.
type Finding struct {
	Code   Code
	Path   string
	Detail string
}

// Snapshot describes one state of a tree.
type Snapshot struct {
	TreeSHA256     string // git's SHA-256 tree id
	ManifestSHA256 string // of the manifest's bytes
	GitCommit      string // full id, if the tree is a commit's
	Files, Bytes   int64  // files and links; content of files
	Findings       []Finding
	// Ignored are paths that the ignore rules left out where the walk met them:
	// folders, which end in "/" and were not looked into, and files named *.go.
	// They are the first MaxIgnored, ascending; there are IgnoredMore others. A
	// commit has none.
	Ignored     []string
	IgnoredMore int64
	// IgnoredFiles are the first MaxIgnoredFiles, ascending, of all other files that
	// the ignore rules left out; there are IgnoredFilesMore others.
	IgnoredFiles     []string
	IgnoredFilesMore int64

	Dir          string // the frozen tree; empty for a digest
	ManifestPath string // empty for a digest
	// Manifest is set for a digest only; a frozen one is read from ManifestPath.
	Manifest []byte
}

// ErrChanged means that the tree changed again and again while it was read.
var ErrChanged = errors.New("tree_changed_while_read")

// RefusedError says what in a tree cannot be part of a snapshot. It unwraps to a
// problem of kind Refused.
type RefusedError struct {
	Path    string // in the form of the manifest; empty if it is about the whole
	problem *problem.Problem
}

func (e *RefusedError) Error() string { return e.problem.Error() }

// Unwrap returns the problem that a user reads.
func (e *RefusedError) Unwrap() error { return e.problem }

func refuse(path, why, hint string) error {
	what := "take a snapshot"
	if path != "" {
		path = Quote(path)
		what = "take a snapshot of " + path
	}
	return &RefusedError{Path: path, problem: problem.New(problem.Refused, what, why, hint)}
}

// Freeze copies the tree at root into store while it hashes it, every byte read
// for it. The copy stays until store.Trim.
//
// Errors: *RefusedError for what cannot be part (kind Refused), ErrChanged inside
// a problem of kind Indeterminate, the cause of ctx.
func Freeze(ctx context.Context, root string, store Store, opt Options) (Snapshot, error) {
	return snapshotTree(ctx, root, &store, opt)
}

// Digest describes the tree at root without copying it. Errors as for Freeze.
func Digest(ctx context.Context, root string, opt Options) (Snapshot, error) {
	return snapshotTree(ctx, root, nil, opt)
}

// FindTop returns the worktree that dir lies in: the nearest folder from dir
// upwards that holds .git or verification/workflow.json, else dir; always the
// real path. The error is a problem of kind Usage if dir is no folder.
func FindTop(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find worktree: %w", err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", noWorktree(dir, err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", noWorktree(dir, err)
	}
	for at := real; ; at = filepath.Dir(at) {
		for _, mark := range []string{".git", filepath.Join("verification", "workflow.json")} {
			if _, err := os.Lstat(filepath.Join(at, mark)); err == nil {
				return at, nil
			}
		}
		if at == filepath.Dir(at) {
			return real, nil
		}
	}
}

func noWorktree(dir string, err error) error {
	return problem.New(problem.Usage, "find the worktree at "+Quote(dir), whyNoFolder(err), "name the folder of the project with --worktree")
}

func notAFolder(dir string, err error) error {
	return refuse(dir, whyNoFolder(err), "name the folder of the project with --worktree")
}

func whyNoFolder(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such directory"
	case err != nil && !errors.Is(err, fs.ErrInvalid):
		return err.Error()
	}
	return "it is not a directory"
}
