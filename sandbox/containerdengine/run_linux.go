package containerdengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/initproto"
	"striatum/internal/problem"
	"striatum/sandbox"
)

// drainLimit is how long a killed sandbox may take to close its stream.
const drainLimit = 10 * time.Second

// errTurn is a frame that does not belong where it came.
var errTurn = fmt.Errorf("%w: out of turn", initproto.ErrFrame)

// running is one Run.
type running struct {
	b       *box
	streams sandbox.Streams
	posture *posture
	result  sandbox.Result
	output  int64
	hit     atomic.Pointer[sandbox.LimitHit]
	// now is the program that runs, nil between programs.
	now     *sandbox.ProgramResult
	started time.Time
}

// Run runs the programs in order.
func (b *box) Run(ctx context.Context, programs []sandbox.Program, streams sandbox.Streams) (sandbox.Result, error) {
	first := false
	b.used.Do(func() { first = true })
	if !first {
		return sandbox.Result{}, errors.New("run sandbox: it was used before")
	}
	leave, err := b.e.bin.enter()
	if err != nil {
		return sandbox.Result{}, err
	}
	defer leave()
	start := b.e.cfg.Now()
	r := &running{b: b, streams: streams}
	if r.posture, err = b.observe(); err != nil {
		return sandbox.Result{}, problem.Wrap(problem.Indeterminate, err, "observe the sandbox's limits", "run `striatum doctor`")
	}
	// Whatever ends the run kills everything, which ends the stream, which
	// ends the loop below.
	var ends sync.Once
	forced := make(chan struct{})
	end := func() { ends.Do(func() { close(forced); b.killAll() }) }
	stopContext := context.AfterFunc(ctx, end)
	defer stopContext()
	clock := time.AfterFunc(b.limits.WallClock, func() {
		r.stop(sandbox.HitWallClock)
		end()
	})
	defer clock.Stop()
	drained := make(chan struct{})
	go b.closeLate(forced, drained)
	err = r.all(programs, end)
	close(drained)
	return r.finish(ctx, err, b.e.cfg.Now().Sub(start))
}

// closeLate closes the streams of a killed sandbox that keeps them open.
func (b *box) closeLate(forced, drained <-chan struct{}) {
	select {
	case <-drained:
		return
	case <-forced:
	}
	timer := time.NewTimer(drainLimit)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
		b.streams.Cancel()
	}
}

// stop notes the limit that ends the run; the first one counts.
func (r *running) stop(hit sandbox.LimitHit) { r.hit.CompareAndSwap(nil, &hit) }

// all runs the programs until one is the last or a limit is hit.
func (r *running) all(programs []sandbox.Program, end func()) error {
	for i, p := range programs {
		if err := r.send(p, end); err != nil {
			return err
		}
		if err := r.program(i, p, end); err != nil {
			return err
		}
		if err := r.look(); err != nil {
			return err
		}
		if r.hit.Load() != nil {
			return nil
		}
	}
	if err := r.b.conn.Write(initproto.TypeDone, nil); err != nil {
		return err
	}
	if t, _, err := r.b.conn.Read(); err != nil {
		return err
	} else if t != initproto.TypeEnd {
		return errTurn
	}
	return nil
}

// send hands a program to the launcher, beside the reading of its answer.
func (r *running) send(p sandbox.Program, end func()) error {
	q := initproto.Program{
		Path: p.Path, Args: p.Args, Dir: p.Dir, Env: p.Env,
		Collect: p.Collect, CollectBytes: p.CollectBytes, WallClockNS: p.WallClock.Nanoseconds(),
	}
	for _, f := range p.Files {
		q.Files = append(q.Files, initproto.File{Path: f.Path, Mode: f.Mode, Data: f.Data})
	}
	payload := q.Encode()
	if len(payload) > initproto.MaxPayload {
		end()
		return fmt.Errorf("run %q: program and files take %d bytes, at most %d are possible", p.Path, len(payload), initproto.MaxPayload)
	}
	// A launcher that died leaves a full pipe that nobody reads: the reading
	// side then sees the end, and closing the streams ends this.
	go func() { _ = r.b.conn.Write(initproto.TypeProgram, payload) }()
	return nil
}

// program reads what the launcher says of the i-th program.
func (r *running) program(i int, p sandbox.Program, end func()) error {
	stdout, stderr := io.Writer(nil), io.Writer(nil)
	if r.streams != nil {
		stdout, stderr = r.streams(i)
	}
	if err := r.awaitPosture(); err != nil {
		return err
	}
	t, payload, err := r.b.conn.Read()
	if err != nil {
		return err
	}
	r.result.Programs = append(r.result.Programs, sandbox.ProgramResult{})
	res := &r.result.Programs[len(r.result.Programs)-1]
	switch t { //nolint:exhaustive // every other frame is out of turn
	case initproto.TypeNotStarted:
		res.StartError = string(payload)
		return r.programEnd()
	case initproto.TypeFatal:
		r.result.Programs = r.result.Programs[:len(r.result.Programs)-1]
		return fmt.Errorf("launcher: %s", payload)
	case initproto.TypeStarted:
	default:
		return errTurn
	}
	r.now, r.started = res, r.b.e.cfg.Now()
	res.StartedAt = r.started
	for {
		t, payload, err := r.b.conn.Read()
		if err != nil {
			return err
		}
		switch t { //nolint:exhaustive // every other frame is out of turn
		case initproto.TypeStdout:
			res.StdoutBytes += int64(len(payload))
			err = r.forward(stdout, payload, end)
		case initproto.TypeStderr:
			res.StderrBytes += int64(len(payload))
			err = r.forward(stderr, payload, end)
		case initproto.TypeExited:
			r.now = nil
			if err := r.exited(res, payload); err != nil {
				return err
			}
			return r.collect(res, p)
		default:
			err = errTurn
		}
		if err != nil {
			return err
		}
	}
}

func (r *running) awaitPosture() error {
	t, payload, err := r.b.conn.Read()
	if err != nil {
		return err
	}
	if t == initproto.TypeFatal {
		return fmt.Errorf("launcher: %s", payload)
	}
	if t != initproto.TypePosture {
		return errTurn
	}
	facets, err := initproto.DecodeFacets(payload)
	if err != nil {
		return err
	}
	return r.posture.add(facets)
}

// forward counts output and passes on what is within the limit.
func (r *running) forward(w io.Writer, data []byte, end func()) error {
	room := r.b.limits.OutputBytes - r.output
	r.output += int64(len(data))
	if int64(len(data)) > room {
		r.stop(sandbox.HitOutput)
		end()
		data = data[:max(room, 0)]
	}
	if w == nil || len(data) == 0 {
		return nil
	}
	if _, err := w.Write(data); err != nil {
		end()
		return &writerError{err}
	}
	return nil
}

// writerError is a failure of the caller's own writer.
type writerError struct{ err error }

func (e *writerError) Error() string { return "write output: " + e.err.Error() }
func (e *writerError) Unwrap() error { return e.err }

func (r *running) exited(res *sandbox.ProgramResult, payload []byte) error {
	x, err := initproto.DecodeExited(payload)
	if err != nil {
		return err
	}
	res.ExitCode, res.TimedOut, res.LeftBehind = int(x.ExitCode), x.TimedOut, int(x.LeftBehind)
	res.Duration, res.CPU, res.MaxRSSBytes = time.Duration(x.DurationNS), time.Duration(x.CPUNS), x.MaxRSSBytes
	if x.Signal != 0 {
		res.Signal = signalName(x.Signal)
	}
	if x.DiskFull {
		r.stop(sandbox.HitDisk)
	}
	return nil
}

func signalName(n int64) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}

// collect reads the collected files up to the program's end.
func (r *running) collect(res *sandbox.ProgramResult, p sandbox.Program) error {
	for i, name := range p.Collect {
		file := sandbox.Collected{Path: name}
		for last := false; !last; {
			t, payload, err := r.b.conn.Read()
			if err != nil {
				return err
			}
			if t != initproto.TypeCollected {
				return errTurn
			}
			c, err := initproto.DecodeCollected(payload)
			if err != nil {
				return err
			}
			if c.Index != int64(i) || int64(len(file.Data))+int64(len(c.Data)) > p.CollectBytes {
				return errTurn
			}
			file.Data = append(file.Data, c.Data...)
			file.Regular, file.Truncated, last = c.Regular, c.Truncated, c.Last
		}
		if !file.Regular {
			file.Data = nil
		}
		res.Collected = append(res.Collected, file)
	}
	return r.programEnd()
}

func (r *running) programEnd() error {
	t, _, err := r.b.conn.Read()
	if err == nil && t != initproto.TypeProgramEnd {
		err = errTurn
	}
	return err
}

// look reads the kernel's counters for limits that were hit.
func (r *running) look() error {
	u, err := r.b.group.Usage()
	if err != nil {
		return err
	}
	r.result.MaxRSSBytes, r.result.CPU = u.MaxMemoryBytes, u.CPU
	switch {
	case u.OOMKills > 0:
		r.stop(sandbox.HitMemory)
	case u.PidsHit > 0:
		r.stop(sandbox.HitPids)
	}
	return nil
}

// finish turns the end of the loop into a result or an error.
func (r *running) finish(ctx context.Context, err error, took time.Duration) (sandbox.Result, error) {
	r.result.Duration = took
	r.result.Posture = r.posture.merged()
	if cause := context.Cause(ctx); cause != nil {
		return sandbox.Result{}, fmt.Errorf("run sandbox: %w", cause)
	}
	if own, ok := errors.AsType[*writerError](err); ok {
		return sandbox.Result{}, fmt.Errorf("run sandbox: %w", own)
	}
	if err != nil {
		// The launcher is gone: the kernel may know why.
		_ = r.look()
	}
	hit := r.hit.Load()
	if err == nil || hit != nil {
		if hit != nil {
			r.result.Hit = *hit
		}
		if r.now != nil {
			r.now.Signal, r.now.ExitCode = "SIGKILL", 128+int(unix.SIGKILL)
			r.now.Duration = r.b.e.cfg.Now().Sub(r.started)
			r.now.TimedOut = r.result.Hit == sandbox.HitWallClock
		}
		return r.result, nil
	}
	if r.b.e.gone() {
		return sandbox.Result{}, r.b.e.explain(err)
	}
	reason := strings.TrimSpace(err.Error() + " " + r.b.stderr.String())
	return sandbox.Result{}, &sandbox.PostureError{Posture: r.result.Posture, Reason: reason}
}
