package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What is copied of a tree's /etc, at most.
const (
	maxEtcBytes   = 64 << 20
	maxEtcEntries = 20_000
)

// ours are the names directly below / that no tree may fill.
var ours = []string{".striatum", "dev", "etc", "proc", "run", "sys", "tmp"}

// Shown returns what lies directly in tree, the folder of a whole system, and
// is to be mounted at the same place: folders and files, but for those that are
// ours and those in which one of points lies.
func Shown(tree string, points []Point) ([]Point, error) {
	entries, err := visible(tree, points)
	if err != nil {
		return nil, err
	}
	var shown []Point
	for _, e := range entries {
		switch {
		case e.IsDir():
			shown = append(shown, Point{Path: "/" + e.Name()})
		case e.Type().IsRegular():
			shown = append(shown, Point{Path: "/" + e.Name(), File: true})
		}
	}
	return shown, nil
}

// visible lists the entries of tree that are not ours and hold none of points.
func visible(tree string, points []Point) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(tree)
	if err != nil {
		return nil, fmt.Errorf("look at root folder: %w", err)
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return slices.Contains(ours, e.Name()) || slices.ContainsFunc(points, func(p Point) bool {
			first, _, _ := strings.Cut(strings.TrimPrefix(p.Path, "/"), "/")
			return first == e.Name()
		})
	}), nil
}

// MakeTree makes a root folder at dir, which must not exist, for tools from
// tree: with points, and with the points and links of tree that Shown leaves.
// Its /etc is a copy of tree's, in which the generated files win; nothing of
// the host is in it.
func MakeTree(dir, tree string, points []Point) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make root folder: %w", err)
	}
	entries, err := visible(tree, points)
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := Point{Path: "/" + e.Name(), File: e.Type().IsRegular()}
		if e.Type() != fs.ModeSymlink {
			points = append(points, p)
			continue
		}
		to, err := os.Readlink(filepath.Join(tree, e.Name()))
		if err == nil {
			err = os.Symlink(to, filepath.Join(dir, e.Name()))
		}
		if err != nil {
			return fmt.Errorf("make root folder: %w", err)
		}
	}
	if err := generate(filepath.Join(dir, "etc")); err != nil {
		return err
	}
	if err := copyEtc(tree, filepath.Join(dir, "etc")); err != nil {
		return fmt.Errorf("make /etc: %w", err)
	}
	for _, p := range append([]Point{{Path: "/proc"}, {Path: "/dev"}, {Path: "/tmp"}, {Path: "/run"}}, points...) {
		if err := p.make(dir); err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
	}
	return nil
}

// copyEtc copies what tree has in etc and to has not. It follows no link.
func copyEtc(tree, to string) (err error) {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	dst, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if st, err := root.Lstat("etc"); err != nil || !st.IsDir() {
		return nil //nolint:nilerr // it has none
	}
	taken, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	bytes, entries := int64(maxEtcBytes), maxEtcEntries
	return fs.WalkDir(root.FS(), "etc", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "etc" {
			return err
		}
		rel := strings.TrimPrefix(name, "etc/")
		if slices.ContainsFunc(taken, func(t fs.DirEntry) bool { return t.Name() == rel }) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entries--; entries < 0 {
			return fmt.Errorf("it has more than %d entries", maxEtcEntries)
		}
		switch {
		case d.IsDir():
			return dst.Mkdir(rel, 0o755)
		case d.Type() == fs.ModeSymlink:
			text, err := root.Readlink(name)
			if err != nil {
				return err
			}
			return dst.Symlink(text, rel)
		case !d.Type().IsRegular():
			return nil
		}
		return copyWithin(root, name, dst, rel, &bytes)
	})
}

// copyWithin copies a regular file of one folder into another, if left bytes
// allow it.
func copyWithin(src *os.Root, name string, dst *os.Root, to string, left *int64) (err error) {
	in, err := src.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := dst.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, *left+1))
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if *left -= n; *left < 0 {
		return fmt.Errorf("its files have more than %d bytes", maxEtcBytes)
	}
	return nil
}
