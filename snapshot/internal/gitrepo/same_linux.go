package gitrepo

import (
	"io/fs"
	"syscall"

	"striatum/internal/beneath"
)

func sameFolder(info fs.FileInfo, st beneath.Stat) bool {
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && uint64(sys.Dev) == st.Dev && sys.Ino == st.Ino //nolint:unconvert // 32 bits on some machines
}
