package verifiercmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"striatum/baseline"
	"striatum/claim"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/home"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/workflow"
)

// recordTested does what `verifier run --check builtin:go-test` does where there is no
// sandbox: the home's lane signs that the named tests passed, those that end in
// ":skip" skipped, and compares them with the baseline in the tree. It returns where
// the copy of the tests lies.
func recordTested(ctx context.Context, dir, top string, names []string) (copied string, err error) {
	s, err := embedded.Open(ctx, &cli.Factory{
		Streams: cli.Streams{Out: io.Discard, Err: io.Discard}, Now: time.Now, Rand: rand.Reader,
		Getenv: func(k string) string { return map[string]string{"STRIATUM_HOME": dir}[k] },
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	wt, err := home.Worktree(top)
	if err != nil {
		return "", err
	}
	repo, _, err := s.Service.Repository(ctx, wt)
	if err != nil {
		return "", err
	}
	files, err := embedded.PolicyFiles(top)
	if err != nil {
		return "", err
	}
	w, _, err := files.Workflow()
	if err != nil {
		return "", err
	}
	tree, err := snapshot.Digest(ctx, top, snapshot.Options{})
	if err != nil {
		return "", err
	}
	check := w.Checks()[slices.IndexFunc(w.Checks(), func(c workflow.JobCheck) bool { return c.Uses == "builtin:go-test" })]

	now := baseline.Check{
		ID: check.CheckID(), Packages: []baseline.Package{{ImportPath: "example.test/\u202em"}},
		Files: []baseline.File{{Path: "m_test.go", Helpers: baseline.Short(nil)}},
		Data:  []baseline.Data{{Path: "testdata/golden", SHA256: seal.SHA256Hex(nil)}},
	}
	r := receipttest.Facts()
	r.Census = &receipt.Census{}
	for _, n := range names {
		name, skipped := strings.CutSuffix(n, ":skip")
		now.Packages[0].Tests = append(now.Packages[0].Tests, baseline.Test{Name: name, Skipped: skipped, Body: baseline.Short([]byte(name))})
		if r.Census.Discovered++; skipped {
			r.Census.Skipped++
			r.Census.SkippedTests.Names = append(r.Census.SkippedTests.Names, "example.test/m "+name)
		}
	}
	census, err := baseline.Baseline{}.With(now).Encode()
	if err != nil {
		return "", err
	}
	r.Baseline = &receipt.Baseline{SHA256: digestOf(files[baseline.Path]), CensusSHA256: seal.SHA256Hex(census)}
	if r.Baseline.SHA256 != "" {
		b, err := baseline.Parse(files[baseline.Path])
		if err != nil {
			return "", err
		}
		var was baseline.Check
		was, r.Baseline.Entry = b.Find(now.ID)
		d := baseline.Compare(was, now)
		r.Baseline.TestsRemoved, r.Baseline.TestsNewlySkipped, r.Baseline.TestInputsChanged = receipt.NewList(d.Removed), receipt.NewList(d.NewlySkipped), receipt.NewList(d.InputsChanged)
	}
	before, err := s.Service.Receipts(ctx, repo.ID, daemon.ReceiptFilter{})
	if err != nil {
		return "", err
	}
	if r.Sequence = int64(len(before)) + 1; len(before) > 0 {
		r.PrevSeal = before[len(before)-1].Seal
	}
	r.RepositoryID, r.RunID, r.JobID, r.Nonce = repo.ID, "", check.JobID, fmt.Sprint("n-", r.Sequence)
	r.ReceiptID, r.Lane.LaneID = fmt.Sprint("r-", r.Sequence), s.Home.LaneID()
	r.Check.ID, r.Check.BacksClaim = check.CheckID(), check.BacksClaim
	r.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, Reached: 9, Killed: 3}
	if r.Check.Digest, err = check.Digest(); err != nil {
		return "", err
	}
	r.Inputs.TreeSHA256, r.Inputs.ManifestSHA256 = tree.TreeSHA256, tree.ManifestSHA256
	envelope, _, err := receipt.Sign(r, s.Home.LaneKey)
	if err != nil {
		return "", err
	}
	if _, err := s.Service.RecordReceipt(ctx, daemon.LocalUser(), envelope); err != nil {
		return "", err
	}
	ring, err := s.Service.Keyring(ctx)
	if err != nil {
		return "", err
	}
	v, err := receipt.Open(envelope, ring)
	if err != nil {
		return "", err
	}
	ups := []claim.Update{{ClaimID: check.BacksClaim, Receipt: &v}}
	if _, err := s.Service.UpdateClaims(ctx, daemon.LocalUser(), repo.ID, "", daemon.DeclaredClaims(w), ups); err != nil {
		return "", err
	}
	b := &binder{top: top, streams: cli.Streams{Err: io.Discard}}
	b.copy(censusCopy(v.Seal()), census)
	copied = filepath.Join(top, filepath.FromSlash(censusCopy(v.Seal())))
	_, err = os.Lstat(copied)
	return copied, err
}
