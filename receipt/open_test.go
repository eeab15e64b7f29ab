package receipt_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

func TestOpenReturnsExactlyWhatSignSealed(t *testing.T) {
	k := receipttest.Key(t, 1)
	facts := receipttest.Facts()
	before := receipttest.Facts()
	env, sealed := receipttest.Sign(t, facts, k)
	if diff := cmp.Diff(before, facts); diff != "" {
		t.Errorf("Sign changed its argument:\n%s", diff)
	}
	v, err := receipt.Open(env, receipttest.Ring(k))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sealed, v.Receipt()); diff != "" {
		t.Errorf("(-sealed +opened):\n%s", diff)
	}
	if v.Seal() != sealed.SealDigest || v.EnvelopeSHA256() != seal.SHA256Hex(env) || v.Key().LaneID != "lane-1" {
		t.Errorf("got %s %s %+v", v.Seal(), v.EnvelopeSHA256(), v.Key())
	}
	parsed, err := receipt.Parse(env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sealed, parsed); diff != "" {
		t.Errorf("(-sealed +parsed):\n%s", diff)
	}
}

func TestVerifiedCannotBeChangedThroughItsReceipt(t *testing.T) {
	v := receipttest.Verified(t, receipttest.Facts(), receipttest.Key(t, 1))
	before := v.Receipt()
	got := v.Receipt()
	got.Executions[0].Judgement = receipt.Fail
	got.Executions[0].Reasons = append(got.Executions[0].Reasons, receipt.Reason{})
	got.Control.Execution.Judgement = receipt.Pass
	got.Control.Execution.Reasons[0].Code = "x"
	got.Compile.Outcome = receipt.CompileFailed
	got.Inputs.Dependencies.SumDB = 99
	got.Census.PassedTests.Names[0] = "x"
	got.Posture.Facets[0].OK = false
	got.Check.Argv[0] = "x"
	if diff := cmp.Diff(before, v.Receipt()); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
}

func TestNilAndEmptySlicesHaveOneSeal(t *testing.T) {
	k := receipttest.Key(t, 1)
	a, b := receipttest.Facts(), receipttest.Facts()
	a.Findings, a.Incidents, a.Executions[0].Reasons = nil, nil, nil
	b.Findings, b.Incidents, b.Executions[0].Reasons = []receipt.Finding{}, []receipt.Incident{}, []receipt.Reason{}
	envA, sealedA := receipttest.Sign(t, a, k)
	envB, sealedB := receipttest.Sign(t, b, k)
	if sealedA.SealDigest != sealedB.SealDigest || !bytes.Equal(envA, envB) {
		t.Error("the seals differ")
	}
	if bytes.Contains(payloadOf(t, envA), []byte("null")) {
		t.Error("the payload has a null")
	}
}

// payloadOf returns the payload of an envelope.
func payloadOf(t testing.TB, env []byte) []byte {
	t.Helper()
	u, err := seal.Peek(env, seal.PayloadInToto)
	if err != nil {
		t.Fatal(err)
	}
	return u.Payload
}

// at returns the value at a path of keys and indexes in decoded JSON.
func at(v any, path ...any) any {
	for _, p := range path {
		switch k := p.(type) {
		case string:
			v = v.(map[string]any)[k]
		case int:
			v = v.([]any)[k]
		}
	}
	return v
}

// resign decodes the payload of env, lets change edit it, and signs what comes
// out with k: what a lane with a bug, or a thief of its key, could produce.
// With reseal, the seal is computed again over the edited body.
func resign(t *testing.T, env []byte, k *seal.PrivateKey, reseal bool, change func(statement, body map[string]any)) []byte {
	t.Helper()
	var st map[string]any
	if err := json.Unmarshal(payloadOf(t, env), &st); err != nil {
		t.Fatal(err)
	}
	body := at(st, "predicate", "configuration", 0, "annotations").(map[string]any)
	change(st, body)
	if reseal {
		delete(body, "seal_digest")
		b, err := seal.Canonical(body)
		if err != nil {
			t.Fatal(err)
		}
		body["seal_digest"] = seal.SHA256Hex(b)
		at(st, "predicate", "configuration", 0, "digest").(map[string]any)["sha256"] = seal.SHA256Hex(b)
	}
	payload, err := seal.Canonical(st)
	if err != nil {
		t.Fatal(err)
	}
	out, err := seal.Sign(k, seal.PayloadInToto, payload)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOpenRefusesWhatDoesNotFollowFromTheFacts(t *testing.T) {
	k := receipttest.Key(t, 1)
	facts := receipttest.Facts()
	facts.Executions[1] = receipttest.Execution(receipt.Fail)
	env, _ := receipttest.Sign(t, facts, k)
	tests := []struct {
		name   string
		reseal bool
		change func(st, body map[string]any)
		want   error
	}{
		{"a fact changed under an old seal", false, func(_, b map[string]any) { b["sequence"], b["prev_seal"] = 7, receipttest.Digest("p") }, receipt.ErrSealMismatch},
		{"classification authored", true, func(_, b map[string]any) { b["classification"] = "verified_eligible" }, receipt.ErrSealMismatch},
		{"agreement authored", true, func(_, b map[string]any) { b["agreement"] = "agreed" }, receipt.ErrSealMismatch},
		{"reasons authored", true, func(_, b map[string]any) { b["reasons"] = []any{} }, receipt.ErrSealMismatch},
		{"strictness authored", true, func(_, b map[string]any) { b["posture"].(map[string]any)["strict"] = false }, receipt.ErrSealMismatch},
		{"result authored", false, func(st, _ map[string]any) { at(st, "predicate").(map[string]any)["result"] = "PASSED" }, receipt.ErrSealMismatch},
		{"another subject", false, func(st, _ map[string]any) {
			at(st, "subject", 0, "digest").(map[string]any)["sha256"] = receipttest.Digest("x")
		}, receipt.ErrSealMismatch},
		{"a second subject", false, func(st, _ map[string]any) { st["subject"] = append(st["subject"].([]any), at(st, "subject", 0)) }, receipt.ErrSealMismatch},
		{"another predicate type", false, func(st, _ map[string]any) { st["predicateType"] = "https://example.com/x" }, receipt.ErrSealMismatch},
		{"a missing fact", true, func(_, b map[string]any) { delete(b, "limits") }, receipt.ErrSealMismatch},
		{"an unknown fact", true, func(_, b map[string]any) { b["trusted"] = true }, receipt.ErrUnparseable},
		{"no receipt in it", false, func(st, _ map[string]any) {
			delete(at(st, "predicate", "configuration", 0).(map[string]any), "annotations")
		}, receipt.ErrUnparseable},
		{"no configuration", false, func(st, _ map[string]any) { at(st, "predicate").(map[string]any)["configuration"] = []any{} }, receipt.ErrUnparseable},
		{"another schema", true, func(_, b map[string]any) { b["schema_version"] = "striatum.receipt.v2" }, receipt.ErrUnparseable},
		{"an invalid fact", true, func(_, b map[string]any) { b["sequence"] = 0 }, receipt.ErrUnparseable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := resign(t, env, k, tt.reseal, tt.change)
			v, err := receipt.Open(bad, receipttest.Ring(k))
			if !errors.Is(err, tt.want) {
				t.Errorf("Open: %v, want %v", err, tt.want)
			}
			if v.Seal() != "" || v.Key() != (seal.Key{}) {
				t.Errorf("a refusal gave %+v", v)
			}
			if _, err := receipt.Parse(bad); !errors.Is(err, tt.want) {
				t.Errorf("Parse: %v, want %v", err, tt.want)
			}
		})
	}
	if _, err := receipt.Open(resign(t, env, k, true, func(_, _ map[string]any) {}), receipttest.Ring(k)); err != nil {
		t.Errorf("signed again without a change: %v", err)
	}
}

func TestOpenTellsKeysApart(t *testing.T) {
	k, other := receipttest.Key(t, 1), receipttest.Key(t, 2)
	env, _ := receipttest.Sign(t, receipttest.Facts(), k)
	key := seal.Key{Public: k.Public(), Role: seal.RoleLane, Class: seal.ClassShared}
	report, foreign := key, key
	report.Role = seal.RoleReport
	foreign.LaneID = "lane-2"
	flipped := bytes.Replace(env, []byte(`{"payload":"eyJf`), []byte(`{"payload":"eyJe`), 1)
	for _, tt := range []struct {
		name string
		env  []byte
		ring seal.Keyring
		want error
	}{
		{"unknown key", env, receipttest.Ring(other), seal.ErrUnknownKey},
		{"tampered", flipped, receipttest.Ring(k), seal.ErrBadSignature},
		{"key in another role", env, seal.NewKeyring(report), seal.ErrWrongRole},
		{"key of another lane", env, seal.NewKeyring(foreign), receipt.ErrWrongLane},
		{"bare key of an unknown lane", env, seal.NewKeyring(key), nil},
		{"not an envelope", []byte("{}"), receipttest.Ring(k), receipt.ErrUnparseable},
		{"too long", bytes.Repeat([]byte(" "), receipt.MaxBytes+1), receipttest.Ring(k), receipt.ErrUnparseable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := receipt.Open(tt.env, tt.ring); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestStatementResultNeverPassesWhatDidNotPass(t *testing.T) {
	k := receipttest.Key(t, 1)
	for _, tt := range []struct {
		name   string
		change func(r *receipt.Receipt)
		want   string
	}{
		{"asserted", func(r *receipt.Receipt) {}, "PASSED"},
		{"without a census", func(r *receipt.Receipt) { r.Census = nil }, "PASSED"},
		{"skips", func(r *receipt.Receipt) { r.Census.Skipped = 1 }, "WARNED"},
		{"listed skips", func(r *receipt.Receipt) { r.Census.SkippedTests = receipt.NewList([]string{"m TestX"}) }, "WARNED"},
		{"skips in a failed run", func(r *receipt.Receipt) {
			r.Census.Skipped = 1
			r.Executions[0] = receipttest.Execution(receipt.Fail)
		}, "FAILED"},
		{"void", func(r *receipt.Receipt) { r.Control.Outcome, r.Control.Why = receipt.Invalid, "timed out" }, "FAILED"},
		{"indeterminate", func(r *receipt.Receipt) { r.Limits.Hit = "pids" }, "FAILED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := receipttest.Facts()
			tt.change(&r)
			env, _ := receipttest.Sign(t, r, k)
			var st map[string]any
			if err := json.Unmarshal(payloadOf(t, env), &st); err != nil {
				t.Fatal(err)
			}
			if got := at(st, "predicate", "result"); got != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

func TestSignCutsWhatCodeUnderTestCanBlowUp(t *testing.T) {
	k := receipttest.Key(t, 1)
	r := receipttest.Facts()
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("example.com/m TestTable/%04d-%s", i, strings.Repeat("\x01", 100)))
		r.Findings = append(r.Findings, receipt.Finding{Code: "odd_name", Path: strings.Repeat("\xff", 3000)})
		r.Executions[0].Reasons = append(r.Executions[0].Reasons, receipt.Reason{Code: "note", Detail: strings.Repeat("é", 5000)})
		r.Incidents = append(r.Incidents, receipt.Incident{Code: "noise", Effect: receipt.MakesIndeterminate})
	}
	r.Incidents = append(r.Incidents, receipt.Incident{Code: "dependency_mismatch", Effect: receipt.MakesFailed})
	r.Census.PassedTests = receipt.NewList(names)
	env, sealed := receipttest.Sign(t, r, k)
	if len(env) > receipt.MaxBytes {
		t.Fatalf("%d bytes", len(env))
	}
	if sealed.Census.PassedTests.Count != 5000 || sealed.Census.PassedTests.SHA256 != receipt.NewList(names).SHA256 {
		t.Error("count and digest of the cut list are not those of the whole")
	}
	if last := sealed.Findings[len(sealed.Findings)-1]; last.Code != "findings_cut" || last.Detail != fmt.Sprintf("%d more", 5000-len(sealed.Findings)+1) {
		t.Errorf("last finding %+v of %d", last, len(sealed.Findings))
	}
	if sealed.Classification != receipt.Failed {
		t.Errorf("the cut lost the gravest incident: %s", sealed.Classification)
	}
	r.Check.Argv = []string{strings.Repeat("a", receipt.MaxBytes)}
	if _, _, err := receipt.Sign(r, k); err == nil || !strings.Contains(err.Error(), "more than the limit of 1048576") {
		t.Errorf("a receipt that cannot be cut: %v", err)
	}
}

func TestNewListSortsCutsAndCounts(t *testing.T) {
	got := receipt.NewList([]string{"b", "a\nx", "\xffz"})
	want := receipt.List{Names: []string{`\xffz`, `a\nx`, "b"}, Count: 3, SHA256: seal.SHA256Hex([]byte("\\xffz\na\\nx\nb\n"))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if sorted := receipt.SortedList(slices.Values([]string{"\xffz", "a\nx", "b"})); !cmp.Equal(sorted, want) {
		t.Errorf("of sorted names: %+v", sorted)
	}
	long := receipt.NewList(make([]string, receipt.MaxList+5))
	if len(long.Names) != receipt.MaxList || long.Count != receipt.MaxList+5 {
		t.Errorf("got %d names, count %d", len(long.Names), long.Count)
	}
}

func TestOpenedRecordsRoundTrip(t *testing.T) {
	k := receipttest.Key(t, 1)
	o := receipt.Opened{
		LaneID: "lane-1", LaneEpoch: "epoch-1", RepositoryID: "repo-1", Sequence: 2, PrevSeal: receipttest.Digest("first"), Nonce: "n",
		CheckID: "builtin:go-vet", CheckDigest: receipttest.Digest("check"), TreeSHA256: receipttest.Digest("tree"), Requester: "local", OpenedAt: "2026-05-04T03:02:01Z",
	}
	env, err := receipt.SignOpened(o, k)
	if err != nil {
		t.Fatal(err)
	}
	got, err := receipt.OpenOpened(env, receipttest.Ring(k))
	if err != nil {
		t.Fatal(err)
	}
	o.SchemaVersion = receipt.OpenedSchemaVersion
	if diff := cmp.Diff(o, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := receipt.OpenOpened(env, receipttest.Ring(receipttest.Key(t, 2))); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("another key: %v", err)
	}
	foreign := seal.NewKeyring(seal.Key{Public: k.Public(), Role: seal.RoleLane, LaneID: "lane-2"})
	if _, err := receipt.OpenOpened(env, foreign); !errors.Is(err, receipt.ErrWrongLane) {
		t.Errorf("another lane: %v", err)
	}
	if _, err := receipt.Open(env, receipttest.Ring(k)); !errors.Is(err, receipt.ErrUnparseable) {
		t.Errorf("an opened record opens as a receipt: %v", err)
	}
	renv, _ := receipttest.Sign(t, receipttest.Facts(), k)
	if _, err := receipt.OpenOpened(renv, receipttest.Ring(k)); !errors.Is(err, receipt.ErrUnparseable) {
		t.Errorf("a receipt opens as an opened record: %v", err)
	}
	for name, change := range map[string]func(o *receipt.Opened){
		"sequence": func(o *receipt.Opened) { o.Sequence = 0 }, "prev": func(o *receipt.Opened) { o.PrevSeal = receipt.FirstPrevSeal },
		"tree": func(o *receipt.Opened) { o.TreeSHA256 = "x" }, "time": func(o *receipt.Opened) { o.OpenedAt = "2026-05-04T03:02:01+02:00" },
		"lane": func(o *receipt.Opened) { o.LaneID = "" },
	} {
		bad := o
		change(&bad)
		if _, err := receipt.SignOpened(bad, k); err == nil {
			t.Errorf("a bad %s is signed", name)
		}
	}
}
