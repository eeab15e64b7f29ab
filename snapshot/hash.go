package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"striatum/internal/beneath"
)

const bufferBytes = 256 << 10

// worker holds what one goroutine reuses from file to file.
type worker struct {
	buf       []byte
	sum, blob hash.Hash
}

func newWorker() *worker {
	return &worker{buf: make([]byte, bufferBytes), sum: sha256.New(), blob: sha256.New()}
}

// errShort means that a file did not have the length that it was said to have.
var errShort = errors.New("the length differs")

// content hashes exactly size bytes of r into n, and writes them to dst unless
// it is nil.
func (w *worker) content(r io.Reader, size int64, dst io.Writer, n *node) error {
	w.sum.Reset()
	w.blob.Reset()
	var header [32]byte
	w.blob.Write(objectHeader(header[:0], "blob", size))
	for left := size; left > 0; {
		got, err := r.Read(w.buf[:min(left, bufferBytes)])
		if errors.Is(err, io.EOF) && got == 0 {
			return errShort
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		w.sum.Write(w.buf[:got])
		w.blob.Write(w.buf[:got])
		if dst != nil {
			if _, err := dst.Write(w.buf[:got]); err != nil {
				return err
			}
		}
		left -= int64(got)
	}
	n.size = size
	w.sum.Sum(n.sum[:0])
	w.blob.Sum(n.blob[:0])
	return nil
}

// link fills n for a link to target.
func (n *node) link(target string) {
	n.mode, n.target, n.size = modeLink, target, int64(len(target))
	n.sum = sha256.Sum256([]byte(target))
	n.blob = objectID("blob", []byte(target))
}

// fileTries is how often one file that changes while it is read is read again
// before the whole tree is begun anew.
const fileTries = 3

// file takes the regular file n of the folder fo.
func (w *walker) file(wk *worker, fo *folder, n *node) error {
	path := fo.join(n.name)
	if w.reuse {
		st, err := fo.src.Lstat(n.name)
		if err == nil && w.memory.recall(path, st, n) {
			return w.count(path, st.Size)
		}
	}
	f, err := fo.src.File(n.name)
	if err != nil {
		return w.vanished(path, err)
	}
	defer f.Close()
	for try := range fileTries {
		st, err := f.Stat()
		if err != nil {
			return fmt.Errorf("read %s: %w", Quote(path), err)
		}
		if st.Kind == beneath.Directory {
			return &changedError{path: path}
		}
		if st.Kind != beneath.Regular {
			return w.irregular(path, st.Kind)
		}
		if st.Size > w.opt.Limits.FileBytes {
			return w.tooLong(path, st.Size)
		}
		if try == 0 {
			if err := w.count(path, st.Size); err != nil {
				return err
			}
		}
		same, err := w.readOnce(wk, fo, f, n, path, st)
		if err != nil {
			return err
		}
		if same {
			return nil
		}
		if err := f.Reset(false); err != nil {
			return fmt.Errorf("read %s: %w", Quote(path), err)
		}
	}
	return &changedError{path: path}
}

// readOnce reads f from its beginning, as st describes it, and copies it where a
// copy is due. same is false if it changed meanwhile.
func (w *walker) readOnce(wk *worker, fo *folder, f *beneath.File, n *node, path string, st beneath.Stat) (same bool, err error) {
	n.mode = modeFile
	if st.Perm&0o100 != 0 {
		n.mode = modeExec
	}
	leased := w.memory.wants(st) && f.Lease()
	var dst *beneath.File
	n.linked = false
	predicted, known := w.memory.predict(path, st, w.out)
	if w.out != nil && !known {
		if dst, err = fo.create(n); err != nil {
			return false, err
		}
		defer func() {
			if cerr := dst.Close(); err == nil && cerr != nil {
				err = fmt.Errorf("copy %s: %w", Quote(path), cerr)
			}
		}()
	}
	err = wk.content(f, st.Size, writerOrNil(dst), n)
	if errors.Is(err, errShort) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", Quote(path), err)
	}
	held := leased && f.LeaseHeld()
	after, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("read %s: %w", Quote(path), err)
	}
	if after != st {
		return false, nil
	}
	if known && n.sum != predicted {
		w.memory.forget(path)
		return false, nil // the next try copies it
	}
	n.linked = known
	if held {
		w.memory.remember(path, st, n)
	}
	if dst != nil {
		err = fo.settle(n)
	}
	return true, err
}

// writerOrNil keeps a nil file a nil interface.
func writerOrNil(f *beneath.File) io.Writer {
	if f == nil {
		return nil
	}
	return f
}
