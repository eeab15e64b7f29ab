// Package worktree is the one place that writes into a worktree, which somebody
// hostile may own and change at the same moment.
//
// It promises, for every path relative to the worktree's top:
//
//   - nothing is read or written through a link, at any level, planted before or
//     during the call (package beneath); a link, or anything that is no regular
//     file where a file is to be, is a problem of kind Refused and nothing is
//     written;
//   - a file is replaced as a whole or not at all: an exclusive temporary file in
//     the same folder, synced, renamed, the folder synced. Hard links of the old
//     file keep the old content;
//   - files and folders that it makes belong to the owner and group of the top
//     folder, as far as the process may give them away;
//   - nothing is written into a .git.
//
// What a kill leaves is a file named TempPrefix and 16 hex digits. The next write
// into the same folder removes those that are older than ten minutes, by the
// file system's own clock.
package worktree

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"striatum/internal/beneath"
	"striatum/internal/problem"
)

// TempPrefix begins the name of every temporary file that WriteFile makes.
const TempPrefix = ".striatum-tmp-"

const (
	// abandoned is the age from which a temporary file is taken for a leftover.
	abandoned = 10 * time.Minute
	// maxSwept is how many names a folder may have to be searched for leftovers.
	maxSwept = 10_000

	filePerm = 0o600 // while it is written
	dirPerm  = 0o755
	newDir   = 0o700 // until it has its owner
)

// errReplaced means that another file than the one written has its name.
var errReplaced = errors.New("somebody replaced it while it was written")

// Root is an open worktree. Its methods may be called from several goroutines.
type Root struct {
	dir      *beneath.Dir
	uid, gid uint32
}

// Open opens the worktree whose top folder is dir. The caller closes it.
func Open(dir string) (*Root, error) {
	d, err := beneath.Open(dir)
	if err != nil {
		return nil, explain(err, fmt.Sprintf("open worktree %q", dir))
	}
	r, err := own(d)
	if err != nil {
		return nil, explain(err, fmt.Sprintf("open worktree %q", dir))
	}
	return r, nil
}

// Of is Open for a folder that is open. It stays the caller's.
func Of(dir *beneath.Dir) (*Root, error) {
	const what = "open the worktree"
	d, err := dir.Dir(".")
	if err != nil {
		return nil, explain(err, what)
	}
	r, err := own(d)
	if err != nil {
		return nil, explain(err, what)
	}
	return r, nil
}

// own returns the worktree of d, which it takes over.
func own(d *beneath.Dir) (*Root, error) {
	st, err := d.Stat()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &Root{dir: d, uid: st.UID, gid: st.GID}, nil
}

// Close closes r.
func (r *Root) Close() error { return r.dir.Close() }

// ReadFile returns the content of the regular file rel of at most limit bytes.
// The error matches fs.ErrNotExist if there is none; a link, another kind of file
// and one that is too long are problems of kind Refused.
func (r *Root) ReadFile(rel string, limit int64) ([]byte, error) {
	what := fmt.Sprintf("read %q", rel)
	if err := valid(rel); err != nil {
		return nil, explain(err, what)
	}
	data, err := r.dir.ReadFile(rel, limit)
	if err != nil {
		return nil, explain(err, what)
	}
	return data, nil
}

// MkdirAll makes the folder rel and its missing parents, 0755.
func (r *Root) MkdirAll(rel string) error {
	what := fmt.Sprintf("make folder %q", rel)
	if err := writable(rel); err != nil {
		return explain(err, what)
	}
	d, err := r.folder(rel)
	if err != nil {
		return explain(err, what)
	}
	return d.Close()
}

// WriteFile makes rel a regular file of exactly data and the permission bits of
// perm, and makes missing parents (0755). File and folders are on disk when it
// returns nil.
func (r *Root) WriteFile(rel string, data []byte, perm fs.FileMode) error {
	if err := r.writeFile(rel, data, uint32(perm.Perm())); err != nil {
		return explain(err, fmt.Sprintf("write %q", rel))
	}
	return nil
}

func (r *Root) writeFile(rel string, data []byte, perm uint32) (err error) {
	if err := writable(rel); err != nil {
		return err
	}
	// Below a folder that is missing nothing can be in the way, so what is in the
	// way is met before anything is made.
	parent, err := r.folder(path.Dir(rel))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	name := path.Base(rel)
	if err := replaceable(parent, name); err != nil {
		return err
	}
	tmp, err := tempName()
	if err != nil {
		return err
	}
	made, err := r.writeTemp(parent, tmp, data, perm)
	if err != nil {
		return err
	}
	err = parent.Rename(tmp, name)
	if errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	if err != nil {
		return errors.Join(err, parent.Remove(tmp))
	}
	now, err := parent.Lstat(name)
	if err != nil || now.Ino != made.Ino || now.Dev != made.Dev || now.Kind != beneath.Regular {
		return errReplaced
	}
	if err := parent.Sync(); err != nil {
		return err
	}
	sweep(parent, made.MtimeNs)
	return nil
}

// replaceable demands that name is a regular file or nothing.
func replaceable(d *beneath.Dir, name string) error {
	st, err := d.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Kind == beneath.Symlink:
		return beneath.ErrLink
	case st.Kind != beneath.Regular:
		return fmt.Errorf("%w: %s", beneath.ErrNotRegular, st.Kind)
	}
	return nil
}

// writeTemp makes the complete file name in d and describes it. On error it
// leaves none.
func (r *Root) writeTemp(d *beneath.Dir, name string, data []byte, perm uint32) (st beneath.Stat, err error) {
	f, err := d.Create(name, filePerm)
	if err != nil {
		return st, err
	}
	_, err = f.Write(data)
	if err == nil {
		err = r.giveAway(f.Chown)
	}
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		st, err = f.Stat()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return st, errors.Join(err, d.Remove(name))
	}
	return st, nil
}

// giveAway gives something to the worktree's owner. Who is not root may lack the
// right; then it stays the user's own, like all that he makes there.
func (r *Root) giveAway(chown func(uid, gid uint32) error) error {
	err := chown(r.uid, r.gid)
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return nil
	}
	return err
}

// folder opens the folder rel and makes what is missing of it.
func (r *Root) folder(rel string) (*beneath.Dir, error) {
	at, err := r.dir.Dir(".")
	if err != nil || rel == "." {
		return at, err
	}
	for name := range strings.SplitSeq(rel, "/") {
		next, err := at.Dir(name)
		if errors.Is(err, fs.ErrNotExist) {
			next, err = r.mkdir(at, name)
		}
		if cerr := at.Close(); err == nil && cerr != nil {
			err = errors.Join(cerr, next.Close())
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// mkdir makes the folder name in d. Only what is certainly the folder just made
// (empty, private, of this user) is given away: another may have taken its place.
func (r *Root) mkdir(d *beneath.Dir, name string) (*beneath.Dir, error) {
	err := d.Mkdir(name, newDir)
	if errors.Is(err, fs.ErrExist) {
		return d.Dir(name) // somebody else made it
	}
	if err != nil {
		return nil, err
	}
	made, err := d.Dir(name)
	if err != nil {
		return nil, err
	}
	err = untouched(made)
	if err == nil {
		err = r.giveAway(made.Chown)
	}
	if err == nil {
		err = made.Chmod(dirPerm)
	}
	if err == nil {
		err = d.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return made, nil
}

func untouched(made *beneath.Dir) error {
	st, err := made.Stat()
	if err != nil {
		return err
	}
	entries, err := made.Entries(func(int) error { return nil })
	if err != nil {
		return err
	}
	told := st.Ino != 0 // so is the owner
	if told && int64(st.UID) != int64(os.Geteuid()) || st.Perm&0o077 != 0 || len(entries) > 0 {
		return errReplaced
	}
	return nil
}

// sweep removes what killed writers left in d. It is a courtesy: the file that
// the caller asked for is written, so what fails here is left for the next time.
func sweep(d *beneath.Dir, nowNs int64) {
	tooMany := errors.New("too many")
	entries, err := d.Entries(func(n int) error {
		if n > maxSwept {
			return tooMany
		}
		return nil
	})
	if err != nil {
		return
	}
	for _, e := range entries {
		digits, found := strings.CutPrefix(e.Name, TempPrefix)
		if raw, err := hex.DecodeString(digits); !found || err != nil || len(raw) != tempBytes {
			continue
		}
		st, err := d.Lstat(e.Name)
		if err == nil && st.Kind == beneath.Regular && st.MtimeNs < nowNs-int64(abandoned) {
			_ = d.Remove(e.Name) // see above
		}
	}
}

const tempBytes = 8

func tempName() (string, error) {
	var id [tempBytes]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("name temporary file: %w", err)
	}
	return TempPrefix + hex.EncodeToString(id[:]), nil
}

// errPath means that a path is not one of the worktree.
var errPath = errors.New("it is no plain path below the worktree's top")

// errGit means that a path leads into a repository's own files.
var errGit = errors.New("it lies in a .git, which is not ours to write")

func valid(rel string) error {
	if !fs.ValidPath(rel) || rel == "." || strings.ContainsRune(rel, 0) {
		return errPath
	}
	return nil
}

func writable(rel string) error {
	if err := valid(rel); err != nil {
		return err
	}
	for part := range strings.SplitSeq(rel, "/") {
		if strings.EqualFold(part, ".git") {
			return errGit
		}
	}
	return nil
}

// explain makes err what a user reads. It still matches what err matches.
func explain(err error, what string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return problem.Wrap(problem.Missing, err, what, "name a path that exists")
	case errors.Is(err, beneath.ErrLink):
		return problem.Wrap(problem.Refused, err, what, "remove the link; Striatum never follows one in a worktree")
	case errors.Is(err, beneath.ErrNotRegular), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return problem.Wrap(problem.Refused, err, what, "move away what is there")
	case errors.Is(err, errReplaced):
		return problem.Wrap(problem.Refused, err, what, "stop what writes there, and try again")
	case errors.Is(err, beneath.ErrTooLong):
		return problem.Wrap(problem.Refused, err, what, "shorten the file")
	case errors.Is(err, errPath), errors.Is(err, errGit):
		return problem.Wrap(problem.Refused, err, what, "name a path below the worktree, with slashes and without \"..\"")
	case errors.Is(err, beneath.ErrUnsupported):
		return problem.Wrap(problem.Missing, err, what, "use Linux 5.6 or newer, outside a filter that hides openat2")
	case errors.Is(err, beneath.ErrHeld):
		return problem.Wrap(problem.Indeterminate, err, what, "see why its file system hangs, and run the command again")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem.Wrap(problem.Indeterminate, err, what, "make room on the worktree's disk")
	case errors.Is(err, syscall.EROFS):
		return problem.Wrap(problem.Missing, err, what, "let the worktree lie on a disk that can be written")
	case errors.Is(err, fs.ErrPermission):
		return problem.Wrap(problem.Refused, err, what, "run as root, or as the user who owns the worktree")
	}
	return problem.Wrap(problem.Internal, err, what, "")
}
