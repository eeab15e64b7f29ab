package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
)

func store(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "modules")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func proxied(t testing.TB, srv *httptest.Server, cfg Config) *Store {
	t.Helper()
	cfg.Proxies, cfg.Client = []string{srv.URL}, srv.Client()
	cfg.Client.CheckRedirect = onlyHTTPS
	return store(t, cfg)
}

func fetchSet(t testing.TB, s *Store, mod, sum []byte) Set {
	t.Helper()
	set, err := s.Fetch(t.Context(), Files{Mods: [][]byte{mod}, Sums: [][]byte{sum}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var (
	lib   = fake{path: "example.test/Lib/v2", version: "v2.0.1", files: map[string]string{"lib.go": "package lib\n", "sub/x.go": "package sub\n"}}
	other = fake{path: "example.test/other", version: "v0.0.0-20260101000000-abcdefabcdef", files: map[string]string{"o.go": "package other\n"}}
)

func TestFetchTakesFromTheCacheThenFromTheProxy(t *testing.T) {
	srv := proxy(t, []fake{lib, other}, nil)
	s := proxied(t, srv, Config{DownloadCache: cache(t, lib)})
	set := fetchSet(t, s, goMod(lib, other), goSum(lib, other))
	if len(set.Missing)+len(set.Tampered)+len(set.Notes) != 0 || set.FirstSeen != 2 || set.Accepted+set.SumDB+set.Self != 0 {
		t.Errorf("set %+v", set)
	}
	for _, f := range []string{"example.test/!lib/v2@v2.0.1/sub/x.go", "cache/download/example.test/!lib/v2/@v/v2.0.1.ziphash", "cache/download/example.test/other/@v/" + other.version + ".mod"} {
		st, err := os.Stat(filepath.Join(set.Dir, f))
		if err != nil || st.Mode().Perm()&0o222 != 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	srv.Close()
	again := fetchSet(t, store(t, Config{Dir: s.cfg.Dir}), goMod(lib, other), goSum(lib, other))
	if again.Dir != set.Dir || again.Digest != set.Digest || len(again.Missing) != 0 {
		t.Errorf("again, without any source: %+v", again)
	}
}

func TestASetHoldsNoOtherProjectsModules(t *testing.T) {
	s := store(t, Config{DownloadCache: cache(t, lib, other)})
	both := fetchSet(t, s, goMod(lib, other), goSum(lib, other))
	one := fetchSet(t, s, goMod(other), goSum(other))
	if one.Digest == both.Digest {
		t.Error("same digest")
	}
	if _, err := os.Stat(filepath.Join(one.Dir, "example.test/!lib")); err == nil {
		t.Error("the set shows a module of another project")
	}
	none := fetchSet(t, s, goMod(), nil)
	if none.Dir == "" || none.FirstSeen != 0 {
		t.Errorf("without dependencies: %+v", none)
	}
}

func TestBytesThatAreNotGoSumsAreTampered(t *testing.T) {
	evil := lib
	evil.files = map[string]string{"lib.go": "package evil\n"}
	evilMod := lib
	evilMod.goMod = "module example.test/Lib/v2\n\ngo 1.19\n"
	for what, bad := range map[string]struct {
		kind string
		data []byte
	}{
		"other content": {kindZip, evil.zip(t)},
		"other go.mod":  {kindMod, []byte(evilMod.mod())},
		"no zip":        {kindZip, []byte("not a zip")},
		"truncated":     {kindZip, lib.zip(t)[:100]},
		"a path that escapes": {kindZip, zipOf(t, map[string]string{
			"example.test/Lib/v2@v2.0.1/go.mod": lib.mod(), "example.test/Lib/v2@v2.0.1/../../../../escaped": "x",
		})},
		"a path outside the module": {kindZip, zipOf(t, map[string]string{"elsewhere/x": "x"})},
	} {
		t.Run(what, func(t *testing.T) {
			dir := cache(t, lib)
			put(t, filepath.Join(dir, name(t, lib, bad.kind)), bad.data)
			set := fetchSet(t, store(t, Config{DownloadCache: dir}), goMod(lib), goSum(lib))
			if len(set.Tampered) != 1 || set.Tampered[0].Kind != bad.kind || set.Dir != "" || len(set.Missing) != 0 {
				t.Errorf("from the cache: %+v", set)
			}
			srv := proxy(t, []fake{lib}, map[string]http.HandlerFunc{"/" + name(t, lib, bad.kind): func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bad.data) }})
			if set := fetchSet(t, proxied(t, srv, Config{}), goMod(lib), goSum(lib)); len(set.Tampered) != 1 {
				t.Errorf("from a proxy: %+v", set)
			}
			good := proxied(t, proxy(t, []fake{lib}, nil), Config{DownloadCache: dir})
			if set := fetchSet(t, good, goMod(lib), goSum(lib)); len(set.Tampered) != 0 || len(set.Notes) != 1 || set.Dir == "" {
				t.Errorf("with a proxy that has the right bytes: %+v", set)
			}
			if left, _ := os.ReadDir(filepath.Join(good.cfg.Dir, "spool")); len(left) != 0 {
				t.Errorf("left in the spool: %v", left)
			}
		})
	}
}

func TestAZipThatGoSumNamesButThatEscapesIsNotUnpacked(t *testing.T) {
	inside := map[string]string{lib.path + "@" + lib.version + "/../../../escaped": "x"}
	sum := fmt.Sprintf("%s %s %s\n", lib.path, lib.version, h1(inside))
	dir := t.TempDir()
	put(t, filepath.Join(dir, name(t, lib, kindZip)), zipOf(t, inside))
	s := store(t, Config{DownloadCache: dir})
	if set := fetchSet(t, s, goMod(lib), []byte(sum)); len(set.Tampered) != 1 {
		t.Errorf("set %+v", set)
	}
}

func TestAVersionKeepsTheHashThatWasSeenFirst(t *testing.T) {
	s := store(t, Config{DownloadCache: cache(t, lib)})
	fetchSet(t, s, goMod(lib), goSum(lib))
	changed := lib
	changed.files = map[string]string{"lib.go": "package changed\n"}
	s = store(t, Config{Dir: s.cfg.Dir, DownloadCache: cache(t, changed)})
	set := fetchSet(t, s, goMod(changed), goSum(changed))
	if len(set.Tampered) != 1 || !strings.Contains(set.Tampered[0].Where, "this store knows") {
		t.Errorf("another go.sum and zip for a known version: %+v", set)
	}
	if err := s.prune(0, ""); err != nil {
		t.Fatal(err)
	}
	if set := fetchSet(t, s, goMod(changed), goSum(changed)); len(set.Tampered) != 1 {
		t.Errorf("after pruning: %+v", set)
	}
	if set := fetchSet(t, s, goMod(lib), goSum(lib)); len(set.Tampered) != 1 {
		t.Errorf("the right go.sum with only a wrong zip left: %+v", set)
	}
}

func TestWhatNoSourceHasIsMissingWithTheReason(t *testing.T) {
	gone := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }
	broken := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	slow := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("PK"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	huge := func(w http.ResponseWriter, r *http.Request) {
		for block := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("PK"))
	}
	plain := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+r.URL.Path, http.StatusFound)
	}
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		why    string
	}{
		"gone": {gone, "not there"}, "broken": {broken, "status 500"}, "slow": {slow, "not done within"}, "huge": {huge, "more bytes than the limit"},
		"cut short": {cut, "unexpected EOF"}, "redirected to http": {plain, "not https"},
	} {
		t.Run(what, func(t *testing.T) {
			srv := proxy(t, []fake{lib}, map[string]http.HandlerFunc{"/" + name(t, lib, kindZip): c.answer})
			s := proxied(t, srv, Config{Timeout: 300 * time.Millisecond, ZipBytes: 1 << 20})
			set := fetchSet(t, s, goMod(lib), goSum(lib))
			if len(set.Missing) != 1 || !strings.Contains(set.Missing[0].Why, c.why) || set.Missing[0].Kind != kindZip || len(set.Tampered) != 0 {
				t.Errorf("missing %v, tampered %v, want %q", set.Missing, set.Tampered, c.why)
			}
			if left, _ := os.ReadDir(filepath.Join(s.cfg.Dir, "spool")); len(left) != 0 {
				t.Errorf("left in the spool: %v", left)
			}
		})
	}
	t.Run("no source", func(t *testing.T) {
		if set := fetchSet(t, store(t, Config{}), goMod(lib), goSum(lib)); len(set.Missing) != 2 || set.Dir == "" {
			t.Errorf("set %+v", set)
		}
	})
	t.Run("total", func(t *testing.T) {
		s := store(t, Config{DownloadCache: cache(t, lib, other), TotalBytes: 100})
		if set := fetchSet(t, s, goMod(lib, other), goSum(lib, other)); len(set.Missing) == 0 {
			t.Errorf("set %+v", set)
		}
	})
}

func TestADeadProxyIsAskedOnce(t *testing.T) {
	srv := proxy(t, nil, nil)
	s := proxied(t, srv, Config{})
	srv.Close()
	if set := fetchSet(t, s, goMod(lib, other), goSum(lib, other)); len(set.Missing) != 4 {
		t.Errorf("missing %v", set.Missing)
	}
}

func TestALinkOrPipeInTheDownloadCacheHarmsNobody(t *testing.T) {
	dir := cache(t, lib)
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, []byte(lib.mod()))
	modFile := filepath.Join(dir, name(t, lib, kindMod))
	zipFile := filepath.Join(dir, name(t, lib, kindZip))
	for _, err := range []error{os.Remove(modFile), os.Symlink(secret, modFile), os.Remove(zipFile), mkfifo(zipFile)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	set := fetchSet(t, store(t, Config{DownloadCache: dir}), goMod(lib), goSum(lib))
	if len(set.Missing) != 2 {
		t.Errorf("set %+v", set)
	}
}

func TestOnlyRequiredModulesAreMissed(t *testing.T) {
	mod := []byte("module example.test/main\n\ngo 1.21\n\nrequire example.test/Lib/v2 v2.0.0\nrequire example.test/local v1.0.0\n" +
		"replace example.test/Lib/v2 v2.0.0 => example.test/other " + other.version + "\nreplace example.test/local => ./local\n")
	s := store(t, Config{DownloadCache: cache(t, other)})
	set := fetchSet(t, s, mod, goSum(lib, other))
	if len(set.Missing) != 0 || set.Self != 1 || set.FirstSeen != 1 {
		t.Errorf("stale lines of go.sum: %+v", set)
	}
	old := bytes.Replace(mod, []byte("go 1.21"), []byte("go 1.16"), 1)
	if set := fetchSet(t, s, old, goSum(lib, other)); len(set.Missing) != 2 {
		t.Errorf("a go.mod that does not name every module: %+v", set)
	}
}

func TestAWorkspaceTakesItsOwnModulesAndReplacementsFirst(t *testing.T) {
	a := []byte("module example.test/a\n\ngo 1.21\n\nrequire example.test/Lib/v2 v2.0.0\n\nreplace example.test/Lib/v2 => ./elsewhere\n")
	b := []byte("module example.test/b\n\ngo 1.21\n\nrequire example.test/a v1.0.0\n")
	files := Files{
		Mods: [][]byte{a, b}, Sums: [][]byte{goSum(lib), append(goSum(lib), goSum(other)...)},
		Work: []byte("go 1.21\n\nuse ./a\n\nuse ./b\n\nreplace example.test/Lib/v2 => example.test/other " + other.version + "\n"),
	}
	s := store(t, Config{DownloadCache: cache(t, other)})
	set, err := s.Fetch(t.Context(), files)
	if err != nil || len(set.Missing) != 0 || set.Self != 1 || set.FirstSeen != 1 {
		t.Errorf("set %+v, error %v", set, err)
	}
	files.Work = nil
	if set, err := s.Fetch(t.Context(), files); err != nil || set.Self != 1 || set.FirstSeen != 0 {
		t.Errorf("without go.work: %+v, error %v", set, err)
	}
}

func TestAFileThatGoSumsDisagreeAboutMustBeWhatOneOfThemSays(t *testing.T) {
	changed := lib
	changed.files = map[string]string{"lib.go": "package changed\n"}
	third := lib
	third.files = map[string]string{"lib.go": "package third\n"}
	for _, c := range []struct {
		cached   fake
		tampered int
	}{{lib, 0}, {changed, 0}, {third, 1}} {
		set, err := store(t, Config{DownloadCache: cache(t, c.cached)}).Fetch(t.Context(), Files{
			Mods: [][]byte{goMod(lib)}, Sums: [][]byte{goSum(lib), goSum(changed), goSum(lib)}, Work: []byte("go 1.21\n"),
		})
		if err != nil || len(set.Tampered) != c.tampered || set.FirstSeen != int64(1-c.tampered) {
			t.Errorf("%v: set %+v, error %v", c.cached.files, set, err)
		}
	}
}

func TestAcceptedModulesAreCountedAsSuch(t *testing.T) {
	s := store(t, Config{DownloadCache: cache(t, lib, other), Accepted: func(v module.Version, _ string) bool { return v.Path == lib.path }})
	if set := fetchSet(t, s, goMod(lib, other), goSum(lib, other)); set.Accepted != 1 || set.FirstSeen != 1 {
		t.Errorf("set %+v", set)
	}
}

func TestFetchStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	srv := proxy(t, []fake{lib}, map[string]http.HandlerFunc{"/" + name(t, lib, kindMod): func(_ http.ResponseWriter, r *http.Request) {
		cancel(stop)
		<-r.Context().Done()
	}})
	if _, err := proxied(t, srv, Config{}).Fetch(ctx, Files{Mods: [][]byte{goMod(lib)}, Sums: [][]byte{goSum(lib)}}); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

func TestPruneDropsTheLongestUnusedFirst(t *testing.T) {
	now := time.Now()
	s := store(t, Config{DownloadCache: cache(t, lib, other), Now: func() time.Time { now = now.Add(time.Second); return now }})
	first := fetchSet(t, s, goMod(lib), goSum(lib))
	second := fetchSet(t, s, goMod(other), goSum(other))
	fetchSet(t, s, goMod(lib), goSum(lib))
	used, _, err := s.usage()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.prune(used-1, ""); err != nil {
		t.Fatal(err)
	}
	_, err1 := os.Stat(first.Dir)
	_, err2 := os.Stat(second.Dir)
	if after, unused, err := s.usage(); err1 != nil || err2 == nil || err != nil || after >= used || len(unused) != 0 {
		t.Errorf("first %v, second %v, %d of %d bytes, unused %v", err1, err2, after, used, unused)
	}
	if set := fetchSet(t, s, goMod(other), goSum(other)); set.Dir != second.Dir || len(set.Missing) != 0 {
		t.Errorf("fetched again: %+v", set)
	}
	s.cfg.Quota = 1
	third := fetchSet(t, s, goMod(lib, other), goSum(lib, other))
	if left, err := s.setsByAge(); err != nil || len(left) != 1 || left[0] != third.Digest {
		t.Errorf("a set over the quota: kept %v, %v; want it alone", left, err)
	}
}

func TestOpenRefusesAProxyWithoutTLS(t *testing.T) {
	for _, p := range []string{"http://proxy.test", "file:///tmp", "proxy.test", "https://"} {
		if _, err := Open(Config{Dir: t.TempDir(), Now: time.Now, Proxies: []string{p}}); err == nil {
			t.Errorf("%q: accepted", p)
		}
	}
	got := ParseProxies("https://a.test, https://b.test|direct,http://c.test,off,https://d.test")
	if strings.Join(got, " ") != "https://a.test https://b.test" {
		t.Errorf("parsed %q", got)
	}
}

func TestUnreadableModFilesAreInvalid(t *testing.T) {
	s := store(t, Config{})
	for what, files := range map[string]Files{
		"go.mod":      {Mods: [][]byte{goMod(), []byte("modul x")}},
		"go.sum":      {Mods: [][]byte{goMod()}, Sums: [][]byte{nil, []byte("a b\n")}},
		"go.work":     {Mods: [][]byte{goMod()}, Work: []byte("user x")},
		"go.work.sum": {Mods: [][]byte{goMod()}, Work: []byte("go 1.21"), WorkSum: []byte("a b\n")},
	} {
		var invalid *InvalidError
		if _, err := s.Fetch(t.Context(), files); !errors.As(err, &invalid) || invalid.File != what {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

func TestAZipWithTooManyFilesIsRefusedBeforeItIsParsed(t *testing.T) {
	var h headerCounter
	whole := bytes.Repeat(centralHeader, 3)
	for n := 1; n <= len(whole); n++ {
		h = headerCounter{}
		for at := 0; at < len(whole); at += n {
			if _, err := h.Write(whole[at:min(at+n, len(whole))]); err != nil {
				t.Fatal(err)
			}
		}
		if h.n != 3 {
			t.Errorf("in pieces of %d: counted %d", n, h.n)
		}
	}
	if _, err := h.Write(bytes.Repeat(centralHeader, maxZipEntries)); err == nil {
		t.Error("accepted")
	}
}

func FuzzReadSum(f *testing.F) {
	f.Add(string(goSum(lib, other)))
	f.Add("a v1.0.0 h1:x\n\n b  v1.0.0/go.mod h1:y")
	f.Fuzz(func(t *testing.T, data string) {
		p, err := read(Files{Mods: [][]byte{goMod()}, Sums: [][]byte{[]byte(data)}, WorkSum: []byte(data)})
		if err != nil {
			return
		}
		for _, w := range p.wants {
			if _, err := fileName(w.Version, kindZip); err != nil {
				t.Errorf("%v: %v", w.Version, err)
			}
		}
	})
}

func FuzzReadMod(f *testing.F) {
	f.Add(string(goMod(lib)))
	f.Fuzz(func(_ *testing.T, data string) {
		_, _ = read(Files{Mods: [][]byte{[]byte(data)}, Sums: [][]byte{goSum(lib)}, Work: []byte(data)})
	})
}
