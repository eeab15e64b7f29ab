package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"striatum/internal/beneath"
)

// frozenTime is the modification time of everything in a frozen tree: the first
// second of 2000, so that no time tells one copy from another.
const frozenTime = 946684800

// errNoLink means that the previous frozen tree could not be linked to.
var errNoLink = errors.New("the previous frozen tree cannot be linked to")

// frozen is a frozen tree in the making: a folder of the store's tmp that
// becomes complete by one rename.
type frozen struct {
	store *Store
	tmp   string // absolute
	root  *beneath.Dir
	fix   bool // the umask takes bits away; set modes after making
	prev  *beneath.Dir
	sums  map[string]content // of prev's files, by quoted path
}

// begin makes the temporary folder.
func (s *Store) begin() (*frozen, error) {
	tmp, err := os.MkdirTemp(s.tmpDir(), "freeze-")
	if err != nil {
		return nil, fmt.Errorf("begin a frozen tree: %w", err)
	}
	o := &frozen{store: s, tmp: tmp}
	tree := filepath.Join(tmp, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil { //nolint:gosec // the store's folder above it is 0700
		return nil, errors.Join(fmt.Errorf("begin a frozen tree: %w", err), o.close())
	}
	if o.root, err = beneath.Open(tree); err != nil {
		return nil, errors.Join(err, o.close())
	}
	st, err := o.root.Stat()
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.fix = st.Perm != 0o755
	return o, nil
}

// follow lets o link to the files of the frozen tree that memory was made with.
func (o *frozen) follow(s *Store, m *memory) {
	if m == nil || m.tree == "" {
		return
	}
	dir, manifest, ok := s.Path(m.tree)
	if !ok {
		return
	}
	prev, err := beneath.Open(dir)
	if err != nil {
		return // without it everything is copied
	}
	o.prev, o.sums = prev, manifestMap(manifest)
}

// close removes what was not completed.
func (o *frozen) close() error {
	var errs []error
	for _, d := range []*beneath.Dir{o.root, o.prev} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	o.root, o.prev = nil, nil
	return errors.Join(append(errs, os.RemoveAll(o.tmp))...)
}

// folder opens the folder rel of the copy and makes what is missing.
func (o *frozen) folder(rel string) (*beneath.Dir, error) {
	if rel == "" {
		return o.root.Dir(".")
	}
	d, err := o.root.Dir(rel)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	parent, err := o.folder(parentOf(rel))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	name := filepath.Base(rel)
	if err := parent.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return parent.Dir(name)
}

func parentOf(rel string) string {
	if dir := filepath.Dir(rel); dir != "." {
		return dir
	}
	return ""
}

// copyDir returns the copy of fo, made on first use.
func (fo *folder) copyDir() (*beneath.Dir, error) {
	fo.once.Do(func() { fo.dst, fo.err = fo.w.out.folder(fo.path) })
	return fo.dst, fo.err
}

// create makes the copy of the file n, anew if an earlier try left one.
func (fo *folder) create(n *node) (*beneath.File, error) {
	dst, err := fo.copyDir()
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", Quote(fo.join(n.name)), err)
	}
	perm := uint32(n.mode & 0o777)
	f, err := dst.Create(n.name, perm)
	if errors.Is(err, fs.ErrExist) {
		if err := dst.Remove(n.name); err != nil {
			return nil, err
		}
		f, err = dst.Create(n.name, perm)
	}
	if err == nil && fo.w.out.fix {
		err = f.Chmod(perm)
	}
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", Quote(fo.join(n.name)), err)
	}
	return f, nil
}

// settle gives the copy of n its time.
func (fo *folder) settle(n *node) error { return fo.dst.SetMtime(n.name, frozenTime) }

func (fo *folder) copyLink(n *node) error {
	dst, err := fo.copyDir()
	if err == nil {
		err = dst.Symlink(n.target, n.name)
	}
	if err == nil {
		err = dst.SetMtime(n.name, frozenTime)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", Quote(fo.join(n.name)), err)
	}
	return nil
}

// complete makes the copy of the finished tree top a frozen tree of the store,
// or drops it if the store has that tree.
func (o *frozen) complete(top *node, snap *Snapshot) error {
	dir, manifest, ok := o.store.Path(snap.TreeSHA256)
	if !ok {
		if err := o.finish(top, ""); err != nil {
			return err
		}
		if err := o.publish(snap); err != nil {
			return err
		}
	}
	if err := o.store.use(snap.TreeSHA256); err != nil {
		return err
	}
	snap.Dir, snap.ManifestPath, snap.Manifest = dir, manifest, nil
	return nil
}

// finish links what was found unchanged and gives all folders their mode and
// time.
func (o *frozen) finish(n *node, rel string) (err error) {
	dst, err := o.folder(rel)
	if err != nil {
		return err
	}
	defer dst.Close()
	var src *beneath.Dir
	defer func() {
		if src != nil {
			err = errors.Join(err, src.Close())
		}
	}()
	for _, k := range n.kids {
		switch {
		case k.mode == modeTree:
			sub := k.name
			if rel != "" {
				sub = rel + "/" + k.name
			}
			if err := o.finish(k, sub); err != nil {
				return err
			}
		case k.linked:
			if src == nil {
				at := rel
				if at == "" {
					at = "."
				}
				if src, err = o.prev.Dir(at); err != nil {
					return fmt.Errorf("%w: %w", errNoLink, err)
				}
			}
			if err := dst.Link(src, k.name); err != nil {
				return fmt.Errorf("%w: %w", errNoLink, err)
			}
		}
	}
	if err := dst.Chmod(0o755); err != nil {
		return err
	}
	return dst.SetMtime(".", frozenTime)
}

// publish writes the manifest and renames the folder to its final name.
func (o *frozen) publish(snap *Snapshot) error {
	if err := os.WriteFile(filepath.Join(o.tmp, "manifest"), snap.Manifest, 0o600); err != nil {
		return fmt.Errorf("write tree manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(o.tmp, "boot"), []byte(bootID()), 0o600); err != nil {
		return fmt.Errorf("write boot id: %w", err)
	}
	for try := 0; ; try++ {
		err := os.Rename(o.tmp, o.store.treeDir(snap.TreeSHA256))
		if err == nil {
			return nil
		}
		if _, _, ok := o.store.Path(snap.TreeSHA256); ok {
			return nil // made meanwhile by another snapshot of the same tree
		}
		if try > 0 || !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("complete a frozen tree: %w", err)
		}
		// What is there is of an earlier boot.
		if err := o.store.drop(snap.TreeSHA256); err != nil {
			return err
		}
	}
}
