package collector

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// LayerTime is the time of every file of a finished cache layer. The go command
// renews the time of an entry that it uses and that is an hour old, which would
// copy every entry that a run uses into its own layer; a time far ahead keeps it
// from that, and tells the files of a layer from those made on top of it.
var LayerTime = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// Fresh copies the files below from that are of no finished layer to the same
// place below to.
func Fresh(from, to string) error {
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil || !info.ModTime().Before(LayerTime) {
			return err
		}
		dst := filepath.Join(to, strings.TrimPrefix(p, from))
		if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
			return err
		}
		return copyFile(dst, p)
	})
	if err != nil {
		return fmt.Errorf("copy new cache entries: %w", err)
	}
	return nil
}

// Main is the program: args are OUTDIR, "--", the binary and its arguments. It
// returns the exit status; what went wrong is written to stderr, which the go
// command shows.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 3 || args[1] != "--" {
		_, _ = fmt.Fprintln(stderr, "collect: usage: collect OUTDIR -- BINARY ARG...")
		return 2
	}
	dir, err := os.Getwd()
	if err == nil {
		err = Collect(args[0], dir, args[2:])
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "collect: %v\n", err)
		return 1
	}
	return 0
}
