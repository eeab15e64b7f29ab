// Package home is where the state of one user's striatum lies: a folder with
// the store, the keys and the lane's private state.
//
//	store.db         the embedded store (package store/sqlite)
//	keys/lane.pem    signs receipts and pins      keys/lane.pub     its public key
//	keys/report.pem  signs verification summaries keys/report.pub   its public key
//	keys/root.pem    signs trust files            keys/root.pub     its public key
//	trust_seen.json  the versions of trust files seen
//	lane/            the lane's own: snapshots, caches, outputs, journal, rehearsals
//	config.json      settings; may be absent
//	.lock            held while the home is made
//
// It is $STRIATUM_HOME, else $XDG_STATE_HOME/striatum, else
// ~/.local/state/striatum. Folders are 0700 and files 0600 (public keys 0644).
// Open makes what is missing, whole or not at all, and any number of processes
// may do so at once. It never makes an operator token, and reads nothing from a
// worktree. A home that others could read or write is refused.
package home

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"striatum/internal/durable"
	"striatum/internal/filelock"
	"striatum/internal/problem"
	"striatum/seal"
)

// maxKeyFile bounds the files below keys.
const maxKeyFile = 16 << 10

// Home is an open home. The key pairs are there and belong together.
type Home struct {
	// Dir is its absolute path.
	Dir string
	// LaneKey signs for the lane, ReportKey signs summaries. A daemon's home has
	// no LaneKey.
	LaneKey, ReportKey *seal.PrivateKey

	daemon bool
}

// StorePath returns where the embedded store lies.
func (h *Home) StorePath() string { return filepath.Join(h.Dir, "store.db") }

// LaneDir returns the folder of the lane's private state.
func (h *Home) LaneDir() string { return filepath.Join(h.Dir, "lane") }

// ConfigPath returns where the settings may lie.
func (h *Home) ConfigPath() string { return filepath.Join(h.Dir, "config.json") }

// KeyPath returns the file of a private key: "lane" or "report".
func (h *Home) KeyPath(name string) string { return filepath.Join(h.Dir, "keys", name+".pem") }

// PublicKeyPath returns the file of a public key.
func (h *Home) PublicKeyPath(name string) string { return filepath.Join(h.Dir, "keys", name+".pub") }

// Locate returns the home that the environment names.
func Locate(getenv func(string) string) (string, error) {
	for _, try := range []struct{ variable, below string }{
		{"STRIATUM_HOME", ""}, {"XDG_STATE_HOME", "striatum"}, {"HOME", ".local/state/striatum"},
	} {
		base := getenv(try.variable)
		if base == "" {
			continue
		}
		if !filepath.IsAbs(base) {
			return "", problem.New(problem.Usage, "find the home", fmt.Sprintf("%s is %q, which is not an absolute path", try.variable, base), "set STRIATUM_HOME to an absolute path")
		}
		return filepath.Join(base, try.below), nil
	}
	return "", problem.New(problem.Usage, "find the home", "neither STRIATUM_HOME, XDG_STATE_HOME nor HOME is set", "set STRIATUM_HOME to an absolute path")
}

// Open opens the home in dir and makes what is missing; created names that in
// the order it was made, also where the rest could not be. Randomness is for keys. Errors are problems: Refused
// for a home that others could use, Missing for one that cannot be written.
func Open(ctx context.Context, dir string, random io.Reader) (h *Home, created []string, err error) {
	return open(ctx, &Home{Dir: dir}, random)
}

// OpenDaemon opens the home of a daemon in dir, as Open does one of a user. It has
// no lane: the lane of a daemon's store is somebody else's.
func OpenDaemon(ctx context.Context, dir string, random io.Reader) (h *Home, created []string, err error) {
	return open(ctx, &Home{Dir: dir, daemon: true}, random)
}

// names are those of the key pairs.
func (h *Home) names() []string {
	if h.daemon {
		return []string{"report"}
	}
	return []string{"lane", "report"}
}

func open(ctx context.Context, h *Home, random io.Reader) (_ *Home, created []string, err error) {
	if random == nil {
		random = rand.Reader
	}
	dir := h.Dir
	made, err := h.makeFolder(dir, true)
	if err != nil {
		return nil, nil, err
	}
	if made {
		created = append(created, "home "+dir)
	}
	if !made && h.complete() { // the usual case takes no lock and writes nothing
		return h, nil, h.load()
	}
	release, err := filelock.Lock(ctx, filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, created, fault(err, dir)
	}
	defer func() { err = errors.Join(err, release()) }()
	if _, err := h.makeFolder(filepath.Join(dir, "keys"), false); err != nil {
		return nil, created, err
	}
	if !h.daemon {
		if _, err := h.makeFolder(h.LaneDir(), false); err != nil {
			return nil, created, err
		}
	}
	if err := durable.SweepTemp(filepath.Join(dir, "keys")); err != nil {
		return nil, created, fault(err, dir)
	}
	for _, name := range h.names() {
		made, err := h.makeKey(name, random)
		if err != nil {
			return nil, created, err
		}
		if made {
			created = append(created, name+" key "+h.KeyPath(name))
		}
	}
	return h, created, h.load()
}

// complete reports whether everything that Open makes is there.
func (h *Home) complete() bool {
	paths := []string{h.KeyPath("report"), h.PublicKeyPath("report")}
	if !h.daemon {
		paths = append(paths, h.LaneDir(), h.KeyPath("lane"), h.PublicKeyPath("lane"))
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err != nil {
			return false
		}
	}
	return true
}

// makeFolder makes a folder of the home, or checks the one that is there. Of
// the home itself missing parents are made too, and it may be behind a link.
func (h *Home) makeFolder(path string, top bool) (made bool, err error) {
	look := os.Lstat
	if top {
		look = os.Stat
	}
	st, err := look(path)
	switch {
	case err == nil && !st.IsDir():
		return false, problem.New(problem.Refused, fmt.Sprintf("open the home %q", h.Dir), fmt.Sprintf("%q is not a folder", path), "move it away, or name another home with STRIATUM_HOME")
	case err == nil:
		return false, private(path, st, 0o700)
	case !errors.Is(err, fs.ErrNotExist):
		return false, fault(err, h.Dir)
	}
	if err := durable.MkdirAll(path, 0o700); err != nil {
		return false, fault(err, h.Dir)
	}
	return true, nil
}

// makeKey makes a key pair, or the public half if a crash left it out. The
// private key is written first: a pair is never of two makings.
func (h *Home) makeKey(name string, random io.Reader) (made bool, err error) {
	key, err := h.readKey(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(h.PublicKeyPath(name)); err == nil {
			return false, problem.New(problem.Refused, "read the key "+h.KeyPath(name), "it is gone, and its public half is there",
				"restore it from a backup; or move "+h.PublicKeyPath(name)+" away, and a new key is made: a new lane, for `striatum init` with the operator token to enrol")
		}
		made = true
		if key, err = seal.GenerateKey(random); err != nil {
			return false, err
		}
		pem, err := key.PEM()
		if err != nil {
			return false, err
		}
		if err := durable.WriteFile(h.KeyPath(name), pem, 0o600); err != nil {
			return false, fault(err, h.Dir)
		}
	} else if err != nil {
		return false, err
	}
	if _, err := os.Lstat(h.PublicKeyPath(name)); errors.Is(err, fs.ErrNotExist) {
		if err := durable.WriteFile(h.PublicKeyPath(name), key.Public().PEM(), 0o644); err != nil {
			return false, fault(err, h.Dir)
		}
	}
	return made, nil
}

func (h *Home) load() (err error) {
	st, err := os.Lstat(filepath.Join(h.Dir, "keys"))
	if err != nil {
		return fault(err, h.Dir)
	}
	if err := private(filepath.Join(h.Dir, "keys"), st, 0o700); err != nil {
		return err
	}
	if !h.daemon {
		if h.LaneKey, err = h.readPair("lane"); err != nil {
			return fault(err, h.Dir)
		}
	}
	if h.ReportKey, err = h.readPair("report"); err != nil {
		return fault(err, h.Dir)
	}
	return nil
}

// readPair reads a private key and sees that the public file is its own half.
func (h *Home) readPair(name string) (*seal.PrivateKey, error) {
	key, err := h.readKey(name)
	if err != nil {
		return nil, err
	}
	public, err := os.ReadFile(h.PublicKeyPath(name)) // our own folder, and compared at once
	if err != nil {
		return nil, err
	}
	if string(public) != string(key.Public().PEM()) {
		return nil, problem.New(problem.Refused, "read the key "+h.PublicKeyPath(name), "it is not the public half of "+h.KeyPath(name), "move it away, and it is written again")
	}
	return key, nil
}

// readKey reads a private key that only its owner may read. The error wraps
// fs.ErrNotExist where there is none.
func (h *Home) readKey(name string) (*seal.PrivateKey, error) {
	path := h.KeyPath(name)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, problem.New(problem.Refused, "read the key "+path, "it is not a regular file", "restore it from a backup")
	}
	if err := private(path, st, 0o600); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, err
	}
	key, err := seal.ParsePrivateKey(data)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, err, "read the key "+path, "restore it from a backup; without it earlier receipts stay good, and a new home gets a new lane")
	}
	return key, nil
}

// private refuses what others could use: another owner, or wider permissions
// than most.
func private(path string, st fs.FileInfo, most fs.FileMode) error {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return problem.New(problem.Refused, "use "+path, fmt.Sprintf("it belongs to uid %d, and this process runs as uid %d", sys.Uid, os.Geteuid()), "run as its owner, or name another home with STRIATUM_HOME (striatumd: --home)")
	}
	if perm := st.Mode().Perm(); perm&^most != 0 {
		return problem.New(problem.Refused, "use "+path, fmt.Sprintf("its mode %04o lets others in", perm), fmt.Sprintf("run: chmod %04o %s", most, path))
	}
	return nil
}

// fault turns an error of the file system into what a user reads.
func fault(err error, dir string) error {
	what := fmt.Sprintf("open the home %q", dir)
	var p *problem.Problem
	switch {
	case errors.As(err, &p), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return problem.Wrap(problem.Missing, err, what, "make it writable, or name another home with STRIATUM_HOME")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem.Wrap(problem.Indeterminate, err, what, "free space on that disk, or name another home with STRIATUM_HOME")
	}
	return problem.Wrap(problem.Missing, err, what, "name another home with STRIATUM_HOME")
}
