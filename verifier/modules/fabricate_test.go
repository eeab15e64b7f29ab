package modules

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"golang.org/x/mod/module"
)

// fake is a fabricated module version.
type fake struct {
	path, version string
	files         map[string]string // without go.mod
	goMod         string            // empty: the plain one
}

func (f fake) mod() string {
	if f.goMod != "" {
		return f.goMod
	}
	return "module " + f.path + "\n\ngo 1.20\n"
}

func (f fake) all() map[string]string {
	all := map[string]string{"go.mod": f.mod()}
	maps.Copy(all, f.files)
	return all
}

func (f fake) zip(t testing.TB) []byte {
	t.Helper()
	entries := map[string]string{}
	for name, data := range f.all() {
		entries[f.path+"@"+f.version+"/"+name] = data
	}
	return zipOf(t, entries)
}

func zipOf(t testing.TB, entries map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, data := range entries {
		e, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// h1 is written out here from its definition, apart from x/mod.
func h1(files map[string]string) string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
	}
	return "h1:" + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// sum returns the two go.sum lines.
func (f fake) sum() string {
	prefixed := map[string]string{}
	for name, data := range f.all() {
		prefixed[f.path+"@"+f.version+"/"+name] = data
	}
	return fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", f.path, f.version, h1(prefixed), f.path, f.version, h1(map[string]string{"go.mod": f.mod()}))
}

func goMod(fakes ...fake) []byte {
	s := "module example.test/main\n\ngo 1.21\n"
	for _, f := range fakes {
		s += fmt.Sprintf("\nrequire %s %s\n", f.path, f.version)
	}
	return []byte(s)
}

func goSum(fakes ...fake) []byte {
	var s string
	for _, f := range fakes {
		s += f.sum()
	}
	return []byte(s)
}

func name(t testing.TB, f fake, kind string) string {
	t.Helper()
	n, err := fileName(module.Version{Path: f.path, Version: f.version}, kind)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// proxy serves fabricated modules; answers replace single files.
func proxy(t testing.TB, fakes []fake, answers map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	files := map[string][]byte{}
	for _, f := range fakes {
		files["/"+name(t, f, kindMod)] = []byte(f.mod())
		files["/"+name(t, f, kindZip)] = f.zip(t)
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := answers[r.URL.Path]; h != nil {
			h(w, r)
		} else if data, ok := files[r.URL.Path]; ok {
			_, _ = w.Write(data)
		} else {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

// cache writes fabricated modules as a download cache.
func cache(t testing.TB, fakes ...fake) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range fakes {
		put(t, filepath.Join(dir, name(t, f, kindMod)), []byte(f.mod()))
		put(t, filepath.Join(dir, name(t, f, kindZip)), f.zip(t))
	}
	return dir
}

func put(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
