package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"syscall"
	"unicode/utf8"

	"striatum/allowlist"
	"striatum/baseline"
	"striatum/daemon"
	"striatum/internal/anchors"
	"striatum/internal/beneath"
	"striatum/internal/problem"
	"striatum/workflow"
)

// fixtureDepth is how deep a fixture folder is read.
const fixtureDepth = 32

// PolicyFiles reads the files of the tree at top that a policy is made of, those
// that exist: the workflow, the intent that it names, the anchors, the
// baseline, and the fixtures of negative controls. A symbolic link in the way
// is refused, and followed nowhere; inside a fixture its target counts as its
// content. Errors are problems.
func PolicyFiles(top string) (files daemon.Files, err error) {
	dir, err := beneath.Open(top)
	if err != nil {
		return nil, problem.Wrap(problem.Refused, err, fmt.Sprintf("read the worktree %q", top), "name the folder of the project with --worktree")
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	c := collector{top: dir, files: daemon.Files{}}
	if err := c.add(workflow.DefaultPath, anchors.DefaultPath, baseline.Path); err != nil {
		return nil, err
	}
	intentPath := workflow.DefaultIntentPath
	if w, found, err := c.files.Workflow(); found && err == nil { // who needs it valid parses it again
		intentPath = w.IntentPath
	}
	if err := c.add(intentPath); err != nil {
		return nil, err
	}
	if data, ok := c.files[intentPath]; ok {
		intent, err := allowlist.ParseIntent(data)
		if err != nil {
			return c.files, nil //nolint:nilerr // who needs it valid parses it again
		}
		for _, check := range intent.Checks {
			if control := check.NegativeControl; control.MutationOf != "" && !control.OnSubject() {
				if err := c.walk(path.Clean(control.MutationOf), fixtureDepth); err != nil {
					return nil, err
				}
			}
		}
	}
	return c.files, nil
}

// collector reads files of one tree.
type collector struct {
	top   *beneath.Dir
	files daemon.Files
}

// add reads the files at paths; one that does not exist is left out.
func (c *collector) add(paths ...string) error {
	for _, p := range paths {
		data, err := c.top.ReadFile(p, daemon.MaxPolicyFileBytes)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return unreadable(p, err)
		}
		if err := c.keep(p, data); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) keep(p string, data []byte) error {
	if len(c.files) >= daemon.MaxPolicyFiles {
		return problem.New(problem.Invalid, "read the policy", fmt.Sprintf("its fixtures have more than %d files", daemon.MaxPolicyFiles), "keep fixtures small")
	}
	if !utf8.ValidString(p) {
		return problem.New(problem.Invalid, "read the policy", fmt.Sprintf("the name %q is not valid UTF-8", p), "rename the file")
	}
	c.files[p] = data
	return nil
}

// walk reads every file below the folder at p.
func (c *collector) walk(p string, depth int) error {
	if depth == 0 {
		return problem.New(problem.Invalid, "read the fixture "+strconv.Quote(p), fmt.Sprintf("it is deeper than %d folders", fixtureDepth), "")
	}
	dir, err := c.top.Dir(p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // an absent fixture is for the run to complain of
	}
	if err != nil {
		return unreadable(p, err)
	}
	defer dir.Close() // it was only read
	entries, err := dir.Entries(func(n int) error {
		if n > daemon.MaxPolicyFiles {
			return fmt.Errorf("it has more than %d entries", daemon.MaxPolicyFiles)
		}
		return nil
	})
	if err != nil {
		return unreadable(p, err)
	}
	for _, e := range entries {
		below := path.Join(p, e.Name)
		st, err := dir.Lstat(e.Name)
		if err != nil {
			return unreadable(below, err)
		}
		switch st.Kind {
		case beneath.Directory:
			err = c.walk(below, depth-1)
		case beneath.Symlink:
			var target string
			if target, err = dir.Readlink(e.Name); err == nil {
				err = c.keep(below, []byte(target))
			}
		case beneath.Regular:
			err = c.add(below)
		case beneath.FIFO, beneath.Socket, beneath.Device, beneath.Unknown:
			err = beneath.ErrNotRegular
		}
		if err != nil {
			return unreadable(below, err)
		}
	}
	return nil
}

func unreadable(p string, err error) error {
	what := "read " + strconv.Quote(p)
	var known *problem.Problem
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, beneath.ErrTooLong):
		return problem.Wrap(problem.Invalid, err, what, "shorten the file")
	case errors.Is(err, beneath.ErrUnsupported):
		return problem.Wrap(problem.Missing, err, what, "")
	case errors.Is(err, beneath.ErrLink):
		return problem.Wrap(problem.Refused, err, what, "put the folder or file itself in its place")
	case errors.Is(err, beneath.ErrNotRegular):
		return problem.Wrap(problem.Refused, err, what, "move away what is there")
	}
	return problem.Wrap(problem.Refused, err, what, "")
}
