package receipt_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
	"striatum/receipt/receipttest"
)

// protected is what a receipt says of protected inputs, with n files restored.
func protected(n int) *receipt.Protected {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("a/%04d_test.go", i))
	}
	return &receipt.Protected{
		Commit: strings.Repeat("c", 40), Paths: []string{"**/*_test.go"}, Files: int64(n) + 2,
		Restored: receipt.NewList(names), Added: receipt.NewList(nil), Removed: receipt.NewList([]string{"main_test.go"}),
		TreeSHA256: receipttest.Digest("ran"), ManifestSHA256: receipttest.Digest("manifest of what ran"),
	}
}

func TestAReceiptSaysWhatDidNotCount(t *testing.T) {
	facts := receipttest.Facts()
	facts.Inputs.Protected = protected(250)
	envelope, sealed := receipttest.Sign(t, facts, receipttest.Key(t, 1))
	again, err := receipt.Parse(envelope)
	if err != nil {
		t.Fatal(err)
	}
	p := again.Inputs.Protected
	if diff := cmp.Diff(sealed, again); diff != "" || p.Restored.Count != 250 || len(p.Restored.Names) != receipt.MaxProtected {
		t.Errorf("parsed again: %+v\n%s", p, diff)
	}
	if len(facts.Inputs.Protected.Restored.Names) != 250 {
		t.Error("signing changed the facts")
	}
	if bad := violations(t, "receipt.v1.json", sealed); len(bad) > 0 {
		t.Error(bad)
	}
	var dsse struct {
		Payload []byte `json:"payload"`
	}
	if err := json.Unmarshal(envelope, &dsse); err != nil || !strings.Contains(string(dsse.Payload), `"name":"tree that ran"`) {
		t.Error("the statement does not name the tree that ran")
	}
}

func TestWhatDidNotCountHasToBePossible(t *testing.T) {
	for name, change := range map[string]func(*receipt.Protected){
		"a short commit":                    func(p *receipt.Protected) { p.Commit = "abc123" },
		"no pattern":                        func(p *receipt.Protected) { p.Paths = nil },
		"no file":                           func(p *receipt.Protected) { p.Files = 0 },
		"more from the commit than matched": func(p *receipt.Protected) { p.Files = 2 },
		"a list that is not sorted":         func(p *receipt.Protected) { p.Restored.Names[0] = "z" },
		"no tree":                           func(p *receipt.Protected) { p.TreeSHA256 = "" },
		"no manifest":                       func(p *receipt.Protected) { p.ManifestSHA256 = "" },
	} {
		facts := receipttest.Facts()
		facts.Inputs.Protected = protected(3)
		change(facts.Inputs.Protected)
		if _, _, err := receipt.Sign(facts, receipttest.Key(t, 1)); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
}
