package containerdengine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"time"
)

// Config says where the engine finds what it needs. Only Home, InitPath and
// Now are required.
type Config struct {
	// Home is the lane's home, absolute. Its path names the engine's folder in
	// RunDir: two engines of one home must not be open at once.
	Home string
	// RunDir is shared by all lanes of a host. Default: /run/striatum.
	RunDir string
	// Socket of a running containerd, absolute. Default: a private one.
	Socket string
	// ContainerdPath, ShimPath and RuncPath, absolute. Default: looked up in
	// /usr/local/sbin, /usr/local/bin, /usr/sbin and /usr/bin.
	ContainerdPath, ShimPath, RuncPath string
	// InitPath is striatum-init, absolute, built with CGO_ENABLED=0.
	InitPath string
	// Rand makes names and nonces. Default: crypto/rand.
	Rand io.Reader
	// Now is the clock of ProgramResult.StartedAt and of durations.
	Now func() time.Time
	// Log receives what an operator may want to know. Default: nothing.
	Log *slog.Logger
}

// idBytes is how many bytes of a home's digest name it.
const idBytes = 4

// ID returns the name, eight hex digits, of everything that belongs to home.
func ID(home string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(home)))
	return hex.EncodeToString(sum[:idBytes])
}

// withDefaults returns c completed, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if !filepath.IsAbs(c.Home) || !filepath.IsAbs(c.InitPath) {
		return Config{}, errors.New("open sandbox engine: home and init must be absolute paths")
	}
	if c.Now == nil {
		return Config{}, errors.New("open sandbox engine: a clock is required")
	}
	if c.RunDir == "" {
		c.RunDir = "/run/striatum"
	}
	for _, p := range []string{c.RunDir, c.Socket, c.ContainerdPath, c.ShimPath, c.RuncPath} {
		if p != "" && !filepath.IsAbs(p) {
			return Config{}, errors.New("open sandbox engine: every path must be absolute")
		}
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Check is one line of Probe: what was looked at, what was seen, and what to
// do where it is not OK.
type Check struct {
	Name     string
	OK       bool
	Observed string
	Fix      string
}
