package verifier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"striatum/internal/anchors"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/seal"
	"striatum/verifier/gocheck"
)

// maxAnchorsBytes bounds the anchors file.
const maxAnchorsBytes = 1 << 20

// maxAnchorLines bounds what is kept of the comparison's output.
const maxAnchorLines = 8 << 20

// prepareAnchors reads the anchors file of the tree.
func prepareAnchors(_ context.Context, r *run) error {
	r.use(r.tools.closure, r.tools.chain.Roots, r.tools.closure.BinarySHA256, r.tools.closure.SHA256)
	root, err := os.OpenRoot(r.snap.Dir)
	if err != nil {
		return fmt.Errorf("open the frozen tree: %w", err)
	}
	defer func() { _ = root.Close() }() // a read-only handle
	r.anchors, err = gocheck.ReadFile(root.FS(), anchors.DefaultPath, maxAnchorsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		r.incident("nothing_to_check", receipt.MakesFailed, "the tree has no "+anchors.DefaultPath)
		return errConcluded
	}
	return err
}

// runAnchors is artifact-anchor-integrity: striatum-init compares the anchors
// in a sandbox, first with one wrong digit in each.
func runAnchors(ctx context.Context, r *run) error {
	mutated, err := anchors.Mutate(r.anchors, r.lane.cfg.Rand)
	if err != nil {
		r.incident("anchors_invalid", receipt.MakesFailed, err.Error())
		return errConcluded
	}
	r.body.Control.MutationSHA256 = seal.SHA256Hex(mutated)
	spec := sandbox.Spec{Limits: r.limits, Mounts: []sandbox.Mount{
		{Kind: sandbox.Layer, Source: r.snap.Dir, Target: gocheck.WorkDir},
	}}
	boxes, err := r.prepareBoxes(ctx, spec, spec, spec)
	if err != nil {
		return err
	}
	defer discard(boxes)
	file := path.Join(gocheck.WorkDir, anchors.DefaultPath)
	for i, box := range boxes {
		content := r.anchors
		if i == 0 {
			content = mutated
			r.step("negative control")
		} else {
			r.step(fmt.Sprintf("run %d of 2", i))
		}
		compare := program(sandbox.InitPath, []string{"anchors", file, gocheck.WorkDir}, gocheck.WorkDir, nil)
		compare.Files = []sandbox.File{{Path: file, Mode: 0o644, Data: content}}
		stdout := &capped{left: maxAnchorLines}
		x, err := r.execute(ctx, []sandbox.Sandbox{box}, []sandbox.Program{compare}, func(int) (io.Writer, io.Writer) { return stdout, nil })
		if err != nil {
			return err
		}
		box.Discard()
		if i == 0 {
			r.controlled(x, func() (receipt.ControlOutcome, string) {
				return anchorControl(mutated, stdout.Bytes(), x.end(0))
			})
			continue
		}
		judged := anchorJudgement(r.anchors, stdout.Bytes(), x.end(0))
		for _, reason := range judged.Reasons {
			r.show(reason.Detail, "")
		}
		r.judged(x, judged)
		if err := r.note(judged.Judgement); err != nil {
			return err
		}
	}
	return nil
}

func anchorControl(mutated, stdout []byte, end gocheck.End) (receipt.ControlOutcome, string) {
	verdict, why := anchors.JudgeControl(mutated, stdout, end.ExitCode)
	switch {
	case end.Cut != "" || end.Signal != "":
		return receipt.Invalid, "it ended with " + end.String()
	case verdict == anchors.Failed:
		return receipt.FailedAsRequired, ""
	case verdict == anchors.Passed:
		return receipt.DidNotFail, why
	default:
		return receipt.Invalid, why
	}
}

func anchorJudgement(content, stdout []byte, end gocheck.End) gocheck.Judged {
	verdict, reasons, result := anchors.Judge(content, stdout, end.ExitCode)
	j := gocheck.Judged{Judgement: receipt.Inconclusive, Results: gocheck.Results{{Outcome: string(result)}}}
	if end.Cut != "" || end.Signal != "" {
		return j
	}
	switch verdict {
	case anchors.Passed:
		j.Judgement = receipt.Pass
	case anchors.Failed:
		j.Judgement = receipt.Fail
	case anchors.Inconclusive:
	}
	for _, reason := range reasons {
		j.Reasons = append(j.Reasons, receipt.Reason{Code: reason.Code, Detail: reason.Detail})
	}
	return j
}

// capped keeps the first bytes of a stream.
type capped struct {
	bytes.Buffer
	left int
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	c.Buffer.Write(p[:n])
	return len(p), nil
}
