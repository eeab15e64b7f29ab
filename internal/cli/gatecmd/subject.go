package gatecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/anchors"
	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/workflow"
)

// attempts is how often a worktree is read again when it changed between its
// hash and the reading of its policy.
const attempts = 3

// subject is what a gate judges.
type subject struct {
	top     string
	options snapshot.Options
}

// read returns the tree that the options name, and the policy's files in it. A
// run without a commit judges no tree.
func (s subject) read(ctx context.Context, o Options) (gate.Tree, daemon.Files, error) {
	switch {
	case o.Commit != "":
		return s.commit(ctx, o.Commit)
	case o.Run != "":
		files, err := embedded.PolicyFiles(s.top)
		return gate.Tree{}, files, err
	}
	return s.worktree(ctx)
}

// worktree hashes the worktree. The policy's files are those of the hashed
// tree: each one that was read has the digest that the manifest gives it.
func (s subject) worktree(ctx context.Context) (gate.Tree, daemon.Files, error) {
	for range attempts {
		files, err := embedded.PolicyFiles(s.top)
		if err != nil {
			return gate.Tree{}, nil, err
		}
		snap, err := snapshot.Digest(ctx, s.top, s.options)
		if err != nil {
			return gate.Tree{}, nil, err
		}
		if files, ok := filesOf(snap.Manifest, files); ok {
			return gate.Tree{SHA256: snap.TreeSHA256, Source: "worktree", ManifestSHA256: snap.ManifestSHA256}, files, nil
		}
	}
	return gate.Tree{}, nil, problem.New(problem.Indeterminate, "read the worktree", "its verification folder keeps changing", "wait until nobody writes there, then try again")
}

// filesOf keeps the files that are part of the tree (git may ignore some). It is
// false when one has other bytes there, or when a policy's file in the tree was
// not read.
func filesOf(manifest []byte, read daemon.Files) (files daemon.Files, same bool) {
	paths := map[string]string{} // as the manifest writes it, to path
	for path := range read {
		paths[snapshot.Quote(path)] = path
	}
	for _, path := range []string{workflow.DefaultPath, workflow.DefaultIntentPath, anchors.DefaultPath} {
		paths[snapshot.Quote(path)] = path
	}
	files = daemon.Files{}
	for line := range strings.Lines(string(manifest)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4) // mode sha256 size path
		if len(fields) != 4 {
			return nil, false
		}
		path, wanted := paths[fields[3]]
		if !wanted {
			continue
		}
		data, ok := read[path]
		if !ok || seal.SHA256Hex(data) != fields[1] {
			return nil, false
		}
		files[path] = data
	}
	return files, true
}

// commit reads the blobs of the commit that rev names now into a folder of its
// own, which is removed again.
func (s subject) commit(ctx context.Context, rev string) (tree gate.Tree, files daemon.Files, err error) {
	dir, err := os.MkdirTemp("", "striatum-gate-")
	if err != nil {
		return gate.Tree{}, nil, fmt.Errorf("read revision %q: %w", rev, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	snap, err := snapshot.FreezeCommit(ctx, s.top, rev, snapshot.Store{Dir: filepath.Join(dir, "store")}, s.options)
	if err != nil {
		return gate.Tree{}, nil, err
	}
	files, err = embedded.PolicyFiles(snap.Dir)
	tree = gate.Tree{SHA256: snap.TreeSHA256, Source: "commit:" + snap.GitCommit, ManifestSHA256: snap.ManifestSHA256}
	return tree, files, err
}
