package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/note"

	"striatum/internal/crew"
	"striatum/internal/durable"
)

// maxSumDBBytes bounds one answer of a checksum database.
const maxSumDBBytes = 1 << 20

// database is a checksum database: who signs it and where it is.
type database struct {
	key, name string
	url       *url.URL
}

// parseSumDB reads "name+hash+key [URL]", as GOSUMDB has it with a key; the URL
// is https://name where it is not given.
func parseSumDB(s string) (*database, error) {
	key, address, _ := strings.Cut(s, " ")
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return nil, fmt.Errorf("checksum database %q: the key is not one of a note", s)
	}
	if address == "" {
		address = "https://" + verifier.Name()
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("checksum database %q: %q is no https address", s, address)
	}
	return &database{key, verifier.Name(), u}, nil
}

// origins asks the checksum database about every module with a zip in the set,
// and counts those that it has with the same hashes. A module that it has with
// others is tampered, and nothing of it is learnt. What it does not know, or
// cannot say now, stays what it was.
func (f *fetch) origins(ctx context.Context) error {
	db := f.store.sumDB
	if db == nil {
		return nil
	}
	ops := &sumDBOps{ctx: ctx, db: db, client: f.store.cfg.Client, dir: filepath.Join(f.store.cfg.Dir, "sumdb"), absent: map[string]bool{}}
	client := sumdb.NewClient(ops)
	client.SetGONOSUMDB(f.store.cfg.NoSumDB)
	zips := map[string]bool{}
	for _, x := range f.files {
		zips[x.Version.String()] = zips[x.Version.String()] || x.kind == kindZip
	}
	jobs := make(chan file)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	wg := crew.Group{Stop: stop}
	for range fetchWorkers {
		wg.Go(func() {
			for x := range jobs {
				f.origin(client, ops, x)
			}
		})
	}
	for _, x := range f.files {
		if !zips[x.Version.String()] {
			continue
		}
		select {
		case jobs <- x:
		case <-asking.Done():
		}
	}
	close(jobs)
	wg.Wait()
	if trouble := ops.trouble(); trouble != nil {
		f.set.SumDBTrouble = fmt.Sprintf("checksum database %s: %v", db.name, trouble)
	}
	if err := f.forget(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// origin asks about one file.
func (f *fetch) origin(client *sumdb.Client, ops *sumDBOps, x file) {
	version := x.Version.Version
	if x.kind == kindMod {
		version += "/go.mod"
	}
	lines, err := client.Lookup(x.Path, version)
	if err != nil {
		if !errors.Is(err, sumdb.ErrGONOSUMDB) && !ops.lacks(x.Version) {
			ops.failed(err)
		}
		return
	}
	for _, line := range lines {
		h1, ok := strings.CutPrefix(line, x.Path+" "+version+" ")
		switch {
		case !ok || !strings.HasPrefix(h1, "h1:"):
		case h1 == x.h1:
			f.note(func() { f.vouched = append(f.vouched, x) })
		default:
			f.note(func() {
				f.set.Tampered = append(f.set.Tampered, Tampered{x.Version, x.kind, h1, x.h1, "go.sum (against checksum database " + f.store.sumDB.name + ")"})
			})
		}
	}
}

// forget drops what was fetched of tampered versions, so that the store does not
// learn it.
func (f *fetch) forget() error {
	var err error
	f.fresh = slices.DeleteFunc(f.fresh, func(o object) bool {
		bad := slices.ContainsFunc(f.set.Tampered, func(t Tampered) bool { return t.Module == o.Version })
		if bad {
			err = errors.Join(err, os.RemoveAll(o.path))
		}
		return bad
	})
	if err != nil {
		return &storeFault{err}
	}
	return nil
}

// fromSumDB reports whether the database vouched for the zip of x and, if the
// set has it, for its .mod.
func (f *fetch) fromSumDB(x file) bool {
	for _, y := range f.files {
		if y.Version == x.Version && !slices.Contains(f.vouched, y) {
			return false
		}
	}
	return true
}

// sumDBOps is the world of a sumdb.Client: the database, and the folder that
// keeps the newest signed tree that was seen and what was read before.
type sumDBOps struct {
	ctx    context.Context // of the Fetch; the interface has no place for it
	db     *database
	client *http.Client
	dir    string

	mu     sync.Mutex
	first  error // the first trouble
	down   bool
	absent map[string]bool // paths that the database does not have
}

// failed remembers the first trouble.
func (o *sumDBOps) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == nil {
		o.first = err
	}
}

// lacks reports whether the database said that it does not have v: the client's
// errors do not tell.
func (o *sumDBOps) lacks(v module.Version) bool {
	path, err := module.EscapePath(v.Path)
	version, verr := module.EscapeVersion(v.Version)
	o.mu.Lock()
	defer o.mu.Unlock()
	return err == nil && verr == nil && o.absent["/lookup/"+path+"@"+version]
}

func (o *sumDBOps) trouble() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first
}

// ReadRemote asks the database; after the first failure that is not an answer it
// is not asked again.
func (o *sumDBOps) ReadRemote(path string) ([]byte, error) {
	o.mu.Lock()
	down := o.down
	o.mu.Unlock()
	if down {
		return nil, errors.New("it did not answer before")
	}
	req, err := http.NewRequestWithContext(o.ctx, http.MethodGet, strings.TrimSuffix(o.db.url.String(), "/")+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		o.mu.Lock()
		o.down = true
		o.mu.Unlock()
		if inner, ok := errors.AsType[*url.Error](err); ok { // its text repeats the address
			err = inner.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		o.mu.Lock()
		o.absent[path] = true
		o.mu.Unlock()
		return nil, errAbsent
	default:
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxSumDBBytes+1))
	if err == nil && len(data) > maxSumDBBytes {
		err = errTooLong
	}
	return data, err
}

// ReadConfig returns the key, or the newest signed tree.
func (o *sumDBOps) ReadConfig(name string) ([]byte, error) {
	if name == "key" {
		return []byte(o.db.key), nil
	}
	data, err := o.ReadCache(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// WriteConfig replaces the newest signed tree.
func (o *sumDBOps) WriteConfig(name string, before, after []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, err := o.ReadConfig(name)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, before) {
		return sumdb.ErrWriteConflict
	}
	return o.write(name, after)
}

// ReadCache returns what was read before; the client proves it again.
func (o *sumDBOps) ReadCache(name string) ([]byte, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%q is no name of a cache file", name)
	}
	f, err := os.Open(filepath.Join(o.dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSumDBBytes))
}

// WriteCache keeps an answer; without it the database is asked again.
func (o *sumDBOps) WriteCache(name string, data []byte) {
	if err := o.write(name, data); err != nil {
		o.failed(err)
	}
}

func (o *sumDBOps) write(name string, data []byte) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is no name of a cache file", name)
	}
	path := filepath.Join(o.dir, name)
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o600)
}

// Log takes the client's talk about its own work, which nobody needs.
func (o *sumDBOps) Log(string) {}

// SecurityError is told when the database contradicts what it signed before: no
// other trouble matters then.
func (o *sumDBOps) SecurityError(string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first = errors.New("it contradicts what it signed before")
}
