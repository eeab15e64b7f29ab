package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The bounds of reading sudoers.
const (
	maxSudoersFiles = 256
	maxSudoersDepth = 8
)

// sudoersPaths are where sudo, and sudo-rs before that, reads its rules.
var sudoersPaths = []string{"/etc/sudoers", "/etc/sudoers-rs"}

// sudoers are the words that sudo's configuration names users by, each with the file
// that has it. Every rule counts, whatever it allows, and a name that is negated or
// stands in an alias counts as named.
type sudoers struct {
	names map[string]string // "alice", "%group", "#1000", "%#1000", "ALL"
	files int
}

// readSudoers reads the files at the paths, as far as they are there, and all that
// they include. Without such a file nobody is named.
func readSudoers(paths ...string) (sudoers, error) {
	s := sudoers{names: map[string]string{}}
	for _, path := range paths {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := s.read(path, 0); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *sudoers) read(path string, depth int) error {
	if s.files++; depth > maxSudoersDepth || s.files > maxSudoersFiles {
		return fmt.Errorf("read %q: its files include too many others", path)
	}
	data, err := readBounded(path)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(data), "\\\n", " ")
	for line := range strings.Lines(text) {
		if err := s.line(strings.TrimSpace(line), path, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *sudoers) line(line, path string, depth int) error {
	word, rest, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	rest = strings.Trim(strings.TrimSpace(rest), `"`)
	if !filepath.IsAbs(rest) && strings.Contains(word, "include") {
		rest = filepath.Join(filepath.Dir(path), rest)
	}
	rest = strings.ReplaceAll(rest, "%h", hostName())
	switch word {
	case "@include", "#include":
		return s.read(rest, depth+1)
	case "@includedir", "#includedir":
		return s.readDir(rest, depth+1)
	}
	if line == "" || strings.HasPrefix(line, "Defaults") || strings.HasPrefix(line, "Cmnd_Alias") ||
		strings.HasPrefix(line, "Host_Alias") || strings.HasPrefix(line, "Runas_Alias") {
		return nil
	}
	if strings.HasPrefix(line, "#") && (len(line) == 1 || line[1] < '0' || line[1] > '9') {
		return nil // a comment; "#1000" is a uid
	}
	for _, name := range named(line) {
		s.names[name] = path
	}
	return nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "%h"
	}
	short, _, _ := strings.Cut(name, ".")
	return short
}

// readDir reads the files of a folder as sudo does: not those with a dot in their
// name or a tilde at its end.
func (s *sudoers) readDir(dir string, depth int) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".") || strings.HasSuffix(e.Name(), "~") || e.IsDir() {
			continue
		}
		if err := s.read(filepath.Join(dir, e.Name()), depth); err != nil {
			return err
		}
	}
	return nil
}

// named returns the users that a rule, or an alias of users, names: the words before
// the last one of its left side or, of an alias, all of its right side.
func named(line string) []string {
	left, right, _ := strings.Cut(line, "=")
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t,!\":", r) })
	}
	if alias, ok := strings.CutPrefix(left, "User_Alias"); ok && strings.TrimLeft(alias, " \t") != alias {
		return split(right)
	}
	words := split(left)
	return words[:max(len(words)-1, 0)]
}

// of returns the word by which sudoers name a user, and the file.
func (s sudoers) of(u User, gids []uint32) (word, path string) {
	words := append([]string{"ALL", u.Name, "#" + strconv.FormatUint(uint64(u.UID), 10)}, u.names...)
	for _, g := range u.groups {
		words = append(words, "%"+g)
	}
	for _, gid := range gids {
		words = append(words, "%#"+strconv.FormatUint(uint64(gid), 10))
	}
	for _, w := range words {
		if path, ok := s.names[w]; ok {
			return w, path
		}
	}
	for w, path := range s.names { // a net group, or one of another system
		if strings.HasPrefix(w, "+") {
			return w, path
		}
	}
	return "", ""
}
