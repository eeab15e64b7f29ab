package verifiercmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"striatum/claim"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/receipt"
	"striatum/seal"
	"striatum/verifier"
	"striatum/verifier/journal"
)

// recorder hands a lane's evidence to the service, as whoever runs the lane.
type recorder struct{ service.Service }

func (r recorder) RecordReceipt(ctx context.Context, envelope []byte) error {
	_, err := r.Service.RecordReceipt(ctx, envelope)
	return err
}

// binder binds each outcome's claim to its receipt and leaves copies for people
// in the worktree.
type binder struct {
	service         service.Service
	repository, run string
	declared        []claim.Claim
	top             string
	outputs         string // the lane's store of streams; "" where it cannot be read
	streams         cli.Streams
	progress        *progress
	noted           bool // that a copy could not be written
}

func (b *binder) concluded(ctx context.Context, o verifier.Outcome) error {
	b.progress.concluded(o)
	ledger, err := bind(ctx, b.service, b.repository, b.run, b.declared, o)
	if err != nil {
		return err
	}
	return b.keep(o, ledger)
}

// bind binds the claim of an outcome to its receipt, and returns the run's ledger;
// nil where the check backs no claim.
func bind(ctx context.Context, s service.Service, repository, run string, declared []claim.Claim, o verifier.Outcome) ([]byte, error) {
	if declared == nil || o.Check.BacksClaim == "" {
		return nil, nil
	}
	return s.Bind(ctx, daemon.ClaimBinding{
		RepositoryID: repository, RunID: run, Declared: declared, ClaimID: o.Check.BacksClaim, Seal: o.Receipt.Seal(),
	})
}

// keep leaves copies of an outcome for people.
func (b *binder) keep(o verifier.Outcome, ledger []byte) error {
	if ledger != nil {
		b.copy(".striatum/claim_ledger.json", ledger)
	}
	b.copy(".striatum/receipts/"+o.Receipt.Seal()+".receipt.json", o.Envelope)
	bundle, err := receipt.Bundle(o.Envelope, o.Receipt.Key().Public)
	if err != nil {
		return err
	}
	b.copy(".striatum/receipts/"+o.Receipt.Seal()+".sigstore.json", bundle)
	if o.Census != nil {
		b.copy(censusCopy(o.Receipt.Seal()), o.Census)
	}
	if b.outputs == "" {
		return nil // the lane is another's
	}
	if manifest, err := embedded.ReadFile(o.Manifest, maxCopyBytes); err == nil {
		b.copy(".striatum/receipts/"+o.Receipt.Seal()+".manifest", manifest)
	}
	b.logs(o)
	return nil
}

// censusCopy is where a worktree has a copy of the tests that a receipt names for
// an operator to accept.
func censusCopy(sealDigest string) string {
	return ".striatum/receipts/" + sealDigest + ".baseline.json"
}

// maxCopyBytes bounds one copy in the worktree; what is longer stays in the
// home alone.
const maxCopyBytes = 16 << 20

// logs copies the streams of a check's executions. They replace those of the
// check's last run.
func (b *binder) logs(o verifier.Outcome) {
	r := o.Receipt.Receipt()
	named := map[string]*receipt.Execution{"control": r.Control.Execution}
	if r.Compile != nil {
		named["compile"] = r.Compile.Execution
	}
	for i := range r.Executions {
		named[fmt.Sprintf("run%d", i+1)] = &r.Executions[i]
	}
	dir := ".striatum/logs/" + strings.NewReplacer(":", "-", "/", "-").Replace(o.Check.CheckID()) + "/"
	for name, x := range named {
		if x == nil {
			continue
		}
		b.log(dir+name+".stdout", x.StdoutSHA256, x.StdoutBytes)
		b.log(dir+name+".stderr", x.StderrSHA256, x.StderrBytes)
	}
}

func (b *binder) log(path, sha string, size int64) {
	if size > maxCopyBytes {
		return
	}
	in, err := journal.OpenOutput(b.outputs, sha)
	if err != nil {
		return // dropped by the quota, or never written
	}
	defer func() { _ = in.Close() }() // only read
	if data, err := io.ReadAll(in); err == nil {
		b.copy(path, data)
	}
}

// copy writes a copy for people. The evidence is in the home; a copy that
// cannot be written costs a note, for all of them, and nothing else.
func (b *binder) copy(path string, data []byte) {
	err := func() error {
		root, err := worktree.Open(b.top)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }() // nothing is pending in it
		if err := root.WriteFile(".striatum/.gitignore", []byte("*\n"), 0o644); err != nil {
			return err
		}
		return root.WriteFile(path, data, 0o644)
	}()
	if err != nil && !b.noted {
		b.noted = true
		b.streams.Notef("no copy in the worktree: %s", cli.Escape(cli.Explain(err).Error()))
	}
}

// worst returns the kind of the worst outcome: failed before void before
// indeterminate.
func worst(outcomes []verifier.Outcome) (problem.Kind, bool) {
	classes := make([]receipt.Classification, len(outcomes))
	for i, o := range outcomes {
		classes[i] = o.Receipt.Receipt().Classification
	}
	return worstOf(classes)
}

// worstOf returns the kind of the worst classification.
func worstOf(classes []receipt.Classification) (problem.Kind, bool) {
	rank := map[receipt.Classification]int{receipt.Indeterminate: 1, receipt.Void: 2, receipt.Failed: 3}
	kinds := []problem.Kind{0, problem.Indeterminate, problem.Void, problem.No}
	top := 0
	for _, c := range classes {
		top = max(top, rank[c])
	}
	return kinds[top], top > 0
}

// digestOf is the digest of a document, empty for one that is not there.
func digestOf(data []byte) string {
	if data == nil {
		return ""
	}
	return seal.SHA256Hex(data)
}
