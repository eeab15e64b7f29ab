// Package gitrepo reads what a snapshot needs from a git repository that its
// user may have prepared to do harm: the list of tracked files, and the objects
// of a commit. It starts no program, reads no configuration, follows no link and
// writes nothing. Objects are read loose or from packs, never from another
// repository that this one borrows from; every object is checked against its id.
//
// A worktree's .git is a folder, or the file of a linked worktree. Such a file is
// believed only if the repository that it names agrees: it belongs to the same
// user as the worktree, its worktrees/NAME/gitdir leads back to this very
// worktree, and the folder two levels above is where its objects are. Any other
// .git (a link, a submodule's file) is an error that says so.
package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"striatum/internal/beneath"
)

// ErrNone means that the worktree has no .git.
var ErrNone = errors.New("there is no git repository here")

// ErrForeign means that .git points to a repository that does not agree.
var ErrForeign = errors.New(".git leads to a repository that does not belong to this worktree")

const maxPointerBytes = 8 << 10

// Repo is an open repository.
type Repo struct {
	// Work is how many bytes reading objects may still inflate and put together.
	Work int64

	own    *beneath.Dir // HEAD, index
	common *beneath.Dir // objects, refs; the same as own, except for a linked worktree

	packs []*pack // nil: not opened yet
	bases bases
}

// Open opens the repository of the worktree root, an open folder that lies at
// path. The caller closes it.
func Open(root *beneath.Dir, path string) (*Repo, error) {
	st, err := root.Lstat(".git")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNone
	case err != nil:
		return nil, err
	}
	switch st.Kind {
	case beneath.Directory:
		dir, err := root.Dir(".git")
		if err != nil {
			return nil, err
		}
		return &Repo{own: dir, common: dir}, nil
	case beneath.Regular:
		return openLinked(root, path)
	case beneath.Unknown, beneath.Symlink, beneath.FIFO, beneath.Socket, beneath.Device:
	}
	return nil, fmt.Errorf("%w: it is a %s", ErrForeign, st.Kind)
}

// Close releases the repository.
func (r *Repo) Close() error {
	err := r.own.Close()
	if r.common != r.own {
		err = errors.Join(err, r.common.Close())
	}
	for _, p := range r.packs {
		err = errors.Join(err, p.close())
	}
	return err
}

func openLinked(root *beneath.Dir, path string) (repo *Repo, err error) {
	data, err := root.ReadFile(".git", maxPointerBytes)
	if err != nil {
		return nil, err
	}
	target, found := strings.CutPrefix(string(data), "gitdir: ")
	target = strings.TrimRight(target, "\r\n")
	if !found || target == "" {
		return nil, fmt.Errorf("%w: the file names no folder", ErrForeign)
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(path, target)
	}
	target = filepath.Clean(target)
	name, worktrees := filepath.Base(target), filepath.Dir(target)
	if filepath.Base(worktrees) != "worktrees" {
		return nil, fmt.Errorf("%w: it is not a linked worktree", ErrForeign)
	}
	common, err := root.Elsewhere(filepath.Dir(worktrees))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, common.Close())
		}
	}()
	own, err := common.Dir("worktrees/" + name)
	if err != nil {
		return nil, err
	}
	if err := agrees(root, own, common, target); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return &Repo{own: own, common: common}, nil
}

// agrees checks that the repository names the worktree as one of its own.
func agrees(root, own, common *beneath.Dir, target string) (err error) {
	top, err := root.Stat()
	if err != nil {
		return err
	}
	for _, d := range []*beneath.Dir{own, common} {
		st, err := d.Stat()
		if err != nil {
			return err
		}
		if st.UID != top.UID {
			return fmt.Errorf("%w: it has another owner", ErrForeign)
		}
	}
	pointer, err := own.ReadFile("gitdir", maxPointerBytes)
	if err != nil {
		return err
	}
	at := strings.TrimRight(string(pointer), "\r\n")
	if !filepath.IsAbs(at) {
		at = filepath.Join(target, at)
	}
	back, err := root.Elsewhere(filepath.Dir(at))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	defer func() { err = errors.Join(err, back.Close()) }()
	here, err := back.Stat()
	if err != nil {
		return err
	}
	if here.Ino == 0 || here.Ino != top.Ino || here.Dev != top.Dev { // zero where identity is not told
		return fmt.Errorf("%w: it is the worktree of another folder", ErrForeign)
	}
	up, err := own.ReadFile("commondir", maxPointerBytes)
	if err != nil {
		return err
	}
	if strings.TrimRight(string(up), "\r\n") != "../.." {
		return fmt.Errorf("%w: its objects are elsewhere", ErrForeign)
	}
	return nil
}
