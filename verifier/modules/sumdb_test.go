package modules

import (
	"crypto/rand"
	"io/fs"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/note"
)

// sumServer is a checksum database of fabricated modules.
func sumServer(t *testing.T, skey string, fakes ...fake) *httptest.Server {
	t.Helper()
	srv := httptest.NewTLSServer(sumdb.NewServer(sumdb.NewTestServer(skey, func(path, version string) ([]byte, error) {
		for _, f := range fakes {
			if f.path == path && f.version == version {
				return []byte(f.sum()), nil
			}
		}
		return nil, fs.ErrNotExist
	})))
	t.Cleanup(srv.Close)
	return srv
}

func sumKey(t *testing.T) (skey, vkey string) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, "sum.example.test")
	if err != nil {
		t.Fatal(err)
	}
	return skey, vkey
}

// asking is a store in dir that asks srv.
func asking(t *testing.T, dir string, srv *httptest.Server, vkey, skip string, cached ...fake) *Store {
	t.Helper()
	return store(t, Config{Dir: dir, DownloadCache: cache(t, cached...), SumDB: vkey + " " + srv.URL, NoSumDB: skip, Client: srv.Client()})
}

func TestAModuleThatTheChecksumDatabaseHasIsItsOwn(t *testing.T) {
	skey, vkey := sumKey(t)
	srv := sumServer(t, skey, lib)
	dir := filepath.Join(t.TempDir(), "modules")
	mod, sum := goMod(lib, other), goSum(lib, other)
	set := fetchSet(t, asking(t, dir, srv, vkey, "", lib, other), mod, sum)
	if set.SumDB != 1 || set.FirstSeen != 1 || set.SumDBTrouble != "" || len(set.Tampered) != 0 {
		t.Errorf("set %+v", set)
	}
	if set := fetchSet(t, asking(t, "", srv, vkey, "example.test/L*", lib, other), mod, sum); set.SumDB != 0 || set.FirstSeen != 2 || set.SumDBTrouble != "" {
		t.Errorf("with the module left out: %+v", set)
	}
	srv.Close()
	again := fetchSet(t, asking(t, dir, srv, vkey, "", lib, other), mod, sum)
	if again.SumDB != 1 || again.FirstSeen != 1 || !strings.Contains(again.SumDBTrouble, "refused") || again.Digest != set.Digest {
		t.Errorf("from what was read before: %+v", again)
	}
}

func TestWhatTheChecksumDatabaseContradictsIsTamperedAndNotLearnt(t *testing.T) {
	changed, other := lib, other
	changed.files = map[string]string{"lib.go": "package evil\n"}
	changedMod := lib
	changedMod.goMod = "module example.test/Lib/v2\n\ngo 1.19\n"
	for name, bad := range map[string]fake{"zip": changed, "mod": changedMod} {
		t.Run(name, func(t *testing.T) {
			skey, vkey := sumKey(t)
			srv := sumServer(t, skey, lib, other)
			dir := filepath.Join(t.TempDir(), "modules")
			set := fetchSet(t, asking(t, dir, srv, vkey, "", bad, other), goMod(bad, other), goSum(bad, other))
			kinds := slices.ContainsFunc(set.Tampered, func(x Tampered) bool { return x.Kind == name && strings.Contains(x.Where, "sum.example.test") })
			if !kinds || set.Dir != "" {
				t.Errorf("set %+v", set)
			}
			set = fetchSet(t, asking(t, dir, srv, vkey, "", lib, other), goMod(lib, other), goSum(lib, other))
			if len(set.Tampered) != 0 || set.SumDB != 2 || set.Dir == "" {
				t.Errorf("the right module later: %+v", set)
			}
		})
	}
}

func TestAnAnswerThatTheKeyDidNotSignCountsForNothing(t *testing.T) {
	skey, vkey := sumKey(t)
	_, stranger := sumKey(t)
	srv := sumServer(t, skey, lib)
	set := fetchSet(t, asking(t, "", srv, stranger, "", lib), goMod(lib), goSum(lib))
	if set.SumDB != 0 || set.FirstSeen != 1 || set.SumDBTrouble == "" || len(set.Tampered) != 0 {
		t.Errorf("another key: %+v", set)
	}
	// A database that forks: the same key signs another tree of the same size.
	dir := filepath.Join(t.TempDir(), "modules")
	fetchSet(t, asking(t, dir, srv, vkey, "", lib), goMod(lib), goSum(lib))
	fork := sumServer(t, skey, other)
	set = fetchSet(t, asking(t, dir, fork, vkey, "", other), goMod(other), goSum(other))
	if set.SumDB != 0 || !strings.Contains(set.SumDBTrouble, "contradicts what it signed") {
		t.Errorf("a fork: %+v", set)
	}
}

func TestOpenRefusesAChecksumDatabaseWithoutKeyOrTLS(t *testing.T) {
	_, vkey := sumKey(t)
	for _, s := range []string{"sum.example.test", vkey + "x", vkey + " http://sum.example.test", vkey + " sum", "off"} {
		if _, err := parseSumDB(s); err == nil {
			t.Errorf("%q: accepted", s)
		}
	}
	db, err := parseSumDB(vkey)
	if err != nil || db.name != "sum.example.test" || db.url.String() != "https://sum.example.test" {
		t.Errorf("%+v, %v", db, err)
	}
}
