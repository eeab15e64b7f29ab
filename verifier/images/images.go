package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"

	"striatum/internal/durable"
	"striatum/seal"
	"striatum/verifier/toolchain"
)

const (
	recordMarker   = "striatum.image.v1"
	maxRecordBytes = 4 << 10
	defaultQuota   = 16 << 30
	defaultTimeout = 10 * time.Minute
)

// The reasons for an image that cannot be used. Any other error of Get is a
// fault of the store itself, or its context's cause.
var (
	// ErrAbsent is the reason of an image of which no source has every part.
	ErrAbsent = errors.New("no source has the image")
	// ErrRefused is the reason of an image that is not what its name says, or
	// that is beyond a bound or against a rule of this package.
	ErrRefused = errors.New("the image is refused")
)

// refuse returns an ErrRefused with its reason.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
}

// Config says where images come from. Dir, OS, Arch and Now are required.
type Config struct {
	Dir string // the store, in the lane's private state
	// Sources are absolute folders with an OCI layout, and registries as images
	// name them ("registry.example.com", "registry.example.com:5000"), in order.
	Sources []string
	// OS and Arch are the system whose manifest an index is asked for, as Go
	// names them.
	OS, Arch string
	Limits   Limits
	// Timeout is for one part of an image from one source; 0: 10 minutes.
	Timeout time.Duration
	// Quota is what all unpacked images together keep, in bytes; 0: 16 GiB. The
	// newest stays in any case.
	Quota int64
	Now   func() time.Time
}

// Store is a lane's image store.
type Store struct {
	cfg     Config
	sources []source
}

// ValidSource reports whether s is an absolute, clean path or looks like a
// registry.
func ValidSource(s string) bool {
	if filepath.IsAbs(s) {
		return filepath.Clean(s) == s
	}
	ref, err := reference.ParseNormalizedNamed(s + "/some/image")
	return err == nil && reference.Domain(ref) == s
}

// Open makes the store's folders where they are missing.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil || cfg.OS == "" || cfg.Arch == "" {
		return nil, errors.New("open image store: no clock or no system")
	}
	s := &Store{cfg: cfg}
	for _, name := range cfg.Sources {
		switch {
		case !ValidSource(name):
			return nil, fmt.Errorf("open image store: %q is neither an absolute folder nor a registry", name)
		case filepath.IsAbs(name):
			s.sources = append(s.sources, layout{name})
		default:
			s.sources = append(s.sources, newRegistry(name))
		}
	}
	s.cfg.Limits = cfg.Limits.orDefault()
	s.cfg.Quota = cmp.Or(cfg.Quota, defaultQuota)
	s.cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if err := durable.MkdirAll(s.spool(), 0o700); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	return s, nil
}

// Image is an unpacked image. It stays as it is while the lane is held and no
// other image is fetched.
type Image struct {
	// Root is the folder that has the image's files. Digest is that of its name,
	// in hex.
	Root, Digest string
	// TreeSHA256 is what toolchain.MeasureTree gave for Root when it was unpacked.
	TreeSHA256 string
	// Cache is where measurements of Root may keep their stat cache.
	Cache string
}

// record is what the store knows of an unpacked image.
type record struct {
	SchemaVersion string `json:"schema_version"`
	Digest        string `json:"digest"`
	Manifest      string `json:"manifest"` // digest of the one for this system
	TreeSHA256    string `json:"tree_sha256"`
	Files         int64  `json:"files"`
	Bytes         int64  `json:"bytes"`
}

// Get returns the image of that name ("NAME@sha256:HEX", a tag before the @ is
// ignored), fetching and unpacking it if the store does not have it. Only the
// holder of the lane's lock may call it. The error is ErrRefused or ErrAbsent
// where the image is the reason.
func (s *Store) Get(ctx context.Context, name string) (Image, error) {
	ref, err := parse(name)
	if err != nil {
		return Image{}, err
	}
	img, err := s.kept(ref.digest)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return img, err
	}
	if err := s.fetch(ctx, ref); err != nil {
		return Image{}, errors.Join(err, s.sweep())
	}
	return s.kept(ref.digest)
}

// named is a parsed name of an image.
type named struct {
	registry string // "registry.example.com"
	full     string // "registry.example.com/python@sha256:…"
	digest   string // in hex
}

func parse(name string) (named, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return named{}, refuse("%q is no name of an image: %w", name, err)
	}
	digested, ok := ref.(reference.Canonical)
	if !ok {
		return named{}, refuse("%q has no digest, and a tag may be moved", name)
	}
	hex, ok := strings.CutPrefix(digested.Digest().String(), "sha256:")
	if !ok || !seal.ValidDigest(hex) {
		return named{}, refuse("%q is not named by a SHA-256 digest", name)
	}
	return named{reference.Domain(ref), ref.String(), hex}, nil
}

func (s *Store) spool() string { return filepath.Join(s.cfg.Dir, "spool") }

// kept returns an image that is in the store, noting that it is used. The error
// is fs.ErrNotExist if it is not there.
func (s *Store) kept(digest string) (Image, error) {
	dir := filepath.Join(s.cfg.Dir, digest)
	if _, err := os.Lstat(dir); err != nil {
		return Image{}, fmt.Errorf("open image: %w", err)
	}
	r, err := readRecord(dir)
	if err != nil {
		return Image{}, err
	}
	now := s.cfg.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return Image{}, fmt.Errorf("note that an image is used: %w", err)
	}
	return Image{
		Root: filepath.Join(dir, "root"), Digest: digest, TreeSHA256: r.TreeSHA256, Cache: filepath.Join(dir, "stat"),
	}, nil
}

func readRecord(dir string) (record, error) {
	var r record
	f, err := os.Open(filepath.Join(dir, "image.json"))
	if err != nil {
		return r, fmt.Errorf("read the record of an image (%v): remove %q, which is then unpacked anew", err, dir) //nolint:errorlint // the folder is there: it must not look absent
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecordBytes+1))
	if err == nil {
		err = seal.Decode(data, &r, seal.Limits{Bytes: maxRecordBytes})
	}
	if err == nil && (r.SchemaVersion != recordMarker || r.Digest != filepath.Base(dir) || !seal.ValidDigest(r.TreeSHA256) || r.Bytes < 0) {
		err = fmt.Errorf("it is for %q, schema %q", r.Digest, r.SchemaVersion)
	}
	if err != nil {
		return r, fmt.Errorf("read the record of an image (%w): remove %q, which is then unpacked anew", err, dir)
	}
	return r, nil
}

// sweep empties the spool.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.spool())
	if err != nil {
		return fmt.Errorf("sweep image store: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(s.spool(), e.Name())); err != nil {
			return fmt.Errorf("sweep image store: %w", err)
		}
	}
	return nil
}

// fetch unpacks an image in the spool, measures it, and puts it in place.
func (s *Store) fetch(ctx context.Context, ref named) error {
	if err := s.sweep(); err != nil {
		return err
	}
	tmp := filepath.Join(s.spool(), ref.digest)
	root := filepath.Join(tmp, "root")
	for _, dir := range []struct {
		path string
		mode fs.FileMode
	}{{tmp, 0o700}, {root, 0o755}} {
		if err := os.Mkdir(dir.path, dir.mode); err != nil {
			return fmt.Errorf("unpack image: %w", err)
		}
		if err := os.Chmod(dir.path, dir.mode); err != nil { // whatever the umask
			return fmt.Errorf("unpack image: %w", err)
		}
	}
	f := &fetch{store: s, ref: ref, packed: s.cfg.Limits.PackedBytes}
	m, err := f.manifest(ctx)
	if err != nil {
		return err
	}
	if err := f.unpack(ctx, m.layers, root); err != nil {
		return err
	}
	tree, err := toolchain.Meter{}.MeasureTree(ctx, root)
	if err != nil {
		return fmt.Errorf("measure the unpacked image: %w", err)
	}
	data, err := seal.Canonical(record{
		SchemaVersion: recordMarker, Digest: ref.digest, Manifest: m.digest, TreeSHA256: tree.SHA256, Files: tree.Files, Bytes: tree.Bytes,
	})
	if err != nil {
		return fmt.Errorf("record image: %w", err)
	}
	if err := os.WriteFile(filepath.Join(tmp, "image.json"), data, 0o600); err != nil {
		return fmt.Errorf("record image: %w", err)
	}
	if err := durable.SyncFS(tmp); err != nil {
		return fmt.Errorf("sync image: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(s.cfg.Dir, ref.digest)); err != nil {
		return fmt.Errorf("put image in place: %w", err)
	}
	if err := durable.SyncDir(s.cfg.Dir); err != nil {
		return err
	}
	return s.prune(ref.digest)
}

// prune removes the images that were not used for the longest until the rest
// keeps to the quota. kept stays.
func (s *Store) prune(kept string) error {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("prune image store: %w", err)
	}
	type image struct {
		name  string
		bytes int64
		used  time.Time
	}
	var all []image
	var bytes int64
	for _, e := range entries {
		if !seal.ValidDigest(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("prune image store: %w", err)
		}
		r, err := readRecord(filepath.Join(s.cfg.Dir, e.Name()))
		if err != nil {
			return err
		}
		bytes += r.Bytes
		if e.Name() != kept {
			all = append(all, image{e.Name(), r.Bytes, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b image) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	for _, x := range all {
		if bytes <= s.cfg.Quota {
			break
		}
		// Out of the way first: what is half removed must not look complete.
		if err := os.Rename(filepath.Join(s.cfg.Dir, x.name), filepath.Join(s.spool(), x.name)); err != nil {
			return fmt.Errorf("prune image store: %w", err)
		}
		bytes -= x.bytes
	}
	return s.sweep()
}
