package external

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"striatum/allowlist"
)

// WorkDir is where a sandbox shows the tree.
const WorkDir = "/workspace"

// maxLinks is how many links are followed for one path; the kernel's own limit.
const maxLinks = 40

// named are the paths from the top of the tree that words of argv name: as they
// are, below the target or below the folder in which the tree is shown, and what an
// option has after its "=".
func named(words []string) map[string]string {
	names := map[string]string{} // and the word
	for _, word := range words {
		w := word
		if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			w = value
		}
		for _, prefix := range []string{allowlist.Target + "/", WorkDir + "/"} {
			w = strings.TrimPrefix(w, prefix)
		}
		if name := path.Clean(w); w != "" && filepath.IsLocal(name) && name != "." {
			names[name] = word
		}
	}
	return names
}

// Bound returns an error if what runs could change without the definition: if argv
// or one of the definition's links leads through a link, or to a file of the tree,
// that is no part of the definition, or to nothing; or if a file of the tree that
// the command was seen to run (seen, from the top of the tree) is none. tree is
// opened at its top.
func (d Definition) Bound(tree *os.Root, words, seen []string) error {
	part := make(map[string]bool, len(d.Paths))
	for _, name := range d.Names() {
		part[name] = true
	}
	for _, name := range seen {
		if !part[name] {
			return fmt.Errorf("the command runs %q of the tree, which is no part of the definition: list it there", name)
		}
	}
	for name, word := range named(words) {
		if err := bound(tree, part, name, fmt.Sprintf("argv names %q", word)); err != nil {
			return err
		}
	}
	for line := range strings.Lines(d.Lines) {
		if _, quoted, ok := cutFields(line, 3); ok && strings.HasPrefix(line, "120000 ") {
			name := unquote(quoted)
			if err := bound(tree, part, name, fmt.Sprintf("the definition has %q", name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// bound asks it of one path.
func bound(tree *os.Root, part map[string]bool, name, what string) error {
	links, end, outside, err := follow(tree, name)
	for _, link := range links {
		if !part[link] {
			return fmt.Errorf("%s, which leads through the link %q, which is no part of the definition: list it there", what, link)
		}
	}
	switch {
	case outside:
		return nil // to the host's tools, or out of what is shown
	case errors.Is(err, fs.ErrNotExist) && len(links) == 0:
		return nil // a file that is put there is named by argv, and part of the definition
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s, which is a link to nothing (%q): whatever is put there would be used", what, end)
	case err != nil:
		return fmt.Errorf("%s, which cannot be followed: %w", what, err)
	}
	st, err := tree.Lstat(end)
	if err != nil {
		return fmt.Errorf("%s, which cannot be followed: %w", what, err)
	}
	if !st.IsDir() {
		if !part[end] {
			return fmt.Errorf("%s, which leads to %q, which is no part of the definition: list it there", what, end)
		}
		return nil
	}
	if len(links) == 0 {
		return nil // a folder that argv names is the subject
	}
	return fs.WalkDir(tree.FS(), end, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s, which cannot be followed: %w", what, err)
		}
		if !e.IsDir() && !part[p] {
			return fmt.Errorf("%s, which leads to %q, which is no part of the definition: list it there", what, p)
		}
		return nil
	})
}

// follow follows the links of a path as the sandbox would, where the tree lies at
// WorkDir. outside is whether it leaves the tree; end is how far it came.
func follow(tree *os.Root, name string) (links []string, end string, outside bool, err error) {
	rest, at := strings.Split(name, "/"), "."
	for len(rest) > 0 {
		step := rest[0]
		rest = rest[1:]
		switch step {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return links, at, true, nil
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, step)
		st, err := tree.Lstat(next)
		if err != nil {
			return links, next, false, err
		}
		if st.Mode().Type() != fs.ModeSymlink {
			at = next
			continue
		}
		if links = append(links, next); len(links) > maxLinks {
			return links, next, false, errors.New("too many links")
		}
		target, err := tree.Readlink(next)
		if err != nil {
			return links, next, false, err
		}
		if path.IsAbs(target) {
			below, ok := strings.CutPrefix(path.Clean(target)+"/", WorkDir+"/")
			if !ok {
				return links, next, true, nil
			}
			target, at = below, "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return links, at, false, nil
}
