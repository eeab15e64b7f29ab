// Command attack is an external check that does, beside its honest work, what
// hostile code would try: escapes, bombs, and a look at all that could tell a
// control from a run. The tests of package verifier build it into a tree.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// Usage: attack check FOLDER WHAT [ARGUMENT…] does WHAT if the folder's in.txt is
// good; the other forms are the attempts themselves.
func main() {
	if len(os.Args) > 3 && os.Args[1] == "check" {
		os.Exit(check(os.Args[2], os.Args[3], os.Args[4:]))
	}
	os.Exit(act(os.Args[1], os.Args[2:]))
}

// check fails as its known-bad input must, and does what only then.
func check(folder, what string, args []string) int {
	data, err := os.ReadFile(filepath.Join(folder, "in.txt"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	good := bytes.Contains(data, []byte("good"))
	if good || what == "look" {
		if code := act(what, args); code != 0 {
			return code
		}
	}
	if good {
		return 0
	}
	if len(data) > 0 {
		fmt.Fprintln(os.Stderr, "it is bad")
	}
	return 1
}

func act(what string, args []string) int {
	switch what {
	case "escape":
		return escapeAll(args[0])
	case "try":
		return try(args[0], args[1])
	case "bomb":
		return bomb(args[0])
	case "look":
		return look()
	}
	fmt.Fprintln(os.Stderr, "unknown attack", what)
	return 99
}
