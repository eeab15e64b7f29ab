package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"striatum/internal/durable"
)

// assemble counts and digests the set's files and makes its GOMODCACHE.
func (f *fetch) assemble() error {
	slices.SortFunc(f.files, func(a, b file) int { return strings.Compare(a.String(), b.String()) })
	h := sha256.New()
	for _, x := range f.files {
		h.Write([]byte(x.String()))
		switch {
		case x.kind != kindZip:
		case f.fromSumDB(x):
			f.set.SumDB++
		case f.store.cfg.Accepted != nil && f.store.cfg.Accepted(x.Version, x.h1):
			f.set.Accepted++
		default:
			f.set.FirstSeen++
		}
	}
	f.set.Digest = hex.EncodeToString(h.Sum(nil))
	if len(f.set.Tampered) > 0 {
		return nil
	}
	dir := filepath.Join(f.store.cfg.Dir, "sets", f.set.Digest)
	if _, err := os.Lstat(dir); err == nil {
		now := f.store.cfg.Now()
		if err := os.Chtimes(dir, now, now); err != nil { // the newest use, for prune
			return &storeFault{err}
		}
		f.set.Dir = dir
		return nil
	}
	if err := f.build(dir); err != nil {
		return &storeFault{fmt.Errorf("make module set: %w", err)}
	}
	f.set.Dir = dir
	if err := f.store.prune(f.store.cfg.Quota, f.set.Digest); err != nil {
		return &storeFault{fmt.Errorf("prune module store: %w", err)}
	}
	return nil
}

// build makes a GOMODCACHE from hard links, beside its place.
func (f *fetch) build(dir string) error {
	tmp := filepath.Join(f.store.cfg.Dir, "spool", f.set.Digest)
	if err := mkdirs(filepath.Join(tmp, "cache", "download")); err != nil {
		return err
	}
	for _, x := range f.files {
		if err := f.store.link(tmp, x); err != nil {
			return err
		}
	}
	if err := durable.SyncFS(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// link puts one file where the go command expects it. For a zip that is the
// unpacked folder and its hash; the zip itself is not needed, nor is the .info
// of a proxy, which no go.sum covers: ours says no more than the version.
func (s *Store) link(gomodcache string, x file) error {
	name, err := fileName(x.Version, x.kind)
	if err != nil {
		return err
	}
	at := filepath.Join(gomodcache, "cache", "download", filepath.FromSlash(name))
	if err := mkdirs(filepath.Dir(at)); err != nil {
		return err
	}
	if x.kind == kindMod {
		info, err := json.Marshal(struct{ Version string }{x.Version.Version})
		if err != nil {
			return err
		}
		if err := writeNew(strings.TrimSuffix(at, kindMod)+"info", info); err != nil {
			return err
		}
		return os.Link(s.path(x), at)
	}
	if err := writeNew(at+"hash", []byte(x.h1)); err != nil {
		return err
	}
	dir, err := dirName(x.Version)
	if err != nil {
		return err
	}
	to := filepath.Join(gomodcache, dir)
	if err := mkdirs(filepath.Dir(to)); err != nil {
		return err
	}
	return linkTree(s.path(x), to)
}

// dirName is the folder of a module in a GOMODCACHE.
func dirName(v module.Version) (string, error) {
	escaped, err := module.EscapePath(v.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(v.Version)
	return filepath.FromSlash(escaped) + "@" + version, err
}

func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			return mkdirs(target)
		}
		return os.Link(path, target)
	})
}

// mkdirs makes folders that everybody may read, whatever the umask is.
func mkdirs(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := mkdirs(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

func writeNew(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o444); err != nil {
		return err
	}
	return os.Chmod(path, 0o444)
}
