package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/crew"
	"striatum/internal/problem"
)

const (
	maxClosureFiles = 300_000
	maxClosureBytes = 16 << 30
	hashWorkers     = 2
	// settleTime is how long a file must not have changed before its digest is
	// cached: longer than the granularity of any file system's times.
	settleTime = 3 * time.Second
)

// Meter measures closures.
type Meter struct {
	// Cache is the path of the stat cache, in the lane's private state; empty:
	// every byte is read each time.
	Cache string
	// Now is the clock that tells whether a file's ctime has settled. Required
	// with Cache.
	Now func() time.Time
}

// Closure is everything that was measured below some roots.
type Closure struct {
	// SHA256 is over one line per file or link, sorted by root and path:
	// octal mode, digest (of a link: of its text), quoted absolute path.
	SHA256 string
	Files  int64
	Bytes  int64
	// BinarySHA256 is the digest of the binary that Measure was given.
	BinarySHA256 string
	// Roots are the folders and files measured: those asked for, what links in
	// them led to outside (Debian keeps most of GOROOT under /usr/share), and
	// the loaders and shared libraries of their programs. All of them must be
	// visible to whoever uses the tool.
	Roots []string
	// Parts are the roots one by one, sorted by path.
	Parts []Part
	// Immutable is whether only root can change any of it; Observed says what
	// was seen, for the facet tools_immutable.
	Immutable bool
	Observed  string
	// Hashed counts the files whose bytes were read for this; the digests of
	// the others came from the stat cache.
	Hashed int64

	binary string
	tree   bool // by MeasureTree
}

// Part is one root of a closure. SHA256 is a file's digest, of a link that of its
// text, or of a folder the digest over its lines as in Closure.SHA256.
type Part struct {
	Path         string
	Folder       bool
	SHA256       string
	Files, Bytes int64
}

// Measure digests every file below the roots, and the binary, which must be
// among them unless it is empty. It reads what it has not read before with two workers.
//
// A digest is taken from the cache only if device, inode, size, mode, mtime
// and ctime are as they were when the file was hashed under a read lease
// (nobody had it open or mapped for writing) with a ctime that had settled:
// then any write since would show in the ctime, which only root can forge by
// setting the clock.
//
// A FIFO, socket or device below a root, or more than 300,000 files or 16 GiB,
// is a problem.Refused error.
func (m Meter) Measure(ctx context.Context, binary string, roots ...string) (Closure, error) {
	w := walker{files: map[string]stamp{}, links: map[string]string{}}
	pending := append([]string(nil), roots...)
	var done []string
	for len(pending) > 0 {
		root := filepath.Clean(pending[0])
		pending = pending[1:]
		if covered(done, root) {
			continue
		}
		if err := w.walk(ctx, root); err != nil {
			return Closure{}, err
		}
		done = append(done, root)
		pending = append(pending, w.outside...)
		w.outside = nil
	}
	if _, ok := w.files[binary]; binary != "" && !ok {
		return Closure{}, fmt.Errorf("measure %q: it is not a regular file below %q", binary, done)
	}
	sort.Strings(done)
	for _, root := range done {
		if ok, observed := Immutable(root); !ok {
			w.note(observed)
		}
	}
	return m.closure(ctx, &w, binary, done)
}

// MeasureTree digests every file below root, the folder of a whole system that
// lies in the lane's private state, as Measure does, with names as seen from
// root. It follows nothing out of root or within it: a link is its text, and
// what a program loads is below root like the rest. The folders above root are
// not looked at.
func (m Meter) MeasureTree(ctx context.Context, root string) (Closure, error) {
	root = filepath.Clean(root)
	w := walker{files: map[string]stamp{}, links: map[string]string{}, tree: root}
	if err := w.walk(ctx, root); err != nil {
		return Closure{}, err
	}
	return m.closure(ctx, &w, "", []string{root})
}

// closure digests what was walked below the sorted roots.
func (m Meter) closure(ctx context.Context, w *walker, binary string, roots []string) (Closure, error) {
	c := Closure{Roots: roots, Immutable: true, Observed: "owned by root, written only by root", binary: binary, tree: w.tree != ""}
	if w.mutable != "" {
		c.Immutable, c.Observed = false, w.mutable
	}
	sums, err := m.digests(ctx, w.files, &c)
	if err != nil {
		return Closure{}, err
	}
	c.BinarySHA256 = sums[binary]
	names := slices.Sorted(maps.Keys(w.files))
	names = slices.AppendSeq(names, maps.Keys(w.links))
	slices.Sort(names)
	c.SHA256 = w.digest(names, sums)
	for _, root := range roots {
		c.Parts = append(c.Parts, w.part(root, names, sums))
	}
	return c, nil
}

// part is the part of the sorted names that a root covers.
func (w *walker) part(root string, names []string, sums map[string]string) Part {
	if st, ok := w.files[root]; ok {
		return Part{Path: root, SHA256: sums[root], Files: 1, Bytes: st.size}
	}
	if text, ok := w.links[root]; ok {
		sum := sha256.Sum256([]byte(text))
		return Part{Path: root, SHA256: hex.EncodeToString(sum[:]), Files: 1}
	}
	below := strings.TrimSuffix(root, "/") + "/"
	from, _ := slices.BinarySearch(names, below)
	n := 0
	p := Part{Path: root, Folder: true}
	for ; from+n < len(names) && strings.HasPrefix(names[from+n], below); n++ {
		p.Files++
		p.Bytes += w.files[names[from+n]].size // a link has no bytes
	}
	p.SHA256 = w.digest(names[from:from+n], sums)
	return p
}

// Unchanged measures what before measured below roots, which are asked for anew
// (of a MeasureTree the root is the same), and reports whether every byte and mode is the same. The second closure is
// what is there now.
func (m Meter) Unchanged(ctx context.Context, before Closure, roots ...string) (bool, Closure, error) {
	var after Closure
	var err error
	if before.tree {
		after, err = m.MeasureTree(ctx, before.Roots[0])
	} else {
		after, err = m.Measure(ctx, before.binary, roots...)
	}
	if err != nil {
		return false, Closure{}, err
	}
	return after.SHA256 == before.SHA256, after, nil
}

func covered(roots []string, path string) bool {
	for _, r := range roots {
		if path == r || strings.HasPrefix(path, strings.TrimSuffix(r, "/")+"/") {
			return true
		}
	}
	return false
}

// walker collects what lies below the roots, without reading any file.
type walker struct {
	files   map[string]stamp
	links   map[string]string // path to text
	outside []string          // where links of the last root led to
	bytes   int64
	mutable string
	tree    string // the root of a MeasureTree, else empty
}

func (w *walker) walk(ctx context.Context, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("measure %q: %w", root, err)
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("measure %q: %w", path, err)
		}
		switch mode := uint32(st.Mode); mode & unix.S_IFMT { //nolint:unconvert // 16 bits on darwin
		case unix.S_IFDIR:
			w.note(mutable(path, st.Uid, mode))
		case unix.S_IFREG:
			w.note(mutable(path, st.Uid, mode))
			w.files[path] = stampOf(&st)
			w.bytes += st.Size
			if w.tree != "" {
				break
			}
			if mode&0o111 != 0 || strings.HasSuffix(path, ".so") || strings.Contains(filepath.Base(path), ".so.") {
				if err := w.program(path); err != nil {
					return err
				}
			}
		case unix.S_IFLNK:
			return w.link(root, path)
		default:
			return problem.New(problem.Refused, fmt.Sprintf("measure %q", path), "it is a FIFO, socket or device", "remove it from the toolchain")
		}
		if len(w.files)+len(w.links) > maxClosureFiles || w.bytes > maxClosureBytes {
			return problem.New(problem.Refused, fmt.Sprintf("measure %q", root),
				fmt.Sprintf("it has more than %d files or %d bytes", maxClosureFiles, int64(maxClosureBytes)), "name a smaller toolchain root")
		}
		return nil
	})
}

func (w *walker) note(why string) {
	if w.mutable == "" {
		w.mutable = why
	}
}

// link records a link, and where it leads if that is not below root.
func (w *walker) link(root, path string) error {
	text, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	w.links[path] = text
	if w.tree != "" {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a dangling link is its text
	}
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	if !covered([]string{root}, real) {
		w.outside = append(w.outside, real)
	}
	return nil
}

// program adds what the kernel and the loader would load for a program or a
// library.
func (w *walker) program(path string) error {
	loaded, err := dynamic(path)
	if err != nil {
		return fmt.Errorf("measure %q: %w", path, err)
	}
	w.outside = append(w.outside, loaded...)
	return nil
}

// digest is over the lines of the sorted names.
func (w *walker) digest(names []string, sums map[string]string) string {
	h := sha256.New()
	for _, name := range names {
		shown := strings.TrimPrefix(name, w.tree)
		if text, ok := w.links[name]; ok {
			fmt.Fprintf(h, "120000 %x %q\n", sha256.Sum256([]byte(text)), shown)
			continue
		}
		fmt.Fprintf(h, "%06o %s %q\n", w.files[name].mode, sums[name], shown)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// digests returns the digest of each file and keeps what may be kept.
func (m Meter) digests(ctx context.Context, files map[string]stamp, c *Closure) (map[string]string, error) {
	known := readStatCache(m.Cache)
	sums := make(map[string]string, len(files))
	var unread []string
	for name, st := range files {
		c.Files++
		c.Bytes += st.size
		if k, ok := known[name]; ok && k.stamp == st {
			sums[name] = k.sha256
			continue
		}
		unread = append(unread, name)
	}
	c.Hashed = int64(len(unread))
	if len(unread) == 0 {
		return sums, nil
	}
	sort.Strings(unread) // neighbours on disk, and the same error each time
	read := make([]hashed, len(unread))
	if err := m.hashAll(ctx, unread, files, read); err != nil {
		return nil, err
	}
	for i, name := range unread {
		sums[name] = read[i].sha256
		delete(known, name)
		if read[i].keep {
			known[name] = cached{files[name], read[i].sha256}
		}
	}
	if m.Cache == "" {
		return sums, nil
	}
	return sums, writeStatCache(m.Cache, known)
}

type hashed struct {
	sha256 string
	keep   bool
}

func (m Meter) hashAll(ctx context.Context, names []string, files map[string]stamp, out []hashed) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	wg := crew.Group{Stop: func() { cancel(context.Canceled) }}
	for range hashWorkers {
		wg.Go(func() {
			buf := make([]byte, 256<<10)
			for i := range next {
				h, err := m.hash(names[i], files[names[i]], buf)
				if err != nil {
					cancel(err)
				}
				out[i] = h
			}
		})
	}
	for i := range names {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// hash reads one file, which must be the one that was seen by the walk.
func (m Meter) hash(name string, want stamp, buf []byte) (hashed, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return hashed{}, fmt.Errorf("measure: %w", err)
	}
	defer f.Close()
	release, leased := func() {}, false
	if m.Cache != "" {
		release, leased = lease(f)
	}
	defer release()
	before, err := fstat(f)
	if err != nil {
		return hashed{}, fmt.Errorf("measure %q: %w", name, err)
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{io.LimitReader(f, want.size+1)}, buf); err != nil {
		return hashed{}, fmt.Errorf("measure %q: %w", name, err)
	}
	after, err := fstat(f)
	if err != nil {
		return hashed{}, fmt.Errorf("measure %q: %w", name, err)
	}
	if before != want || after != want {
		return hashed{}, fmt.Errorf("measure %q: it changed while it was read", name)
	}
	keep := leased && m.Now().Add(-settleTime).UnixNano() > want.ctime
	return hashed{hex.EncodeToString(h.Sum(nil)), keep}, nil
}

func fstat(f *os.File) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, err
	}
	return stampOf(&st), nil
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{
		dev: int64(st.Dev), ino: int64(st.Ino), size: st.Size,
		mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), mode: uint32(st.Mode), //nolint:unconvert // as above
	}
}
