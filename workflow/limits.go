package workflow

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits are the bounds that a check asks for, as written in a document. An
// absent field leaves the lane's own limit. Sizes are a whole number and one
// of KiB, MiB, GiB, or a bare number of bytes; WallClock is a Go duration.
type Limits struct {
	WallClock string `json:"wall_clock,omitempty"`
	Memory    string `json:"memory,omitempty"`
	Pids      int64  `json:"pids,omitempty"`
	CPUs      int64  `json:"cpus,omitempty"`
	Output    string `json:"output,omitempty"`
	Disk      string `json:"disk,omitempty"`
}

// Bounds are limits as values. Zero means not given.
type Bounds struct {
	WallClock   time.Duration
	MemoryBytes int64
	Pids        int64
	MilliCPUs   int64
	OutputBytes int64
	DiskBytes   int64
}

// LimitError says which limit is wrong and why. Key is the JSON key.
type LimitError struct{ Key, Reason string }

func (e *LimitError) Error() string { return fmt.Sprintf("limit %q %s", e.Key, e.Reason) }

// The ranges that Parse admits.
const (
	minWallClock = time.Second
	maxWallClock = 24 * time.Hour
	minMemory    = 16 << 20
	maxMemory    = 1 << 40
	maxPids      = 1 << 16
	maxCPUs      = 1 << 10
	minOutput    = 1 << 10
	maxOutput    = 1 << 30
	minDisk      = 1 << 20
	maxDisk      = 1 << 40
)

// Parse returns the limits as values. The error is a *LimitError.
func (l Limits) Parse() (Bounds, error) {
	var b Bounds
	var err error
	if l.WallClock != "" {
		b.WallClock, err = time.ParseDuration(l.WallClock)
		if err != nil || b.WallClock < minWallClock || b.WallClock > maxWallClock {
			return Bounds{}, &LimitError{"wall_clock", `is not a duration from "1s" to "24h"`}
		}
	}
	if b.MemoryBytes, err = size("memory", l.Memory, minMemory, maxMemory); err != nil {
		return Bounds{}, err
	}
	if b.OutputBytes, err = size("output", l.Output, minOutput, maxOutput); err != nil {
		return Bounds{}, err
	}
	if b.DiskBytes, err = size("disk", l.Disk, minDisk, maxDisk); err != nil {
		return Bounds{}, err
	}
	if l.Pids < 0 || l.Pids > maxPids {
		return Bounds{}, &LimitError{"pids", fmt.Sprintf("is not from 1 to %d", maxPids)}
	}
	if l.CPUs < 0 || l.CPUs > maxCPUs {
		return Bounds{}, &LimitError{"cpus", fmt.Sprintf("is not from 1 to %d", maxCPUs)}
	}
	b.Pids = l.Pids
	b.MilliCPUs = 1000 * l.CPUs
	return b, nil
}

// size reads a size; "" is zero, not given.
func size(key, s string, least, most int64) (int64, error) {
	if s == "" {
		return 0, nil
	}
	digits, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			digits, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || digits != strconv.FormatInt(n, 10) || n > most>>shift || n<<shift < least {
		return 0, &LimitError{key, fmt.Sprintf(`is not a size from %s to %s such as "2GiB"`, sizeText(least), sizeText(most))}
	}
	return n << shift, nil
}

func sizeText(n int64) string {
	units := []string{"", "KiB", "MiB", "GiB"}
	i := 0
	for n%1024 == 0 && n >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return strconv.FormatInt(n, 10) + units[i]
}
