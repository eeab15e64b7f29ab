//go:build unix && !linux

package testenv

import "syscall"

func endWithParent(*syscall.SysProcAttr) {}
