package claim_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"striatum/claim"
	"striatum/seal"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

const repo, run = "repo-1", "run-1"

func declared() []claim.Claim {
	return []claim.Claim{
		{ID: "tests-pass", Statement: "The tests pass.", CheckID: "builtin:go-test", JobID: "verify"},
		{ID: "builds", Statement: "It builds.", CheckID: "builtin:go-build", JobID: "verify"},
	}
}

func newLedger(t testing.TB) claim.Ledger {
	t.Helper()
	l, err := claim.New(repo, run, declared())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestClaimsOfAWorkflowEnterAsDesigned(t *testing.T) {
	l := newLedger(t)
	want := []claim.Claim{
		{ID: "builds", Statement: "It builds.", Status: claim.Designed, CheckID: "builtin:go-build", JobID: "verify", Author: "workflow"},
		{ID: "tests-pass", Statement: "The tests pass.", Status: claim.Designed, CheckID: "builtin:go-test", JobID: "verify", Author: "workflow"},
	}
	if diff := cmp.Diff(want, l.Claims()); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if l.PrevSeal() != claim.NoSeal || !seal.ValidDigest(l.Seal()) || l.IsZero() || l.RepositoryID() != repo || l.RunID() != run {
		t.Errorf("prev %s, seal %s", l.PrevSeal(), l.Seal())
	}
	for name, c := range map[string]claim.Claim{
		"status":   {ID: "a", Statement: "A.", Status: claim.Asserted},
		"evidence": {ID: "a", Statement: "A.", ReceiptRef: seal.SHA256Hex(nil)},
	} {
		if _, err := claim.New(repo, run, []claim.Claim{c}); !errors.Is(err, claim.ErrAboveEvidence) {
			t.Errorf("a declared claim with a %s: %v", name, err)
		}
	}
}

func TestLedgerWithoutClaimsIsALedger(t *testing.T) {
	l, err := claim.New(repo, "", nil)
	if err != nil || l.IsZero() || l.Len() != 0 {
		t.Fatalf("%v", err)
	}
	back, err := claim.Parse(l.Encode())
	if err != nil || back.Seal() != l.Seal() {
		t.Errorf("%v", err)
	}
	var zero claim.Ledger
	if !zero.IsZero() || zero.Encode() != nil || zero.Seal() != "" {
		t.Error("the zero ledger is something")
	}
	if _, err := zero.Apply(claim.Writer{Principal: claim.Local}, nil); !errors.Is(err, claim.ErrInvalid) {
		t.Errorf("a change of no ledger: %v", err)
	}
}

func TestLedgersChainBySeal(t *testing.T) {
	first := newLedger(t)
	w := claim.Writer{Principal: claim.Local}
	second, err := first.Apply(w, []claim.Update{{ClaimID: "builds", Status: claim.Asserted}})
	if err != nil {
		t.Fatal(err)
	}
	if second.PrevSeal() != first.Seal() || second.Seal() == first.Seal() {
		t.Errorf("second follows %s, the first is %s", second.PrevSeal(), first.Seal())
	}
	if c, _ := first.Find("builds"); c.Status != claim.Designed {
		t.Error("the first ledger was changed")
	}
	same, err := second.Apply(w, []claim.Update{{ClaimID: "builds", Status: claim.Asserted}})
	if err != nil || same.Seal() != second.Seal() {
		t.Errorf("a write that changes nothing made a new ledger: %v", err)
	}
	same, err = second.Declare(declared())
	if err != nil || same.Seal() != second.Seal() {
		t.Errorf("declaring the same claims made a new ledger: %v", err)
	}
}

func TestChangedClaimsStartAgain(t *testing.T) {
	l, err := newLedger(t).Apply(claim.Writer{Principal: claim.Local}, []claim.Update{
		{ClaimID: "builds", Status: claim.Asserted}, {ClaimID: "tests-pass", Status: claim.Asserted},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(c *claim.Claim){
		"statement": func(c *claim.Claim) { c.Statement = "It builds everywhere." },
		"check":     func(c *claim.Claim) { c.CheckID = "builtin:go-vet" },
	} {
		list := declared()
		change(&list[1])
		next, err := l.Declare(list)
		if err != nil {
			t.Fatal(err)
		}
		builds, _ := next.Find("builds")
		tests, _ := next.Find("tests-pass")
		if builds.Status != claim.Designed || builds.Author != "workflow" || tests.Status != claim.Asserted {
			t.Errorf("another %s: builds %s by %s, tests-pass %s", name, builds.Status, builds.Author, tests.Status)
		}
	}
	next, err := l.Declare(declared()[:1])
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := next.Find("builds"); !c.Undeclared || c.Status != claim.Asserted {
		t.Errorf("a claim that is declared no more: %+v", c)
	}
	if _, err := l.Declare(append(declared(), declared()[0])); !errors.Is(err, claim.ErrInvalid) {
		t.Errorf("a claim declared twice: %v", err)
	}
}

func TestFieldsOutsideTheirBoundsAreRefused(t *testing.T) {
	for name, change := range map[string]func(repo, run *string, c *claim.Claim){
		"no repository":        func(repo, _ *string, _ *claim.Claim) { *repo = "" },
		"repository as option": func(repo, _ *string, _ *claim.Claim) { *repo = "-rf" },
		"run with a space":     func(_, run *string, _ *claim.Claim) { *run = "a b" },
		"no id":                func(_, _ *string, c *claim.Claim) { c.ID = "" },
		"long id":              func(_, _ *string, c *claim.Claim) { c.ID = strings.Repeat("a", 65) },
		"path in id":           func(_, _ *string, c *claim.Claim) { c.ID = "../a" },
		"no statement":         func(_, _ *string, c *claim.Claim) { c.Statement = "" },
		"long statement":       func(_, _ *string, c *claim.Claim) { c.Statement = strings.Repeat("a", claim.MaxStatementBytes+1) },
		"newline":              func(_, _ *string, c *claim.Claim) { c.Statement = "a\nb" },
		"terminal escape":      func(_, _ *string, c *claim.Claim) { c.Statement = "a\x1b[31m" },
		"bidi override":        func(_, _ *string, c *claim.Claim) { c.Statement = "a\u202eb" },
		"line separator":       func(_, _ *string, c *claim.Claim) { c.Statement = "a\u2028b" },
		"invalid UTF-8":        func(_, _ *string, c *claim.Claim) { c.Statement = "a\xff" },
		"check with control":   func(_, _ *string, c *claim.Claim) { c.CheckID = "a\x00" },
		"job with a quote":     func(_, _ *string, c *claim.Claim) { c.JobID = "a'b" },
	} {
		repository, runID, c := repo, run, declared()[0]
		change(&repository, &runID, &c)
		_, err := claim.New(repository, runID, []claim.Claim{c})
		if !errors.Is(err, claim.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		} else if strings.ContainsAny(err.Error(), "\x1b\x00\u202e") {
			t.Errorf("%s: the error holds a control character: %q", name, err)
		}
	}
	many := make([]claim.Claim, claim.MaxClaims+1)
	for i := range many {
		many[i] = claim.Claim{ID: fmt.Sprintf("c%d", i), Statement: "A."}
	}
	if _, err := claim.New(repo, run, many); !errors.Is(err, claim.ErrInvalid) {
		t.Errorf("%d claims: %v", len(many), err)
	}
}

func TestParseRefusesAnyOtherBytes(t *testing.T) {
	l := newLedger(t)
	data := l.Encode()
	back, err := claim.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l.Claims(), back.Claims()); diff != "" || !bytes.Equal(back.Encode(), data) {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
	for i := range data {
		changed := bytes.Clone(data)
		changed[i] ^= 1
		if _, err := claim.Parse(changed); err == nil {
			t.Fatalf("byte %d changed, and accepted: %s", i, changed)
		}
		if _, err := claim.Parse(data[:i]); !errors.Is(err, claim.ErrInvalid) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	for name, changed := range map[string]string{
		"white space":   strings.Replace(string(data), ":", ": ", 1),
		"trailing data": string(data) + "{}",
		"newline":       string(data) + "\n",
		"duplicate key": strings.Replace(string(data), `{`, `{"run_id":"run-1",`, 1),
		"unknown key":   strings.Replace(string(data), `{`, `{"aaa":1,`, 1),
		"huge":          string(data) + strings.Repeat(" ", claim.MaxBytes),
		"null":          "null",
		"empty":         "",
		"deep":          strings.Repeat("[", 10000),
	} {
		if _, err := claim.Parse([]byte(changed)); !errors.Is(err, claim.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFrozenLedgerOpensForEver reads the sample of version 1.
func TestFrozenLedgerOpensForEver(t *testing.T) {
	path := filepath.Join("testdata", "claim_ledger.v1.json")
	if *update {
		l, err := newLedger(t).Apply(claim.Writer{Principal: claim.Session, Name: "s-1", Jobs: []string{"verify"}},
			[]claim.Update{{ClaimID: "builds", Status: claim.Asserted}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, l.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := claim.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := l.Find("builds"); !ok || c.Status != claim.Asserted || c.Author != "session:s-1" {
		t.Errorf("builds is %+v", c)
	}
}

func TestLedgersFollowTheirSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "docs", "schemas", "claim_ledger.v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]claim.Ledger{"new": newLedger(t), "bound": bound(t)} {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(l.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStatusNames(t *testing.T) {
	for _, s := range []claim.Status{claim.Designed, claim.Asserted, claim.Verified} {
		text, err := s.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back claim.Status
		if err := back.UnmarshalText(text); err != nil || back != s {
			t.Errorf("%s reads back as %s: %v", s, back, err)
		}
		for _, spelling := range []string{string(text), strings.ToLower(string(text))} {
			if got, err := claim.ParseStatus(spelling); err != nil || got != s {
				t.Errorf("%q reads as %s: %v", spelling, got, err)
			}
		}
		if back.UnmarshalText([]byte(strings.ToLower(string(text)))) == nil {
			t.Errorf("the format accepts %q in small letters", text)
		}
	}
	var none claim.Status
	if _, err := none.MarshalText(); err == nil || none.Valid() || none.String() != "NONE" {
		t.Error("the zero status is one")
	}
	if _, err := claim.ParseStatus("Verified"); err == nil {
		t.Error("a mixed spelling was accepted")
	}
}

// FuzzLedgerParse: what is accepted re-encodes to the same bytes.
func FuzzLedgerParse(f *testing.F) {
	l := newLedger(f)
	f.Add(l.Encode())
	f.Add(bound(f).Encode())
	f.Add([]byte(`{"schema_version":"striatum.claim_ledger.v1","claims":[]}`))
	f.Add([]byte(`{"claims":[{"id":"a","id":"b"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := claim.Parse(data)
		if err != nil {
			if !l.IsZero() {
				t.Error("a ledger came with an error")
			}
			return
		}
		if again := l.Encode(); !bytes.Equal(again, data) {
			t.Errorf("accepted\n%s\nencodes to\n%s", data, again)
		}
	})
}
