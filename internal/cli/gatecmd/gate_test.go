package gatecmd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"striatum/claim"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/gatecmd"
	"striatum/internal/cli/initcmd"
	"striatum/internal/cli/policycmd"
	"striatum/internal/cli/workflowcmd"
	"striatum/internal/home"
	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/snapshot"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(f *cli.Factory) []*cobra.Command {
		return []*cobra.Command{gatecmd.New(f), initcmd.New(f), policycmd.New(f), workflowcmd.New(f)}
	})
}

func TestScripts(t *testing.T) {
	clitest.Run(t, map[string]func(*testscript.TestScript, bool, []string){"record": record, "summary": summary, "verify-vsa": verifyVSA(t)})
}

// factory is that of a command whose home is dir.
func factory(dir string, out io.Writer) *cli.Factory {
	return &cli.Factory{
		Streams: cli.Streams{Out: out, Err: io.Discard},
		Getenv:  func(k string) string { return map[string]string{"STRIATUM_HOME": dir}[k] },
		Now:     time.Now, Rand: rand.Reader,
	}
}

// record pass|fail TREE [CLAIM]: records what a lane would that ran every check
// of TREE's workflow, or that of one claim, and binds the claims.
func record(ts *testscript.TestScript, _ bool, args []string) {
	only := ""
	if len(args) > 2 {
		only = args[2]
	}
	ts.Check(recordRuns(context.Background(), ts.Getenv("STRIATUM_HOME"), ts.MkAbs(args[1]), args[0] == "pass", only))
}

func recordRuns(ctx context.Context, dir, top string, pass bool, only string) (err error) {
	s, err := embedded.Open(ctx, factory(dir, io.Discard))
	if err != nil {
		return err
	}
	defer s.Close() // each write was committed
	wt, err := home.Worktree(top)
	if err != nil {
		return err
	}
	repo, _, err := s.Service.Repository(ctx, wt)
	if err != nil {
		return err
	}
	files, err := embedded.PolicyFiles(top)
	if err != nil {
		return err
	}
	w, _, err := files.Workflow()
	if err != nil {
		return err
	}
	tree, err := snapshot.Digest(ctx, top, snapshot.Options{})
	if err != nil {
		return err
	}
	for _, check := range w.Checks() {
		if only != "" && check.BacksClaim != only {
			continue
		}
		before, err := s.Service.Receipts(ctx, repo.ID, daemon.ReceiptFilter{})
		if err != nil {
			return err
		}
		r := receipttest.Facts()
		r.Sequence = int64(len(before)) + 1
		if len(before) > 0 {
			r.PrevSeal = before[len(before)-1].Seal
		}
		r.RepositoryID, r.RunID, r.JobID, r.Nonce = repo.ID, "", check.JobID, fmt.Sprint("n-", r.Sequence)
		r.ReceiptID, r.Lane.LaneID = fmt.Sprint("r-", r.Sequence), s.Home.LaneID()
		r.Check.ID, r.Check.BacksClaim, r.Tools.BuiltinID = check.CheckID(), check.BacksClaim, check.Uses
		if check.Uses == "builtin:go-test" {
			r.Mutants = &receipt.Mutants{Asked: 3, Statements: 9, Reached: 9, Killed: 3}
		}
		if r.Check.Digest, err = check.Digest(); err != nil {
			return err
		}
		r.Inputs.TreeSHA256, r.Inputs.ManifestSHA256 = tree.TreeSHA256, tree.ManifestSHA256
		r.Findings = []receipt.Finding{{Code: "module_not_checked", Path: "tools/go.mod", Detail: "no check names this module"}}
		if !pass {
			r.Executions = []receipt.Execution{receipttest.Execution(receipt.Fail), receipttest.Execution(receipt.Fail)}
		}
		envelope, _, err := receipt.Sign(r, s.Home.LaneKey)
		if err != nil {
			return err
		}
		if _, err := s.Service.RecordReceipt(ctx, daemon.LocalUser(), envelope); err != nil {
			return err
		}
		ring, err := s.Service.Keyring(ctx)
		if err != nil {
			return err
		}
		v, err := receipt.Open(envelope, ring)
		if err != nil {
			return err
		}
		ups := []claim.Update{{ClaimID: check.BacksClaim, Receipt: &v}}
		if _, err := s.Service.UpdateClaims(ctx, daemon.LocalUser(), repo.ID, "", daemon.DeclaredClaims(w), ups); err != nil {
			return err
		}
	}
	return nil
}

// verifyVSA runs the real slsa-verifier: what it says when it accepts, and with a
// "!" that it refuses.
func verifyVSA(t *testing.T) func(*testscript.TestScript, bool, []string) {
	bin := ""
	t.Run("slsa-verifier", func(t *testing.T) { bin = filepath.Join(testenv.ToolDir(t, "slsa-verifier"), "slsa-verifier") })
	return func(ts *testscript.TestScript, refused bool, args []string) {
		if bin == "" {
			return // the subtest above says why, or failed
		}
		out, err := exec.CommandContext(t.Context(), bin, append([]string{"verify-vsa"}, args...)...).CombinedOutput()
		ts.Logf("%s", out)
		if accepted := err == nil && bytes.Contains(out, []byte("PASSED")); accepted == refused {
			ts.Fatalf("slsa-verifier: %v", err)
		}
	}
}

// summary FILE WORD…: the file is a verification summary, signed by the home's
// report key, whose payload holds each word.
func summary(ts *testscript.TestScript, _ bool, args []string) {
	public, err := seal.ParsePublicKey([]byte(ts.ReadFile(filepath.Join(ts.Getenv("STRIATUM_HOME"), "keys", "report.pub"))))
	ts.Check(err)
	ring := seal.NewKeyring(seal.Key{Public: public, Role: seal.RoleReport})
	payload, _, err := seal.Open([]byte(ts.ReadFile(args[0])), seal.PayloadInToto, ring, seal.RoleReport)
	ts.Check(err)
	for _, word := range args[1:] {
		if !bytes.Contains(payload, []byte(word)) {
			ts.Fatalf("the summary does not hold %q:\n%s", word, payload)
		}
	}
	if bytes.Contains(payload, []byte("STRIATUM_VERIFIED")) {
		ts.Fatalf("an embedded store says STRIATUM_VERIFIED")
	}
}
