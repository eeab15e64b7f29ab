package testenv

import "syscall"

// endWithParent stops the server when this test program is killed.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
