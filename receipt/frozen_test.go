package receipt_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

// freeze writes testdata/v1 anew. That is for the time before a first release:
// afterwards the samples stay as they are, and a change of the format gets a
// folder v2.
var freeze = flag.Bool("freeze", false, "write testdata/v1 anew")

// frozen are the receipts of testdata/v1, by file name.
func frozen() map[string]receipt.Receipt {
	failed, void, aborted, external := receipttest.Facts(), receipttest.Facts(), receipttest.Facts(), receipttest.Facts()
	failed.Executions[0], failed.Executions[1] = receipttest.Execution(receipt.Fail), receipttest.Execution(receipt.Fail)
	failed.Inputs.GitCommit = receipttest.Digest("commit")[:40]
	failed.Census.Passed, failed.Census.Failed, failed.Census.Skipped = 0, 1, 1
	failed.Census.FailedTests = receipt.NewList([]string{"example.com/m TestAdd"})
	failed.Census.SkippedTests = receipt.NewList([]string{"example.com/m TestSub"})
	failed.Findings = []receipt.Finding{{Code: "link_leaves_tree", Path: "a/é\u202e", Detail: "../../etc"}}
	void.Sequence, void.PrevSeal = 2, receipttest.Digest("previous")
	pass := receipttest.Execution(receipt.Pass)
	void.Control.Execution, void.Control.Outcome = &pass, receipt.DidNotFail
	aborted.Control = receipt.Control{Kind: receipt.ControlNone, Outcome: receipt.NotReached, Why: "the lane was killed"}
	aborted.Compile, aborted.Census, aborted.Executions, aborted.Posture = nil, nil, nil, receipt.Posture{}
	aborted.Incidents = []receipt.Incident{{Code: "aborted", Effect: receipt.MakesIndeterminate, Detail: "the lane was killed"}}
	external.Check = receipt.Check{
		ID: "schema", Kind: receipt.External, Digest: receipttest.Digest("entry"), Argv: []string{"python3", "tools/check.py"},
		BacksClaim: "schema-is-valid", PassWhen: "exit_zero", Agreement: "stdout",
	}
	external.Tools.BuiltinID, external.Tools.Image = "", "example.com/python@sha256:"+receipttest.Digest("image")
	external.Control.Kind, external.Compile, external.Census = receipt.ControlWorktree, nil, nil
	return map[string]receipt.Receipt{"asserted": receipttest.Facts(), "failed": failed, "void": void, "aborted": aborted, "external": external}
}

func TestReceiptsOfFormatV1OpenForEver(t *testing.T) {
	const dir = "testdata/v1"
	if *freeze {
		writeFrozen(t, dir)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "lane.pub"))
	if err != nil {
		t.Fatal(err)
	}
	pub, err := seal.ParsePublicKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	ring := seal.NewKeyring(seal.Key{Public: pub, Role: seal.RoleLane, Class: seal.ClassShared, LaneID: "lane-1"})
	files, err := filepath.Glob(filepath.Join(dir, "*.receipt.json"))
	if err != nil || len(files) != 5 {
		t.Fatalf("samples %v, %v; want 5", files, err)
	}
	want := map[string]receipt.Classification{
		"asserted": receipt.Asserted, "failed": receipt.Failed, "void": receipt.Void,
		"aborted": receipt.Indeterminate, "external": receipt.VerifiedEligible,
	}
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v, err := receipt.Open(env, ring)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		name := strings.TrimSuffix(filepath.Base(file), ".receipt.json")
		if got := v.Receipt().Classification; got != want[name] {
			t.Errorf("%s: classified %s, want %s", file, got, want[name])
		}
	}
	env, err := os.ReadFile(filepath.Join(dir, "opened.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := receipt.OpenOpened(env, ring); err != nil {
		t.Errorf("opened record: %v", err)
	}
}

func writeFrozen(t *testing.T, dir string) {
	t.Helper()
	k := receipttest.Key(t, 41)
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("lane.pub", k.Public().PEM())
	for name, facts := range frozen() {
		env, _ := receipttest.Sign(t, facts, k)
		write(name+".receipt.json", env)
	}
	env, err := receipt.SignOpened(receipt.Opened{
		LaneID: "lane-1", LaneEpoch: "epoch-1", RepositoryID: "repo-1", Sequence: 1, PrevSeal: receipt.FirstPrevSeal, Nonce: "nonce-1",
		CheckID: "builtin:go-test", CheckDigest: receipttest.Digest("check"), TreeSHA256: receipttest.Digest("tree"), Requester: "local", OpenedAt: "2026-05-04T03:02:00Z",
	}, k)
	if err != nil {
		t.Fatal(err)
	}
	write("opened.json", env)
}
