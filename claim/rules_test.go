package claim_test

import (
	"errors"
	"testing"

	"striatum/claim"
	"striatum/receipt"
	"striatum/receipt/receipttest"
)

var theLane = claim.Writer{Principal: claim.Lane, Name: "lane-1"}

// evidence returns an opened receipt for tests-pass, changed by changes.
func evidence(t testing.TB, changes ...func(*receipt.Receipt)) *receipt.Verified {
	t.Helper()
	r := receipttest.Facts()
	for _, change := range changes {
		change(&r)
	}
	v := receipttest.Verified(t, r, receipttest.Key(t, 1))
	return &v
}

func pinned(r *receipt.Receipt) { r.Check.Kind = receipt.BuiltinToolchain }

func fails(r *receipt.Receipt) {
	r.Executions = []receipt.Execution{receipttest.Execution(receipt.Fail), receipttest.Execution(receipt.Fail)}
}

func voids(r *receipt.Receipt) { r.Control.Outcome, r.Control.Why = receipt.Invalid, "timeout" }

func drifts(r *receipt.Receipt) {
	r.Incidents = []receipt.Incident{{Code: "toolchain_drift", Effect: receipt.MakesIndeterminate}}
}

// bound returns a ledger whose claim tests-pass has a receipt.
func bound(t testing.TB) claim.Ledger {
	t.Helper()
	l, err := newLedger(t).Apply(theLane, []claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t)}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestReceiptDecidesTheStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*receipt.Receipt)
		from   claim.Status // stated before, if not zero
		want   claim.Status
	}{
		{"verified_eligible", pinned, 0, claim.Verified},
		{"asserted", func(*receipt.Receipt) {}, 0, claim.Asserted},
		{"failed", fails, claim.Asserted, claim.Designed},
		{"void", voids, claim.Asserted, claim.Designed},
		{"indeterminate", drifts, claim.Asserted, claim.Asserted},
		{"indeterminate, never stated", drifts, 0, claim.Designed},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(t)
			if c.from != 0 {
				l = must(t)(l.Apply(claim.Writer{Principal: claim.Local}, []claim.Update{{ClaimID: "tests-pass", Status: c.from}}))
			}
			v := evidence(t, c.change)
			l = must(t)(l.Apply(theLane, []claim.Update{{ClaimID: "tests-pass", Receipt: v}}))
			got, _ := l.Find("tests-pass")
			if got.Status != c.want || got.Author != "lane:lane-1" {
				t.Errorf("status %s by %s, want %s", got.Status, got.Author, c.want)
			}
			if got.ReceiptRef != v.Seal() || got.EvidenceDigest != v.Seal() || got.BoundInputDigest != receipttest.Digest("tree") ||
				got.EvidenceClass != v.Receipt().Classification {
				t.Errorf("bound to %+v", got)
			}
		})
	}
}

func must(t *testing.T) func(claim.Ledger, error) claim.Ledger {
	return func(l claim.Ledger, err error) claim.Ledger {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func TestIndeterminateReceiptLeavesVerifiedAsItWas(t *testing.T) {
	l := must(t)(newLedger(t).Apply(theLane, []claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t, pinned)}}))
	l = must(t)(l.Apply(theLane, []claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t, pinned, drifts)}}))
	c, _ := l.Find("tests-pass")
	if c.Status != claim.Verified || c.EvidenceClass != receipt.Indeterminate {
		t.Errorf("%s on %s evidence", c.Status, c.EvidenceClass)
	}
	if _, err := claim.Parse(l.Encode()); err != nil {
		t.Error(err)
	}
}

func TestWritersStayWithinTheirRules(t *testing.T) {
	session := claim.Writer{Principal: claim.Session, Name: "s-1", Jobs: []string{"verify"}}
	ok := []claim.Update{{ClaimID: "tests-pass", Status: claim.Asserted}}
	for _, c := range []struct {
		name   string
		writer claim.Writer
		ups    []claim.Update
		want   error
	}{
		{"session of the job", session, ok, nil},
		{"local", claim.Writer{Principal: claim.Local}, ok, nil},
		{"operator", claim.Writer{Principal: claim.Operator, Name: "op"}, ok, nil},
		{"nobody", claim.Writer{}, ok, claim.ErrNotAllowed},
		{"nameless session", claim.Writer{Principal: claim.Session, Jobs: []string{"verify"}}, ok, claim.ErrNotAllowed},
		{"nameless lane", claim.Writer{Principal: claim.Lane}, ok, claim.ErrNotAllowed},
		{"name with a newline", claim.Writer{Principal: claim.Local, Name: "a\nb"}, ok, claim.ErrNotAllowed},
		{"session of another job", claim.Writer{Principal: claim.Session, Name: "s-2", Jobs: []string{"build"}}, ok, claim.ErrNotAllowed},
		{"session without a job", claim.Writer{Principal: claim.Session, Name: "s-2"}, ok, claim.ErrNotAllowed},
		{"session up to VERIFIED", session, []claim.Update{{ClaimID: "tests-pass", Status: claim.Verified}}, claim.ErrAboveEvidence},
		{
			"operator up to VERIFIED",
			claim.Writer{Principal: claim.Operator, Name: "op"},
			[]claim.Update{{ClaimID: "tests-pass", Status: claim.Verified}},
			claim.ErrAboveEvidence,
		},
		{"no status", session, []claim.Update{{ClaimID: "tests-pass"}}, claim.ErrInvalid},
		{"session with a receipt", session, []claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t)}}, claim.ErrNotAllowed},
		{"lane without a receipt", theLane, ok, claim.ErrNotAllowed},
		{
			"another lane's receipt",
			claim.Writer{Principal: claim.Lane, Name: "lane-2"},
			[]claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t)}},
			claim.ErrNotAllowed,
		},
		{
			"lane above its receipt", theLane,
			[]claim.Update{{ClaimID: "tests-pass", Status: claim.Verified, Receipt: evidence(t)}},
			claim.ErrAboveEvidence,
		},
		{"receipt for another claim", theLane, []claim.Update{{ClaimID: "builds", Receipt: evidence(t)}}, claim.ErrWrongReceipt},
		{
			"receipt of another check", theLane,
			[]claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t, func(r *receipt.Receipt) { r.Check.ID = "builtin:go-vet" })}},
			claim.ErrWrongReceipt,
		},
		{
			"receipt of another repository", theLane,
			[]claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t, func(r *receipt.Receipt) { r.RepositoryID = "repo-2" })}},
			claim.ErrWrongReceipt,
		},
		{"lane for a claim that is not there", theLane, []claim.Update{{ClaimID: "fast", Receipt: evidence(t)}}, claim.ErrNotAllowed},
		{"another statement", session, []claim.Update{{ClaimID: "tests-pass", Status: claim.Asserted, Statement: "All is well."}}, claim.ErrNotAllowed},
		{"another job", session, []claim.Update{{ClaimID: "tests-pass", Status: claim.Asserted, JobID: "build"}}, claim.ErrNotAllowed},
		{"a second update that is wrong", session, append(ok[:1:1], claim.Update{ClaimID: "builds", Status: claim.Verified}), claim.ErrAboveEvidence},
		{"a claim with a bad id", session, []claim.Update{{ClaimID: "../x", Status: claim.Asserted, Statement: "X.", JobID: "verify"}}, claim.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(t)
			next, err := l.Apply(c.writer, c.ups)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil && !next.IsZero() {
				t.Error("a ledger came with an error")
			}
		})
	}
}

func TestNobodyTalksAClaimUpOverItsEvidence(t *testing.T) {
	for name, change := range map[string]func(*receipt.Receipt){"failed": fails, "void": voids} {
		l := must(t)(newLedger(t).Apply(theLane, []claim.Update{{ClaimID: "tests-pass", Receipt: evidence(t, change)}}))
		for _, w := range []claim.Writer{
			{Principal: claim.Session, Name: "s-1", Jobs: []string{"verify"}}, {Principal: claim.Local}, {Principal: claim.Operator, Name: "op"},
		} {
			_, err := l.Apply(w, []claim.Update{{ClaimID: "tests-pass", Status: claim.Asserted}})
			if !errors.Is(err, claim.ErrAboveEvidence) {
				t.Errorf("%s over a %s receipt: %v", w.Principal, name, err)
			}
		}
	}
}

func TestLoweringNamesItsAuthorAndKeepsTheEvidence(t *testing.T) {
	l := must(t)(bound(t).Apply(claim.Writer{Principal: claim.Session, Name: "s-1", Jobs: []string{"verify"}},
		[]claim.Update{{ClaimID: "tests-pass", Status: claim.Designed}}))
	c, _ := l.Find("tests-pass")
	if c.Status != claim.Designed || c.Author != "session:s-1" || c.ReceiptRef == "" {
		t.Errorf("%+v", c)
	}
}

func TestClaimThatASessionAddsIsUndeclared(t *testing.T) {
	session := claim.Writer{Principal: claim.Session, Name: "s-1", Jobs: []string{"build"}}
	l := must(t)(newLedger(t).Apply(session, []claim.Update{{ClaimID: "fast", Statement: "It is fast.", JobID: "build", Status: claim.Asserted}}))
	c, ok := l.Find("fast")
	want := claim.Claim{ID: "fast", Statement: "It is fast.", Status: claim.Asserted, JobID: "build", Author: "session:s-1", Undeclared: true}
	if !ok || c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	// Declared later with a check, it starts again.
	l = must(t)(l.Declare(append(declared(), claim.Claim{ID: "fast", Statement: "It is fast.", CheckID: "bench", JobID: "build"})))
	if c, _ := l.Find("fast"); c.Status != claim.Designed || c.Undeclared {
		t.Errorf("declared: %+v", c)
	}
}
