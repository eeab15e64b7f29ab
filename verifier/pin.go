package verifier

import (
	"context"
	"slices"
	"time"

	"striatum/allowlist"
	"striatum/receipt"
)

// Observation is what the lane saw of a check's command, or why it saw nothing.
type Observation struct {
	ID   string // of the check
	Pin  allowlist.Pin
	Code string // of Why: CommandNotFound, or another
	Why  string // empty: Pin holds
	// Absent are words of argv that read like a path in the tree and are none.
	Absent []string
}

// CommandNotFound is the code of a command that is not there, inside.
const CommandNotFound = "command_not_found"

// Observe says, for each entry of the intent and each check with a pinned toolchain
// that the request selects, which bytes its command stands for on this host and in
// this tree, as sandboxes see them. It executes neither the command nor
// anything of the tree. The order is the request's.
func (l *Lane) Observe(ctx context.Context, req Request) (seen []Observation, err error) {
	err = l.each(ctx, "verifier pin", req, func(r *run) error {
		var o Observation
		var err error
		if row, ok := r.sel.Externals[r.check.CheckID()]; ok {
			o, err = l.observation(ctx, r, row)
		} else {
			o, err = l.observeToolchain(ctx, r)
		}
		if err == nil {
			seen = append(seen, o)
		}
		return err
	})
	return seen, err
}

func (l *Lane) observation(ctx context.Context, r *run, row allowlist.Row) (Observation, error) {
	err := r.protect(ctx)
	var o observed
	if err == nil {
		r.step("observe the command")
		o, err = r.observe(ctx, row.Entry)
	}
	if u, ok := unobservedIn(err); ok {
		return Observation{ID: row.Entry.ID, Code: u.code, Why: u.detail}, nil
	}
	if err != nil {
		return Observation{}, err
	}
	r.use(o.tools, nil, o.resolution.Files[0].SHA256, o.sha256)
	seen := l.pin(r, allowlist.Pin{
		ID: row.Entry.ID, CheckDigest: row.CheckDigest, Argv: row.Entry.Argv.Words, ResolvedPath: o.resolution.Path,
		BinarySHA256: o.resolution.Files[0].SHA256, Closure: o.parts, ClosureSHA256: o.sha256, Definition: o.definition.Lines,
	})
	seen.Absent = o.definition.Absent
	return seen, nil
}

// pin adds to p who observed it, when, and in what kind of sandbox.
func (l *Lane) pin(r *run, p allowlist.Pin) Observation {
	p.Posture = r.body.Posture
	d := r.engine.Describe()
	p.Posture.Engine, p.Posture.EngineVersion, p.Posture.Runtime, p.Posture.RuntimeVersion = d.Engine, d.EngineVersion, d.Runtime, d.RuntimeVersion
	p.Posture.Strict = !slices.ContainsFunc(p.Posture.Facets, func(f receipt.Facet) bool { return !f.OK })
	p.ObservedAt, p.ObservedBy = l.cfg.Now().UTC().Format(time.RFC3339), l.cfg.Key.Public().ID()
	return Observation{ID: p.ID, Pin: p}
}
