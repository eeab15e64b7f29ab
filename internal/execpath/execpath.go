// Package execpath finds the files that the kernel runs for the first word of a
// command: the program, the interpreters that "#!" lines name, and what env(1)
// in such a line leads to. It runs inside a sandbox ("striatum-init resolve"),
// so that what it says is that sandbox's own view, and imports the standard
// library only.
//
// What Write prints is one line of JSON:
//
//	{"schema_version": "striatum.resolution.v1", "path": "/usr/bin/python3.11",
//	 "files": [{"path": "/usr/bin/python3.11", "sha256": "…", "size": 6831704}]}
//
// path is the program itself with links resolved; files has it first, then each
// interpreter in the order in which the kernel meets them.
package execpath

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// SchemaVersion marks a resolution of this format.
const SchemaVersion = "striatum.resolution.v1"

const (
	// maxInterpreters is how many "#!" lines are followed; the kernel stops
	// after five.
	maxInterpreters = 5
	// maxLine is how much of a "#!" line the kernel reads (BINPRM_BUF_SIZE).
	maxLine = 256
)

// Resolution is what a command word runs.
type Resolution struct {
	SchemaVersion string `json:"schema_version"`
	Path          string `json:"path"`
	Files         []File `json:"files"`
}

// File is one file of it, with links resolved.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"` // bytes
}

// The reasons for a word that runs nothing.
var (
	ErrNotFound      = errors.New("no such program")
	ErrNotExecutable = errors.New("not executable")
)

// Resolve finds what word runs: a name is looked up in the absolute folders of
// searchPath (separated by colons), a path is taken relative to dir. The error
// is ErrNotFound or ErrNotExecutable where that is the reason.
func Resolve(word, dir, searchPath string) (Resolution, error) {
	r := Resolution{SchemaVersion: SchemaVersion}
	path, err := lookup(word, dir, searchPath)
	if err != nil {
		return Resolution{}, err
	}
	for range maxInterpreters + 1 {
		f, first, err := read(path)
		if err != nil {
			return Resolution{}, err
		}
		if len(r.Files) == 0 {
			r.Path = f.Path
		}
		r.Files = append(r.Files, f)
		words, script := strings.CutPrefix(first, "#!")
		if !script {
			return r, nil
		}
		if path, err = r.interpreter(strings.Fields(words), dir, searchPath); err != nil {
			return Resolution{}, fmt.Errorf("the interpreter of %q: %w", f.Path, err)
		}
	}
	return Resolution{}, fmt.Errorf("%q: more than %d interpreters", word, maxInterpreters)
}

// interpreter returns the program of a "#!" line. Where that is env, env itself
// is added and what it starts returned.
func (r *Resolution) interpreter(words []string, dir, searchPath string) (string, error) {
	if len(words) == 0 {
		return "", ErrNotFound
	}
	path, err := lookup(words[0], dir, "")
	if err != nil || filepath.Base(words[0]) != "env" {
		return path, err
	}
	for _, word := range words[1:] {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
			continue // env's own options, and settings
		}
		f, _, err := read(path)
		if err != nil {
			return "", err
		}
		r.Files = append(r.Files, f)
		return lookup(word, dir, searchPath)
	}
	return path, nil
}

func lookup(word, dir, searchPath string) (string, error) {
	if word == "" {
		return "", ErrNotFound
	}
	if strings.Contains(word, "/") {
		if !filepath.IsAbs(word) {
			word = filepath.Join(dir, word)
		}
		return word, executable(word)
	}
	err := fmt.Errorf("%q: %w in %q", word, ErrNotFound, searchPath)
	for _, folder := range filepath.SplitList(searchPath) {
		if !filepath.IsAbs(folder) {
			continue
		}
		path := filepath.Join(folder, word)
		if e := executable(path); e == nil {
			return path, nil
		} else if errors.Is(e, ErrNotExecutable) {
			err = e
		}
	}
	return "", err
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%q: %w", path, ErrNotFound)
	case !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%q: %w", path, ErrNotExecutable)
	}
	return nil
}

// read digests a file and returns its first line, as far as the kernel reads it.
func read(path string) (f File, first string, err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return File{}, "", fmt.Errorf("%q: %w", path, ErrNotFound)
	}
	in, err := os.Open(real)
	if err != nil {
		return File{}, "", fmt.Errorf("%q: %w: %w", real, ErrNotExecutable, err)
	}
	defer func() { _ = in.Close() }() // only read
	b := bufio.NewReaderSize(in, 64<<10)
	head, err := b.Peek(maxLine)
	if err != nil && !errors.Is(err, io.EOF) {
		return File{}, "", fmt.Errorf("read %q: %w", real, err)
	}
	first, _, _ = strings.Cut(string(head), "\n")
	h := sha256.New()
	n, err := io.Copy(h, b)
	if err != nil {
		return File{}, "", fmt.Errorf("read %q: %w", real, err)
	}
	return File{Path: real, SHA256: hex.EncodeToString(h.Sum(nil)), Size: n}, first, nil
}

// Write resolves word and prints the resolution as one line of JSON.
func Write(w io.Writer, word, dir, searchPath string) error {
	r, err := Resolve(word, dir, searchPath)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(r)
}
