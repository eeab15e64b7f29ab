package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/testenv"
)

var zeroDigest = "sha256:" + strings.Repeat("0", 64)

func TestOnlyADigestNamesAnImage(t *testing.T) {
	s := open(t, Limits{}, testenv.NewLayout(t).Dir)
	for name, says := range map[string]string{
		"python": "no digest", "python:3": "no digest", "python@sha256:00": "no name of an image", "": "no name of an image",
		"python@sha512:" + strings.Repeat("0", 128): "", "../x@" + zeroDigest: "no name of an image", "Python@" + zeroDigest: "no name of an image",
		"a b@" + zeroDigest: "no name of an image", "https://x/y@" + zeroDigest: "no name of an image",
	} {
		refused(t, s, name, says)
	}
	if _, err := s.Get(t.Context(), "python@"+zeroDigest); !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "not there") {
		t.Errorf("got %v, want ErrAbsent", err)
	}
	if _, err := open(t, Limits{}, "other.example").Get(t.Context(), "registry.example.com/python@"+zeroDigest); !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "registry registry.example.com is configured") {
		t.Errorf("got %v, want ErrAbsent naming the registry", err)
	}
}

func TestSourcesAreFoldersAndRegistries(t *testing.T) {
	for s, want := range map[string]bool{
		"/srv/images": true, "registry.example.com": true, "localhost:5000": true, "registry.example.com:5000": true, "127.0.0.1:1": true, "[::1]:1": true,
		"": false, "images": false, "/srv/../x": false, "https://registry.example.com": false, "registry.example.com/library": false, "a b.c": false,
	} {
		if got := ValidSource(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

// TestManifestsAreReadOneWay: what another reader could take for another image,
// and what is not for this system, is refused.
func TestManifestsAreReadOneWay(t *testing.T) {
	l := testenv.NewLayout(t)
	layer := l.Blob(t, tarLayer, testenv.Tar(t, testenv.File("usr/bin/x", "right")))
	wrong := l.Blob(t, tarLayer, testenv.Tar(t, testenv.File("usr/bin/x", "wrong")))
	at := func(d map[string]any, os, arch, variant string) map[string]any {
		out := map[string]any{"platform": map[string]any{"os": os, "architecture": arch, "variant": variant}}
		maps.Copy(out, d)
		return out
	}
	right := l.Document(t, ociManifest, testenv.Manifest(layer))
	bad := l.Document(t, ociManifest, testenv.Manifest(wrong))
	index := func(entries ...any) map[string]any {
		return map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": entries}
	}
	with := func(o map[string]any, key string, v any) map[string]any {
		out := maps.Clone(o)
		if out[key] = v; v == nil {
			delete(out, key)
		}
		return out
	}
	manifest := testenv.Manifest(layer)
	for name, c := range map[string]struct {
		doc  any
		says string // empty: it is the right image
	}{
		"a manifest":                {manifest, ""},
		"docker's":                  {with(manifest, "mediaType", dockerManifest), ""},
		"without a media type":      {with(manifest, "mediaType", nil), ""},
		"with an artifact type":     {with(with(manifest, "artifactType", "x/y"), "annotations", map[string]any{"a": "b"}), ""},
		"an index":                  {index(at(bad, "linux", "arm64", ""), at(bad, "windows", "amd64", ""), at(bad, "linux", "amd64", "v3"), at(right, "linux", "amd64", ""), at(bad, "linux", "amd64", "")), ""},
		"an index with bare ones":   {index(bad, at(bad, "unknown", "unknown", ""), at(right, "linux", "amd64", "v1")), ""},
		"no manifest for us":        {index(at(bad, "linux", "arm64", "v8")), "no manifest for linux/amd64"},
		"an empty index":            {index([]any{}...), "no manifest for"},
		"an index in an index":      {index(at(with(right, "mediaType", ociIndex), "linux", "amd64", "")), "where a manifest"},
		"a manifest called index":   {with(manifest, "mediaType", ociIndex), "says that it is"},
		"an index called manifest":  {with(index(at(right, "linux", "amd64", "")), "mediaType", ociManifest), "says that it is"},
		"both":                      {with(with(manifest, "manifests", []any{at(right, "linux", "amd64", "")}), "mediaType", nil), "at once"},
		"an index with layers":      {with(index(at(right, "linux", "amd64", "")), "layers", []any{layer}), "at once"},
		"version 1":                 {with(manifest, "schemaVersion", 1), "schemaVersion"},
		"no version":                {with(manifest, "schemaVersion", nil), "schemaVersion"},
		"no layers":                 {with(manifest, "layers", []any{}), "0 layers"},
		"a layer too many":          {with(manifest, "layers", repeat(layer, 129)), "129 layers"},
		"no config":                 {with(manifest, "config", nil), "has no"},
		"a layer without digest":    {testenv.Manifest(with(layer, "digest", nil)), "has no digest"},
		"a layer by SHA-512":        {testenv.Manifest(with(layer, "digest", "sha512:"+strings.Repeat("0", 128))), "not a SHA-256"},
		"a layer by a path":         {testenv.Manifest(with(layer, "digest", "sha256:../../../../etc/passwd")), "not a SHA-256"},
		"a layer of negative size":  {testenv.Manifest(with(layer, "size", -1)), "size is -1"},
		"a layer of another size":   {testenv.Manifest(with(layer, "size", 7)), "wrong bytes"},
		"a layer of a larger size":  {testenv.Manifest(with(layer, "size", 1<<20)), "wrong bytes"},
		"layers twice":              {json.RawMessage(`{"schemaVersion":2,"layers":[],"layers":[]}`), "no index or manifest"},
		"layers in capitals":        {json.RawMessage(`{"schemaVersion":2,"LAYERS":[],"config":{"mediaType":"x","digest":"` + zeroDigest + `","size":1}}`), "0 layers"},
		"no JSON":                   {json.RawMessage(`"x"`), "no index or manifest"},
		"deep JSON":                 {json.RawMessage(strings.Repeat("[", 17) + strings.Repeat("]", 17)), "no index or manifest"},
		"more than 4 MiB":           {strings.Repeat("x", maxManifestBytes), "wrong bytes"},
		"layers that are no object": {with(manifest, "layers", []any{"x"}), "layers"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Limits{}, l.Dir)
			digest := l.Document(t, ociManifest, c.doc)["digest"].(string)
			if c.says != "" {
				refused(t, s, "tools@"+digest, c.says)
				return
			}
			img, err := s.Get(t.Context(), "tools@"+digest)
			if err != nil {
				t.Fatal(err)
			}
			same(t, tree(t, img.Root), map[string]string{"usr": "drwxr-xr-x", "usr/bin": "drwxr-xr-x", "usr/bin/x": "-r-xr-xr-x right"})
		})
	}
}

func repeat(x any, n int) (out []any) {
	for range n {
		out = append(out, x)
	}
	return out
}

// TestNoSourceIsBelieved: wrong bytes are never used; a later source's right ones
// are; a part that no source has is said to be missing.
func TestNoSourceIsBelieved(t *testing.T) {
	right, wrong := testenv.NewLayout(t), testenv.NewLayout(t)
	layer := right.Blob(t, tarLayer, testenv.Tar(t, testenv.File("x", "x")))
	digest := right.Document(t, ociManifest, testenv.Manifest(layer))["digest"].(string)
	hex := strings.TrimPrefix(layer["digest"].(string), "sha256:")
	lay := func(data string) {
		t.Helper()
		if err := os.WriteFile(wrong.Path(hex), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lay(strings.Repeat("x", layer["size"].(int)))
	if _, err := open(t, Limits{}, wrong.Dir, right.Dir).Get(t.Context(), "tools@"+digest); err != nil {
		t.Errorf("with a second source: %v", err)
	}
	if err := os.Rename(right.Path(hex), right.Path("away")); err != nil {
		t.Fatal(err)
	}
	refused(t, open(t, Limits{}, right.Dir, wrong.Dir), "tools@"+digest, "they hash to")
	lay("short")
	refused(t, open(t, Limits{}, right.Dir, wrong.Dir), "tools@"+digest, "wrong bytes")
	for what, plant := range map[string]func(path string) error{
		"nothing":         func(string) error { return nil },
		"a FIFO":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"a folder":        func(p string) error { return os.Mkdir(p, 0o700) },
		"a link out":      func(p string) error { return os.Symlink(right.Path("away"), p) },
		"a dangling link": func(p string) error { return os.Symlink("nothing", p) },
	} {
		if err := os.RemoveAll(wrong.Path(hex)); err != nil {
			t.Fatal(err)
		}
		if err := plant(wrong.Path(hex)); err != nil {
			t.Fatal(err)
		}
		s := open(t, Limits{}, right.Dir, wrong.Dir, "/nowhere/at/all")
		if _, err := s.Get(t.Context(), "tools@"+digest); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: got %v, want ErrAbsent", what, err)
		}
		same(t, tree(t, s.cfg.Dir), map[string]string{"spool": "drwx------"})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := open(t, Limits{}, right.Dir).Get(ctx, "tools@"+digest); !errors.Is(err, stopped) {
		t.Errorf("cancelled: got %v", err)
	}
}

// server is a registry on loopback that asks for an anonymous token.
type server struct {
	*httptest.Server
	layout testenv.Layout
	asked  []string
	// blob answers for content instead of the layout; nil: it does not.
	blob func(w http.ResponseWriter, r *http.Request)
	// realm is where tokens are; empty: here.
	realm string
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{layout: testenv.NewLayout(t)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	switch {
	case r.URL.Path == "/token":
		fmt.Fprint(w, `{"token":"anonymous"}`)
	case r.Header.Get("Authorization") != "Bearer anonymous":
		realm := s.realm
		if realm == "" {
			realm = s.URL + "/token"
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="test",scope="repository:a/tools:pull"`)
		w.WriteHeader(http.StatusUnauthorized)
	case strings.Contains(r.URL.Path, "/blobs/") && s.blob != nil:
		s.blob(w, r)
	default:
		kind, hex, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/a/tools/"), "/sha256:")
		data, err := os.ReadFile(s.layout.Path(hex))
		if !ok || kind != "manifests" && kind != "blobs" || err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(data)
	}
}

func TestARegistryIsAskedByDigestAndWithoutCredentials(t *testing.T) {
	r := serve(t)
	digest := r.layout.Image(t, testenv.Tar(t, testenv.File("x", "x")), testenv.Tar(t, testenv.File("y", "y")))
	s := open(t, Limits{}, "registry.example", testenv.NewLayout(t).Dir, r.host())
	img, err := s.Get(t.Context(), r.host()+"/a/tools:latest@"+digest)
	if err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, img.Root), map[string]string{"x": "-r-xr-xr-x x", "y": "-r-xr-xr-x y"})
	for _, line := range r.asked {
		if line != "GET /token" && (!strings.HasPrefix(line, "GET /v2/a/tools/") || !strings.Contains(line, "/sha256:")) {
			t.Errorf("it was asked for %q", line)
		}
	}
	asked := len(r.asked)
	if _, err := s.Get(t.Context(), r.host()+"/a/tools@"+digest); err != nil || len(r.asked) != asked {
		t.Errorf("a kept image was asked for again: %v", err)
	}
	if _, err := open(t, Limits{}, r.host()).Get(t.Context(), "a/tools@"+digest); !errors.Is(err, ErrAbsent) || len(r.asked) != asked {
		t.Errorf("a registry was asked for another's image: %v", err)
	}
	if _, err := open(t, Limits{}, r.host()).Get(t.Context(), r.host()+"/a/tools@"+zeroDigest); !errors.Is(err, ErrAbsent) {
		t.Errorf("got %v, want ErrAbsent", err)
	}
}

func TestAHostileRegistryGetsNowhere(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer elsewhere.Close()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<16); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		blob  http.HandlerFunc
		realm string
		want  error
		says  string
	}{
		"redirects for ever": {blob: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, want: ErrAbsent, says: "redirects"},
		"redirects to plain": {blob: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/x", http.StatusFound)
		}, want: ErrAbsent, says: "not https"},
		"redirects to a file": {blob: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}, want: ErrAbsent},
		"endless":                {blob: endless, want: ErrAbsent, says: "expected size"},
		"other bytes":            {blob: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 2048)) }, want: ErrRefused, says: "they hash to"},
		"fewer bytes":            {blob: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }, want: ErrRefused, says: "wrong bytes"},
		"an error":               {blob: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden); endless(w, nil) }, want: ErrAbsent, says: "403"},
		"an encoding":            {blob: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "zstd") }, want: ErrAbsent, says: "nobody asked for"},
		"no answer":              {blob: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: ErrAbsent, says: "not done within"},
		"tokens over plain HTTP": {realm: "http://192.0.2.1/token", want: ErrAbsent, says: "not https"},
		"tokens of someone else": {realm: elsewhere.URL, want: ErrAbsent},
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t)
			r.blob, r.realm = c.blob, c.realm
			digest := r.layout.Image(t, testenv.Tar(t, testenv.File("x", "x")))
			s := open(t, Limits{}, r.host())
			if name == "no answer" {
				s.cfg.Timeout = 200 * time.Millisecond
			}
			_, err := s.Get(t.Context(), r.host()+"/a/tools@"+digest)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.says)
			}
			same(t, tree(t, s.cfg.Dir), map[string]string{"spool": "drwx------"})
		})
	}
}

// TestPlainHTTPIsForLoopback: no other registry is spoken to without TLS, not
// even by way of a redirect to loopback.
func TestPlainHTTPIsForLoopback(t *testing.T) {
	for plain, addresses := range map[bool]map[string]bool{
		true:  {"http://127.0.0.1:5000/": true, "http://localhost/": true, "http://[::1]:1/": true, "http://192.0.2.1/": false, "ftp://192.0.2.1/": false, "https://192.0.2.1/": true},
		false: {"http://127.0.0.1:5000/": false, "http://localhost/": false, "https://192.0.2.1/": true},
	} {
		for address, want := range addresses {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := guard{answer{}, plain, 0}.RoundTrip(req)
			if err == nil {
				err = resp.Body.Close()
			}
			if (err == nil) != want {
				t.Errorf("%s for a registry on loopback %v: %v", address, plain, err)
			}
		}
	}
}

// answer answers every request.
type answer struct{}

func (answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// TestAKillLeavesNothingThatCounts has in the store what a kill at any moment may
// leave.
func TestAKillLeavesNothingThatCounts(t *testing.T) {
	l := testenv.NewLayout(t)
	digest := l.Image(t, testenv.Tar(t, testenv.File("x", "x")))
	s := open(t, Limits{}, l.Dir)
	hex := strings.TrimPrefix(digest, "sha256:")
	for _, left := range []string{"blob-" + hex, hex + "/root/half", hex + "/image.json", "other/root/x"} {
		path := filepath.Join(s.spool(), left)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	img, err := s.Get(t.Context(), "tools@"+digest)
	if err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, img.Root), map[string]string{"x": "-r-xr-xr-x x"})
	same(t, tree(t, s.spool()), nil)
	if err := os.WriteFile(filepath.Join(s.cfg.Dir, hex, "image.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "tools@"+digest); err == nil || errors.Is(err, ErrAbsent) || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "unpacked anew") {
		t.Errorf("a damaged record: %v", err)
	}
	if err := os.Remove(filepath.Join(s.cfg.Dir, hex, "image.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "tools@"+digest); err == nil || !strings.Contains(err.Error(), "unpacked anew") {
		t.Errorf("no record: %v", err)
	}
}

func TestTheImagesUsedLongestAgoAreDropped(t *testing.T) {
	l := testenv.NewLayout(t)
	now := time.Unix(1_700_000_000, 0)
	s, err := Open(Config{
		Dir: filepath.Join(t.TempDir(), "images"), Sources: []string{l.Dir}, OS: "linux", Arch: "amd64", Quota: 2500,
		Now: func() time.Time { now = now.Add(time.Hour); return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range []string{"a", "b", "c", "d"} {
		names = append(names, "tools@"+l.Image(t, testenv.Tar(t, testenv.File(x, strings.Repeat(x, 1000)))))
	}
	for _, i := range []int{0, 1, 0, 2, 3} { // b goes for c, a for d
		if _, err := s.Get(t.Context(), names[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{false, false, true, true} {
		_, err := os.Stat(filepath.Join(s.cfg.Dir, strings.TrimPrefix(names[i], "tools@sha256:")))
		if (err == nil) != want {
			t.Errorf("image %d: %v, want it kept: %v", i, err, want)
		}
	}
}

func FuzzLayer(f *testing.F) {
	for _, entries := range [][]testenv.Entry{
		{testenv.File("usr/bin/x", "x"), testenv.Link("bin", "usr/bin")},
		{testenv.Link("l", "/"), testenv.File("l/etc/x", "x")},
		{testenv.Folder("d"), testenv.File("d/.wh.x", ""), testenv.File(".wh..wh..opq", "")},
	} {
		f.Add(testenv.Tar(f, entries...))
	}
	base := testenv.Tar(f, testenv.File("usr/x", "x"), testenv.Link("out", "/tmp"), testenv.Link("up", ".."))
	f.Fuzz(func(t *testing.T, layer []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		u := &unpacker{ctx: t.Context(), root: root, limits: Limits{UnpackedBytes: 1 << 20, Entries: 100}, left: budget{1 << 20, 1 << 20, 100}}
		for i, data := range [][]byte{base, layer} {
			file := filepath.Join(t.TempDir(), "layer")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := u.layer(file, plainTar, i > 0); err != nil && !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
		}
		for name, what := range tree(t, top) {
			inside := name == "root" || strings.HasPrefix(name, "root/")
			if !inside || !strings.HasPrefix(what, "→") && !strings.HasPrefix(what, "drwxr-xr-x") && !strings.HasPrefix(what, "-r-xr-xr-x ") && !strings.HasPrefix(what, "-r--r--r-- ") && !strings.HasPrefix(what, "-rw------- ") {
				t.Errorf("%q is %.20q", name, what)
			}
		}
	})
}
