// Package receipttest makes valid receipts for the tests of other packages.
package receipttest

import (
	"bytes"
	"testing"

	"striatum/receipt"
	"striatum/seal"
)

// Digest returns a digest that differs for each name.
func Digest(name string) string { return seal.SHA256Hex([]byte(name)) }

// Key returns a lane key that is the same for each seed. It is no secret.
func Key(t testing.TB, seed byte) *seal.PrivateKey {
	t.Helper()
	k, err := seal.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Ring returns a keyring with k as the shared lane "lane-1".
func Ring(k *seal.PrivateKey) seal.Keyring {
	return seal.NewKeyring(seal.Key{Public: k.Public(), Role: seal.RoleLane, Class: seal.ClassShared, LaneID: "lane-1"})
}

// Execution returns an execution with the given judgement.
func Execution(j receipt.Judgement) receipt.Execution {
	e := receipt.Execution{
		Judgement: j, StdoutSHA256: Digest("stdout"), StderrSHA256: Digest(""), StdoutBytes: 120,
		ResultSHA256: Digest("result"), StartedAt: "2026-05-04T03:02:01Z", DurationMS: 1500, MaxRSSBytes: 64 << 20, CPUMS: 900,
	}
	if j == receipt.Fail {
		e.ExitCode = 1
		e.ResultSHA256 = Digest("failing result")
		e.Reasons = []receipt.Reason{{Code: "test_failed", Detail: "example.com/m TestAdd"}}
	}
	return e
}

// Facts returns the facts of a builtin:go-test that passed under a strict
// posture: the first in the chain of lane "lane-1". Change what the test is
// about and call receipt.Sign.
func Facts() receipt.Receipt {
	control := Execution(receipt.Fail)
	return receipt.Receipt{
		ReceiptID: "r-1", LaneEpoch: "epoch-1", Sequence: 1, PrevSeal: receipt.FirstPrevSeal,
		RepositoryID: "repo-1", RunID: "run-1", JobID: "verify", Nonce: "nonce-1",
		Check: receipt.Check{
			ID: "builtin:go-test", Kind: receipt.Builtin, Digest: Digest("check"), Argv: []string{"go", "test", "./..."},
			BacksClaim: "tests-pass", PassWhen: "tests", Agreement: "go-test-json",
		},
		Tools: receipt.Tools{
			BinarySHA256: Digest("go"), ClosureSHA256: Digest("closure"), BuiltinID: "builtin:go-test",
			StriatumVersion: "v0.1.0", StriatumSHA256: Digest("striatum"), EnvironmentSHA: Digest("environment"),
		},
		Inputs: receipt.Inputs{
			TreeSHA256: Digest("tree"), ManifestSHA256: Digest("manifest"), Files: 12, Bytes: 3456,
			PolicySHA256: Digest("policy"), CacheSHA256: Digest("cache"),
			Dependencies: &receipt.Dependencies{Digest: Digest("dependencies"), SumDB: 3, FirstSeen: 1},
		},
		Compile: &receipt.Compile{Outcome: receipt.Compiled},
		Control: receipt.Control{
			Kind: receipt.ControlPlanted, MutationOf: ".", MutationSHA256: Digest("mutation"),
			Execution: &control, Outcome: receipt.FailedAsRequired,
		},
		Executions: []receipt.Execution{Execution(receipt.Pass), Execution(receipt.Pass)},
		Census: &receipt.Census{
			Discovered: 2, Run: 2, Passed: 2,
			PassedTests: receipt.NewList([]string{"example.com/m TestSub", "example.com/m TestAdd"}),
		},
		Posture: receipt.Posture{
			Engine: "containerd", EngineVersion: "1.6.20", Runtime: "runc", RuntimeVersion: "1.1.5", SeccompSHA256: Digest("seccomp"),
			Facets: []receipt.Facet{
				{Name: "memory_limit", Required: "2147483648", Observed: "2147483648", Observer: "lane", OK: true},
				{Name: "no_new_privs", Required: "1", Observed: "1", Observer: "init", OK: true},
			},
		},
		Limits: receipt.Limits{WallClockMS: 600_000, MemoryBytes: 2 << 30, Pids: 512, MilliCPUs: 2000, OutputBytes: 16 << 20, DiskBytes: 2 << 30},
		Lane:   receipt.Lane{LaneID: "lane-1", HostFingerprint: "0a1b2c3d-linux-amd64", OS: "linux", Arch: "amd64"},

		CreatedAt: "2026-05-04T03:02:09Z",
	}
}

// Sign signs r with k.
func Sign(t testing.TB, r receipt.Receipt, k *seal.PrivateKey) (envelope []byte, sealed receipt.Receipt) {
	t.Helper()
	envelope, sealed, err := receipt.Sign(r, k)
	if err != nil {
		t.Fatal(err)
	}
	return envelope, sealed
}

// Verified signs r with k and opens it.
func Verified(t testing.TB, r receipt.Receipt, k *seal.PrivateKey) receipt.Verified {
	t.Helper()
	envelope, _ := Sign(t, r, k)
	v, err := receipt.Open(envelope, Ring(k))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
