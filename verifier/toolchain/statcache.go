package toolchain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"striatum/internal/durable"
	"striatum/seal"
)

// The stat cache is a text file: the line "striatum.stat_cache.v1", then one
// line per file, sorted by path:
//
//	dev ino size mtime_ns ctime_ns mode sha256 "quoted path"
//
// It lies in the lane's private state. A file that does not read as this is
// ignored as a whole: the bytes are hashed again.
const (
	statCacheMarker   = "striatum.stat_cache.v1"
	maxStatCacheBytes = 64 << 20
)

// stamp is what identifies the content of a file that nobody had open for
// writing.
type stamp struct {
	dev, ino, size, mtime, ctime int64
	mode                         uint32
}

type cached struct {
	stamp
	sha256 string
}

// readStatCache returns the entries of the file, or none.
func readStatCache(path string) map[string]cached {
	none := map[string]cached{}
	if path == "" {
		return none
	}
	f, err := os.Open(path)
	if err != nil {
		return none
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxStatCacheBytes+1))
	if err != nil || len(data) > maxStatCacheBytes {
		return none
	}
	text, ok := strings.CutPrefix(string(data), statCacheMarker+"\n")
	if !ok {
		return none
	}
	entries := make(map[string]cached, strings.Count(text, "\n"))
	for text != "" {
		var line string
		line, text, ok = strings.Cut(text, "\n")
		if !ok {
			return none
		}
		name, c, err := parseStatLine(line)
		if err != nil {
			return none
		}
		entries[name] = c
	}
	return entries
}

func parseStatLine(line string) (name string, c cached, err error) {
	var n [6]int64
	for i := range n {
		var field string
		field, line, _ = strings.Cut(line, " ")
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return "", cached{}, err
		}
	}
	sum, quoted, _ := strings.Cut(line, " ")
	if !seal.ValidDigest(sum) || n[5] != int64(uint32(n[5])) {
		return "", cached{}, errors.New("no digest")
	}
	if name, err = strconv.Unquote(quoted); err != nil {
		return "", cached{}, err
	}
	return name, cached{stamp{n[0], n[1], n[2], n[3], n[4], uint32(n[5])}, sum}, nil
}

// writeStatCache replaces the file. Several measurements of one cache must not
// run at once; the lane's lock sees to it.
func writeStatCache(path string, entries map[string]cached) error {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	sort.Strings(names)
	var b bytes.Buffer
	b.WriteString(statCacheMarker + "\n")
	for _, name := range names {
		c := entries[name]
		fmt.Fprintf(&b, "%d %d %d %d %d %d %s %q\n", c.dev, c.ino, c.size, c.mtime, c.ctime, c.mode, c.sha256, name)
	}
	if b.Len() > maxStatCacheBytes {
		return nil
	}
	if err := durable.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("keep stat cache: %w", err)
	}
	return nil
}
