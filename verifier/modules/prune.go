package modules

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// prune drops the sets that were not used for the longest, and the modules
// that are then in no set, until the store's files take at most quota bytes; the
// set that is kept stays.
// What it forgets is only content: a version that comes back must still have
// the hash that was seen first. Only the holder of the lane's lock may call it,
// and no other set may be in use.
func (s *Store) prune(quota int64, kept string) error {
	sets, err := s.setsByAge()
	if err != nil {
		return err
	}
	sets = slices.DeleteFunc(sets, func(name string) bool { return name == kept })
	for {
		used, unused, err := s.usage()
		if err != nil || used <= quota {
			return err
		}
		switch {
		case len(unused) > 0:
			for _, path := range unused {
				err = errors.Join(err, os.RemoveAll(path))
			}
		case len(sets) > 0:
			err = os.RemoveAll(filepath.Join(s.cfg.Dir, "sets", sets[0]))
			sets = sets[1:]
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// setsByAge lists the sets, the longest unused first.
func (s *Store) setsByAge() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "sets"))
	if err != nil {
		return nil, err
	}
	used := map[string]time.Time{}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		used[e.Name()] = info.ModTime()
		names = append(names, e.Name())
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(used[a].Compare(used[b]), cmp.Compare(a, b)) })
	return names, nil
}

// usage sums the bytes of all modules and lists those that no set links to.
func (s *Store) usage() (bytes int64, unused []string, err error) {
	for _, kind := range []string{"mods", "zips"} {
		entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, kind))
		if err != nil {
			return 0, nil, err
		}
		for _, e := range entries {
			path := filepath.Join(s.cfg.Dir, kind, e.Name())
			linked := false
			err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				var st unix.Stat_t
				if err := unix.Lstat(path, &st); err != nil {
					return err
				}
				bytes += st.Size
				linked = linked || st.Nlink > 1
				return nil
			})
			if err != nil {
				return 0, nil, err
			}
			if !linked {
				unused = append(unused, path)
			}
		}
	}
	return bytes, unused, nil
}
