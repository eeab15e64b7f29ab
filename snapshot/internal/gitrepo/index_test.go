package gitrepo

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// git runs stock git in dir without any configuration.
func git(t testing.TB, dir, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func needGit(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
}

// names are the tracked files, with a '/' in front of submodules.
func names(x *Index) []string {
	out := []string{}
	for _, e := range x.entries {
		if e.gitlink {
			out = append(out, "/"+e.name)
			continue
		}
		out = append(out, e.name)
	}
	return out
}

// indexFile returns an index that git wrote over generated names, and the names.
func indexFile(t testing.TB, r *rand.Rand, format, version string) ([]byte, []string) {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "", "init", "-q", "--object-format="+format)
	id := strings.Repeat("1", map[string]int{"sha1": 40, "sha256": 64}[format])
	var in strings.Builder
	want := map[string]bool{}
	for range r.IntN(60) {
		parts := []string{"a", "b c", "d\n", "\xff", "é", "x.go", strings.Repeat("l", r.IntN(200)+1)}
		var path []string
		for range 1 + r.IntN(4) {
			path = append(path, fmt.Sprintf("%s%d", parts[r.IntN(len(parts))], r.IntN(4)))
		}
		name := strings.Join(path, "/") + "f"
		mode := []string{"100644", "100755", "120000", "160000"}[r.IntN(4)]
		if mode == "160000" {
			want["/"+name] = true
			delete(want, name)
		} else {
			want[name] = true
			delete(want, "/"+name)
		}
		fmt.Fprintf(&in, "%s %s\t%s\x00", mode, id, name)
	}
	git(t, dir, in.String(), "update-index", "-z", "--index-info")
	git(t, dir, "", "update-index", "--index-version", version)
	data, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	if err != nil {
		if len(want) == 0 {
			return nil, nil
		}
		t.Fatal(err)
	}
	out := []string{}
	for name := range want {
		out = append(out, name)
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(strings.TrimPrefix(a, "/"), strings.TrimPrefix(b, "/")) })
	return data, out
}

func TestIndexAgreesWithGit(t *testing.T) {
	needGit(t)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		format, version := []string{"sha1", "sha256"}[seed%2], []string{"2", "3", "4"}[seed%3]
		data, want := indexFile(t, r, format, version)
		if data == nil {
			continue
		}
		x, err := ParseIndex(data)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		if diff := cmp.Diff(want, names(x)); diff != "" {
			t.Errorf("seed %d (-want +got):\n%s", seed, diff)
		}
		for _, name := range want {
			plain, link := strings.CutPrefix(name, "/")
			if x.Has(plain) == link || x.IsSubmodule(plain) != link {
				t.Errorf("seed %d: %q: Has %v, IsSubmodule %v", seed, name, x.Has(plain), x.IsSubmodule(plain))
			}
			if dir := filepath.Dir(plain); dir != "." && !x.HasBelow(dir) || x.HasBelow(plain+"x") {
				t.Errorf("seed %d: HasBelow is wrong about %q", seed, plain)
			}
		}
	}
}

// git writes an all-zero checksum under index.skipHash.
func TestIndexWithoutChecksumIsRead(t *testing.T) {
	needGit(t)
	for _, format := range []string{"sha1", "sha256"} {
		data, want := indexFile(t, rand.New(rand.NewPCG(3, 1)), format, "2")
		size := map[string]int{"sha1": 20, "sha256": 32}[format]
		clear(data[len(data)-size:])
		x, err := ParseIndex(data)
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if diff := cmp.Diff(want, names(x)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
}

// sealed gives body the checksum that makes it an index of SHA-1 ids.
func sealed(body []byte) []byte {
	sum := sha1.Sum(body)
	return append(slices.Clone(body), sum[:]...)
}

func TestMalformedIndexesAreRefused(t *testing.T) {
	header := func(version, count uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("DIRC"), version), count)
	}
	entry := func(name string) []byte {
		e := append(make([]byte, 60), 0, byte(len(name)))
		binary.BigEndian.PutUint32(e[24:], 0o100644)
		e = append(e, name...)
		return append(e, make([]byte, 8-len(e)%8)...)
	}
	for name, data := range map[string][]byte{
		"empty":           nil,
		"no signature":    sealed([]byte("DIRX\x00\x00\x00\x02\x00\x00\x00\x00")),
		"wrong checksum":  append(header(2, 0), bytes.Repeat([]byte{1}, 20)...),
		"version 1":       sealed(header(1, 0)),
		"version 5":       sealed(header(5, 0)),
		"many entries":    sealed(header(2, 1<<31)),
		"cut entry":       sealed(append(header(2, 1), entry("abc")[:64]...)),
		"unsorted":        sealed(slices.Concat(header(2, 2), entry("b"), entry("a"))),
		"empty name":      sealed(append(header(2, 1), entry("")...)),
		"needs extension": sealed(append(header(2, 0), "link\x00\x00\x00\x00"...)),
		"cut extension":   sealed(append(header(2, 0), "TREE\x00\x00\x00\x09"...)),
		"trailing bytes":  sealed(append(header(2, 0), "TREE"...)),
		"strip too much":  sealed(slices.Concat(header(4, 1), entry("")[:62], []byte("\x05a\x00"))),
	} {
		if x, err := ParseIndex(data); err == nil {
			t.Errorf("%s: read as %v", name, names(x))
		}
	}
	for name, data := range map[string][]byte{
		"no entries": sealed(header(2, 0)),
		"two":        sealed(slices.Concat(header(2, 2), entry("a"), entry("b"), []byte("TREE\x00\x00\x00\x01x"))),
	} {
		if _, err := ParseIndex(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNilIndexTracksNothing(t *testing.T) {
	var x *Index
	if x.Has("a") || x.HasBelow("a") || x.IsSubmodule("a") {
		t.Error("the nil index tracks something")
	}
}

// FuzzIndex: parsing ends, and an accepted index has sorted, non-empty names that
// its lookups find.
func FuzzIndex(f *testing.F) {
	if _, err := exec.LookPath("git"); err == nil {
		for seed, version := range []string{"2", "3", "4"} {
			data, _ := indexFile(f, rand.New(rand.NewPCG(uint64(seed), 5)), "sha1", version)
			if len(data) > 20 {
				f.Add(data[:len(data)-20])
			}
		}
	}
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		x, err := ParseIndex(sealed(body))
		if err != nil {
			return
		}
		last := ""
		for _, e := range x.entries {
			if e.name == "" || e.name < last {
				t.Errorf("the names %q and %q are not sorted", last, e.name)
			}
			last = e.name
			if !x.Has(e.name) && !x.IsSubmodule(e.name) {
				t.Errorf("%q is not found", e.name)
			}
		}
	})
}

// FuzzDelta: applying a difference ends within its limits, whatever it says.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("base"), []byte("\x04\x06\x90\x04\x02ab"))
	f.Add([]byte("base"), []byte("\x04\xff\xff\xff\xff\x0f\x90\x04"))
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		r := Repo{Work: 1 << 20}
		out, err := r.applyDelta(base, delta)
		if err == nil && len(out) > 1<<20 {
			t.Errorf("%d bytes came out", len(out))
		}
	})
}
