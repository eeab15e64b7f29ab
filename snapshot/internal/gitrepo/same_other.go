//go:build !linux

package gitrepo

import (
	"io/fs"

	"striatum/internal/beneath"
)

// sameFolder is false: identity is not told here, so a linked worktree is
// reported as unreadable.
func sameFolder(fs.FileInfo, beneath.Stat) bool { return false }
