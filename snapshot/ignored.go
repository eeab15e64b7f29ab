package snapshot

import (
	"slices"
	"strings"
)

// MaxIgnored is how many ignored folders and files of Go source a snapshot names,
// MaxIgnoredFiles how many other ignored files.
const (
	MaxIgnored      = 1000
	MaxIgnoredFiles = 20
)

// ignored is what the ignore rules left out where the walk met it.
type ignored struct {
	paths, files firstPaths
}

// add notes a folder, or a file.
func (i *ignored) add(path string, folder bool) {
	switch {
	case folder:
		i.paths.add(path+"/", MaxIgnored)
	case strings.HasSuffix(path, ".go"):
		i.paths.add(path, MaxIgnored)
	default:
		i.files.add(path, MaxIgnoredFiles)
	}
}

// firstPaths keeps the first so many of the paths that it is told, whatever their
// order, and counts all.
type firstPaths struct {
	paths []string
	count int64
}

func (f *firstPaths) add(path string, most int) {
	f.count++
	f.paths = append(f.paths, path)
	if len(f.paths) >= 2*most {
		f.cut(most)
	}
}

func (f *firstPaths) cut(most int) {
	slices.Sort(f.paths)
	f.paths = f.paths[:min(len(f.paths), most)]
}

// list returns the paths, and how many more there are.
func (f *firstPaths) list(most int) (paths []string, more int64) {
	f.cut(most)
	return f.paths, f.count - int64(len(f.paths))
}
