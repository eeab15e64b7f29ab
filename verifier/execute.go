package verifier

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
)

// streamDigest hashes one stream of a whole execution: the bytes of its
// programs one after the other.
type streamDigest struct {
	hash  hash.Hash
	bytes int64
	spool io.Writer
}

func (d *streamDigest) Write(p []byte) (int, error) {
	d.hash.Write(p)
	d.bytes += int64(len(p))
	return d.spool.Write(p)
}

func (d *streamDigest) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }

// sink receives the streams of the i-th program of an execution; nil streams
// are only hashed and spooled.
type sink func(program int) (stdout, stderr io.Writer)

// execution is what came of one sandbox: the fact for the receipt, without a
// judgement yet, and each program's own result.
type execution struct {
	fact     receipt.Execution
	programs []sandbox.ProgramResult
	hit      sandbox.LimitHit
}

// finished says whether all n programs ran to their own end, so that the check
// may judge them.
func (e *execution) finished(n int) bool {
	return e.hit == sandbox.HitNone && len(e.programs) == n
}

// end says how the i-th program ended. It is cut if a limit ended it, kept it
// from starting, or if it could not be started.
func (e *execution) end(i int) gocheck.End {
	if i >= len(e.programs) {
		return gocheck.End{Cut: fmt.Sprintf("it was not started: the %s limit was hit before", e.hit)}
	}
	p := e.programs[i]
	end := gocheck.End{ExitCode: p.ExitCode, Signal: p.Signal}
	switch {
	case p.StartError != "":
		end.Cut = "it could not be started: " + p.StartError
	case p.TimedOut:
		end.Cut = "its time was over"
	case e.hit != sandbox.HitNone && i == len(e.programs)-1:
		end.Cut = fmt.Sprintf("the %s limit was hit", e.hit)
	}
	return end
}

// execute runs programs in sb, spools and hashes their streams, and merges the
// measured posture into the receipt. The error is an infrastructure error: then
// nothing of the execution counts.
func (r *run) execute(ctx context.Context, sb sandbox.Sandbox, programs []sandbox.Program, to sink) (*execution, error) {
	stdout, closeOut, err := r.spool()
	if err != nil {
		return nil, err
	}
	stderr, closeErr, err := r.spool()
	if err != nil {
		_ = closeOut()
		return nil, err
	}
	started := r.lane.cfg.Now()
	res, err := sb.Run(ctx, programs, func(i int) (io.Writer, io.Writer) {
		var o, e io.Writer
		if to != nil {
			o, e = to(i)
		}
		return tee(stdout, o), tee(stderr, e)
	})
	if cerr := closeOut(); err == nil {
		err = cerr
	}
	if cerr := closeErr(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mergePosture(res.Posture)
	x := &execution{programs: res.Programs, hit: res.Hit}
	x.fact = receipt.Execution{
		Judgement:       receipt.Inconclusive,
		TimedOut:        res.Hit == sandbox.HitWallClock,
		OOM:             res.Hit == sandbox.HitMemory,
		OutputTruncated: res.Hit == sandbox.HitOutput,
		StdoutSHA256:    stdout.sum(),
		StderrSHA256:    stderr.sum(),
		StdoutBytes:     stdout.bytes,
		StderrBytes:     stderr.bytes,
		ResultSHA256:    emptyDigest,
		StartedAt:       started.UTC().Format(time.RFC3339),
		DurationMS:      res.Duration.Milliseconds(),
		MaxRSSBytes:     res.MaxRSSBytes,
		CPUMS:           res.CPU.Milliseconds(),
	}
	for _, p := range res.Programs {
		if p.TimedOut {
			x.fact.TimedOut = true
		}
		if x.fact.ExitCode == 0 && x.fact.Signal == "" {
			x.fact.ExitCode, x.fact.Signal = p.ExitCode, p.Signal
		}
	}
	if res.Hit != sandbox.HitNone {
		r.limitHit(res.Hit)
	}
	return x, nil
}

// emptyDigest is the digest of a result that has no lines.
var emptyDigest = hex.EncodeToString(sha256.New().Sum(nil))

func tee(d *streamDigest, w io.Writer) io.Writer {
	if w == nil {
		return d
	}
	return io.MultiWriter(d, w)
}

// spool returns a stream that is hashed and kept in the lane's output store
// under its digest.
func (r *run) spool() (*streamDigest, func() error, error) {
	w, err := r.outputs.Writer()
	if err != nil {
		return nil, nil, fmt.Errorf("spool output: %w", err)
	}
	d := &streamDigest{hash: sha256.New(), spool: w}
	return d, func() error {
		if _, _, err := w.Commit(); err != nil {
			return fmt.Errorf("keep output: %w", err)
		}
		return nil
	}, nil
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
