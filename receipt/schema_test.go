package receipt_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/schemacheck"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

func violations(t *testing.T, schema string, document any) []schemacheck.Violation {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../docs/schemas", schema))
	if err != nil {
		t.Fatal(err)
	}
	data, err := seal.Canonical(document)
	if err != nil {
		t.Fatal(err)
	}
	bad, err := schemacheck.Check(text, data)
	if err != nil {
		t.Fatal(err)
	}
	return bad
}

// TestSchemaAndFormatAgree: every sample fits the schema, and the schema knows
// and demands each field, so that neither can gain one without the other.
func TestSchemaAndFormatAgree(t *testing.T) {
	for name, facts := range frozen() {
		_, sealed := receipttest.Sign(t, facts, receipttest.Key(t, 1))
		if bad := violations(t, "receipt.v1.json", sealed); len(bad) > 0 {
			t.Errorf("%s: %v", name, bad)
		}
	}
	_, sealed := receipttest.Sign(t, receipttest.Facts(), receipttest.Key(t, 1))
	eachChange(t, sealed, func(what string, document any, mayFit bool) {
		if bad := violations(t, "receipt.v1.json", document); len(bad) == 0 && !mayFit {
			t.Errorf("the schema lets through a receipt %s", what)
		}
	})
}

func TestSchemaOfOpenedRecordsFits(t *testing.T) {
	o := receipt.Opened{
		SchemaVersion: receipt.OpenedSchemaVersion, LaneID: "lane-1", LaneEpoch: "epoch-1", RepositoryID: "repo-1", Sequence: 1, PrevSeal: receipt.FirstPrevSeal,
		Nonce: "n", CheckID: "builtin:go-vet", CheckDigest: receipttest.Digest("check"), TreeSHA256: receipttest.Digest("tree"), OpenedAt: "2026-05-04T03:02:01Z",
	}
	if bad := violations(t, "opened.v1.json", o); len(bad) > 0 {
		t.Error(bad)
	}
	eachChange(t, o, func(what string, document any, mayFit bool) {
		if bad := violations(t, "opened.v1.json", document); len(bad) == 0 && !mayFit {
			t.Errorf("the schema lets through a record %s", what)
		}
	})
}

// eachChange calls visit with document without each of its keys in turn (at any
// depth) and with a foreign key in each of its objects. mayFit marks the keys
// that may be absent.
func eachChange(t *testing.T, document any, visit func(what string, document any, mayFit bool)) {
	t.Helper()
	data, err := seal.Canonical(document)
	if err != nil {
		t.Fatal(err)
	}
	var root any
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	optional := map[string]bool{"/compile": true, "/census": true, "/inputs/dependencies": true, "/control/execution": true}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(at+"/-", e)
			}
		case map[string]any:
			v["foreign"] = true
			visit("with a foreign key in "+at, root, false)
			delete(v, "foreign")
			for _, k := range slices.Sorted(maps.Keys(v)) {
				was := v[k]
				delete(v, k)
				visit("without "+at+"/"+k, root, optional[at+"/"+k])
				v[k] = was
				walk(at+"/"+k, was)
			}
		}
	}
	walk("", root)
}

func TestSchemaKnowsMutantsAndTestsThatSeeTheControl(t *testing.T) {
	facts := receipttest.Facts()
	seen := receipt.NewList([]string{"example.com/m TestAdd"})
	facts.Control.Differs = &seen
	facts.Mutants = &receipt.Mutants{
		Asked: 3, Statements: 120, Reached: 80, Killed: 2, Survived: 1, CutShort: 1, NotCompiled: 1,
		Survivors: []receipt.Survivor{{Path: "a/a.go", Line: 7, Operator: "boundary"}},
	}
	envelope, sealed := receipttest.Sign(t, facts, receipttest.Key(t, 1))
	again, err := receipt.Parse(envelope)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sealed, again); diff != "" || again.Mutants.Survivors[0].Line != 7 || again.Control.Differs.Count != 1 {
		t.Errorf("parsed again: %+v\n%s", again, diff)
	}
	if bad := violations(t, "receipt.v1.json", sealed); len(bad) > 0 {
		t.Error(bad)
	}
	for name, change := range map[string]func(*receipt.Mutants){
		"more reached than there are":       func(m *receipt.Mutants) { m.Reached = 121 },
		"mutants without a statement":       func(m *receipt.Mutants) { m.Statements, m.Reached = 0, 0 },
		"more survivors than survived":      func(m *receipt.Mutants) { m.Survived = 0 },
		"less than nothing that was killed": func(m *receipt.Mutants) { m.Killed = -1 },
	} {
		f := receipttest.Facts()
		m := *facts.Mutants
		change(&m)
		f.Mutants = &m
		if _, _, err := receipt.Sign(f, receipttest.Key(t, 1)); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
}

func TestSchemaKnowsTheComparisonWithABaseline(t *testing.T) {
	facts := receipttest.Facts()
	facts.Baseline = &receipt.Baseline{
		SHA256: receipttest.Digest("baseline"), Entry: true, CensusSHA256: receipttest.Digest("census"),
		TestsRemoved: receipt.NewList([]string{"example.com/m TestGone"}), TestInputsChanged: receipt.NewList([]string{"testdata/golden"}),
	}
	envelope, sealed := receipttest.Sign(t, facts, receipttest.Key(t, 1))
	again, err := receipt.Parse(envelope)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sealed, again); diff != "" || again.Baseline.TestsRemoved.Names[0] != "example.com/m TestGone" || again.Baseline.TestsNewlySkipped.Count != 0 {
		t.Errorf("parsed again: %+v\n%s", again.Baseline, diff)
	}
	if bad := violations(t, "receipt.v1.json", sealed); len(bad) > 0 {
		t.Error(bad)
	}
	eachChange(t, map[string]any{"baseline": sealed.Baseline}, func(what string, document any, mayFit bool) {
		doc := map[string]any{}
		data, err := seal.Canonical(sealed)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		changed, ok := document.(map[string]any)["baseline"]
		if !ok {
			return
		}
		doc["baseline"] = changed
		if bad := violations(t, "receipt.v1.json", doc); len(bad) == 0 && what != "with a foreign key in " {
			t.Errorf("the schema lets through a receipt %s", what)
		}
	})
	for name, change := range map[string]func(*receipt.Baseline){
		"an entry of none":          func(b *receipt.Baseline) { b.SHA256 = "" },
		"a difference to nothing":   func(b *receipt.Baseline) { b.Entry = false },
		"a digest that is none":     func(b *receipt.Baseline) { b.CensusSHA256 = "abc" },
		"a list that does not hold": func(b *receipt.Baseline) { b.TestsRemoved.SHA256 = receipttest.Digest("other") },
	} {
		f := receipttest.Facts()
		b := *facts.Baseline
		b.TestsRemoved = receipt.NewList(b.TestsRemoved.Names)
		change(&b)
		f.Baseline = &b
		if _, _, err := receipt.Sign(f, receipttest.Key(t, 1)); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
	many := make([]string, 3*receipt.MaxList)
	for i := range many {
		many[i] = fmt.Sprintf("example.com/m Test%05d%s", i, strings.Repeat("x", 300))
	}
	facts.Baseline.TestsRemoved, facts.Baseline.TestsNewlySkipped, facts.Baseline.TestInputsChanged = receipt.NewList(many), receipt.NewList(many), receipt.NewList(many)
	if _, cut := receipttest.Sign(t, facts, receipttest.Key(t, 1)); cut.Baseline.TestsRemoved.Count != int64(len(many)) || len(cut.Baseline.TestsRemoved.Names) >= receipt.MaxList {
		t.Errorf("%d of %d names", len(cut.Baseline.TestsRemoved.Names), cut.Baseline.TestsRemoved.Count)
	}
}
