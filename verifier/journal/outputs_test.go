package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"striatum/seal"
)

// ticking is a clock that moves on by a second each time it is read.
func ticking() func() time.Time {
	t := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		t = t.Add(time.Second)
		return t
	}
}

func keep(t *testing.T, o *Outputs, data string) string {
	t.Helper()
	w, err := o.Writer()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, data); err != nil {
		t.Fatal(err)
	}
	sha, size, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if want := seal.SHA256Hex([]byte(data)); sha != want || size != int64(len(data)) {
		t.Errorf("kept as %s, %d bytes, want %s", sha, size, want)
	}
	return sha
}

func TestOutputsAreReadBackByDigest(t *testing.T) {
	dir := t.TempDir()
	o, err := OpenOutputs(dir, 1<<20, ticking())
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"", "x", strings.Repeat("line\n", 1000)} {
		r, err := OpenOutput(dir, keep(t, o, data))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != data {
			t.Errorf("read %d bytes, error %v", len(got), err)
		}
		r.Close()
	}
	if _, err := OpenOutput(dir, "../../etc/passwd"); err == nil {
		t.Error("a path passed for a digest")
	}
}

func TestOutputsDropTheOldestFirstAndNeverTheNewest(t *testing.T) {
	dir := t.TempDir()
	o, err := OpenOutputs(dir, 3*(perOutput+100), ticking())
	if err != nil {
		t.Fatal(err)
	}
	data := func(c string) string { return strings.Repeat(c, 100) }
	a, b := keep(t, o, data("a")), keep(t, o, data("b"))
	keep(t, o, data("a")) // used again: b is the oldest now
	c, d := keep(t, o, data("c")), keep(t, o, data("d"))
	for sha, want := range map[string]bool{a: true, b: false, c: true, d: true} {
		if _, err := os.Stat(filepath.Join(dir, sha)); (err == nil) != want {
			t.Errorf("%.8s kept: %v, want %v", sha, err == nil, want)
		}
	}
	big := keep(t, o, strings.Repeat("x", 100_000))
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != big {
		t.Errorf("after one above the quota: %v, error %v", names, err)
	}
}

func TestOutputsSweepWhatAKillLeft(t *testing.T) {
	dir := t.TempDir()
	o, err := OpenOutputs(dir, 1<<20, ticking())
	if err != nil {
		t.Fatal(err)
	}
	kept := keep(t, o, "kept")
	if _, err := o.Writer(); err != nil { // never committed
		t.Fatal(err)
	}
	if _, err := OpenOutputs(dir, 1<<20, ticking()); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != kept {
		t.Errorf("left: %v, error %v", names, err)
	}
}

func TestADiscardedOutputIsGone(t *testing.T) {
	dir := t.TempDir()
	o, err := OpenOutputs(dir, 1<<20, ticking())
	if err != nil {
		t.Fatal(err)
	}
	w, err := o.Writer()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Discard(), w.Discard()); err != nil {
		t.Error(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	if _, err := OpenOutput(dir, seal.SHA256Hex(nil)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want not exist", err)
	}
}

func TestADamagedOutputIsNotReadAsGood(t *testing.T) {
	dir := t.TempDir()
	o, err := OpenOutputs(dir, 1<<20, ticking())
	if err != nil {
		t.Fatal(err)
	}
	sha := keep(t, o, "genuine")
	if err := os.WriteFile(filepath.Join(dir, sha), []byte("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenOutput(dir, sha)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v, want ErrDamaged", err)
	}
}
