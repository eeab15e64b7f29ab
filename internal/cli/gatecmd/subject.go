package gatecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/cli/embedded"
	"striatum/snapshot"
)

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
	return embedded.Worktree(ctx, s.top, s.options)
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
