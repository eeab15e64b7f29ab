package gocheck

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"striatum/receipt"
)

// IgnoredFindings names what git's ignore rules keep out of the tree although
// the go command would look at it for the check: files of Go source, and folders
// that "..." reaches, of whose content nothing is known. What the go command
// leaves out by its own rules, or as another module, is none of it.
//
// Paths are relative to the tree, those of folders end in "/"; more is how many
// there are that paths does not have.
func IgnoredFindings(tree fs.FS, m Module, params Params, paths []string, more int64) ([]receipt.Finding, error) {
	var notes Notes
	for _, p := range paths {
		dir, folder := strings.CutSuffix(p, "/")
		if !folder {
			dir = path.Dir(p)
		}
		if name := path.Base(p); !folder && (name[0] == '_' || name[0] == '.') {
			continue
		}
		covered, err := params.covers(m, dir, folder)
		if err != nil {
			return nil, err
		}
		switch {
		case !covered || m.hides(tree, dir):
		case folder:
			notes.find("folder_ignored", receipt.Text(dir), "git ignores it, so no Go file in it is built, vetted or tested; whether it has any is not looked at")
		default:
			notes.find("go_file_ignored", receipt.Text(p), "git ignores it, so it is not built, vetted or tested")
		}
	}
	if more > 0 {
		notes.find("ignored_list_cut", m.Dir, fmt.Sprintf("git ignores %d more folders and Go files of the tree, which are not looked at", more))
	}
	return boundFindings(notes.Findings), nil
}

// covers reports whether a pattern names the package in dir or, for a folder,
// one at or below it.
func (p Params) covers(m Module, dir string, folder bool) (bool, error) {
	for _, s := range p.patterns() {
		pat, err := parsePattern(s)
		if err != nil {
			return false, err
		}
		root := path.Join(m.Dir, pat.dir)
		if dir == root || pat.tree && below(dir, root) || folder && below(root, dir) {
			return true, nil
		}
	}
	return false, nil
}

// below reports whether dir lies below base, both relative to the tree.
func below(dir, base string) bool {
	return dir != base && (base == "." || strings.HasPrefix(dir, base+"/"))
}

// hides reports whether "..." of the module stops above dir or at it.
func (m Module) hides(tree fs.FS, dir string) bool {
	for at := dir; below(at, m.Dir); at = path.Dir(at) {
		name := path.Base(at)
		if hiddenDir(name) || name == "vendor" || m.ignores(at) {
			return true
		}
		if info, err := fs.Stat(tree, path.Join(at, "go.mod")); err == nil && !info.IsDir() {
			return true // FindModule's finding module_not_checked
		}
	}
	return false
}
