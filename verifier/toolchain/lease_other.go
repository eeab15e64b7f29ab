//go:build !linux

package toolchain

import "os"

// lease is false: only Linux has them, so nothing is cached elsewhere.
func lease(*os.File) (release func(), ok bool) { return func() {}, false }
