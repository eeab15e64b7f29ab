//go:build !linux

package containerdengine

import (
	"context"
	"runtime"

	"striatum/internal/problem"
	"striatum/sandbox"
)

// Engine is a sandbox.Engine. There is none on this system.
type Engine struct{ sandbox.Engine }

// Open refuses: sandboxes exist on Linux only.
func Open(context.Context, Config) (*Engine, error) {
	return nil, problem.New(problem.Missing, "open sandbox engine", "it needs Linux, this is "+runtime.GOOS, "run the lane on a Linux machine")
}

// Probe says that this system has no sandbox.
func Probe(Config) []Check {
	return []Check{{Name: "linux", Observed: runtime.GOOS, Fix: "run the lane on a Linux machine"}}
}

// Programs returns none.
func Programs(Config) []string { return nil }
