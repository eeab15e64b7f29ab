package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"striatum/internal/durable"
	"striatum/seal"
)

// perOutput is what an output costs of the quota beside its bytes, so that the
// quota bounds the number of files too.
const perOutput = 4 << 10

// ErrDamaged says that a stored output no longer has the bytes of its name.
var ErrDamaged = errors.New("the stored output is damaged")

// Outputs keeps what checks wrote to their streams, by digest, within a quota:
// the oldest are dropped first. It is a convenience for people. Receipts hold
// only digests, so losing an output loses no evidence, and nothing is synced:
// Open proves what it reads.
//
//	outputs/<sha256>         one stream
//	outputs/.spool-<random>  a stream that is being written
type Outputs struct {
	dir   string
	quota int64
	now   func() time.Time

	mu   sync.Mutex
	kept map[string]kept
	sum  int64
}

type kept struct {
	size int64
	used time.Time
}

// OpenOutputs opens the store at dir, with mode 0700, and drops what exceeds
// quota bytes. Only the holder of the lane's lock may: spool files that a kill
// left are removed.
func OpenOutputs(dir string, quota int64, now func() time.Time) (*Outputs, error) {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open outputs: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open outputs: %w", err)
	}
	o := &Outputs{dir: dir, quota: quota, now: now, kept: map[string]kept{}}
	for _, n := range names {
		if !seal.ValidDigest(n.Name()) {
			if err := os.Remove(filepath.Join(dir, n.Name())); err != nil {
				return nil, fmt.Errorf("open outputs: %w", err)
			}
			continue
		}
		info, err := n.Info()
		if err != nil {
			return nil, fmt.Errorf("open outputs: %w", err)
		}
		o.add(n.Name(), info.Size(), info.ModTime())
	}
	return o, o.drop("")
}

func (o *Outputs) add(name string, size int64, used time.Time) {
	if old, ok := o.kept[name]; ok {
		o.sum -= old.size + perOutput
	}
	o.kept[name] = kept{size, used}
	o.sum += size + perOutput
}

// drop removes the oldest outputs until the quota holds; never except.
func (o *Outputs) drop(except string) error {
	if o.sum <= o.quota {
		return nil
	}
	names := make([]string, 0, len(o.kept))
	for n := range o.kept {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(o.kept[a].used.Compare(o.kept[b].used), cmp.Compare(a, b))
	})
	for _, n := range names {
		if o.sum <= o.quota {
			break
		}
		if n == except {
			continue
		}
		if err := os.Remove(filepath.Join(o.dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("drop output: %w", err)
		}
		o.sum -= o.kept[n].size + perOutput
		delete(o.kept, n)
	}
	return nil
}

// Output is one stream while it is written. It is for one goroutine.
type Output struct {
	o     *Outputs
	f     *os.File
	h     hash.Hash
	bytes int64
}

// Dir is where the outputs lie, for OpenOutput.
func (o *Outputs) Dir() string { return o.dir }

// Writer begins an output. The caller must Commit or Discard it, and bounds
// what it writes.
func (o *Outputs) Writer() (*Output, error) {
	f, err := os.CreateTemp(o.dir, ".spool-")
	if err != nil {
		return nil, fmt.Errorf("begin output: %w", err)
	}
	return &Output{o: o, f: f, h: sha256.New()}, nil
}

// Write appends p to the spool file.
func (w *Output) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.h.Write(p[:n])
	w.bytes += int64(n)
	return n, err
}

// Join appends what part holds and discards it.
func (w *Output) Join(part *Output) error {
	_, err := part.f.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(w, part.f)
	}
	if err != nil {
		return fmt.Errorf("join outputs: %w", err)
	}
	return part.Discard()
}

// Commit keeps the output and returns its digest and size in bytes. After an
// error it is discarded.
func (w *Output) Commit() (sha string, size int64, err error) {
	sha = hex.EncodeToString(w.h.Sum(nil))
	if err := w.f.Close(); err != nil {
		return "", 0, errors.Join(fmt.Errorf("keep output: %w", err), os.Remove(w.f.Name()))
	}
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	path := filepath.Join(w.o.dir, sha)
	if err := os.Rename(w.f.Name(), path); err != nil {
		return "", 0, errors.Join(fmt.Errorf("keep output: %w", err), os.Remove(w.f.Name()))
	}
	w.o.add(sha, w.bytes, w.o.now())
	return sha, w.bytes, w.o.drop(sha)
}

// Discard drops the output. After Commit it does nothing.
func (w *Output) Discard() error {
	if err := w.f.Close(); errors.Is(err, fs.ErrClosed) {
		return nil
	}
	if err := os.Remove(w.f.Name()); err != nil {
		return fmt.Errorf("discard output: %w", err)
	}
	return nil
}

// OpenOutput opens a kept output of the store at dir; it needs no lock. Its
// last Read fails with ErrDamaged instead of io.EOF if the bytes were not
// those of the name. The error is fs.ErrNotExist when it was dropped.
func OpenOutput(dir, sha string) (io.ReadCloser, error) {
	if !seal.ValidDigest(sha) {
		return nil, fmt.Errorf("open output: %q is no digest", sha)
	}
	f, err := os.Open(filepath.Join(dir, sha))
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	return &proven{f, sha256.New(), sha}, nil
}

type proven struct {
	*os.File
	h   hash.Hash
	sha string
}

func (p *proven) Read(b []byte) (int, error) {
	n, err := p.File.Read(b)
	p.h.Write(b[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(p.h.Sum(nil)) != p.sha {
		return n, fmt.Errorf("output %s: %w", p.sha, ErrDamaged)
	}
	return n, err
}

// WriteTo is hidden, so that io.Copy reads through Read.
func (p *proven) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{p})
}
