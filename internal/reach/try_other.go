//go:build !linux

package reach

import (
	"errors"
	"runtime"
)

// Examine refuses: only Linux has threads with identities of their own.
func Examine([]User, Targets) ([]Finding, error) {
	return nil, errors.New("it needs Linux, and this is " + runtime.GOOS)
}

// Listener refuses likewise.
func Listener(string) (program string, uid uint32, err error) {
	return "", 0, errors.New("it needs Linux, and this is " + runtime.GOOS)
}

// HasACL knows of none.
func HasACL(string) bool { return false }

// ListeningEngines refuses likewise.
func ListeningEngines() ([]string, error) {
	return nil, errors.New("it needs Linux, and this is " + runtime.GOOS)
}

// OnDockersPort refuses likewise.
func OnDockersPort() (bool, error) {
	return false, errors.New("it needs Linux, and this is " + runtime.GOOS)
}
