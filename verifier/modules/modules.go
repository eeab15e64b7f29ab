package modules

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/module"

	"striatum/internal/crew"
	"striatum/internal/durable"
)

const (
	fetchWorkers  = 4
	maxModBytes   = 16 << 20
	maxZipEntries = 200_000
)

// Config says where modules come from. The zero values are usable except for
// Dir and Now.
type Config struct {
	Dir string // the store, in the lane's private state
	// DownloadCache is a user's "<GOMODCACHE>/cache/download"; empty: none. It
	// need not exist.
	DownloadCache string
	// Proxies are the operator's module proxies, in order; only https.
	Proxies []string
	// Client asks the proxies; nil: NewClient().
	Client *http.Client
	// Timeout is for one file from a proxy; 0: 5 minutes.
	Timeout time.Duration
	// ZipBytes is the largest zip; 0: 500 MiB, which is also the go command's.
	ZipBytes int64
	// TotalBytes is what one Fetch may read at most; 0: 8 GiB.
	TotalBytes int64
	// Quota is what all sets together keep; 0: 8 GiB. The newest stays in any case.
	Quota int64
	// SumDB is the checksum database that is asked, as "name+hash+key [URL]";
	// empty: none. It learns the names of the modules that it is asked about, but
	// for those that NoSumDB, a list of patterns as GONOSUMDB has it, matches.
	SumDB, NoSumDB string
	// Accepted reports whether an operator accepted this version with this h1;
	// nil: none.
	Accepted func(v module.Version, h1 string) bool
	Now      func() time.Time
}

// Store is a lane's module store.
type Store struct {
	cfg     Config
	proxies []*url.URL
	sumDB   *database // nil: none
}

// Open makes the store's folders where they are missing.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		return nil, errors.New("open module store: no clock")
	}
	s := &Store{cfg: cfg}
	for _, p := range cfg.Proxies {
		u, err := url.Parse(p)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("open module store: proxy %q is no https address", p)
		}
		s.proxies = append(s.proxies, u)
	}
	if cfg.SumDB != "" {
		var err error
		if s.sumDB, err = parseSumDB(cfg.SumDB); err != nil {
			return nil, fmt.Errorf("open module store: %w", err)
		}
	}
	if s.cfg.Client == nil {
		s.cfg.Client = NewClient()
	}
	if s.cfg.Timeout == 0 {
		s.cfg.Timeout = 5 * time.Minute
	}
	if s.cfg.ZipBytes == 0 {
		s.cfg.ZipBytes = 500 << 20
	}
	if s.cfg.TotalBytes == 0 {
		s.cfg.TotalBytes = 8 << 30
	}
	if s.cfg.Quota == 0 {
		s.cfg.Quota = 8 << 30
	}
	if err := durable.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open module store: %w", err)
	}
	for _, name := range []string{"mods", "zips", "known", "sets", "spool"} {
		if err := durable.MkdirAll(filepath.Join(cfg.Dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("open module store: %w", err)
		}
	}
	return s, nil
}

// Missing is a file that no source has, with what each of them said.
type Missing struct {
	Module module.Version
	Kind   string // "mod" or "zip"
	Why    string
}

// String says what is missing and why.
func (m Missing) String() string { return fmt.Sprintf("%s (%s): %s", m.Module, m.Kind, m.Why) }

// Tampered is a file whose bytes are not those that go.sum, or this store,
// knows for the version.
type Tampered struct {
	Module module.Version
	Kind   string // "mod" or "zip"
	Want   string // h1
	Got    string // h1, or what is wrong with the file
	Where  string
}

// String says what differs where.
func (t Tampered) String() string {
	return fmt.Sprintf("%s (%s) from %s: %s where %s is due", t.Module, t.Kind, t.Where, t.Got, t.Want)
}

// Set is what one check may read of its dependencies.
type Set struct {
	// Dir is a GOMODCACHE with exactly the modules of the set, to be mounted
	// read-only; empty if something was Tampered. It works with GOPROXY=off,
	// GOSUMDB=off and GOFLAGS=-mod=readonly.
	Dir string
	// Digest is over one line per file, sorted: "mod" or "zip", path, version
	// and h1.
	Digest string
	// Modules with a zip in the set, by how their origin is known; Self counts
	// requirements that a folder, or a module of the workspace, replaces.
	// A module is SumDB's if the checksum database has it with the same hashes.
	SumDB, Accepted, FirstSeen, Self int64
	// SumDBTrouble says why the checksum database could not be asked about some
	// module, or contradicts itself; empty: it could.
	SumDBTrouble string
	// Missing are files of needed modules that could not be had. A build may
	// do without (go.mod names modules of other systems too); if it fails, this
	// is why.
	Missing []Missing
	// Tampered is red: nothing may be judged with such a dependency.
	Tampered []Tampered
	// Notes say which source had wrong bytes where a later one had the right.
	Notes []string
}

// Fetch returns the set for a check's module files, fetching what the store does
// not have. Only the holder of the lane's lock may call it. The error is
// an *InvalidError when the files cannot be read as what they are, or ctx's
// cause; what cannot be fetched is not an error, see Set.
func (s *Store) Fetch(ctx context.Context, files Files) (Set, error) {
	p, err := read(files)
	if err != nil {
		return Set{}, err
	}
	f := &fetch{store: s}
	f.total.Store(s.cfg.TotalBytes)
	if err := f.sweepSpool(); err != nil {
		return Set{}, err
	}
	defer f.openSources()()
	if err := f.all(ctx, p.wants); err != nil {
		return Set{}, err
	}
	if err := f.origins(ctx); err != nil {
		return Set{}, err
	}
	if err := f.settle(); err != nil {
		return Set{}, err
	}
	f.set.Self = p.self
	slices.SortFunc(f.set.Missing, func(a, b Missing) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(f.set.Tampered, func(a, b Tampered) int { return strings.Compare(a.String(), b.String()) })
	slices.Sort(f.set.Notes)
	return f.set, f.assemble()
}

// fetch is one call of Fetch.
type fetch struct {
	store   *Store
	sources []source
	total   atomic.Int64

	mu    sync.Mutex
	set   Set
	files []file   // what the set has
	fresh []object // unpacked and proven, not yet in place
	// vouched are the files that the checksum database has with the same hash.
	vouched []file
}

// file is one proven file of the set.
type file struct {
	module.Version
	kind, h1 string
}

// String is the file's line in the digest.
func (f file) String() string {
	return fmt.Sprintf("%s %s %s %s\n", f.kind, f.Path, f.Version.Version, f.h1)
}

func (f *fetch) sweepSpool() error {
	spool := filepath.Join(f.store.cfg.Dir, "spool")
	names, err := os.ReadDir(spool)
	if err != nil {
		return fmt.Errorf("sweep module store: %w", err)
	}
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(spool, n.Name())); err != nil {
			return fmt.Errorf("sweep module store: %w", err)
		}
	}
	return nil
}

func (f *fetch) openSources() (closeAll func()) {
	closeAll = func() {}
	if dir := f.store.cfg.DownloadCache; dir != "" {
		root, err := os.OpenRoot(dir)
		switch {
		case err == nil:
			f.sources = append(f.sources, cacheSource{root, dir})
			closeAll = func() { _ = root.Close() } // a read-only handle
		case !errors.Is(err, os.ErrNotExist):
			f.set.Notes = append(f.set.Notes, fmt.Sprintf("download cache %s cannot be read: %v", dir, err))
		}
	}
	for _, u := range f.store.proxies {
		f.sources = append(f.sources, &proxySource{base: u, client: f.store.cfg.Client})
	}
	return closeAll
}

// all gets every wanted file with a few workers.
func (f *fetch) all(ctx context.Context, wants []*want) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan *want)
	wg := crew.Group{Stop: func() { cancel(context.Canceled) }}
	for range fetchWorkers {
		wg.Go(func() {
			for w := range jobs {
				if err := f.one(ctx, w); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, w := range wants {
		select {
		case jobs <- w:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(jobs)
	wg.Wait()
	return context.Cause(ctx)
}

// one gets the files of one version. An error is a fault of the store itself.
func (f *fetch) one(ctx context.Context, w *want) error {
	known, err := f.store.known(w.Version)
	if err != nil {
		return err
	}
	if len(w.mod) > 0 {
		if err := f.file(ctx, w, kindMod, w.mod, known.ModH1); err != nil {
			return err
		}
	}
	if w.needed && len(w.zip) > 0 {
		return f.file(ctx, w, kindZip, w.zip, known.ZipH1)
	}
	return nil
}

// file gets one file whose h1 must be one of allowed and, where the store has
// met the version before, known.
func (f *fetch) file(ctx context.Context, w *want, kind string, allowed []string, known string) error {
	if known != "" && !slices.Contains(allowed, known) {
		f.note(func() {
			f.set.Tampered = append(f.set.Tampered, Tampered{w.Version, kind, known, strings.Join(allowed, " or "), "go.sum (this store knows the version)"})
		})
		return nil
	}
	if known != "" {
		allowed = []string{known}
	}
	for _, h1 := range allowed {
		if f.store.has(file{w.Version, kind, h1}) {
			f.note(func() { f.files = append(f.files, file{w.Version, kind, h1}) })
			return nil
		}
	}
	return f.fromSources(ctx, w, kind, allowed)
}

func (f *fetch) fromSources(ctx context.Context, w *want, kind string, allowed []string) error {
	var said []string
	var wrong []Tampered
	for _, src := range f.sources {
		o, err := f.download(ctx, src, w.Version, kind)
		var bad *badBytes
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case errors.As(err, &bad):
			wrong = append(wrong, Tampered{w.Version, kind, strings.Join(allowed, " or "), bad.Error(), src.String()})
			continue
		case err != nil:
			if _, ok := errors.AsType[*storeFault](err); ok {
				return err
			}
			said = append(said, fmt.Sprintf("%s: %v", src, err))
			continue
		case !slices.Contains(allowed, o.h1):
			if err := os.Remove(o.path); err != nil {
				return &storeFault{err}
			}
			wrong = append(wrong, Tampered{w.Version, kind, strings.Join(allowed, " or "), o.h1, src.String()})
			continue
		}
		if err := f.unpack(&o); err != nil {
			if errors.As(err, &bad) {
				wrong = append(wrong, Tampered{w.Version, kind, o.h1, bad.Error(), src.String()})
				continue
			}
			return err
		}
		f.note(func() {
			f.fresh = append(f.fresh, o)
			f.files = append(f.files, o.file)
			for _, t := range wrong {
				f.set.Notes = append(f.set.Notes, t.String())
			}
		})
		return nil
	}
	f.note(func() {
		switch {
		case len(wrong) > 0:
			f.set.Tampered = append(f.set.Tampered, wrong...)
		case w.needed:
			if len(said) == 0 {
				said = []string{"no download cache and no proxy is configured"}
			}
			f.set.Missing = append(f.set.Missing, Missing{w.Version, kind, strings.Join(said, "; ")})
		}
	})
	return nil
}

func (f *fetch) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}
