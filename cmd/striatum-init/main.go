// Command striatum-init is the first process of every sandbox. Without an
// argument it serves a lane on its standard input and output, see package
// launcher; "daemon" makes it the first process above a lane's private
// containerd, see package reaper, and "idle" a process that only waits. As a
// program of a sandbox, "anchors" is a check, see package anchors, and
// "resolve" says which files a command runs there, see package execpath.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "striatum-init: %v\n", err)
		os.Exit(1)
	}
}
