package containerdengine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"striatum/internal/problem"
	"striatum/internal/reach"
	"striatum/sandbox"
)

// searchPath is where binaries without a configured path are looked up.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"

const installHint = "install them: apt-get install containerd runc"

// find returns the configured path, or name in the search path, with links
// resolved.
func find(configured, name string) (string, error) {
	candidates := []string{configured}
	if configured == "" {
		candidates = nil
		for _, dir := range filepath.SplitList(searchPath) {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, p := range candidates {
		st, err := os.Stat(p)
		if err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
			continue
		}
		return filepath.EvalSymlinks(p)
	}
	where := configured
	if where == "" {
		where = searchPath
	}
	return "", problem.New(problem.Missing, "find "+name, "it is not in "+where, installHint)
}

// Programs returns the programs of the host that an engine runs, as far as they are
// found.
func Programs(cfg Config) []string {
	paths := []string{cfg.InitPath}
	for _, b := range []struct{ configured, name string }{
		{cfg.ContainerdPath, "containerd"}, {cfg.ShimPath, "containerd-shim-runc-v2"}, {cfg.RuncPath, "runc"},
	} {
		if path, err := find(b.configured, b.name); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// findTrusted is find for what must not be replaceable.
func findTrusted(configured, name string) (string, error) {
	path, err := find(configured, name)
	if err != nil {
		return "", err
	}
	if err := reach.RootOnly(path); err != nil {
		return "", problem.Wrap(problem.Refused, err, "use "+path, "make it and every folder above it root's, without write permission for others")
	}
	return path, nil
}

// digests hashes each binary.
func digests(paths ...string) ([]sandbox.Binary, error) {
	var out []sandbox.Binary
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, fmt.Errorf("hash binary: %w", err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, fmt.Errorf("hash binary %q: %w", p, err)
		}
		out = append(out, sandbox.Binary{Path: p, SHA256: hex.EncodeToString(h.Sum(nil))})
	}
	return out, nil
}

// version returns the word after "version" in a program's first line.
func version(output string) string {
	line, _, _ := strings.Cut(output, "\n")
	if f := strings.Fields(line); len(f) > 2 && f[1] == "version" {
		return f[2]
	}
	return strings.TrimSpace(line)
}
