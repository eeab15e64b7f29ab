package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"unicode/utf8"

	"striatum/internal/problem"
	"striatum/store"
	"striatum/workflow"
)

// Worktree is where a worktree's top is: its real path, and the numbers of its
// device and inode, so that another folder at the same path is another one.
type Worktree struct {
	Path          string
	Device, Inode uint64
}

// place is the worktree as the store keys it. A path that is not UTF-8 is
// quoted; it then begins with a quotation mark, as no absolute path does.
func (w Worktree) place() store.Place {
	path := w.Path
	if !utf8.ValidString(path) {
		path = strconv.Quote(path)
	}
	return store.Place{Path: path, Device: strconv.FormatUint(w.Device, 10), Inode: strconv.FormatUint(w.Inode, 10)}
}

// Repository is what the store knows a worktree by.
type Repository struct{ ID string }

// FindRepository returns the repository of a worktree; found is false where the
// store never met it. A worktree that the home lies in is refused.
func (s *Service) FindRepository(ctx context.Context, wt Worktree) (repo Repository, found bool, err error) {
	if rel, err := filepath.Rel(wt.Path, s.cfg.Home); s.cfg.Home != "" && err == nil && filepath.IsLocal(rel) {
		return repo, false, problem.New(problem.Refused, "open the home", fmt.Sprintf("%q lies in the worktree %q, where its keys could be committed, or used by whoever works there", s.cfg.Home, wt.Path),
			"set STRIATUM_HOME to a folder elsewhere, and remove this one")
	}
	err = s.view(ctx, "look up the repository", func(r store.Reader) error {
		row, err := r.RepositoryAt(ctx, wt.place())
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		repo, found = Repository{ID: row.Value.RepositoryID}, err == nil
		return err
	})
	return repo, found, err
}

// Repository returns the repository of a worktree, and mints an id for one that
// the store meets for the first time.
func (s *Service) Repository(ctx context.Context, wt Worktree) (repo Repository, created bool, err error) {
	if repo, found, err := s.FindRepository(ctx, wt); found || err != nil {
		return repo, false, err
	}
	id, err := s.hexID("repo-")
	if err != nil {
		return Repository{}, false, err
	}
	err = s.update(ctx, "record the repository", func(w store.Writer) error {
		row, err := w.RepositoryAt(ctx, wt.place())
		if err == nil { // another process was faster
			repo, created = Repository{ID: row.Value.RepositoryID}, false
			return nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		repo, created = Repository{ID: id}, true
		_, err = w.AddRepository(ctx, store.Repository{RepositoryID: id, Place: wt.place(), By: "first use"})
		return err
	})
	return repo, created, err
}

// CheckRepositoryID says whether an operator may give a repository that id. The
// error is a problem.
func CheckRepositoryID(id string) error {
	if !workflow.ValidID(id) {
		return problem.New(problem.Usage, fmt.Sprintf("name the repository %q", id), "that is not an id", "an id is 1 to 64 of a-z, 0-9, dot, underscore and hyphen, and begins with a letter or digit")
	}
	return nil
}

// BindRepository makes a worktree, a clone or one that was moved, count as the
// repository with the given id, from now on. It is for operators.
func (s *Service) BindRepository(ctx context.Context, p Principal, wt Worktree, id string) error {
	const what = "bind the worktree to a repository id"
	if err := p.mustBe(what, Operator); err != nil {
		return err
	}
	if err := CheckRepositoryID(id); err != nil {
		return err
	}
	return s.update(ctx, what, func(w store.Writer) error {
		row, err := w.RepositoryAt(ctx, wt.place())
		if err == nil && row.Value.RepositoryID == id {
			return nil
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		_, err = w.AddRepository(ctx, store.Repository{RepositoryID: id, Place: wt.place(), By: p.String()})
		return err
	})
}
