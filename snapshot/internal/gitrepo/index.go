package gitrepo

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the checksum that git chose for this file
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"
)

// MaxIndexBytes is the longest index that is read.
const MaxIndexBytes = 64 << 20

// Shared prefixes (version 4) can make names much longer than the file.
const (
	maxNameBytes  = 1 << 12
	maxNamesBytes = 2 * MaxIndexBytes
)

// ErrIndex means that the index is not one that can be read in full.
var ErrIndex = errors.New("the git index cannot be read")

// Index is the sorted list of tracked paths. The nil Index tracks nothing.
type Index struct {
	entries []entry
}

type entry struct {
	name    string
	gitlink bool
}

// Index reads the list of tracked files. A repository without one tracks nothing.
func (r *Repo) Index() (*Index, error) {
	data, err := r.own.ReadFile("index", MaxIndexBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return new(Index), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIndex, err)
	}
	return ParseIndex(data)
}

// Has says whether the file path is tracked.
func (x *Index) Has(path string) bool {
	i, found := x.find(path)
	return found && !x.entries[i].gitlink
}

// HasBelow says whether a tracked file lies below the folder dir.
func (x *Index) HasBelow(dir string) bool {
	i, _ := x.find(dir + "/")
	return x != nil && i < len(x.entries) && strings.HasPrefix(x.entries[i].name, dir+"/")
}

// IsSubmodule says whether path is tracked as another repository's commit.
func (x *Index) IsSubmodule(path string) bool {
	i, found := x.find(path)
	return found && x.entries[i].gitlink
}

func (x *Index) find(path string) (int, bool) {
	if x == nil {
		return 0, false
	}
	return sort.Find(len(x.entries), func(i int) int { return strings.Compare(path, x.entries[i].name) })
}

// ParseIndex parses an index of version 2, 3 or 4 with SHA-1 or SHA-256 ids. Its
// checksum must hold (or be all zero, as git writes it under index.skipHash), and
// its names must be sorted. An extension that git calls mandatory is an error,
// except the one of a sparse index, whose folders are no files: a split index
// keeps names elsewhere.
func ParseIndex(data []byte) (*Index, error) {
	if len(data) < 12 || string(data[:4]) != "DIRC" {
		return nil, fmt.Errorf("%w: no signature", ErrIndex)
	}
	sum1 := sha1.Sum(cut(data, sha1.Size)) //nolint:gosec // see the import
	if bytes.HasSuffix(data, sum1[:]) {
		return parseIndex(data[:len(data)-sha1.Size], sha1.Size)
	}
	sum2 := sha256.Sum256(cut(data, sha256.Size))
	if bytes.HasSuffix(data, sum2[:]) {
		return parseIndex(data[:len(data)-sha256.Size], sha256.Size)
	}
	if !bytes.HasSuffix(data, make([]byte, sha1.Size)) {
		return nil, fmt.Errorf("%w: its checksum does not hold", ErrIndex)
	}
	x, err := parseIndex(cut(data, sha1.Size), sha1.Size)
	if err != nil && bytes.HasSuffix(data, make([]byte, sha256.Size)) {
		return parseIndex(cut(data, sha256.Size), sha256.Size)
	}
	return x, err
}

func cut(data []byte, n int) []byte { return data[:max(0, len(data)-n)] }

// parseIndex parses data without its checksum. Entry: 40 bytes of stat data (the
// mode at 24), the id, 2 bytes of flags (bit 14: 2 more), the name.
func parseIndex(data []byte, idBytes int) (*Index, error) {
	if len(data) < 12 {
		return nil, fmt.Errorf("%w: it ends early", ErrIndex)
	}
	version, count := binary.BigEndian.Uint32(data[4:]), int64(binary.BigEndian.Uint32(data[8:]))
	if version < 2 || version > 4 {
		return nil, fmt.Errorf("%w: version %d is unknown", ErrIndex, version)
	}
	fixed := 40 + idBytes + 2
	if count > int64(len(data)/fixed) {
		return nil, fmt.Errorf("%w: it says %d entries and has no room for them", ErrIndex, count)
	}
	p := indexParser{text: string(data), at: 12, version: version, fixed: fixed}
	x := &Index{entries: make([]entry, 0, count)}
	last := ""
	for range count {
		e, folder, err := p.entry(last)
		if err != nil {
			return nil, err
		}
		if e.name < last || e.name == "" {
			return nil, fmt.Errorf("%w: its names are not sorted", ErrIndex)
		}
		last = e.name
		if !folder {
			x.entries = append(x.entries, e)
		}
	}
	return x, p.extensions()
}

type indexParser struct {
	text    string
	at      int
	version uint32
	fixed   int // bytes of an entry before its name, without extended flags
	names   int // bytes of names made so far
}

// entry parses one entry after the one named last; folder is true for a folder
// of a sparse index.
func (p *indexParser) entry(last string) (e entry, folder bool, err error) {
	start := p.at
	if len(p.text)-start < p.fixed {
		return e, false, fmt.Errorf("%w: an entry ends early", ErrIndex)
	}
	mode := be32(p.text[start+24:])
	e.gitlink = mode&0o170000 == 0o160000
	folder = mode&0o170000 == 0o040000
	flags := be16(p.text[start+p.fixed-2:])
	p.at += p.fixed
	if flags&0x4000 != 0 && p.version >= 3 {
		p.at += 2
	}
	prefix := ""
	if p.version == 4 {
		strip, err := p.varint()
		if err != nil || strip > uint64(len(last)) {
			return e, false, fmt.Errorf("%w: a shared name is malformed", ErrIndex)
		}
		prefix = last[:len(last)-int(strip)]
	}
	if p.at > len(p.text) {
		return e, false, fmt.Errorf("%w: an entry ends early", ErrIndex)
	}
	end := strings.IndexByte(p.text[p.at:], 0)
	if end < 0 {
		return e, false, fmt.Errorf("%w: a name does not end", ErrIndex)
	}
	name := p.text[p.at : p.at+end]
	p.at += end + 1
	if p.version == 4 {
		p.names += len(prefix) + len(name)
		if len(prefix)+len(name) > maxNameBytes || p.names > maxNamesBytes {
			return e, false, fmt.Errorf("%w: its names are too long", ErrIndex)
		}
		e.name = prefix + name
		return e, folder, nil
	}
	e.name = name
	p.at = start + (p.at-1-start)/8*8 + 8 // 1 to 8 NULs up to a multiple of 8
	if p.at > len(p.text) {
		return e, false, fmt.Errorf("%w: an entry ends early", ErrIndex)
	}
	return e, folder, nil
}

// varint reads git's offset encoding: 7 bits a byte, highest first, plus one for
// each continued byte.
func (p *indexParser) varint() (uint64, error) {
	var v uint64
	for n := 0; n < 5 && p.at < len(p.text); n++ {
		c := p.text[p.at]
		p.at++
		v |= uint64(c & 0x7f)
		if c&0x80 == 0 {
			return v, nil
		}
		v = (v + 1) << 7
	}
	return 0, ErrIndex
}

// extensions demands that all that follows is optional.
func (p *indexParser) extensions() error {
	for rest := p.text[p.at:]; len(rest) > 0; {
		if len(rest) < 8 {
			return fmt.Errorf("%w: trailing bytes", ErrIndex)
		}
		name, size := rest[:4], int64(be32(rest[4:]))
		if size > int64(len(rest)-8) {
			return fmt.Errorf("%w: the extension %q ends early", ErrIndex, name)
		}
		if (name[0] < 'A' || name[0] > 'Z') && name != "sdir" {
			return fmt.Errorf("%w: it needs the extension %q", ErrIndex, name)
		}
		rest = rest[8+size:]
	}
	return nil
}

func be32(s string) uint32 {
	return uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3])
}

func be16(s string) uint16 { return uint16(s[0])<<8 | uint16(s[1]) }
