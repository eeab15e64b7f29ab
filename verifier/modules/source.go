package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/mod/module"
)

// The kinds of file that a source has of a module version.
const (
	kindMod = "mod"
	kindZip = "zip"
)

// errAbsent says that a source does not have the file.
var errAbsent = errors.New("not there")

// source is a place that files come from. Nothing of it is trusted.
type source interface {
	fmt.Stringer
	// open returns the file's bytes, unbounded. errAbsent: it has none.
	open(ctx context.Context, v module.Version, kind string) (io.ReadCloser, error)
}

// fileName is where the module proxy protocol and the download cache keep it.
func fileName(v module.Version, kind string) (string, error) {
	p, err := module.EscapePath(v.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(v.Version)
	if err != nil {
		return "", err
	}
	return p + "/@v/" + version + "." + kind, nil
}

// cacheSource is a user's download cache. It is read through a rooted handle:
// no link leads out of it, and a FIFO in it blocks nobody.
type cacheSource struct {
	root *os.Root
	dir  string
}

func (c cacheSource) String() string { return "download cache " + c.dir }

func (c cacheSource) open(_ context.Context, v module.Version, kind string) (io.ReadCloser, error) {
	name, err := fileName(v, kind)
	if err != nil {
		return nil, err
	}
	f, err := c.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(errors.New("not a regular file"), f.Close())
	}
	return f, nil
}

// proxySource is one module proxy. After the first failure that is not an
// answer it is not asked again for the rest of the Fetch.
type proxySource struct {
	base   *url.URL
	client *http.Client
	down   atomic.Pointer[error]
}

func (p *proxySource) String() string { return "proxy " + p.base.Redacted() }

func (p *proxySource) open(ctx context.Context, v module.Version, kind string) (io.ReadCloser, error) {
	if down := p.down.Load(); down != nil {
		return nil, *down
	}
	name, err := fileName(v, kind)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.base.String(), "/")+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok { // its text repeats the address
			err = inner.Err
		}
		if ctx.Err() == nil {
			p.down.CompareAndSwap(nil, &err)
		}
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.Body, nil
	case http.StatusNotFound, http.StatusGone:
		err = errAbsent
	default:
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil, errors.Join(err, resp.Body.Close())
}

// NewClient returns the HTTP client for proxies: HTTPS only, also after a
// redirect, with limits on each phase but the body, which Fetch limits.
func NewClient() *http.Client {
	return &http.Client{
		CheckRedirect: onlyHTTPS,
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    fetchWorkers,
			IdleConnTimeout:        30 * time.Second,
			ForceAttemptHTTP2:      true,
		},
	}
}

func onlyHTTPS(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "https" {
		return fmt.Errorf("redirect to %q, which is not https", req.URL.Redacted())
	}
	if len(via) >= 5 {
		return errors.New("more than 5 redirects")
	}
	return nil
}

// ParseProxies returns the HTTPS proxies of a list written like GOPROXY, up to
// "off". "direct", which needs version control programs, is left out.
func ParseProxies(list string) []string {
	var out []string
	for _, p := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '|' }) {
		p = strings.TrimSpace(p)
		if p == "off" {
			break
		}
		if strings.HasPrefix(p, "https://") {
			out = append(out, p)
		}
	}
	return out
}

// capped fails once more than left bytes were read.
type capped struct {
	r     io.Reader
	left  int64
	total *atomic.Int64 // what the Fetch may still read
}

var errTooLong = errors.New("more bytes than the limit")

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.left -= int64(n)
	if c.left < 0 || c.total.Add(-int64(n)) < 0 {
		return 0, errTooLong
	}
	return n, err
}

// centralHeader begins each entry of a zip's directory.
var centralHeader = []byte("PK\x01\x02")

// headerCounter bounds, before anybody parses it, how many entries a zip can
// have: archive/zip keeps all of them in memory.
type headerCounter struct {
	n    int
	tail []byte
}

func (h *headerCounter) Write(p []byte) (int, error) {
	keep := len(centralHeader) - 1
	seam := append(h.tail, p[:min(len(p), keep)]...)
	h.n += bytes.Count(seam, centralHeader) + bytes.Count(p, centralHeader)
	if len(p) >= keep {
		h.tail = bytes.Clone(p[len(p)-keep:])
	} else {
		h.tail = seam[max(0, len(seam)-keep):]
	}
	if h.n > maxZipEntries {
		return 0, fmt.Errorf("more than %d files", maxZipEntries)
	}
	return len(p), nil
}
