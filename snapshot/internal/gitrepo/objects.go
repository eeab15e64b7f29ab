package gitrepo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/pjbgf/sha1cd"

	"striatum/internal/beneath"
)

// Kind is the type of an object.
type Kind uint8

// The kinds of object, numbered as in a pack.
const (
	_ Kind = iota
	KindCommit
	KindTree
	KindBlob
	KindTag
)

// String returns the name that the object's header has.
func (k Kind) String() string {
	switch k {
	case KindCommit:
		return "commit"
	case KindTree:
		return "tree"
	case KindBlob:
		return "blob"
	case KindTag:
		return "tag"
	}
	return "unknown"
}

var (
	// ErrObject means that an object is malformed, or that its bytes do not have
	// its id.
	ErrObject = errors.New("the repository is damaged")
	// ErrObjectMissing means that the repository does not hold an object itself.
	ErrObjectMissing = errors.New("the repository is not complete")
	// ErrObjectSize means that an object is larger than is read, or that all of
	// them together take more work than is given to them.
	ErrObjectSize = errors.New("an object is too large")
	// ErrFormat means that the repository is kept in a form that is not read.
	ErrFormat = errors.New("the repository has a form that is not read")
)

// MaxDeltaBytes is the largest object that is read if it, or what it was made
// from, is stored as a difference: such objects are put together in memory.
const MaxDeltaBytes = 128 << 20

// Object is an open object. Read returns its bytes; Verify tells afterwards
// whether they have the object's id.
type Object struct {
	Kind Kind
	Size int64

	id   ID
	r    io.Reader
	left int64
	sum  hash.Hash
	done func() error
}

func newObject(id ID, kind Kind, size int64, r io.Reader, done func() error) *Object {
	o := &Object{Kind: kind, Size: size, id: id, r: r, left: size, done: done}
	o.sum = sha1cd.New() // finds content that was made to collide, as git does
	if len(id) == sha256.Size {
		o.sum = sha256.New()
	}
	fmt.Fprintf(o.sum, "%s %d\x00", kind, size)
	return o
}

func (o *Object) Read(p []byte) (int, error) {
	if o.left == 0 {
		return 0, io.EOF
	}
	n, err := o.r.Read(p[:min(int64(len(p)), o.left)])
	o.sum.Write(p[:n])
	o.left -= int64(n)
	if errors.Is(err, io.EOF) && o.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("%w: object %s ends early: %w", ErrObject, o.id, err)
	}
	return n, nil
}

// Verify returns ErrObject unless the bytes were read to their end, nothing
// follows, and they have the object's id.
func (o *Object) Verify() error {
	var more [1]byte
	if n, err := io.ReadFull(o.r, more[:]); o.left != 0 || n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: object %s does not end where it says", ErrObject, o.id)
	}
	var sum []byte
	var collides bool
	if cd, ok := o.sum.(sha1cd.CollisionResistantHash); ok {
		sum, collides = cd.CollisionResistantSum(nil)
	} else {
		sum = o.sum.Sum(nil)
	}
	if collides || ID(sum) != o.id {
		return fmt.Errorf("%w: the bytes of object %s do not have this id", ErrObject, o.id)
	}
	return nil
}

// Close releases the object.
func (o *Object) Close() error { return o.done() }

// Open opens the object id, which must be of the kind want.
func (r *Repo) Open(ctx context.Context, id ID, want Kind) (*Object, error) {
	o, err := r.open(ctx, id)
	if err != nil {
		return nil, err
	}
	if o.Kind != want {
		return nil, errors.Join(fmt.Errorf("%w: object %s is a %s and should be a %s", ErrObject, id, o.Kind, want), o.Close())
	}
	return o, nil
}

func (r *Repo) open(ctx context.Context, id ID) (*Object, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for try := range 2 { // a repack may have moved it meanwhile
		o, err := r.loose(id)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return o, err
		}
		o, err = r.packed(ctx, id, try > 0)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return o, err
		}
	}
	why := "it may be a partial clone"
	if _, err := r.common.ReadFile("objects/info/alternates", maxPointerBytes); !errors.Is(err, fs.ErrNotExist) {
		why = "it borrows objects from another repository (objects/info/alternates), which is not read"
	}
	return nil, fmt.Errorf("%w: object %s is missing: %s", ErrObjectMissing, id, why)
}

// ReadAll returns the whole object id, which must be of the kind want and have at
// most limit bytes.
func (r *Repo) ReadAll(ctx context.Context, id ID, want Kind, limit int64) ([]byte, error) {
	kind, body, err := r.read(ctx, id, limit)
	if err == nil && kind != want {
		err = fmt.Errorf("%w: object %s is a %s and should be a %s", ErrObject, id, kind, want)
	}
	return body, err
}

func (r *Repo) read(ctx context.Context, id ID, limit int64) (kind Kind, body []byte, err error) {
	o, err := r.open(ctx, id)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if o.Size > limit {
		return 0, nil, fmt.Errorf("%w: %s %s has %d bytes, at most %d are read", ErrObjectSize, o.Kind, id, o.Size, limit)
	}
	body, err = io.ReadAll(o)
	if err == nil {
		err = o.Verify()
	}
	return o.Kind, body, err
}

// spend takes n bytes from what may be worked on.
func (r *Repo) spend(n int64) error {
	if n > r.Work {
		return fmt.Errorf("%w: reading takes more work than any repository that git made", ErrObjectSize)
	}
	r.Work -= n
	return nil
}

// loose opens objects/xx/…: a zlib stream of "kind size", a NUL, and the bytes.
func (r *Repo) loose(id ID) (_ *Object, err error) {
	name := id.String()
	f, err := r.common.File("objects/" + name[:2] + "/" + name[2:])
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if st, err := f.Stat(); err != nil || st.Kind != beneath.Regular {
		return nil, errors.Join(fmt.Errorf("%w: object %s is no file", ErrObject, id), err)
	}
	z, err := zlib.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%w: object %s: %w", ErrObject, id, err)
	}
	kind, size, err := looseHeader(z)
	if err != nil {
		return nil, fmt.Errorf("%w: object %s: %w", ErrObject, id, err)
	}
	if err := r.spend(size); err != nil {
		return nil, err
	}
	return newObject(id, kind, size, z, f.Close), nil
}

func looseHeader(r io.Reader) (Kind, int64, error) {
	var head []byte
	var one [1]byte
	for len(head) < 32 {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return 0, 0, err
		}
		if one[0] != 0 {
			head = append(head, one[0])
			continue
		}
		name, digits, _ := strings.Cut(string(head), " ")
		size, err := strconv.ParseInt(digits, 10, 63)
		if err != nil || size < 0 {
			return 0, 0, errors.New("its header is malformed")
		}
		for _, k := range []Kind{KindCommit, KindTree, KindBlob, KindTag} {
			if k.String() == name {
				return k, size, nil
			}
		}
		return 0, 0, errors.New("its kind is unknown")
	}
	return 0, 0, errors.New("its header is too long")
}

// TreeEntry is an entry of a git tree. Mode has the bits that git writes; Name is
// what the tree says, whatever that is.
type TreeEntry struct {
	Mode uint32
	Name string
	ID   ID
}

// MaxTreeBytes is the largest tree object that is read.
const MaxTreeBytes = 64 << 20

// Tree returns the entries of the tree id.
func (r *Repo) Tree(ctx context.Context, id ID) ([]TreeEntry, error) {
	body, err := r.ReadAll(ctx, id, KindTree, MaxTreeBytes)
	if err != nil {
		return nil, err
	}
	var out []TreeEntry
	for len(body) > 0 {
		head, rest, found := bytes.Cut(body, []byte{0})
		digits, name, spaced := strings.Cut(string(head), " ")
		mode, err := strconv.ParseUint(digits, 8, 32)
		if !found || !spaced || err != nil || len(rest) < len(id) {
			return nil, fmt.Errorf("%w: tree %s is malformed", ErrObject, id)
		}
		out = append(out, TreeEntry{Mode: uint32(mode), Name: name, ID: ID(rest[:len(id)])})
		body = rest[len(id):]
	}
	return out, nil
}

// isFolder says that a folder stands where a file was to be read.
func isFolder(err error) bool {
	return errors.Is(err, beneath.ErrNotRegular) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR)
}
