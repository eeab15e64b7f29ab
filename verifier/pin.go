package verifier

import (
	"context"
	"errors"
	"time"

	"striatum/allowlist"
	"striatum/workflow"
)

// Observation is what the lane saw of an entry's command, or why it saw nothing.
type Observation struct {
	Entry allowlist.Entry
	Pin   allowlist.Pin
	Code  string // of Why: CommandNotFound, or another
	Why   string // empty: Pin holds
}

// CommandNotFound is the code of a command that is not there, inside.
const CommandNotFound = "command_not_found"

// Observe says, for each entry that the request selects, which bytes its command
// stands for on this host and in this tree, as sandboxes see them. It executes
// neither the command nor anything of the tree. The order is the intent's.
func (l *Lane) Observe(ctx context.Context, req Request) (seen []Observation, err error) {
	f, err := l.begin(ctx, "verifier pin", req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.session.Release()) }()
	l.progress("", "start the sandbox engine")
	engine, err := l.cfg.OpenEngine(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	for _, check := range f.sel.Checks {
		row, ok := f.sel.Externals[check.CheckID()]
		if !ok {
			continue
		}
		o, err := l.observation(ctx, &run{frozen: f, lane: l, req: req, check: workflow.CheckRef{ID: row.Entry.ID}, engine: engine}, row)
		if err != nil {
			return seen, err
		}
		seen = append(seen, o)
	}
	return seen, nil
}

func (l *Lane) observation(ctx context.Context, r *run, row allowlist.Row) (Observation, error) {
	r.step("observe the command")
	o, err := r.observe(ctx, row.Entry)
	if u, ok := errors.AsType[unobserved](err); ok {
		return Observation{Entry: row.Entry, Code: u.code, Why: u.detail}, nil
	}
	if err != nil {
		return Observation{}, err
	}
	r.use(o.tools, nil, o.resolution.Files[0].SHA256, o.sha256)
	posture := r.body.Posture
	d := r.engine.Describe()
	posture.Engine, posture.EngineVersion, posture.Runtime, posture.RuntimeVersion = d.Engine, d.EngineVersion, d.Runtime, d.RuntimeVersion
	posture.Strict = true
	for _, f := range posture.Facets {
		if !f.OK {
			posture.Strict = false
		}
	}
	return Observation{Entry: row.Entry, Pin: allowlist.Pin{
		ID: row.Entry.ID, CheckDigest: row.CheckDigest, Argv: row.Entry.Argv.Words, ResolvedPath: o.resolution.Path,
		BinarySHA256: o.resolution.Files[0].SHA256, Closure: o.parts, ClosureSHA256: o.sha256,
		ObservedAt: l.cfg.Now().UTC().Format(time.RFC3339), ObservedBy: l.cfg.Key.Public().ID(), Posture: posture,
	}}, nil
}
