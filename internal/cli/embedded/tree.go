package embedded

import (
	"context"
	"strings"

	"striatum/baseline"
	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/anchors"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/workflow"
)

// attempts is how often a worktree is read again when it changed between its
// hash and the reading of its policy.
const attempts = 3

// Worktree hashes the worktree at top. The policy's files are those of the hashed
// tree: each one that was read has the digest that the manifest gives it.
func Worktree(ctx context.Context, top string, options snapshot.Options) (gate.Tree, daemon.Files, error) {
	for range attempts {
		files, err := PolicyFiles(top)
		if err != nil {
			return gate.Tree{}, nil, err
		}
		snap, err := snapshot.Digest(ctx, top, options)
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
	for _, path := range []string{workflow.DefaultPath, workflow.DefaultIntentPath, anchors.DefaultPath, baseline.Path} {
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
