package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxTokenBytes bounds a registry's answer about an anonymous token.
const maxTokenBytes = 1 << 20

// errNotThere says that a source does not have a part.
var errNotThere = errors.New("not there")

// source is a place that parts of images come from. Nothing of it is trusted.
type source interface {
	fmt.Stringer
	// open returns the bytes of a part, unbounded. errNotThere: it has none.
	open(ctx context.Context, ref named, d descriptor) (io.ReadCloser, error)
	// serves reports whether the source is for images of that name.
	serves(ref named) bool
}

// layout is a folder with an OCI image layout. It is read through a rooted
// handle: no link leads out of it, and a FIFO in it blocks nobody.
type layout struct{ dir string }

func (l layout) String() string { return "folder " + l.dir }

func (l layout) serves(named) bool { return true }

func (l layout) open(_ context.Context, _ named, d descriptor) (io.ReadCloser, error) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // a read-only handle
	f, err := root.OpenFile("blobs/sha256/"+d.digest, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNotThere
	}
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(errors.New("not a regular file"), f.Close())
	}
	return f, nil
}

// registry is a registry, asked without credentials.
type registry struct {
	host  string
	hosts docker.RegistryHosts
}

func newRegistry(host string) registry {
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        30 * time.Second,
		ForceAttemptHTTP2:      true,
	}
	plain, err := docker.MatchLocalhost(host)
	plain = plain && err == nil
	client := func(most int64) *http.Client {
		return &http.Client{CheckRedirect: fewRedirects, Transport: guard{transport, plain, most}}
	}
	return registry{host, docker.ConfigureDefaultRegistries(
		docker.WithClient(client(0)),
		docker.WithAuthorizer(docker.NewDockerAuthorizer(docker.WithAuthClient(client(maxTokenBytes)))),
		docker.WithPlainHTTP(func(string) (bool, error) { return plain, nil }),
	)}
}

func (r registry) String() string { return "registry " + r.host }

func (r registry) serves(ref named) bool { return ref.registry == r.host }

func (r registry) open(ctx context.Context, ref named, d descriptor) (io.ReadCloser, error) {
	fetcher, err := docker.NewResolver(docker.ResolverOptions{Hosts: r.hosts}).Fetcher(ctx, ref.full)
	if err != nil {
		return nil, err
	}
	want := ocispec.Descriptor{MediaType: d.mediaType, Digest: digest.NewDigestFromEncoded(digest.SHA256, d.digest), Size: d.size}
	if d.size < 0 {
		want.Size = maxManifestBytes // more than that is not read
	}
	body, err := fetcher.Fetch(ctx, want)
	if errdefs.IsNotFound(err) {
		return nil, errNotThere
	}
	return body, err
}

// guard keeps a client to HTTPS, to plain HTTP only with a loopback address and
// only if the registry itself is there, to bytes as they are, and to answers of
// at most so many bytes (0: the reader has its own bound).
type guard struct {
	next  http.RoundTripper
	plain bool
	most  int64
}

// RoundTrip makes one request.
func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		if local, err := docker.MatchLocalhost(req.URL.Host); err != nil || !local || !g.plain {
			return nil, fmt.Errorf("%q is not https", req.URL.Redacted())
		}
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, errors.Join(fmt.Errorf("the answer is encoded as %q, which nobody asked for", e), resp.Body.Close())
	}
	if g.most > 0 {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, g.most), resp.Body}
	}
	return resp, nil
}

func fewRedirects(_ *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("more than 5 redirects")
	}
	return nil
}

// fetch is one image on its way into the store.
type fetch struct {
	store  *Store
	ref    named
	packed int64 // bytes that may still be fetched
}

// errWrongBytes says that a source has other bytes under a digest.
var errWrongBytes = errors.New("wrong bytes")

// sourceError is what a source says instead of bytes.
type sourceError struct{ err error }

func (s *sourceError) Error() string { return s.err.Error() }
func (s *sourceError) Unwrap() error { return s.err }

// blob copies a part into the spool from the first source that has the right
// bytes, and returns its path.
func (f *fetch) blob(ctx context.Context, d descriptor) (string, error) {
	if d.size > f.packed {
		return "", refuse("what it consists of is more than %d bytes", f.store.cfg.Limits.PackedBytes)
	}
	var said []string
	wrong := false
	for _, src := range f.store.sources {
		if !src.serves(f.ref) {
			continue
		}
		err := f.copy(ctx, src, d)
		if err == nil {
			return f.blobPath(d), nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		if _, ok := errors.AsType[*sourceError](err); !ok {
			return "", err
		}
		wrong = wrong || errors.Is(err, errWrongBytes)
		said = append(said, fmt.Sprintf("%s: %.500v", src, err))
	}
	if len(said) == 0 {
		said = []string{fmt.Sprintf("neither a folder nor the registry %s is configured", f.ref.registry)}
	}
	if wrong {
		return "", refuse("sha256:%s: %s", d.digest, strings.Join(said, "; "))
	}
	return "", fmt.Errorf("%w: sha256:%s: %s", ErrAbsent, d.digest, strings.Join(said, "; "))
}

// copy copies a part from one source, with caps, and holds the copy against its
// digest. A *sourceError is the source's fault, any other ours.
func (f *fetch) copy(ctx context.Context, src source, d descriptor) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.store.cfg.Timeout, fmt.Errorf("not done within %s", f.store.cfg.Timeout))
	defer cancel()
	in, err := src.open(ctx, f.ref, d)
	if err != nil {
		return &sourceError{first(context.Cause(ctx), err)}
	}
	defer func() { _ = in.Close() }() // only read
	path := f.blobPath(d)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	most := d.size
	if most < 0 {
		most = maxManifestBytes
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), reading{ctx, io.LimitReader(in, most+1)})
	if _, ok := errors.AsType[*sourceError](err); ok {
		return err
	}
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case n > most, d.size >= 0 && n != d.size:
		return &sourceError{fmt.Errorf("%w: more or fewer than %d bytes", errWrongBytes, most)}
	case got != d.digest:
		return &sourceError{fmt.Errorf("%w: they hash to sha256:%s", errWrongBytes, got)}
	}
	f.packed -= n
	return nil
}

// first returns the first error that is not nil.
func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// reading marks the errors of a source and ends when ctx does.
type reading struct {
	ctx context.Context
	r   io.Reader
}

func (r reading) Read(p []byte) (int, error) {
	if cause := context.Cause(r.ctx); cause != nil {
		return 0, &sourceError{cause}
	}
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &sourceError{first(context.Cause(r.ctx), err)}
	}
	return n, err
}
