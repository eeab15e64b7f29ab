package receipt_test

import (
	"strings"
	"testing"

	"striatum/receipt"
	"striatum/receipt/receipttest"
)

func TestSignRefusesFactsThatAreNotValid(t *testing.T) {
	k := receipttest.Key(t, 1)
	for _, tt := range []struct {
		name   string
		change func(r *receipt.Receipt)
		field  string
	}{
		{"no id", func(r *receipt.Receipt) { r.ReceiptID = "" }, "receipt_id"},
		{"id like an option", func(r *receipt.Receipt) { r.RunID = "--force" }, "run_id"},
		{"id with a space", func(r *receipt.Receipt) { r.RepositoryID = "a b" }, "repository_id"},
		{"id with an escape", func(r *receipt.Receipt) { r.JobID = "a\x1b[31m" }, "job_id"},
		{"no epoch", func(r *receipt.Receipt) { r.LaneEpoch = "" }, "lane_epoch"},
		{"sequence 0", func(r *receipt.Receipt) { r.Sequence = 0 }, "sequence"},
		{"first with a predecessor", func(r *receipt.Receipt) { r.PrevSeal = receipttest.Digest("x") }, "prev_seal"},
		{"second without one", func(r *receipt.Receipt) { r.Sequence = 2 }, "prev_seal"},
		{"no nonce", func(r *receipt.Receipt) { r.Nonce = "" }, "nonce"},
		{"unknown kind of check", func(r *receipt.Receipt) { r.Check.Kind = "plugin" }, "check/kind"},
		{"upper-case digest", func(r *receipt.Receipt) { r.Check.Digest = strings.ToUpper(r.Check.Digest) }, "check/check_digest"},
		{"external check without argv", func(r *receipt.Receipt) { external(r); r.Check.Argv = nil }, "check/argv"},
		{"external check with a builtin's id", func(r *receipt.Receipt) { external(r); r.Tools.BuiltinID = "builtin:go-test" }, "tools/builtin_id"},
		{"builtin without its id", func(r *receipt.Receipt) { r.Tools.BuiltinID = "" }, "tools/builtin_id"},
		{"image by tag", func(r *receipt.Receipt) { r.Tools.Image = "golang:1.26" }, "tools/image"},
		{"no closure", func(r *receipt.Receipt) { r.Tools.ClosureSHA256 = "" }, "tools/closure_sha256"},
		{"no tree", func(r *receipt.Receipt) { r.Inputs.TreeSHA256 = "" }, "inputs/tree_sha256"},
		{"no manifest", func(r *receipt.Receipt) { r.Inputs.ManifestSHA256 = "" }, "inputs/manifest_sha256"},
		{"abbreviated commit", func(r *receipt.Receipt) { r.Inputs.GitCommit = "abc123" }, "inputs/git_commit"},
		{"negative size", func(r *receipt.Receipt) { r.Inputs.Bytes = -1 }, "inputs/bytes"},
		{"unknown outcome of the compile step", func(r *receipt.Receipt) { r.Compile.Outcome = "skipped" }, "compile/outcome"},
		{"unknown control", func(r *receipt.Receipt) { r.Control.Kind = "" }, "control/kind"},
		{"unknown outcome of the control", func(r *receipt.Receipt) { r.Control.Outcome = "" }, "control/outcome"},
		{"planted control of an external check", func(r *receipt.Receipt) { external(r); r.Control.Kind = receipt.ControlPlanted }, "control/kind"},
		{"control failed without an execution", func(r *receipt.Receipt) { r.Control.Execution = nil }, "control/outcome"},
		{"control failed by a signal", func(r *receipt.Receipt) { r.Control.Execution.Signal = "SIGKILL" }, "control/outcome"},
		{"control failed by timeout", func(r *receipt.Receipt) { r.Control.Execution.TimedOut = true }, "control/outcome"},
		{"control failed by memory", func(r *receipt.Receipt) { r.Control.Execution.OOM = true }, "control/outcome"},
		{"control that passed counted as failed", func(r *receipt.Receipt) { *r.Control.Execution = receipttest.Execution(receipt.Pass) }, "control/outcome"},
		{"control that failed counted as passed", func(r *receipt.Receipt) { r.Control.Outcome = receipt.DidNotFail }, "control/outcome"},
		{"fixture never seen to pass", func(r *receipt.Receipt) {
			external(r)
			r.Control.Kind, r.Control.Baseline = receipt.ControlFixture, nil
		}, "control/baseline"},
		{"invalid control without why", func(r *receipt.Receipt) { r.Control.Outcome = receipt.Invalid }, "control/why"},
		{"three executions", func(r *receipt.Receipt) { r.Executions = append(r.Executions, r.Executions[0]) }, "executions"},
		{"unknown judgement", func(r *receipt.Receipt) { r.Executions[0].Judgement = "" }, "executions/0/judgement"},
		{"passed with exit code 1", func(r *receipt.Receipt) { r.Executions[1].ExitCode = 1 }, "executions/1/judgement"},
		{"passed by a signal", func(r *receipt.Receipt) { r.Executions[1].Signal = "SIGTERM" }, "executions/1/judgement"},
		{"passed without a result", func(r *receipt.Receipt) { r.Executions[0].ResultSHA256 = "" }, "executions/0/result_sha256"},
		{"exit code 256", func(r *receipt.Receipt) { r.Executions[0].ExitCode = 256 }, "executions/0/exit_code"},
		{"local time", func(r *receipt.Receipt) { r.Executions[0].StartedAt = "2026-05-04T03:02:01+02:00" }, "executions/0/started_at"},
		{"no time", func(r *receipt.Receipt) { r.CreatedAt = "" }, "created_at"},
		{"negative count", func(r *receipt.Receipt) { r.Census.Failed = -1 }, "census"},
		{"unsorted list", func(r *receipt.Receipt) { r.Census.PassedTests.Names = []string{"b", "a"} }, "census/passed_tests"},
		{"digest of other names", func(r *receipt.Receipt) { r.Census.PassedTests.SHA256 = receipttest.Digest("x") }, "census/passed_tests/sha256"},
		{"count below the names", func(r *receipt.Receipt) { r.Census.PassedTests.Count = 1 }, "census/passed_tests"},
		{"code with a space", func(r *receipt.Receipt) { r.Findings = []receipt.Finding{{Code: "a b"}} }, "findings"},
		{"unknown effect", func(r *receipt.Receipt) { r.Incidents = []receipt.Incident{{Code: "x", Effect: "ignored"}} }, "incidents/effect"},
		{"a facet twice", func(r *receipt.Receipt) { r.Posture.Facets = append(r.Posture.Facets, r.Posture.Facets[0]) }, "posture/facets"},
		{"facet seen by nobody", func(r *receipt.Receipt) { r.Posture.Facets[0].Observer = "spec" }, "posture/facets"},
		{"no profile", func(r *receipt.Receipt) { r.Posture.SeccompSHA256 = "" }, "posture/seccomp_sha256"},
		{"unknown limit", func(r *receipt.Receipt) { r.Limits.Hit = "patience" }, "limits/hit"},
		{"no lane", func(r *receipt.Receipt) { r.Lane.LaneID = "" }, "lane/lane_id"},
		{"invalid UTF-8 in argv", func(r *receipt.Receipt) { r.Check.Argv[0] = "\xff" }, "argv"},
		{"an integer beyond 2^53", func(r *receipt.Receipt) { r.Limits.DiskBytes = 1 << 60 }, "disk_bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := receipttest.Facts()
			tt.change(&r)
			env, sealed, err := receipt.Sign(r, k)
			if err == nil {
				t.Fatal("it was signed")
			}
			if !strings.Contains(err.Error(), tt.field) {
				t.Errorf("got %q, want %q in it", err, tt.field)
			}
			if env != nil || sealed.SealDigest != "" {
				t.Error("a refusal gave an envelope")
			}
		})
	}
}

func TestSignAcceptsWhatAnAbortedCheckLeaves(t *testing.T) {
	r := receipttest.Facts()
	r.Sequence, r.PrevSeal = 9, receipttest.Digest("before")
	r.RunID, r.JobID, r.Check.BacksClaim = "", "", ""
	r.Tools = receipt.Tools{BuiltinID: "builtin:go-test"}
	r.Inputs = receipt.Inputs{TreeSHA256: receipttest.Digest("tree")}
	r.Compile, r.Census, r.Executions = nil, nil, nil
	r.Control = receipt.Control{Kind: receipt.ControlNone, Outcome: receipt.NotReached, Why: "the lane was killed"}
	r.Posture = receipt.Posture{}
	r.Limits = receipt.Limits{}
	r.Incidents = []receipt.Incident{{Code: "aborted", Effect: receipt.MakesIndeterminate, Detail: "the lane was killed"}}
	v := receipttest.Verified(t, r, receipttest.Key(t, 1))
	if got := v.Receipt().Classification; got != receipt.Indeterminate {
		t.Errorf("got %s", got)
	}
}
