package verifier

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"striatum/internal/crew"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
	"striatum/verifier/journal"
)

// sink receives the streams of the i-th program of an execution; nil streams
// are only hashed and spooled. Programs of different sandboxes are asked for at
// the same time.
type sink func(program int) (stdout, stderr io.Writer)

// execution is what came of programs in one or more sandboxes: the fact for the
// receipt, without a judgement yet, and each program's own result, in the order
// of the programs.
type execution struct {
	fact     receipt.Execution
	programs []ended
}

// ended is what came of one program.
type ended struct {
	sandbox.ProgramResult
	ran bool
	hit sandbox.LimitHit // the limit that ended it, or its sandbox before it was started
}

// finished says whether every program ran to its own end, so that the check
// may judge them.
func (e *execution) finished() bool {
	return !slices.ContainsFunc(e.programs, func(p ended) bool { return !p.ran || p.hit != sandbox.HitNone })
}

// end says how the i-th program ended. It is cut if a limit ended it, kept it
// from starting, or if it could not be started.
func (e *execution) end(i int) gocheck.End {
	p := e.programs[i]
	if !p.ran {
		return gocheck.End{Cut: fmt.Sprintf("it was not started: the %s limit was hit before", p.hit)}
	}
	end := gocheck.End{ExitCode: p.ExitCode, Signal: p.Signal}
	switch {
	case p.StartError != "":
		end.Cut = "it could not be started: " + p.StartError
	case p.TimedOut:
		end.Cut = "its time was over"
	case p.hit != sandbox.HitNone:
		end.Cut = fmt.Sprintf("the %s limit was hit", p.hit)
	}
	return end
}

// execute runs programs in boxes, which share them out by turns and run side by
// side, spools and hashes their streams, and merges the measured posture into
// the receipt. The error is an infrastructure error: then nothing of the
// execution counts.
func (r *run) execute(ctx context.Context, boxes []sandbox.Sandbox, programs []sandbox.Program, to sink) (_ *execution, err error) {
	streams, err := r.spools(len(boxes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, streams.discard()) }()
	started := r.lane.cfg.Now()
	results := make([]sandbox.Result, len(boxes))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	all := crew.Group{Stop: func() { stop(context.Canceled) }}
	for k, box := range boxes {
		var mine []sandbox.Program
		for i := k; i < len(programs); i += len(boxes) {
			mine = append(mine, programs[i])
		}
		all.Go(func() {
			res, err := box.Run(ctx, mine, func(i int) (io.Writer, io.Writer) {
				var o, e io.Writer
				if to != nil {
					o, e = to(i*len(boxes) + k)
				}
				return tee(streams[0][k], o), tee(streams[1][k], e)
			})
			if results[k] = res; err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	said, err := streams.keep()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executed(started, results, len(programs), said), nil
}

// executed puts together what n programs came to in their sandboxes. The caller
// holds the lock.
func (r *run) executed(started time.Time, results []sandbox.Result, n int, said [2]kept) *execution {
	x := &execution{programs: make([]ended, n), fact: receipt.Execution{
		Judgement:    receipt.Inconclusive,
		StdoutSHA256: said[0].sha256,
		StderrSHA256: said[1].sha256,
		StdoutBytes:  said[0].bytes,
		StderrBytes:  said[1].bytes,
		ResultSHA256: emptyDigest,
		StartedAt:    started.UTC().Format(time.RFC3339),
	}}
	for k, res := range results {
		r.mergePosture(res.Posture)
		spread(x.programs, res, k, len(results))
		x.fact.TimedOut = x.fact.TimedOut || res.Hit == sandbox.HitWallClock
		x.fact.OOM = x.fact.OOM || res.Hit == sandbox.HitMemory
		x.fact.OutputTruncated = x.fact.OutputTruncated || res.Hit == sandbox.HitOutput
		x.fact.DurationMS = max(x.fact.DurationMS, res.Duration.Milliseconds())
		x.fact.MaxRSSBytes = max(x.fact.MaxRSSBytes, res.MaxRSSBytes)
		x.fact.CPUMS += res.CPU.Milliseconds()
		if res.Hit != sandbox.HitNone {
			r.limitHit(res.Hit)
		}
	}
	for _, p := range x.programs {
		x.fact.TimedOut = x.fact.TimedOut || p.TimedOut
		if x.fact.ExitCode == 0 && x.fact.Signal == "" {
			x.fact.ExitCode, x.fact.Signal = p.ExitCode, p.Signal
		}
	}
	return x
}

// spread puts what the k-th of n sandboxes came to where its programs are.
func spread(programs []ended, res sandbox.Result, k, n int) {
	for j, i := 0, k; i < len(programs); j, i = j+1, i+n {
		p := &programs[i]
		if j < len(res.Programs) {
			p.ProgramResult, p.ran = res.Programs[j], true
		}
		if j >= len(res.Programs)-1 {
			p.hit = res.Hit
		}
	}
}

// programsOf is what n programs in one sandbox came to.
func programsOf(res sandbox.Result, n int) *execution {
	x := &execution{programs: make([]ended, n)}
	spread(x.programs, res, 0, 1)
	return x
}

// emptyDigest is the digest of a result that has no lines.
var emptyDigest = hex.EncodeToString(sha256.New().Sum(nil))

func tee(d *journal.Output, w io.Writer) io.Writer {
	if w == nil {
		return d
	}
	return io.MultiWriter(d, w)
}

// spools are the two streams of an execution, each in parts: what its sandboxes
// print, one after the other.
type spools [2][]*journal.Output

// kept is a stream in the lane's output store.
type kept struct {
	sha256 string
	bytes  int64
}

// spools begins the streams of n sandboxes.
func (r *run) spools(n int) (s spools, err error) {
	for i := range s {
		for range n {
			w, err := r.outputs.Writer()
			if err != nil {
				return s, errors.Join(fmt.Errorf("spool output: %w", err), s.discard())
			}
			s[i] = append(s[i], w)
		}
	}
	return s, nil
}

// keep joins the parts of each stream and keeps it under its digest.
func (s spools) keep() (out [2]kept, err error) {
	for i, parts := range s {
		for _, part := range parts[1:] {
			if err := parts[0].Join(part); err != nil {
				return out, err
			}
		}
		if out[i].sha256, out[i].bytes, err = parts[0].Commit(); err != nil {
			return out, err
		}
	}
	return out, nil
}

// discard drops what was not kept.
func (s spools) discard() error {
	var errs []error
	for _, parts := range s {
		for _, part := range parts {
			errs = append(errs, part.Discard())
		}
	}
	return errors.Join(errs...)
}

// limitHit records a limit that ended an execution.
func (r *run) limitHit(hit sandbox.LimitHit) {
	if r.body.Limits.Hit == "" {
		r.body.Limits.Hit = string(hit)
	}
	r.incident("limit_"+string(hit), receipt.MakesIndeterminate, fmt.Sprintf("the %s limit was hit", hit))
}

// mergePosture adds what one sandbox measured: a facet stays OK only if it was
// OK in each sandbox, and the observation of the first that was not OK stands.
func (r *run) mergePosture(p sandbox.Posture) {
	b := &r.body.Posture
	if b.SeccompSHA256 == "" {
		b.SeccompSHA256 = p.SeccompSHA256
	}
	for _, f := range p.Facets {
		r.mergeFacet(receipt.Facet{Name: f.Name, Required: f.Required, Observed: f.Observed, Observer: f.Observer, OK: f.OK})
	}
	if b.SeccompSHA256 != p.SeccompSHA256 {
		r.mergeFacet(receipt.Facet{Name: "seccomp_profile", Required: b.SeccompSHA256, Observed: p.SeccompSHA256, Observer: "lane"})
	}
}

func (r *run) mergeFacet(f receipt.Facet) {
	for i := range r.body.Posture.Facets {
		have := &r.body.Posture.Facets[i]
		if have.Name != f.Name {
			continue
		}
		if have.OK && !f.OK {
			*have = f
		}
		return
	}
	r.body.Posture.Facets = append(r.body.Posture.Facets, f)
}

// incident notes a fact that decides the classification outside the check's
// own judgement; a second one of the same code adds nothing.
func (r *run) incident(code string, effect receipt.IncidentEffect, detail string) {
	for _, i := range r.body.Incidents {
		if i.Code == code && i.Effect == effect {
			return
		}
	}
	r.body.Incidents = append(r.body.Incidents, receipt.Incident{Code: code, Effect: effect, Detail: detail})
}

// finding notes something that a reader of the receipt should know.
func (r *run) finding(code, path, detail string) {
	r.body.Findings = append(r.body.Findings, receipt.Finding{Code: code, Path: path, Detail: detail})
}
