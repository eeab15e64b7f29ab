package images

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	defaultPackedBytes   = 4 << 30
	defaultUnpackedBytes = 8 << 30
	defaultEntries       = 200_000
	maxNameBytes         = 4000
	maxNameDepth         = 100
	maxPartBytes         = 255 // what file systems allow
	maxTop               = 64
	// maxWindowBytes is how far back a zstd layer may refer, and what unpacking
	// it takes of memory.
	maxWindowBytes = 32 << 20
)

// Limits bound one image. Zero fields: the defaults.
type Limits struct {
	PackedBytes   int64 // of manifests and layers as fetched; 4 GiB
	UnpackedBytes int64 // of the layers' tar streams, and again of the files in them; 8 GiB
	Entries       int64 // of all layers; 200,000
}

func (l Limits) orDefault() Limits {
	return Limits{cmp.Or(l.PackedBytes, defaultPackedBytes), cmp.Or(l.UnpackedBytes, defaultUnpackedBytes), cmp.Or(l.Entries, defaultEntries)}
}

// pack is how a layer is packed.
type pack uint8

const (
	unknown pack = iota
	plainTar
	gzipTar
	zstdTar
)

// packing tells it by the layer's media type.
func packing(mediaType string) pack {
	switch mediaType {
	case "application/vnd.oci.image.layer.v1.tar", "application/vnd.docker.image.rootfs.diff.tar":
		return plainTar
	case "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.docker.image.rootfs.diff.tar.gzip":
		return gzipTar
	case "application/vnd.oci.image.layer.v1.tar+zstd":
		return zstdTar
	}
	return unknown
}

// The names in a layer that say what it hides of those below: of the folder they
// are in, the entry that follows the prefix, or everything.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// topName is what a name directly below / may look like: it becomes a mount.
var topName = regexp.MustCompile(`^[A-Za-z0-9._@+-]{1,64}$`)

// unpack applies layers, lowest first, to the folder root.
func (f *fetch) unpack(ctx context.Context, layers []descriptor, root string) (err error) {
	u := &unpacker{ctx: ctx, limits: f.store.cfg.Limits}
	u.left = budget{u.limits.UnpackedBytes, u.limits.UnpackedBytes, u.limits.Entries}
	if u.root, err = os.OpenRoot(root); err != nil {
		return fmt.Errorf("unpack image: %w", err)
	}
	defer func() { err = errors.Join(err, u.root.Close()) }()
	for i, d := range layers {
		blob, err := f.blob(ctx, d)
		if err != nil {
			return err
		}
		if err := u.layer(blob, packing(d.mediaType), i > 0); err != nil {
			return fmt.Errorf("layer %d (sha256:%s): %w", i+1, d.digest, err)
		}
		if err := os.Remove(blob); err != nil {
			return fmt.Errorf("unpack image: %w", err)
		}
	}
	return u.top()
}

// budget is what an image may still take.
type budget struct{ stream, content, entries int64 }

// unpacker puts the entries of layers below a folder.
type unpacker struct {
	ctx    context.Context
	root   *os.Root
	limits Limits
	left   budget
	folder string // the last folder that was seen to be one, all the way; empty: none
}

// layer applies one layer: first what it hides of the layers below, then what
// it has. Its file was held against its digest.
func (u *unpacker) layer(file string, p pack, above bool) error {
	if above {
		left := u.left
		if err := u.each(file, p, u.hide); err != nil {
			return err
		}
		u.left = left
	}
	return u.each(file, p, u.entry)
}

// each calls do with every entry of a layer.
func (u *unpacker) each(file string, p pack, do func(h *tar.Header, name string, content io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("unpack layer: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	stream, closer, err := unpacked(f, p)
	if err != nil {
		return refuse("it is not packed as it says: %w", err)
	}
	defer closer()
	u.folder = ""
	for in := tar.NewReader(&counted{u, stream}); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return u.broken(err)
		}
		if u.left.entries--; u.left.entries < 0 {
			return refuse("the image has more than %d entries", u.limits.Entries)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name, err := cleanName(h.Name)
		if err != nil {
			return err
		}
		if err := do(h, name, in); err != nil {
			return err
		}
	}
}

// unpacked returns the tar stream of a layer's file.
func unpacked(f io.Reader, p pack) (stream io.Reader, closer func(), err error) {
	switch p {
	case gzipTar:
		z, err := gzip.NewReader(f)
		return z, func() {}, err
	case zstdTar:
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindowBytes), zstd.WithDecoderMaxMemory(maxWindowBytes))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case plainTar:
		return f, func() {}, nil
	case unknown:
	}
	return nil, nil, errors.New("unknown packing")
}

// counted bounds the tar stream and ends with the context.
type counted struct {
	u *unpacker
	r io.Reader
}

func (c *counted) Read(p []byte) (int, error) {
	if cause := context.Cause(c.u.ctx); cause != nil {
		return 0, cause
	}
	n, err := c.r.Read(p)
	if c.u.left.stream -= int64(n); c.u.left.stream < 0 {
		return 0, refuse("it unpacks to more than %d bytes", c.u.limits.UnpackedBytes)
	}
	return n, err
}

// broken says why a layer cannot be read on.
func (u *unpacker) broken(err error) error {
	if cause := context.Cause(u.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, ErrRefused) {
		return err
	}
	return refuse("it cannot be read: %w", err)
}

// cleanName returns the path of an entry, relative to the image's root, without
// what means nothing; "." is the root itself.
func cleanName(name string) (string, error) {
	if name == "" || strings.HasPrefix(name, "/") || len(name) > maxNameBytes || strings.ContainsRune(name, 0) {
		return "", refuse("the name %.300q is empty, absolute or longer than %d bytes", name, maxNameBytes)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." || len(part) > maxPartBytes:
			return "", refuse("the name %.300q leads upwards, or a part of it is longer than %d bytes", name, maxPartBytes)
		}
		parts = append(parts, part)
	}
	if len(parts) > maxNameDepth {
		return "", refuse("the name %.300q is more than %d folders deep", name, maxNameDepth)
	}
	for _, part := range parts[:max(0, len(parts)-1)] {
		if strings.HasPrefix(part, whiteout) {
			return "", refuse("the name %.300q is below what hides an entry", name)
		}
	}
	return path.Join(".", path.Join(parts...)), nil
}

// hide does what an entry says about the layers below.
func (u *unpacker) hide(_ *tar.Header, name string, _ io.Reader) error {
	dir, base := path.Dir(name), path.Base(name)
	hidden, ok := strings.CutPrefix(base, whiteout)
	if !ok {
		return nil
	}
	is, err := u.isFolder(dir)
	if err != nil || !is {
		return err // the layers below have nothing there
	}
	u.folder = ""
	switch {
	case base == opaque:
		d, err := u.root.Open(dir)
		if err != nil {
			return fmt.Errorf("unpack layer: %w", err)
		}
		names, err := d.Readdirnames(-1)
		if err := errors.Join(err, d.Close()); err != nil {
			return fmt.Errorf("unpack layer: %w", err)
		}
		for _, n := range names {
			if err := u.remove(path.Join(dir, n)); err != nil {
				return err
			}
		}
		return nil
	case strings.HasPrefix(base, whiteout+whiteout): // another engine's own notes
		return nil
	case hidden == "" || hidden == "." || hidden == "..":
		return refuse("the name %.300q hides nothing that could be there", name)
	}
	return u.remove(path.Join(dir, hidden))
}

// remove removes what is at name, and what is below it. A link itself is removed.
func (u *unpacker) remove(name string) error {
	u.folder = ""
	if err := u.root.RemoveAll(name); err != nil {
		return fmt.Errorf("unpack layer: %w", err)
	}
	return nil
}

// isFolder reports whether name is a folder, without a link on the way.
func (u *unpacker) isFolder(name string) (bool, error) {
	if name == "." || name == u.folder {
		return true, nil
	}
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		st, err := u.root.Lstat(name[:i])
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("unpack layer: %w", err)
		}
		if !st.IsDir() {
			return false, nil
		}
	}
	u.folder = name
	return true, nil
}

// makeFolder makes the folder name and what is missing above it. What is there
// and is no folder refuses the image.
func (u *unpacker) makeFolder(name string) error {
	is, err := u.isFolder(name)
	if err != nil || is {
		return err
	}
	if st, err := u.root.Lstat(name); err == nil && !st.IsDir() {
		return refuse("an entry is below %.300q, which is no folder but %s", name, st.Mode().Type())
	}
	if err := u.makeFolder(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Mkdir(name, 0o700); err != nil {
		return fmt.Errorf("unpack layer: %w", err)
	}
	if err := u.root.Chmod(name, 0o755); err != nil { // whatever the umask
		return fmt.Errorf("unpack layer: %w", err)
	}
	u.folder = name
	return nil
}

// entry puts one entry in place. Of two of the same name the later one counts,
// as for tar.
func (u *unpacker) entry(h *tar.Header, name string, content io.Reader) error {
	if strings.HasPrefix(path.Base(name), whiteout) {
		return nil
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return refuse("the root of the image is no folder")
		}
		return nil
	}
	if err := u.makeFolder(path.Dir(name)); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		if st, err := u.root.Lstat(name); err == nil && st.IsDir() {
			return nil
		}
		if err := u.remove(name); err != nil {
			return err
		}
		return u.makeFolder(name)
	}
	if _, err := u.root.Lstat(name); err == nil {
		if err := u.remove(name); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(h, name, content)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxNameBytes || strings.ContainsRune(h.Linkname, 0) {
			return refuse("the link %.300q leads nowhere, or its text is longer than %d bytes", name, maxNameBytes)
		}
		if err := u.root.Symlink(h.Linkname, name); err != nil {
			return fmt.Errorf("unpack layer: %w", err)
		}
		return nil
	case tar.TypeLink:
		return u.link(h, name)
	}
	return refuse("%.300q is a device, a FIFO or something unknown (type %q)", name, h.Typeflag)
}

// file writes a regular file.
func (u *unpacker) file(h *tar.Header, name string, content io.Reader) (err error) {
	if u.left.content -= h.Size; h.Size < 0 || u.left.content < 0 {
		return refuse("its files have more than %d bytes", u.limits.UnpackedBytes)
	}
	out, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("unpack layer: %w", err)
	}
	in := &tapped{r: content}
	_, err = io.Copy(struct{ io.Writer }{out}, in)
	mode := fs.FileMode(0o444)
	if h.Mode&0o111 != 0 {
		mode = 0o555
	}
	if err == nil {
		err = out.Chmod(mode)
	}
	err = errors.Join(err, out.Close())
	if in.err != nil {
		return u.broken(in.err)
	}
	if err != nil {
		return fmt.Errorf("unpack layer: %w", err)
	}
	// Interpreters hold what they compiled against these times.
	at := h.ModTime
	if at.Unix() < 0 || at.Unix() >= 1<<33 {
		at = time.Unix(0, 0)
	}
	if err := u.root.Chtimes(name, at, at); err != nil {
		return fmt.Errorf("unpack layer: %w", err)
	}
	return nil
}

// tapped keeps the error that came from reading.
type tapped struct {
	r   io.Reader
	err error
}

func (t *tapped) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

// link makes a second name of a file or of a link, which stays what it is.
func (u *unpacker) link(h *tar.Header, name string) error {
	to, err := cleanName(h.Linkname)
	if err != nil {
		return err
	}
	is, err := u.isFolder(path.Dir(to))
	if err != nil {
		return err
	}
	st, err := u.root.Lstat(to)
	if !is || err != nil || st.IsDir() {
		return refuse("%.300q is a second name of %.300q, which is no file of the image", name, h.Linkname)
	}
	if err := u.root.Link(to, name); err != nil {
		return fmt.Errorf("unpack layer: %w", err)
	}
	return nil
}

// top refuses an image whose root folder no sandbox could show.
func (u *unpacker) top() error {
	d, err := u.root.Open(".")
	if err != nil {
		return fmt.Errorf("unpack image: %w", err)
	}
	names, err := d.Readdirnames(maxTop + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("unpack image: %w", err)
	}
	if len(names) > maxTop {
		return refuse("it has more than %d entries directly below /", maxTop)
	}
	for _, n := range names {
		if !topName.MatchString(n) {
			return refuse("it has %.300q directly below /", n)
		}
	}
	return nil
}
