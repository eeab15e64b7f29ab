package snapshot

import (
	"slices"
	"strings"
)

// MaxIgnored is how many ignored paths a snapshot names.
const MaxIgnored = 1000

// ignoredPaths keeps the first MaxIgnored paths that it is told, whatever their
// order, and counts all.
type ignoredPaths struct {
	paths []string
	count int64
}

// add notes what the ignore rules leave out: a folder, or a file of Go source.
func (i *ignoredPaths) add(path string, folder bool) {
	switch {
	case folder:
		path += "/"
	case !strings.HasSuffix(path, ".go"):
		return
	}
	i.count++
	i.paths = append(i.paths, path)
	if len(i.paths) >= 2*MaxIgnored {
		i.cut()
	}
}

func (i *ignoredPaths) cut() {
	slices.Sort(i.paths)
	i.paths = i.paths[:min(len(i.paths), MaxIgnored)]
}

// list returns the paths, and how many more there are.
func (i *ignoredPaths) list() (paths []string, more int64) {
	i.cut()
	return i.paths, i.count - int64(len(i.paths))
}
