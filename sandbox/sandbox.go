// Package sandbox is the neutral seam between a lane, which decides what runs,
// and an engine, which runs it in disposable isolation. It holds plain values
// and two small interfaces; package containerdengine implements them, and
// package sandboxtest is the suite that every engine passes.
//
// One Sandbox is one container. Its first process is striatum-init, which
// measures the isolation from inside, then starts the programs of the spec one
// after the other, each as the unprivileged user Check, in a mount namespace of
// its own, with fresh writable layers, and kills what a program left behind
// before it starts the next. Nothing in a spec can weaken the isolation: there
// is no field for it.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"time"
)

// CheckUID and CheckGID are the ids, inside, that every program runs as.
const (
	CheckUID = 1000
	CheckGID = 1000
)

// InitPath is where every program finds striatum-init, read-only.
const InitPath = "/.striatum/init"

// MountKind says what a mount gives its programs.
type MountKind uint8

// The kinds of mount.
const (
	_ MountKind = iota
	// ReadOnly shows Source, a host path or a Volume's, unchanged at Target.
	ReadOnly
	// Layer shows Source, a host path, as if it belonged to Check, with a
	// writable layer above it that is discarded; Source itself is never written.
	Layer
	// Scratch is an empty writable tmpfs owned by Check.
	Scratch
	// Output is a Volume shown writable; what is written stays in the Volume.
	Output
)

// Mount is one part of the file system that a sandbox's programs see, beside
// the host's /usr (or what Spec.Root has instead), a generated /etc, both
// read-only, and an empty /dev/shm.
// All writable layers of a sandbox share Limits.DiskBytes; where it has both
// shared and fresh ones, each kind gets half. A target lies below no Layer,
// Scratch or Output.
type Mount struct {
	Kind   MountKind
	Source string // absolute host path; for Scratch empty
	Volume Volume // instead of Source, for ReadOnly and Output
	Target string // absolute, clean path inside
	// Shared keeps a Layer or Scratch across the programs of one sandbox.
	// Otherwise each program gets a fresh one.
	Shared bool
}

// File is written into a Layer before its program starts, owned by Check.
type File struct {
	Path string // absolute, below the target of a Layer
	Mode uint32 // 0644, 0755
	Data []byte
}

// Program is one command of a sandbox. Exactly Env is its environment.
type Program struct {
	Path  string   // absolute path inside
	Args  []string // with the program's own name as the first, as execve takes them
	Dir   string
	Env   []string
	Files []File
	// Collect names files that are read back after the program ended, each cut
	// at CollectBytes (an absent or irregular file is reported as such).
	Collect      []string
	CollectBytes int64
	// WallClock limits this program alone; zero: only the sandbox's limit.
	WallClock time.Duration
}

// Limits bound a sandbox as a whole. Every field must be positive.
type Limits struct {
	WallClock   time.Duration // of Run; the programs are killed when it is over
	MemoryBytes int64         // memory and swap together, tmpfs pages included
	Pids        int64
	MilliCPUs   int64 // 2000 is two cores
	OutputBytes int64 // of all streams of all programs together
	DiskBytes   int64 // of all writable layers together
}

// Spec describes one sandbox.
type Spec struct {
	// Root, an absolute host folder that holds a whole system, is where tools come
	// from instead of the host's /usr, of which nothing is then visible. What lies
	// directly in it is shown read-only at the same place: files, folders with
	// all that is below, and links. Not shown are /proc, /dev, /sys, /tmp, /run,
	// and whatever a mount's target is, or lies in. Of its /etc a copy is shown, of
	// at most 64 MiB and 20,000 entries, in which generated files win. Empty: the
	// host's /usr.
	Root   string
	Mounts []Mount
	Limits Limits
}

// Streams receives the output of the i-th program while it runs. A Writer that
// returns an error ends the run with that error. Either may be nil: discarded.
type Streams func(program int) (stdout, stderr io.Writer)

// Collected is a file read back after a program.
type Collected struct {
	Path      string
	Data      []byte
	Regular   bool // false: absent or not a regular file; Data is empty
	Truncated bool
}

// ProgramResult says how one program ended. A program that did not start has
// StartError set (not found, not executable) and nothing else.
type ProgramResult struct {
	StartError  string
	ExitCode    int
	Signal      string // "SIGKILL"; empty when it exited
	TimedOut    bool   // by Program.WallClock
	LeftBehind  int    // processes that outlived it and were killed
	StdoutBytes int64
	StderrBytes int64
	StartedAt   time.Time
	Duration    time.Duration
	MaxRSSBytes int64
	CPU         time.Duration
	Collected   []Collected
}

// LimitHit names the limit of a Spec that ended or marred a run.
type LimitHit string

// The limits that can be hit.
const (
	HitNone      LimitHit = ""
	HitWallClock LimitHit = "wall_clock"
	HitMemory    LimitHit = "memory"
	HitPids      LimitHit = "pids"
	HitOutput    LimitHit = "output"
	HitDisk      LimitHit = "disk"
)

// Facet is one measured property of the isolation. Observer is "init" or
// "lane". A facet that could not be observed has OK false.
type Facet struct {
	Name, Required, Observed, Observer string
	OK                                 bool
}

// PostureError is the error of a Run whose sandbox was not strict, or did not
// say so: nothing was started in it, or nothing that it said counts. Posture
// holds what was observed until then; a facet that was not has OK false.
type PostureError struct {
	Posture Posture
	Reason  string
}

// NotObserved is what a facet shows that nobody reported.
const NotObserved = "not observed"

// Error names the first facet that was seen not to be as required.
func (e *PostureError) Error() string {
	for _, f := range e.Posture.Facets {
		if !f.OK && f.Observed != NotObserved {
			return fmt.Sprintf("sandbox is not strict: %s is %q, required is %q: %s", f.Name, f.Observed, f.Required, e.Reason)
		}
	}
	return "sandbox was not observed to its end: " + e.Reason
}

// Posture is the isolation of one sandbox as measured.
type Posture struct {
	SeccompSHA256 string
	Facets        []Facet
}

// Result is what a run came to. Programs has one entry for each program that
// was started, in order; after a hit limit the rest was not started.
type Result struct {
	Programs    []ProgramResult
	Posture     Posture
	Hit         LimitHit
	MaxRSSBytes int64
	CPU         time.Duration
	Duration    time.Duration
}

// Description names the engine and its parts, with versions and digests.
type Description struct {
	Engine, EngineVersion, Runtime, RuntimeVersion string
	Binaries                                       []Binary
}

// Binary is one host program that the engine trusts.
type Binary struct{ Path, SHA256 string }

// Engine makes sandboxes. Its methods may be called by several goroutines.
type Engine interface {
	// Prepare makes a container for spec, ready to start at once, and measures
	// nothing yet. The caller must Discard the Sandbox. Sources must not change
	// until then.
	Prepare(ctx context.Context, spec Spec) (Sandbox, error)
	// NewVolume makes an empty folder of at most bytes that one sandbox may
	// fill and later ones read. The caller must Remove or Keep it.
	NewVolume(ctx context.Context, bytes int64) (Volume, error)
	// Describe returns what the engine runs on.
	Describe() Description
	// Close waits for pending removals and ends what the engine started.
	Close() error
}

// Sandbox is one container, to be used once.
type Sandbox interface {
	// Run starts the programs in order and returns when they and all their
	// descendants are gone. A program's failure is a Result; an error means
	// that the engine could not say what happened (then nothing in Result
	// counts). When ctx ends, everything is killed and the error is its cause.
	Run(ctx context.Context, programs []Program, streams Streams) (Result, error)
	// Discard removes every trace. It returns at once; Engine.Close waits.
	Discard()
}

// Volume is a folder between sandboxes: of the user Check in the one that fills
// it, of nobody in those that read it, which need the modes to let others read.
type Volume interface {
	// Keep makes the content read-only for good, owned by nobody inside, copies
	// or moves it to the host folder dst and syncs it.
	Keep(dst string) error
	// Remove drops it with its content.
	Remove() error
}
