//go:build !linux

package installation

import (
	"context"
	"runtime"

	"striatum/internal/problem"
)

// Systemd reports false.
func Systemd() bool { return false }

// Start refuses: daemon and lane are set up on Linux only.
func (s *Setup) Start(context.Context) (stop func() error, err error) { return nil, refuse() }

// StartLane refuses likewise.
func (s *Setup) StartLane() error { return refuse() }

func refuse() error {
	return problem.New(problem.Missing, what, "it needs Linux, this is "+runtime.GOOS, "run it on a Linux machine")
}
