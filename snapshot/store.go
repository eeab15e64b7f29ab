package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"striatum/internal/durable"
	"striatum/internal/problem"
)

// Store is the lane's private store of frozen trees. Its layout:
//
//	trees/<tree id>/tree      the frozen tree
//	trees/<tree id>/manifest  its manifest
//	trees/<tree id>/boot      the boot that it was made in; its time is the last use
//	tmp/…                     in the making, or on the way out
//	stat/…                    what is remembered about worktrees
//
// A folder of trees is complete: it gets its name by a rename. It is not synced,
// so it is trusted only in the boot that made it, and Sweep drops it afterwards.
// Freeze may run several times at once; Sweep, Drop and Trim are for the holder of
// the lane's lock, with no Freeze running.
type Store struct {
	Dir string // absolute; made, 0700, on first use
	// QuotaBytes is what Trim leaves at most; 8 GiB. Files that frozen trees share
	// count in each.
	QuotaBytes int64
}

const defaultQuota = 8 << 30

func (s *Store) treesDir() string           { return filepath.Join(s.Dir, "trees") }
func (s *Store) tmpDir() string             { return filepath.Join(s.Dir, "tmp") }
func (s *Store) statDir() string            { return filepath.Join(s.Dir, "stat") }
func (s *Store) treeDir(tree string) string { return filepath.Join(s.treesDir(), tree) }

// prepare makes the folders and refuses a store that lies in the worktree.
func (s *Store) prepare(worktree string) error {
	for _, dir := range []string{s.Dir, s.treesDir(), s.tmpDir(), s.statDir()} {
		if err := durable.MkdirAll(dir, 0o700); err != nil {
			return explain(err, worktree)
		}
	}
	here, err := filepath.EvalSymlinks(s.Dir)
	if err != nil {
		return fmt.Errorf("open snapshot store: %w", err)
	}
	top, err := filepath.EvalSymlinks(worktree)
	if err != nil {
		return fmt.Errorf("open snapshot store: %w", err)
	}
	if rel, err := filepath.Rel(top, here); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return refuse("", fmt.Sprintf("the lane's store %s lies inside the worktree", Quote(s.Dir)), "let STRIATUM_HOME name a folder outside the worktree")
	}
	return nil
}

// Path returns the frozen tree and its manifest. ok is false if the store does
// not have the tree, complete and from this boot.
func (s *Store) Path(tree string) (dir, manifest string, ok bool) {
	at := s.treeDir(tree)
	dir, manifest = filepath.Join(at, "tree"), filepath.Join(at, "manifest")
	boot, err := os.ReadFile(filepath.Join(at, "boot"))
	return dir, manifest, err == nil && string(boot) == bootID()
}

// use notes that the tree was used now. The file is replaced as a whole: another
// snapshot may read it at this moment.
func (s *Store) use(tree string) error {
	f, err := os.CreateTemp(s.tmpDir(), "use-")
	if err != nil {
		return fmt.Errorf("note the use of a frozen tree: %w", err)
	}
	_, err = f.WriteString(bootID())
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.treeDir(tree), "boot"))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("note the use of a frozen tree: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// Drop removes a frozen tree. A tree that is not there is no error.
func (s *Store) Drop(tree string) error {
	if len(tree) != 64 || strings.Trim(tree, "0123456789abcdef") != "" {
		return fmt.Errorf("drop frozen tree %q: it is no tree id", tree)
	}
	return s.drop(tree)
}

func (s *Store) drop(name string) error {
	if err := durable.MkdirAll(s.tmpDir(), 0o700); err != nil {
		return err
	}
	out, err := os.MkdirTemp(s.tmpDir(), "drop-")
	if err != nil {
		return fmt.Errorf("drop frozen tree: %w", err)
	}
	if err := os.Rename(s.treeDir(name), filepath.Join(out, "tree")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop frozen tree: %w", err)
	}
	return os.RemoveAll(out)
}

// Sweep removes what a kill left, and frozen trees of an earlier boot.
func (s *Store) Sweep() error {
	var errs []error
	for _, name := range list(s.tmpDir()) {
		errs = append(errs, os.RemoveAll(filepath.Join(s.tmpDir(), name)))
	}
	for _, tree := range list(s.treesDir()) {
		if _, _, ok := s.Path(tree); !ok {
			errs = append(errs, s.drop(tree))
		}
	}
	for _, name := range list(s.statDir()) {
		if strings.HasPrefix(name, durable.TempPrefix) {
			errs = append(errs, os.Remove(filepath.Join(s.statDir(), name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep snapshot store: %w", err)
	}
	return nil
}

// Trim drops the frozen trees that were used longest ago until the rest fits the
// quota. Those named in keep stay. It returns the ids dropped.
func (s *Store) Trim(keep ...string) ([]string, error) {
	type item struct {
		tree  string
		used  time.Time
		bytes int64
	}
	var items []item
	var total int64
	for _, tree := range list(s.treesDir()) {
		info, err := os.Stat(filepath.Join(s.treeDir(tree), "boot"))
		if err != nil {
			continue // Sweep's
		}
		n, err := diskBytes(s.treeDir(tree))
		if err != nil {
			return nil, fmt.Errorf("trim snapshot store: %w", err)
		}
		total += n
		items = append(items, item{tree, info.ModTime(), n})
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.tree, b.tree))
	})
	var dropped []string
	for _, it := range items {
		if total <= cmp.Or(s.QuotaBytes, defaultQuota) {
			break
		}
		if slices.Contains(keep, it.tree) {
			continue
		}
		if err := s.drop(it.tree); err != nil {
			return dropped, err
		}
		total -= it.bytes
		dropped = append(dropped, it.tree)
	}
	return dropped, nil
}

func diskBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// list returns the names in dir, none if it is not there.
func list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// bootID names the current boot; empty where the system does not tell, so that
// nothing distinguishes boots.
func bootID() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// ReadManifest returns the manifest of a snapshot, wherever it lies.
func (s Snapshot) ReadManifest() ([]byte, error) {
	if s.ManifestPath == "" {
		return s.Manifest, nil
	}
	data, err := os.ReadFile(s.ManifestPath)
	if err != nil {
		return nil, problem.Wrap(problem.Internal, err, "read the tree manifest", "take the snapshot again")
	}
	return data, nil
}
