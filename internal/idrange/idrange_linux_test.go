package idrange

import (
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T, dir string) *Pool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("no root: user namespaces with foreign ids need it")
	}
	p, err := Open(dir, []string{"/bin/cat"}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNoRangeIsInTwoHands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ids")
	pools := []*Pool{open(t, dir), open(t, dir)}
	seen := map[uint32]bool{}
	var taken [2][]*Range
	for i := range 6 {
		r, err := pools[i%2].Take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[r.Base] || r.Base < Base || (r.Base-Base)%Size != 0 {
			t.Errorf("range from %d: taken before %v", r.Base, seen[r.Base])
		}
		seen[r.Base] = true
		taken[i%2] = append(taken[i%2], r)
	}
	pools[0].Give(taken[0][1])
	if again, err := pools[0].Take(); err != nil || again != taken[0][1] {
		t.Errorf("got %v, %v, want the range that was given back", again, err)
	}
	for i, p := range pools {
		for _, r := range taken[i] {
			p.Give(r)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestRangesOfSomebodyAreSkipped(t *testing.T) {
	p := open(t, filepath.Join(t.TempDir(), "ids"))
	p.taken = []span{{Base + 5, Base + 5}, {Base + Size + 7, Base + 2*Size}}
	r, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	if r.Base != Base+3*Size {
		t.Errorf("got the range from %d, want %d", r.Base, uint32(Base+3*Size))
	}
	p.Give(r)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestSpansOfAccountsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(path, []byte("a:100000:65536\nbroken\nb:x:1\nc:7:0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := readSpans(path, 1, 2)
	if err != nil || len(got) != 1 || got[0] != (span{100000, 165535}) {
		t.Errorf("got %v, %v", got, err)
	}
}
