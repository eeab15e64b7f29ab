//go:build !linux

package main

import "errors"

// run refuses: sandboxes exist on Linux only.
func run([]string) error { return errors.New("sandboxes need Linux") }
