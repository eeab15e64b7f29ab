package rehearsal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"striatum/internal/durable"
	"striatum/seal"
)

// MaxKept is how many records are kept.
const MaxKept = 500

const suffix = ".json"

// name is the file of a subject's newest record.
func (s Subject) name() string {
	return seal.SHA256Hex([]byte(s.RepositoryID+"\n"+s.CheckDigest+"\n"+s.ClosureSHA256+"\n")) + suffix
}

// Keep makes an envelope of Sign the newest record of its subject in dir, durably,
// and drops the oldest beyond MaxKept. It is for the holder of the lane's lock.
func Keep(dir string, s Subject, envelope []byte) error {
	err := durable.MkdirAll(dir, 0o700)
	if err == nil {
		err = durable.SweepTemp(dir)
	}
	if err == nil {
		err = durable.WriteFile(filepath.Join(dir, s.name()), envelope, 0o600)
	}
	if err == nil {
		err = trim(dir, s.name())
	}
	if err != nil {
		return fmt.Errorf("keep the rehearsal: %w", err)
	}
	return nil
}

// trim drops the oldest records until MaxKept are left; never the one named keep.
func trim(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= MaxKept {
		return err
	}
	var records []fs.FileInfo
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) || e.Name() == keep {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		records = append(records, info)
	}
	slices.SortFunc(records, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, old := range records[:max(0, len(records)+1-MaxKept)] {
		if err := os.Remove(filepath.Join(dir, old.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Find opens the newest record of a subject in dir. The error is fs.ErrNotExist
// where there is none, or one of Open: then there is a file, and it counts for
// nothing.
func Find(dir string, s Subject, ring seal.Keyring) (_ Rehearsal, _ seal.Key, err error) {
	f, err := os.Open(filepath.Join(dir, s.name()))
	if err != nil {
		return Rehearsal{}, seal.Key{}, fmt.Errorf("find a rehearsal: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	envelope, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return Rehearsal{}, seal.Key{}, fmt.Errorf("find a rehearsal: %w", err)
	}
	r, by, err := Open(envelope, ring)
	if err == nil && r.Subject != s {
		err = fmt.Errorf("find a rehearsal: %w: it is about something else", ErrInvalid)
	}
	return r, by, err
}
