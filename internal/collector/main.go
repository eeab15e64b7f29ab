package collector

import (
	"fmt"
	"io"
	"os"
)

// Main is the program: args are OUTDIR, "--", the binary and its arguments. It
// returns the exit status; what went wrong is written to stderr, which the go
// command shows.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 3 || args[1] != "--" {
		_, _ = fmt.Fprintln(stderr, "collect: usage: collect OUTDIR -- BINARY ARG...")
		return 2
	}
	dir, err := os.Getwd()
	if err == nil {
		err = Collect(args[0], dir, args[2:])
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "collect: %v\n", err)
		return 1
	}
	return 0
}
