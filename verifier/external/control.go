package external

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"striatum/allowlist"
	"striatum/seal"
)

// MaxMutated is the most bytes of a file that a control changes.
const MaxMutated = 16 << 20

// ErrNotOnce says that what a mutation replaces is not there exactly once, so
// that nothing can be said about what it would show.
var ErrNotOnce = errors.New("the text to replace is not there exactly once")

// Pick chooses one of n mutations by the receipt's nonce, so that whoever writes
// the tree cannot know which.
func Pick(n int, nonce string) int {
	sum := seal.SHA256Hex([]byte("striatum mutation " + nonce))
	pick := 0
	for _, digit := range []byte(sum[:8]) {
		pick = (pick*16 + int(digit)) % n
	}
	return pick
}

// Mutate returns data with the one occurrence of m.Find replaced.
func Mutate(data []byte, m allowlist.Mutation) ([]byte, error) {
	if len(data) > MaxMutated {
		return nil, fmt.Errorf("%q: %w: the file is larger than %d bytes", m.File, ErrNotOnce, MaxMutated)
	}
	if n := bytes.Count(data, []byte(m.Find)); n != 1 {
		return nil, fmt.Errorf("%q in %q: %w: it is there %d times", m.Find, m.File, ErrNotOnce, n)
	}
	// Count does not see occurrences that overlap.
	if at := bytes.Index(data, []byte(m.Find)); bytes.Contains(data[at+1:], []byte(m.Find)) {
		return nil, fmt.Errorf("%q in %q: %w: its occurrences overlap", m.Find, m.File, ErrNotOnce)
	}
	return bytes.Replace(data, []byte(m.Find), []byte(m.Replace), 1), nil
}

// Printed reports whether one of the streams matches the pattern.
func Printed(pattern *regexp.Regexp, o Output) (bool, error) {
	for _, open := range []Opener{o.Stdout, o.Stderr} {
		found, err := scan(open, func(r *reader) bool { return pattern.MatchReader(r) })
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}
