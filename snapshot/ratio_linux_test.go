package snapshot

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// compare runs ours and theirs in turn, b.N times each, and reports both medians
// in milliseconds and their ratio. Each goes first every other time: the second has
// to wait for what the disk still writes of the first. "make bench" prints these
// lines from runs of -benchtime=20x.
func compare(b *testing.B, ours, theirs, clean func()) {
	b.Helper()
	var a, c []time.Duration
	timed := func(f func(), took *[]time.Duration) {
		start := time.Now()
		f()
		*took = append(*took, time.Since(start))
	}
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			timed(ours, &a)
			timed(theirs, &c)
		} else {
			timed(theirs, &c)
			timed(ours, &a)
		}
		clean()
	}
	slices.Sort(a)
	slices.Sort(c)
	x, y := a[len(a)/2], c[len(c)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(x.Microseconds())/1000, "ours-ms")
	b.ReportMetric(float64(y.Microseconds())/1000, "stock-ms")
	b.ReportMetric(float64(x)/float64(y), "ratio")
}

// BenchmarkRatio holds a snapshot of 10,000 files and 80 MB against stock tools:
// cold at most 1.3 times "cp -a" and "git add -A" into an empty index, unchanged
// (remembered digests) at most 2.5 times "git status".
func BenchmarkRatio(b *testing.B) {
	dir := benchTree(b)
	later := func() time.Time { return time.Now().Add(time.Minute) }
	b.Run("ColdAgainstCopyAndAdd", func(b *testing.B) {
		base := b.TempDir()
		folders, err := filepath.Glob(dir + "/pkg*")
		if err != nil {
			b.Fatal(err)
		}
		compare(b, func() {
			mustFreeze(b, dir, Store{Dir: base + "/store"}, Options{})
		}, func() {
			if err := os.Mkdir(base+"/copy", 0o755); err != nil {
				b.Fatal(err)
			}
			if out, err := exec.Command("cp", append(append([]string{"-a"}, folders...), base+"/copy")...).CombinedOutput(); err != nil {
				b.Fatalf("cp: %v: %s", err, out)
			}
			// The objects exist already: adding reads and hashes, and writes an index.
			git(b, dir, "--git-dir="+dir+"/.git", "read-tree", "--empty")
			git(b, dir, "add", "-A")
		}, func() {
			for _, name := range []string{"/store", "/copy"} {
				if err := os.RemoveAll(base + name); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("UnchangedAgainstStatus", func(b *testing.B) {
		store := Store{Dir: filepath.Join(b.TempDir(), "store")}
		mustFreeze(b, dir, store, Options{Now: later})
		opt := Options{Now: later, Reuse: &store}
		compare(b, func() {
			if _, err := Digest(context.Background(), dir, opt); err != nil {
				b.Fatal(err)
			}
		}, func() { git(b, dir, "status", "--porcelain") }, func() {})
	})
}
