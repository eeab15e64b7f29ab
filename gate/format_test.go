package gate_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vsa "github.com/in-toto/attestation/go/predicates/vsa/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"striatum/claim"
	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

func TestReportsFollowTheirSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "docs", "schemas", "gate_report.v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLane(t, laneID, seal.ClassIsolated)
	check := func(name string, in gate.Input) {
		data, err := gate.Evaluate(in).Encode()
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	check("zero", gate.Input{})
	check("verified", newWorld(t, l).build())
	w := newWorld(t, l)
	protects(w, "a_test.go")
	check("protected", w.build())
	for _, turn := range turns() {
		w := newWorld(t, l)
		turn.apply(w)
		check(turn.name, w.build())
	}
}

// TestReportKeepsItsBytes holds the encoding to a sample. It judges claims
// without a receipt only, since no signature is made twice alike.
func TestReportKeepsItsBytes(t *testing.T) {
	ledger, err := claim.New(repo, run, []claim.Claim{
		{ID: "builds", Statement: "It builds.", CheckID: "builtin:go-build", JobID: "verify"},
		{ID: "extra", Statement: "It is fast.", CheckID: "bench"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ledger = apply(t, ledger, claim.Writer{Principal: claim.Session, Name: "s-1", Jobs: []string{"verify"}},
		claim.Update{ClaimID: "builds", Status: claim.Asserted})
	data, err := gate.Evaluate(gate.Input{
		RepositoryID: repo, RunID: run, Floor: claim.Asserted,
		Store:  gate.Store{Name: "sqlite", Home: "/home/user/.local/state/striatum", Class: seal.ClassShared},
		Tree:   gate.Tree{SHA256: tree, Source: "worktree"},
		Ledger: ledger,
		Required: []gate.Requirement{
			{ClaimID: "builds", Statement: "It builds.", CheckID: "builtin:go-build", CheckDigest: digest("b"), Builtin: true},
			{ClaimID: "schema-is-valid", Statement: "Every schema is valid.", CheckID: "schema", CheckDigest: digest("s"), Pinned: true},
		},
		Opened: []receipt.Opened{{
			SchemaVersion: receipt.OpenedSchemaVersion, LaneID: laneID, LaneEpoch: epoch, RepositoryID: repo, Sequence: 1,
			PrevSeal: receipt.FirstPrevSeal, CheckID: "schema", CheckDigest: digest("s"), TreeSHA256: tree,
		}},
	}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "gate_report.v1.json")
	if *update {
		if err := os.WriteFile(golden, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, want) {
		t.Errorf("got\n%s\nwant\n%s", data, want)
	}
}

var summaryOptions = gate.SummaryOptions{
	VerifierID: "https://striatum.example/gate", ResourceURI: "urn:striatum:repository:repo-1",
	TimeVerified: time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)),
}

// parseSummary reads a summary with the strict parsers of in-toto.
func parseSummary(t *testing.T, data []byte) (*intoto.Statement, *vsa.VerificationSummary) {
	t.Helper()
	var s intoto.Statement
	if err := protojson.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	// in-toto's specification allows SHA-256 object ids under gitTree; the
	// Validate method of its Go types v1.2.0 knows those of SHA-1 only.
	bare := proto.Clone(&s).(*intoto.Statement)
	delete(bare.GetSubject()[0].GetDigest(), "gitTree")
	if err := bare.Validate(); err != nil {
		t.Fatal(err)
	}
	predicate, err := protojson.Marshal(s.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	var v vsa.VerificationSummary
	if err := protojson.Unmarshal(predicate, &v); err != nil {
		t.Fatal(err)
	}
	return &s, &v
}

func TestSummaryStatesTheLevelsThatEveryClaimReaches(t *testing.T) {
	l := newLane(t, laneID, seal.ClassIsolated)
	commit := strings.Repeat("ab", 20)
	for _, c := range []struct {
		name   string
		turn   func(w *world)
		result string
		levels string
	}{
		{"verified", func(*world) {}, "PASSED", "STRIATUM_ASSERTED STRIATUM_VERIFIED"},
		{"builtin", builtin, "PASSED", "STRIATUM_ASSERTED"},
		{"shared store", func(w *world) {
			w.after = append(w.after, func(w *world) { w.in.Store.Class = seal.ClassShared })
		}, "PASSED", "STRIATUM_ASSERTED"},
		{"failing", func(w *world) { fails(&w.facts) }, "FAILED", "FAILED"},
		{"below the floor", func(w *world) {
			builtin(w)
			w.after = append(w.after, func(w *world) { w.in.Floor = claim.Verified })
		}, "FAILED", "FAILED"},
		{"nothing required", func(w *world) {
			w.after = append(w.after, func(w *world) { w.in.Required = nil })
		}, "FAILED", "FAILED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, l)
			c.turn(w)
			in := w.build()
			in.Tree.Source = "commit:" + commit
			r := gate.Evaluate(in)
			data, err := gate.Summary(r, summaryOptions)
			if err != nil {
				t.Fatal(err)
			}
			s, v := parseSummary(t, data)
			if s.GetPredicateType() != gate.SummaryPredicate {
				t.Errorf("predicate type %q", s.GetPredicateType())
			}
			if got := strings.Join(v.GetVerifiedLevels(), " "); v.GetVerificationResult() != c.result || got != c.levels {
				t.Errorf("got %s %s, want %s %s", v.GetVerificationResult(), got, c.result, c.levels)
			}
			digests := s.GetSubject()[0].GetDigest()
			if digests["gitTree"] != tree || digests["gitCommit"] != commit || digests["sha256"] != digest("manifest") {
				t.Errorf("subject %v", digests)
			}
			if len(r.Claims) > 0 {
				inputs := v.GetInputAttestations()
				if len(inputs) != 1 || inputs[0].GetDigest()["sha256"] != w.own.EnvelopeSHA256() {
					t.Errorf("input attestations %v, want the envelope %s", inputs, w.own.EnvelopeSHA256())
				}
			}
			if at := v.GetTimeVerified().AsTime().Format(time.RFC3339); at != "2026-01-02T02:04:05Z" {
				t.Errorf("time verified %s", at)
			}
			if v.GetPolicy().GetDigest()["sha256"] != digest("policy") {
				t.Errorf("policy %v", v.GetPolicy())
			}
		})
	}
}

// TestSummaryNeverSaysVerifiedWhereTrustIsShared hands Summary a report that
// Evaluate would not make.
func TestSummaryNeverSaysVerifiedWhereTrustIsShared(t *testing.T) {
	r := gate.Evaluate(newWorld(t, newLane(t, laneID, seal.ClassIsolated)).build())
	r.Trust = seal.ClassShared
	data, err := gate.Summary(r, summaryOptions)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte(gate.LevelVerified)) {
		t.Errorf("%s", data)
	}
}

func TestSummaryNeedsATreeAndURIs(t *testing.T) {
	good := gate.Evaluate(newWorld(t, newLane(t, laneID, seal.ClassIsolated)).build())
	for name, change := range map[string]func(r *gate.Report, o *gate.SummaryOptions){
		"no tree":          func(r *gate.Report, o *gate.SummaryOptions) { r.Tree = gate.Tree{} },
		"short commit":     func(r *gate.Report, o *gate.SummaryOptions) { r.Tree.Source = "commit:abc" },
		"no verifier":      func(r *gate.Report, o *gate.SummaryOptions) { o.VerifierID = "" },
		"no resource":      func(r *gate.Report, o *gate.SummaryOptions) { o.ResourceURI = "repo" },
		"control in a URI": func(r *gate.Report, o *gate.SummaryOptions) { o.ResourceURI = "urn:a\n" },
	} {
		r, o := good, summaryOptions
		change(&r, &o)
		if data, err := gate.Summary(r, o); err == nil {
			t.Errorf("%s: got %s", name, data)
		}
	}
}

func TestReportDecodesToWhatItWas(t *testing.T) {
	r := gate.Evaluate(newWorld(t, newLane(t, laneID, seal.ClassIsolated)).build())
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var back gate.Report
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	again, err := back.Encode()
	if err != nil || !bytes.Equal(data, again) {
		t.Errorf("%v\n%s\n%s", err, data, again)
	}
}
