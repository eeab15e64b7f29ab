package gitrepo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strings"

	"striatum/internal/beneath"
)

const (
	maxPacks   = 4096
	maxChain   = 4096     // differences, one upon the other; git makes at most 4,095
	cacheBytes = 32 << 20 // of bases kept for the next object
)

// Types of packed objects beyond Kind.
const (
	offsetDelta = 6
	refDelta    = 7
)

// pack is an open pack with its index (version 2): "\377tOc", the version, 256
// counts, the sorted ids, a checksum and an offset of 31 bits for each, offsets of
// 64 bits for those that need them.
type pack struct {
	name    string
	idx     *beneath.File
	data    *beneath.File
	size    int64
	idBytes int64
	count   int64
	fanout  [256]uint32
}

// openPacks opens all packs on first use; again opens those that came since.
func (r *Repo) openPacks(idBytes int, again bool) (err error) {
	if r.packs != nil && !again {
		return nil
	}
	if r.packs == nil {
		r.packs = []*pack{}
	}
	dir, err := r.common.Dir("objects/pack")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	entries, err := dir.Entries(func(n int) error {
		if n > 16*maxPacks {
			return fmt.Errorf("%w: it has more than %d packs", ErrObject, maxPacks)
		}
		return nil
	})
	if err != nil {
		return err
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	for _, e := range entries {
		name, found := strings.CutSuffix(e.Name, ".idx")
		if !found || slices.ContainsFunc(r.packs, func(p *pack) bool { return p.name == name }) {
			continue
		}
		if len(r.packs) == maxPacks {
			return fmt.Errorf("%w: it has more than %d packs", ErrObject, maxPacks)
		}
		p, err := openPack(dir, name, int64(idBytes))
		if errors.Is(err, fs.ErrNotExist) {
			continue // an index without its pack, or a pack that was just made into another
		}
		if err != nil {
			return fmt.Errorf("%w: pack %q: %w", ErrObject, name, err)
		}
		r.packs = append(r.packs, p)
	}
	return nil
}

func openPack(dir *beneath.Dir, name string, idBytes int64) (_ *pack, err error) {
	p := &pack{name: name, idBytes: idBytes}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.idx, err = dir.File(name + ".idx"); err != nil {
		return nil, err
	}
	if p.data, err = dir.File(name + ".pack"); err != nil {
		return nil, err
	}
	idx, err := p.idx.Stat()
	if err != nil {
		return nil, err
	}
	data, err := p.data.Stat()
	if err != nil {
		return nil, err
	}
	if idx.Kind != beneath.Regular || data.Kind != beneath.Regular {
		return nil, errors.New("it is no file")
	}
	p.size = data.Size
	var head [8 + 4*256]byte
	if _, err := p.idx.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	if string(head[:8]) != "\xfftOc\x00\x00\x00\x02" {
		return nil, fmt.Errorf("%w: its index is not of version 2", ErrFormat)
	}
	for i := range p.fanout {
		p.fanout[i] = binary.BigEndian.Uint32(head[8+4*i:])
		if i > 0 && p.fanout[i] < p.fanout[i-1] {
			return nil, errors.New("its index is malformed")
		}
	}
	p.count = int64(p.fanout[255])
	if idx.Size < int64(len(head))+p.count*(p.idBytes+8)+2*p.idBytes {
		return nil, errors.New("its index ends early")
	}
	return p, nil
}

func (p *pack) close() error {
	var errs []error
	for _, f := range []*beneath.File{p.idx, p.data} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// find returns the offset of the object id; fs.ErrNotExist if it is not here.
func (p *pack) find(id ID) (int64, error) {
	if int64(len(id)) != p.idBytes {
		return 0, fs.ErrNotExist
	}
	const ids = 8 + 4*256
	lo, hi := int64(0), int64(p.fanout[id[0]])
	if id[0] > 0 {
		lo = int64(p.fanout[id[0]-1])
	}
	buf := make([]byte, p.idBytes)
	for lo < hi {
		mid := (lo + hi) / 2
		if _, err := p.idx.ReadAt(buf, ids+mid*p.idBytes); err != nil {
			return 0, err
		}
		switch strings.Compare(string(buf), string(id)) {
		case 0:
			return p.offset(mid)
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return 0, fs.ErrNotExist
}

func (p *pack) offset(i int64) (int64, error) {
	small := int64(8+4*256) + p.count*(p.idBytes+4)
	var b [8]byte
	if _, err := p.idx.ReadAt(b[:4], small+4*i); err != nil {
		return 0, err
	}
	off := int64(binary.BigEndian.Uint32(b[:4]))
	if off&(1<<31) == 0 {
		return off, nil
	}
	if _, err := p.idx.ReadAt(b[:], small+4*p.count+8*(off&(1<<31-1))); err != nil {
		return 0, err
	}
	wide := binary.BigEndian.Uint64(b[:])
	if wide >= 1<<62 {
		return 0, fmt.Errorf("%w: pack %q: an offset is malformed", ErrObject, p.name)
	}
	return int64(wide), nil
}

// packed opens the object id in whichever pack has it.
func (r *Repo) packed(ctx context.Context, id ID, again bool) (*Object, error) {
	if err := r.openPacks(len(id), again); err != nil {
		return nil, err
	}
	for i, p := range r.packs {
		off, err := p.find(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: pack %q: %w", ErrObject, p.name, err)
		}
		r.packs[0], r.packs[i] = p, r.packs[0] // the next one is often in the same pack
		e, err := p.entry(off)
		if err != nil {
			return nil, fmt.Errorf("%w: object %s in pack %q: %w", ErrObject, id, p.name, err)
		}
		if e.kind <= uint8(KindTag) {
			z, err := zlib.NewReader(e.stream)
			if err != nil {
				return nil, fmt.Errorf("%w: object %s in pack %q: %w", ErrObject, id, p.name, err)
			}
			if err := r.spend(e.size); err != nil {
				return nil, err
			}
			return newObject(id, Kind(e.kind), e.size, z, nothing), nil
		}
		kind, body, err := r.resolveDelta(ctx, p, e)
		if err != nil {
			return nil, fmt.Errorf("object %s in pack %q: %w", id, p.name, err)
		}
		return newObject(id, kind, int64(len(body)), bytes.NewReader(body), nothing), nil
	}
	return nil, fs.ErrNotExist
}

func nothing() error { return nil }

// packEntry is one object of a pack, with stream at its compressed bytes.
type packEntry struct {
	off    int64
	kind   uint8
	size   int64 // of what is compressed
	base   int64 // of an offsetDelta
	ref    ID    // of a refDelta
	stream *bufio.Reader
}

// entry reads the header at off: three bits of type and a size of 4 and then 7
// bits a byte, lowest first; then what a difference is based on.
func (p *pack) entry(off int64) (packEntry, error) {
	e := packEntry{off: off}
	if off < 12 || off >= p.size {
		return e, errors.New("its offset lies outside")
	}
	e.stream = bufio.NewReaderSize(io.NewSectionReader(p.data, off, p.size-off), 8<<10)
	c, err := e.stream.ReadByte()
	if err != nil {
		return e, err
	}
	e.kind, e.size = c>>4&7, int64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if shift > 50 {
			return e, errors.New("its size is malformed")
		}
		if c, err = e.stream.ReadByte(); err != nil {
			return e, err
		}
		e.size |= int64(c&0x7f) << shift
	}
	switch e.kind {
	case offsetDelta:
		back, err := readOffset(e.stream)
		if err != nil || back <= 0 || back >= off {
			return e, errors.Join(errors.New("its base is malformed"), err)
		}
		e.base = off - back
	case refDelta:
		ref := make([]byte, p.idBytes)
		if _, err := io.ReadFull(e.stream, ref); err != nil {
			return e, err
		}
		e.ref = ID(ref)
	case 0, 5:
		return e, errors.New("its type is unknown")
	}
	return e, nil
}

// readOffset reads 7 bits a byte, highest first, plus one for each continued.
func readOffset(r io.ByteReader) (int64, error) {
	var v int64
	for range 9 {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		v |= int64(c & 0x7f)
		if c&0x80 == 0 {
			return v, nil
		}
		v = (v + 1) << 7
	}
	return 0, errors.New("too long")
}
