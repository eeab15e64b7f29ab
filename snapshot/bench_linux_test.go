package snapshot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// benchTree makes a committed project of 10,000 files and about 80 MB in dir.
func benchTree(b *testing.B) (dir string) {
	b.Helper()
	needGit(b)
	dir = b.TempDir()
	gitInit(b, dir, "sha256")
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 10_000 {
		data := make([]byte, r.IntN(16_000))
		for j := range data {
			data[j] = "abcdefghij \n"[r.IntN(12)]
		}
		put(b, fmt.Sprintf("%s/pkg%d/sub%d/file%d.go", dir, i%40, i%250, i), string(data), 0o644)
	}
	put(b, dir+"/.gitignore", "*.log\n/out/\n!keep.log\n**/tmp/*\n", 0o644)
	git(b, dir, "add", "-A")
	git(b, dir, "commit", "-q", "-m", "x")
	return dir
}

func BenchmarkSnapshot(b *testing.B) {
	dir := benchTree(b)
	later := func() time.Time { return time.Now().Add(time.Minute) }
	fresh := func(b *testing.B) Store {
		b.Helper()
		return Store{Dir: filepath.Join(b.TempDir(), "store")}
	}
	b.Run("Freeze", func(b *testing.B) {
		store := fresh(b)
		for b.Loop() {
			s := mustFreeze(b, dir, store, Options{})
			b.StopTimer()
			if err := store.Drop(s.TreeSHA256); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("FreezeAgainAfterOneEdit", func(b *testing.B) {
		store, i := fresh(b), 0
		opt := Options{Now: later}
		mustFreeze(b, dir, store, opt)
		for b.Loop() {
			put(b, dir+"/pkg0/edited", fmt.Sprint(i), 0o644)
			i++
			mustFreeze(b, dir, store, opt)
		}
		if err := os.Remove(dir + "/pkg0/edited"); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("FreezeCommit", func(b *testing.B) {
		store := fresh(b)
		for b.Loop() {
			s, err := FreezeCommit(context.Background(), dir, "HEAD", store, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := store.Drop(s.TreeSHA256); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("Digest", func(b *testing.B) {
		for b.Loop() {
			mustDigest(b, dir)
		}
	})
	b.Run("DigestReused", func(b *testing.B) {
		store := fresh(b)
		opt := Options{Now: later, Reuse: &store}
		for b.Loop() {
			if _, err := Digest(context.Background(), dir, opt); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("DigestCommit", func(b *testing.B) {
		for b.Loop() {
			mustDigestCommit(b, dir, "HEAD")
		}
	})
	b.Run("stock/cp-a_git-add-A", func(b *testing.B) {
		for b.Loop() {
			to := filepath.Join(b.TempDir(), "copy")
			if err := exec.Command("cp", "-a", dir, to).Run(); err != nil {
				b.Fatal(err)
			}
			if err := os.RemoveAll(to + "/.git"); err != nil {
				b.Fatal(err)
			}
			gitInit(b, to, "sha256")
			gitTree(b, to)
			b.StopTimer()
			if err := os.RemoveAll(to); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("stock/git-status", func(b *testing.B) {
		for b.Loop() {
			git(b, dir, "status", "--porcelain")
		}
	})
}
