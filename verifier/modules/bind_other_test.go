//go:build !linux

package modules

import "testing"

// bindReadOnly returns dir: only Linux has bind mounts.
func bindReadOnly(_ *testing.T, dir string) string { return dir }
