// Package durable writes files so that a crash at any point leaves either the
// old content or the new, never a part: exclusive temporary file beside the
// target, fsync, rename, fsync of the folder.
//
// It is for folders that only the caller may write to (the home, the lane's
// store). Writes into an untrusted worktree go through package worktree.
package durable

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TempPrefix begins the name of every temporary file that WriteFile makes, so
// that a sweep can recognise what a kill left.
const TempPrefix = ".tmp-"

// WriteFile replaces path by a file of exactly data and perm. The file and its
// folder are synced before it returns.
func WriteFile(path string, data []byte, perm fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	var suffix [8]byte
	if _, err := rand.Read(suffix[:]); err != nil {
		return fmt.Errorf("name temporary file: %w", err)
	}
	tmp := filepath.Join(dir, TempPrefix+hex.EncodeToString(suffix[:]))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := SyncDir(dir); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}

// MkdirAll makes path and its missing parents with perm and syncs the folder
// above each one that it made.
func MkdirAll(path string, perm fs.FileMode) error {
	path = filepath.Clean(path)
	if st, err := os.Stat(path); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("make folder %q: it is not a directory", path)
		}
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make folder: %w", err)
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir flushes the entries of dir to disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("sync folder %q: %w", dir, err)
	}
	return nil
}

// SweepTemp removes the temporary files that a killed WriteFile left in dir.
// It is for the sole writer of dir.
func SweepTemp(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), TempPrefix) && e.Type().IsRegular() {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
