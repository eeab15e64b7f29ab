package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"striatum/internal/beneath"
	"striatum/internal/durable"
)

// memory is what is remembered about the files of one worktree. Every entry was
// hashed under a read lease that nobody disturbed, of a file whose change time
// was settled by then: older than any change that could have come later. So an
// entry that is equal in device, inode, size, mode and both times has the bytes
// that were hashed.
//
// The file: the line magic, the boot id, the id of the frozen tree that was made
// last (32 bytes, zero for none), the device, the number of entries, the entries,
// and the SHA-256 of all that. Whatever does not fit is forgotten.
type memory struct {
	file string
	boot string
	dev  uint64
	tree string // the last frozen tree; its files may be linked to
	now  int64

	mu      sync.Mutex
	entries map[string]remembered
	seen    map[string]remembered // entries of this snapshot
	dirty   bool
}

// remembered is one entry. The device is the worktree's.
type remembered struct {
	ino          uint64
	size         int64
	mtime, ctime int64
	mode         mode
	perm         uint32
	sum, blob    digest
}

const (
	memoryMagic    = "striatum stat 1\n"
	maxMemoryBytes = 256 << 20
	// settled is how much older than the reading a change time must be: more than
	// the coarsest clock of a file system that LocalFS accepts (one second).
	settled = 2 * time.Second
)

// memory opens what is remembered about the worktree root, nil where nothing may
// be.
func (s *Store) memory(root *beneath.Dir, now time.Time) *memory {
	st, err := root.Stat()
	boot := bootID()
	if err != nil || !root.LocalFS() || boot == "" {
		return nil
	}
	m := &memory{
		file: filepath.Join(s.statDir(), fmt.Sprintf("%x-%x", st.Dev, st.Ino)),
		boot: boot, dev: st.Dev, now: now.UnixNano(),
		entries: map[string]remembered{}, seen: map[string]remembered{},
	}
	if info, err := os.Stat(m.file); err == nil && info.Size() <= maxMemoryBytes {
		if data, err := os.ReadFile(m.file); err == nil {
			m.load(data)
		}
	}
	return m
}

// wants says whether a file in the state st may be remembered.
func (m *memory) wants(st beneath.Stat) bool {
	return m != nil && st.Dev == m.dev && st.CtimeNs < m.now-int64(settled)
}

func (m *memory) get(path string, st beneath.Stat) (remembered, bool) {
	if m == nil || st.Kind != beneath.Regular || st.Dev != m.dev {
		return remembered{}, false
	}
	m.mu.Lock()
	e, ok := m.entries[path]
	m.mu.Unlock()
	return e, ok && e.ino == st.Ino && e.size == st.Size && e.mtime == st.MtimeNs && e.ctime == st.CtimeNs && e.perm == st.Perm
}

// recall fills n from memory.
func (m *memory) recall(path string, st beneath.Stat, n *node) bool {
	e, ok := m.get(path, st)
	if !ok {
		return false
	}
	n.mode, n.size, n.sum, n.blob = e.mode, e.size, e.sum, e.blob
	m.mu.Lock()
	m.seen[path] = e
	m.mu.Unlock()
	return true
}

// predict returns the content that the file probably has, if the previous frozen
// tree holds a file of just that content and mode at path.
func (m *memory) predict(path string, st beneath.Stat, o *frozen) (digest, bool) {
	if m == nil || o == nil || o.prev == nil {
		return digest{}, false
	}
	e, ok := m.get(path, st)
	if !ok {
		return digest{}, false
	}
	c, have := o.sums[Quote(path)]
	return c.sum, have && c == content{e.mode, e.sum}
}

func (m *memory) remember(path string, st beneath.Stat, n *node) {
	e := remembered{
		ino: st.Ino, size: st.Size, mtime: st.MtimeNs, ctime: st.CtimeNs,
		mode: n.mode, perm: st.Perm, sum: n.sum, blob: n.blob,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[path] = e
	m.dirty = m.dirty || m.entries[path] != e
}

func (m *memory) forget(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, path)
}

// save keeps the entries of this snapshot. It is a hint, so it is not synced; the
// checksum finds what a crash made of it.
func (m *memory) save(tree string, frozen bool) error {
	if m == nil {
		return nil
	}
	if frozen && m.tree != tree {
		m.tree, m.dirty = tree, true
	}
	if !m.dirty && len(m.seen) == len(m.entries) {
		return nil
	}
	data := m.encode()
	if int64(len(data)) > maxMemoryBytes {
		return nil
	}
	err := durable.MkdirAll(filepath.Dir(m.file), 0o700)
	if err != nil {
		return fmt.Errorf("remember the worktree's state: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(m.file), durable.TempPrefix)
	if err != nil {
		return fmt.Errorf("remember the worktree's state: %w", err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), m.file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error counts
		return fmt.Errorf("remember the worktree's state: %w", err)
	}
	return nil
}

func (m *memory) encode() []byte {
	out := make([]byte, 0, 200*len(m.seen)+256)
	out = append(out, memoryMagic...)
	out = appendString(out, m.boot)
	var tree digest
	if _, err := hex.Decode(tree[:], []byte(m.tree)); err != nil {
		tree = digest{}
	}
	out = append(out, tree[:]...)
	out = binary.BigEndian.AppendUint64(out, m.dev)
	out = binary.BigEndian.AppendUint64(out, uint64(len(m.seen)))
	for path, e := range m.seen {
		out = appendString(out, path)
		for _, v := range []uint64{e.ino, uint64(e.size), uint64(e.mtime), uint64(e.ctime), uint64(e.mode)<<32 | uint64(e.perm)} {
			out = binary.BigEndian.AppendUint64(out, v)
		}
		out = append(out, e.sum[:]...)
		out = append(out, e.blob[:]...)
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

func appendString(out []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(out, uint32(len(s))), s...)
}

// load reads what encode wrote; anything else leaves m empty.
func (m *memory) load(data []byte) {
	body := len(data) - sha256.Size
	if body < 0 || sha256.Sum256(data[:body]) != digest(data[body:]) {
		return
	}
	r := reader{s: string(data[:body])}
	if r.take(len(memoryMagic)) != memoryMagic || r.str() != m.boot {
		return
	}
	tree := r.take(sha256.Size)
	if r.u64() != m.dev {
		return
	}
	if tree != string(make([]byte, sha256.Size)) {
		m.tree = hex.EncodeToString([]byte(tree))
	}
	count := r.u64()
	entries := make(map[string]remembered, min(count, uint64(len(data)/100)))
	for range count {
		path := r.str()
		e := remembered{ino: r.u64(), size: int64(r.u64()), mtime: int64(r.u64()), ctime: int64(r.u64())}
		bits := r.u64()
		e.mode, e.perm = mode(bits>>32), uint32(bits)
		copy(e.sum[:], r.take(sha256.Size))
		copy(e.blob[:], r.take(sha256.Size))
		if r.short {
			return
		}
		entries[path] = e
	}
	m.entries = entries
}

// reader takes fields from s; short says that there were too few.
type reader struct {
	s     string
	short bool
}

func (r *reader) take(n int) string {
	if n < 0 || n > len(r.s) {
		r.short, r.s = true, ""
		return ""
	}
	out := r.s[:n]
	r.s = r.s[n:]
	return out
}

func (r *reader) u64() uint64 {
	s := r.take(8)
	if r.short {
		return 0
	}
	return uint64(be(s[:4]))<<32 | uint64(be(s[4:]))
}

func (r *reader) str() string {
	s := r.take(4)
	if r.short {
		return ""
	}
	return r.take(int(be(s)))
}

func be(s string) uint32 {
	return uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3])
}
