package verifier

import (
	"context"
	"strings"

	"striatum/allowlist"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
	"striatum/verifier/toolchain"
	"striatum/workflow"
)

// useToolchain notes the Go toolchain of a builtin. One that is to be pinned is
// held against its pin: errConcluded if it is another.
func (r *run) useToolchain() error {
	c := r.tools.closure
	if !workflow.ToolchainBuiltin(r.check.Uses) {
		r.use(c, r.tools.chain.Roots, c.BinarySHA256, c.SHA256)
		return nil
	}
	parts := closureParts(c.Parts)
	digest, err := allowlist.ClosureDigest(parts)
	if err != nil {
		return err
	}
	r.use(c, r.tools.chain.Roots, c.BinarySHA256, digest)
	r.body.Inputs.PinsSHA256 = r.sel.PinsSHA256
	if pin := r.sel.Pins[r.check.CheckID()]; pin.ClosureSHA256 != digest || pin.ResolvedPath != r.tools.chain.Go {
		r.incident("toolchain_drift", receipt.MakesIndeterminate, "the pinned toolchain and the one here differ: "+
			cut(strings.Join(allowlist.ClosureDiff(pin.Closure, parts), "; ")))
		return errConcluded
	}
	return nil
}

// closureParts are the measured parts as a closure lists them.
func closureParts(measured []toolchain.Part) []allowlist.ClosurePart {
	size := func(n int64) *int64 { return &n }
	parts := make([]allowlist.ClosurePart, 0, len(measured))
	for _, p := range measured {
		if p.Folder {
			parts = append(parts, allowlist.ClosurePart{Root: p.Path, TreeSHA256: p.SHA256, Files: size(p.Files), Bytes: size(p.Bytes)})
		} else {
			parts = append(parts, allowlist.ClosurePart{Path: p.Path, SHA256: p.SHA256, Size: size(p.Bytes)})
		}
	}
	return parts
}

// observeToolchain says which bytes the Go toolchain of a check is on this host.
// That a sandbox has the same go command is looked at inside.
func (l *Lane) observeToolchain(ctx context.Context, r *run) (Observation, error) {
	r.step("observe the toolchain")
	c := r.tools.closure
	parts := closureParts(c.Parts)
	digest, err := allowlist.ClosureDigest(parts)
	if err != nil {
		return Observation{}, err
	}
	found, err := r.resolve(ctx, r.tools.chain.Go, sandbox.Spec{Mounts: append(toolMounts(c),
		sandbox.Mount{Kind: sandbox.Layer, Source: r.snap.Dir, Target: gocheck.WorkDir})})
	if u, ok := unobservedIn(err); ok {
		return Observation{ID: r.check.CheckID(), Code: u.code, Why: u.detail}, nil
	}
	if err != nil {
		return Observation{}, err
	}
	if found.Files[0].SHA256 != c.BinarySHA256 {
		return Observation{ID: r.check.CheckID(), Code: "toolchain_drift", Why: "the go command has other bytes inside the sandbox than outside"}, nil
	}
	r.use(c, nil, c.BinarySHA256, digest)
	check, err := r.check.Digest()
	if err != nil {
		return Observation{}, err
	}
	b, _ := workflow.LookupBuiltin(r.check.Uses)
	return l.pin(r, allowlist.Pin{
		ID: r.check.CheckID(), CheckDigest: check, Argv: b.Argv(), ResolvedPath: r.tools.chain.Go,
		BinarySHA256: c.BinarySHA256, Closure: parts, ClosureSHA256: digest,
	}), nil
}
