package modules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"striatum/internal/durable"
	"striatum/seal"
)

const (
	knownMarker   = "striatum.known_module.v1"
	maxKnownBytes = 16 << 10
)

// badBytes says that what a source gave is not what it should be.
type badBytes struct{ err error } //nolint:errname // says what happened

func (b *badBytes) Error() string { return b.err.Error() }

// storeFault says that the store itself, not a source, failed.
type storeFault struct{ err error } //nolint:errname // says what happened

func (s *storeFault) Error() string { return fmt.Sprintf("write module store: %v", s.err) }
func (s *storeFault) Unwrap() error { return s.err }

// object is a downloaded file: its h1 is that of the bytes at path.
type object struct {
	file
	path string // in spool; for a zip, once unpacked, the folder
}

// path is where a proven file lies in the store.
func (s *Store) path(f file) string {
	id := seal.SHA256Hex([]byte(f.Path + "@" + f.Version.Version + "\n" + f.h1))
	return filepath.Join(s.cfg.Dir, f.kind+"s", id)
}

func (s *Store) has(f file) bool {
	_, err := os.Lstat(s.path(f))
	return err == nil
}

// download copies a file into the spool, with caps, and hashes the copy.
func (f *fetch) download(ctx context.Context, src source, v module.Version, kind string) (o object, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.store.cfg.Timeout, fmt.Errorf("not done within %s", f.store.cfg.Timeout))
	defer cancel()
	in, err := src.open(ctx, v, kind)
	if err != nil {
		return object{}, sourceError(ctx, err)
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Join(f.store.cfg.Dir, "spool"), "download-")
	if err != nil {
		return object{}, &storeFault{err}
	}
	defer func() {
		if cerr := out.Close(); err == nil && cerr != nil {
			err = &storeFault{cerr}
		}
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	limit := int64(maxModBytes)
	if kind == kindZip {
		limit = f.store.cfg.ZipBytes
	}
	var counter headerCounter
	from := &sourceReader{r: io.TeeReader(&capped{in, limit, &f.total}, &counter)}
	if _, err := io.Copy(struct{ io.Writer }{out}, from); err != nil {
		if from.err != nil {
			return object{}, sourceError(ctx, from.err)
		}
		return object{}, &storeFault{err}
	}
	if ctx.Err() != nil { // an end that came with the end of the time is none
		return object{}, sourceError(ctx, ctx.Err())
	}
	h1, err := hash(out.Name(), v, kind)
	if err != nil {
		return object{}, &badBytes{err}
	}
	return object{file{v, kind, h1}, out.Name()}, nil
}

// sourceError prefers the reason for which ctx ended.
func sourceError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// sourceReader remembers that an error came from the source.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// hash returns the h1 of a .mod or of a zip that is a well-formed module zip.
func hash(path string, v module.Version, kind string) (string, error) {
	if kind == kindMod {
		return dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(path) })
	}
	checked, err := zip.CheckZip(v, path)
	if err == nil {
		err = checked.Err()
	}
	if err != nil {
		return "", fmt.Errorf("not a module zip: %.200w", err)
	}
	return dirhash.HashZip(path, dirhash.Hash1)
}

// unpack turns a proven zip into a folder in the spool.
func (f *fetch) unpack(o *object) error {
	if o.kind == kindMod {
		if err := os.Chmod(o.path, 0o444); err != nil {
			return &storeFault{err}
		}
		return nil
	}
	dir := o.path + "-tree"
	if err := zip.Unzip(dir, o.Version, o.path); err != nil {
		return errors.Join(&badBytes{fmt.Errorf("cannot be unpacked: %.200w", err)}, os.RemoveAll(dir))
	}
	if err := os.Remove(o.path); err != nil {
		return &storeFault{err}
	}
	o.path = dir
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o444)
	})
	if err != nil {
		return &storeFault{err}
	}
	return nil
}

// settle syncs what was fetched and moves it into place: first what was seen
// for the first time, then the content, so that no content is there unrecorded.
func (f *fetch) settle() error {
	if len(f.fresh) == 0 {
		return nil
	}
	if err := f.place(); err != nil {
		return &storeFault{err}
	}
	return nil
}

func (f *fetch) place() error {
	moves, err := f.learn()
	if err != nil {
		return err
	}
	if err := durable.SyncFS(f.store.cfg.Dir); err != nil {
		return err
	}
	for from, to := range moves {
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	if err := durable.SyncDir(filepath.Join(f.store.cfg.Dir, "known")); err != nil {
		return err
	}
	for _, o := range f.fresh {
		if err := os.Rename(o.path, f.store.path(o.file)); err != nil {
			return err
		}
	}
	return errors.Join(durable.SyncDir(filepath.Join(f.store.cfg.Dir, "mods")), durable.SyncDir(filepath.Join(f.store.cfg.Dir, "zips")))
}

// known is what the store saw first for a module version.
type known struct {
	SchemaVersion string `json:"schema_version"`
	Path          string `json:"path"`
	Version       string `json:"version"`
	ZipH1         string `json:"zip_h1"`
	ModH1         string `json:"mod_h1"`
	FirstSeen     string `json:"first_seen"`
}

func (s *Store) knownPath(v module.Version) string {
	return filepath.Join(s.cfg.Dir, "known", seal.SHA256Hex([]byte(v.Path+"@"+v.Version))+".json")
}

// known returns the record of a version; empty if it was never seen.
func (s *Store) known(v module.Version) (known, error) {
	f, err := os.Open(s.knownPath(v))
	if errors.Is(err, fs.ErrNotExist) {
		return known{}, nil
	}
	if err != nil {
		return known{}, &storeFault{err}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKnownBytes+1))
	if err != nil {
		return known{}, &storeFault{err}
	}
	var k known
	if err := seal.Decode(data, &k, seal.Limits{Bytes: maxKnownBytes}); err != nil {
		return known{}, &storeFault{fmt.Errorf("record of %s: %w", v, err)}
	}
	if k.SchemaVersion != knownMarker || k.Path != v.Path || k.Version != v.Version {
		return known{}, &storeFault{fmt.Errorf("record of %s is for %s@%s, schema %q", v, k.Path, k.Version, k.SchemaVersion)}
	}
	return k, nil
}

// learn writes the records of what is fresh into the spool and says where each
// of them goes.
func (f *fetch) learn() (moves map[string]string, err error) {
	records := map[module.Version]known{}
	for _, o := range f.fresh {
		k, ok := records[o.Version]
		if !ok {
			if k, err = f.store.known(o.Version); err != nil {
				return nil, err
			}
		}
		if k.SchemaVersion == "" {
			k = known{SchemaVersion: knownMarker, Path: o.Path, Version: o.Version.Version, FirstSeen: f.store.cfg.Now().UTC().Format(time.RFC3339)}
		}
		if o.kind == kindMod {
			k.ModH1 = o.h1
		} else {
			k.ZipH1 = o.h1
		}
		records[o.Version] = k
	}
	moves = map[string]string{}
	for v, k := range records {
		data, err := seal.Canonical(k)
		if err != nil {
			return nil, err
		}
		to := f.store.knownPath(v)
		from := filepath.Join(f.store.cfg.Dir, "spool", filepath.Base(to))
		if err := os.WriteFile(from, data, 0o600); err != nil {
			return nil, err
		}
		moves[from] = to
	}
	return moves, nil
}
