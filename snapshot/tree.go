package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// mode is the mode of an entry of a git tree.
type mode uint32

const (
	modeTree mode = 0o040000
	modeFile mode = 0o100644
	modeExec mode = 0o100755
	modeLink mode = 0o120000
)

type digest = [sha256.Size]byte

// node is an entry of the tree. It is written by one goroutine at a time.
type node struct {
	name   string
	mode   mode
	size   int64
	sum    digest  // SHA-256 of the content; of a link, of its target
	blob   digest  // git id
	target string  // of a link
	kids   []*node // of a tree; after finish sorted as git sorts
	linked bool    // the copy will be a hard link to the previous frozen tree's file
	parent *node
}

// path returns n's path from the top, "" for the top itself.
func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	if up := n.parent.path(); up != "" {
		return up + "/" + n.name
	}
	return n.name
}

// finish drops empty folders, sorts, and computes the ids of all trees below and
// with n. Git sorts a folder as if its name ended in '/'.
func (n *node) finish() {
	n.kids = slices.DeleteFunc(n.kids, func(k *node) bool {
		if k.mode != modeTree {
			return false
		}
		k.finish()
		return len(k.kids) == 0
	})
	slices.SortFunc(n.kids, func(a, b *node) int { return compareNames(a.name, a.mode, b.name, b.mode) })
	var body bytes.Buffer
	for _, k := range n.kids {
		body.WriteString(strconv.FormatUint(uint64(k.mode), 8))
		body.WriteByte(' ')
		body.WriteString(k.name)
		body.WriteByte(0)
		body.Write(k.blob[:])
	}
	n.blob = objectID("tree", body.Bytes())
}

func compareNames(a string, am mode, b string, bm mode) int {
	short := min(len(a), len(b))
	if c := strings.Compare(a[:short], b[:short]); c != 0 {
		return c
	}
	return int(byteAt(a, short, am)) - int(byteAt(b, short, bm))
}

func byteAt(name string, i int, m mode) byte {
	if i < len(name) {
		return name[i]
	}
	if m == modeTree {
		return '/'
	}
	return 0
}

// objectID returns the SHA-256 id that git gives an object.
func objectID(kind string, body []byte) digest {
	h := sha256.New()
	h.Write(objectHeader(nil, kind, int64(len(body))))
	h.Write(body)
	return digest(h.Sum(nil))
}

func objectHeader(buf []byte, kind string, size int64) []byte {
	buf = append(buf, kind...)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, size, 10)
	return append(buf, 0)
}

// walk calls f for every file and link below n, in the order of the manifest.
func (n *node) walk(path string, f func(path string, n *node)) {
	for _, k := range n.kids {
		at := k.name
		if path != "" {
			at = path + "/" + k.name
		}
		if k.mode == modeTree {
			k.walk(at, f)
			continue
		}
		f(at, k)
	}
}

// manifest returns the manifest of the tree n.
func (n *node) manifest() []byte {
	var out []byte
	n.walk("", func(path string, k *node) {
		out = appendLine(out, k.mode, k.sum, k.size, path)
	})
	return out
}

func appendLine(out []byte, m mode, sum digest, size int64, path string) []byte {
	out = strconv.AppendUint(out, uint64(m), 8)
	out = append(out, ' ')
	out = hex.AppendEncode(out, sum[:])
	out = append(out, ' ')
	out = strconv.AppendInt(out, size, 10)
	out = append(out, ' ')
	out = append(out, Quote(path)...)
	return append(out, '\n')
}

// Quote returns path as the manifest writes it: unchanged if all of it is
// printable ASCII without '"' and '\'; else in double quotes with C escapes, an
// octal one (\303) for each byte that has no letter of its own. It is what git
// prints under core.quotePath.
func Quote(path string) string {
	plain := func(c byte) bool { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' }
	i := 0
	for i < len(path) && plain(path[i]) {
		i++
	}
	if i == len(path) {
		return path
	}
	out := append([]byte{'"'}, path[:i]...)
	for ; i < len(path); i++ {
		c := path[i]
		if plain(c) {
			out = append(out, c)
			continue
		}
		out = append(out, '\\')
		if at := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); at >= 0 {
			out = append(out, `abtnvfr"\`[at])
			continue
		}
		out = append(out, '0'+c>>6, '0'+c>>3&7, '0'+c&7)
	}
	return string(append(out, '"'))
}

// content is what a manifest says about one path.
type content struct {
	mode mode
	sum  digest
}

// parseManifest returns the content of every path, as quoted. It reads only what
// appendLine wrote into the lane's own store; a line of another form is left out.
func parseManifest(data []byte) map[string]content {
	out := make(map[string]content, bytes.Count(data, []byte("\n")))
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) != 4 || len(fields[1]) != 2*sha256.Size {
			continue
		}
		bits, err := strconv.ParseUint(fields[0], 8, 32)
		c := content{mode: mode(bits)}
		if _, herr := hex.Decode(c.sum[:], []byte(fields[1])); err != nil || herr != nil {
			continue
		}
		out[fields[3]] = c
	}
	return out
}
