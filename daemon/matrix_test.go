package daemon_test

import (
	"reflect"
	"testing"
	"time"

	"striatum/claim"
	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

// session is bound to the repository, run and job of the receipts of receipttest.
func session() daemon.Principal {
	return daemon.Principal{Kind: daemon.Session, Name: "se-1", RepositoryID: repoID, RunID: runID, Jobs: []string{"verify"}}
}

// of returns session with another repository and run.
func of(repositoryID, run string) daemon.Principal {
	p := session()
	p.RepositoryID, p.RunID = repositoryID, run
	return p
}

// over returns p as the kernel names it on a unix socket.
func over(p daemon.Principal, uid uint32) daemon.Principal {
	p.PeerUID = &uid
	return p
}

// TestMatrixOfPrincipals calls every method of Caller as every principal.
func TestMatrixOfPrincipals(t *testing.T) {
	principals := []struct {
		name string
		p    daemon.Principal
	}{
		{"local", daemon.LocalUser()},
		{"session", session()},
		{"session of another run", of(repoID, "run-2")},
		{"session of another repository", of("repo-2", runID)},
		{"session bound to nothing", of("", "")},
		{"lane", daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}},
		{"another lane", daemon.Principal{Kind: daemon.Lane, Name: "lane-2"}},
		{"operator", operator()},
		{"nobody", daemon.Principal{}},
	}
	local := daemon.LocalUser()
	place := daemon.Worktree{Path: "/w", Device: 1, Inode: 2}
	files := policyFiles(t)
	_, policy, err := files.Document()
	if err != nil {
		t.Fatal(err)
	}
	declared := []claim.Claim{{ID: "tests-pass", Statement: "The tests pass.", CheckID: "builtin:go-test", JobID: "verify"}}
	record := func(d *desk) (envelope []byte, v receipt.Verified) {
		envelope, v = d.sign(nil)
		_, err := d.RecordReceipt(d.Context(), local, envelope)
		d.must(err)
		return envelope, v
	}
	declare := func(d *desk) {
		_, err := d.UpdateClaims(d.Context(), local, repoID, runID, declared, nil)
		d.must(err)
	}
	query := daemon.GateQuery{RepositoryID: repoID, RunID: runID, Tree: gate.Tree{SHA256: receipttest.Digest("tree"), Source: "worktree"}}
	operatorToken := daemon.TokenSpec{Kind: daemon.Operator, TTL: time.Hour}
	sessionToken := daemon.TokenSpec{Kind: daemon.Session, TTL: time.Hour, RepositoryID: repoID}
	laneToken := daemon.TokenSpec{Kind: daemon.Lane, TTL: time.Hour, LaneID: "lane-1"}
	hash := receipttest.Digest("token")
	attest := daemon.AttestQuery{RepositoryID: repoID, CheckID: "schema"}
	// request is one of the session; taken is one that the lane has.
	request := func(d *desk) string {
		r, err := d.RequestChecks(d.Context(), over(session(), 7), daemon.CheckAsk{RepositoryID: repoID, RunID: runID})
		d.must(err)
		return r.ID
	}
	taken := func(d *desk) string {
		id := request(d)
		_, err := d.TakeRequest(d.Context(), daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}, id, 7)
		d.must(err)
		return id
	}
	// Each method with a letter per principal, in the order above: y or n. An x is
	// let in too, and then told that there is no such thing.
	tests := []struct {
		method, name, allowed string
		do                    func(d *desk, c daemon.Caller) error
	}{
		{"Describe", "", "yyyyyyyyn", func(d *desk, c daemon.Caller) error { _, err := c.Describe(d.Context()); return err }},
		{"FindRepository", "", "yyynnyyyn", func(d *desk, c daemon.Caller) error {
			d.must(d.BindRepository(d.Context(), operator(), place, repoID))
			_, _, err := c.FindRepository(d.Context(), place)
			return err
		}},
		{"Repository", "", "ynnnnyyyn", func(d *desk, c daemon.Caller) error { _, _, err := c.Repository(d.Context(), place); return err }},
		{"BindRepository", "", "nnnnnnnyn", func(d *desk, c daemon.Caller) error { return c.BindRepository(d.Context(), place, "mine") }},
		{"Policy", "", "yyynnyyyn", func(d *desk, c daemon.Caller) error { _, _, err := c.Policy(d.Context(), repoID); return err }},
		{"AcceptPolicy", "", "nnnnnnnyn", func(d *desk, c daemon.Caller) error {
			return c.AcceptPolicy(d.Context(), repoID, files, policy)
		}},
		{"Gate", "", "yynnnyyyn", func(d *desk, c daemon.Caller) error { _, err := c.Gate(d.Context(), query); return err }},
		{"Summary", "", "ynnnnnnyn", func(d *desk, c daemon.Caller) error { _, _, err := c.Summary(d.Context(), query); return err }},
		{"Ledger", "", "yynnnyyyn", func(d *desk, c daemon.Caller) error {
			declare(d)
			_, _, err := c.Ledger(d.Context(), repoID, runID)
			return err
		}},
		{"UpdateClaims", "declare", "ynnnnyyyn", func(d *desk, c daemon.Caller) error {
			_, err := c.UpdateClaims(d.Context(), repoID, runID, declared, nil)
			return err
		}},
		{"UpdateClaims", "assert", "yynnnnnyn", func(d *desk, c daemon.Caller) error {
			declare(d)
			_, err := c.UpdateClaims(d.Context(), repoID, runID, nil, []claim.Update{{ClaimID: "tests-pass", Status: claim.Asserted}})
			return err
		}},
		{"UpdateClaims", "bind a receipt", "ynnnnynyn", func(d *desk, c daemon.Caller) error {
			_, v := record(d)
			declare(d)
			_, err := c.UpdateClaims(d.Context(), repoID, runID, nil, []claim.Update{{ClaimID: "tests-pass", Receipt: &v}})
			return err
		}},
		{"Bind", "", "ynnnnynyn", func(d *desk, c daemon.Caller) error {
			_, v := record(d)
			_, err := c.Bind(d.Context(), daemon.ClaimBinding{RepositoryID: repoID, RunID: runID, Declared: declared, ClaimID: "tests-pass", Seal: v.Seal()})
			return err
		}},
		{"Closure", "", "ynnnnyyyn", func(d *desk, c daemon.Caller) error {
			_, _, err := c.Closure(d.Context(), hash)
			return err
		}},
		{"RecordOpened", "", "ynnnnynyn", func(d *desk, c daemon.Caller) error {
			_, v := d.sign(nil)
			return c.RecordOpened(d.Context(), d.opened(v.Receipt()))
		}},
		{"RecordReceipt", "", "ynnnnynyn", func(d *desk, c daemon.Caller) error {
			envelope, _ := d.sign(nil)
			_, err := c.RecordReceipt(d.Context(), envelope)
			return err
		}},
		{"Receipt", "", "yynnnyyyn", func(d *desk, c daemon.Caller) error {
			_, v := record(d)
			_, err := c.Receipt(d.Context(), v.Seal())
			return err
		}},
		{"Receipts", "", "yyynnyyyn", func(d *desk, c daemon.Caller) error {
			_, err := c.Receipts(d.Context(), repoID, daemon.ReceiptFilter{})
			return err
		}},
		{"Explain", "", "nnnnnnnyn", func(d *desk, c daemon.Caller) error {
			_, v := record(d)
			return c.Explain(d.Context(), v.Seal(), "flaky")
		}},
		// Without a policy nothing is attestable, which is a refusal for everybody.
		{"Attestable", "", "nnnnnnnnn", func(d *desk, c daemon.Caller) error { _, err := c.Attestable(d.Context(), attest); return err }},
		{"Attest", "", "nnnnnnnnn", func(d *desk, c daemon.Caller) error { _, _, err := c.Attest(d.Context(), attest, hash); return err }},
		{"RevokeAttestation", "", "nnnnnnnxn", func(d *desk, c daemon.Caller) error {
			_, err := c.RevokeAttestation(d.Context(), repoID, "schema", 0)
			return err
		}},
		{"Attestations", "", "yyynnyyyn", func(d *desk, c daemon.Caller) error { _, err := c.Attestations(d.Context(), repoID); return err }},
		{"EnrolLane", "", "nnnnnnnyn", func(d *desk, c daemon.Caller) error {
			return c.EnrolLane(d.Context(), daemon.LaneSpec{LaneID: "lane-2", PublicKey: receipttest.Key(t, 2).Public(), Class: seal.ClassShared})
		}},
		{"Keyring", "", "yyyyyyyyn", func(d *desk, c daemon.Caller) error { _, err := c.Keyring(d.Context()); return err }},
		{"Lanes", "", "yyyyyyyyn", func(d *desk, c daemon.Caller) error { _, err := c.Lanes(d.Context()); return err }},
		{"RevokeLane", "", "nnnnnnnyn", func(d *desk, c daemon.Caller) error {
			_, err := c.RevokeLane(d.Context(), "lane-1", daemon.RevokedRetired, 0)
			return err
		}},
		{"TrustedLanes", "", "nnnnnnnyn", func(d *desk, c daemon.Caller) error { _, err := c.TrustedLanes(d.Context(), 1); return err }},
		{"RecordProbe", "", "nnnnnynyn", func(d *desk, c daemon.Caller) error {
			return c.RecordProbe(d.Context(), "lane-1", daemon.Probe{Users: []string{"agent"}})
		}},
		{"Host", "", "nnnnnyyyn", func(d *desk, c daemon.Caller) error { _, err := c.Host(d.Context()); return err }},
		{"VerifyLog", "", "ynnnnnnyn", func(d *desk, c daemon.Caller) error { _, err := c.VerifyLog(d.Context()); return err }},
		{"CheckMint", "the first", "ynnnnnnyn", func(d *desk, c daemon.Caller) error { return c.CheckMint(d.Context(), operatorToken) }},
		{"CheckMint", "another", "nnnnnnnyn", func(d *desk, c daemon.Caller) error { d.mint(); return c.CheckMint(d.Context(), operatorToken) }},
		{"RecordToken", "the first", "ynnnnnnyn", func(d *desk, c daemon.Caller) error {
			_, err := c.RecordToken(d.Context(), operatorToken, hash)
			return err
		}},
		{"RecordToken", "another", "nnnnnnnyn", func(d *desk, c daemon.Caller) error {
			d.mint()
			_, err := c.RecordToken(d.Context(), operatorToken, hash)
			return err
		}},
		{"RecordToken", "a session's", "nnnnnnnyn", func(d *desk, c daemon.Caller) error {
			_, err := c.RecordToken(d.Context(), sessionToken, hash)
			return err
		}},
		{"RecordToken", "a lane's", "nnnnnnnyn", func(d *desk, c daemon.Caller) error {
			_, err := c.RecordToken(d.Context(), laneToken, hash)
			return err
		}},
		{"RequestChecks", "", "nynnnnnyn", func(d *desk, c daemon.Caller) error {
			_, err := c.RequestChecks(d.Context(), daemon.CheckAsk{RepositoryID: repoID, RunID: runID})
			return err
		}},
		{"TakeRequest", "", "nnnnnynnn", func(d *desk, c daemon.Caller) error {
			_, err := c.TakeRequest(d.Context(), request(d), 7)
			return err
		}},
		{"EndRequest", "", "nnnnnynnn", func(d *desk, c daemon.Caller) error {
			return c.EndRequest(d.Context(), taken(d), daemon.RequestEnd{Outcome: daemon.RequestFailed})
		}},
		{"CancelRequest", "", "nynnnnnyn", func(d *desk, c daemon.Caller) error { return c.CancelRequest(d.Context(), request(d)) }},
		{"CancelRequest", "taken", "nnnnnnnyn", func(d *desk, c daemon.Caller) error { return c.CancelRequest(d.Context(), taken(d)) }},
		{"RequestState", "", "nynnnyyyn", func(d *desk, c daemon.Caller) error {
			_, err := c.RequestState(d.Context(), request(d))
			return err
		}},
		{"RequestState", "taken", "nynnnynyn", func(d *desk, c daemon.Caller) error {
			_, err := c.RequestState(d.Context(), taken(d))
			return err
		}},
		{"AbandonRequests", "", "nnnnnyynn", func(d *desk, c daemon.Caller) error {
			n, err := c.AbandonRequests(d.Context())
			if n != 0 {
				t.Errorf("%d requests were abandoned", n)
			}
			return err
		}},
		{"Tokens", "", "nnnnnnnyn", func(d *desk, c daemon.Caller) error { _, err := c.Tokens(d.Context()); return err }},
		{"RevokeToken", "", "nnnnnnnxn", func(d *desk, c daemon.Caller) error { _, err := c.RevokeToken(d.Context(), "op-12345678"); return err }},
	}
	tried := map[string]bool{}
	for _, tt := range tests {
		tried[tt.method] = true
		for i, who := range principals {
			t.Run(tt.method+"/"+tt.name+"/"+who.name, func(t *testing.T) {
				d := newDesk(t).enrol()
				got := problem.Of(tt.do(d, d.As(over(who.p, 7))))
				switch tt.allowed[i] {
				case 'y':
					if got != nil {
						t.Errorf("refused: %v", got)
					}
				case 'x':
					if got == nil || got.Kind != problem.Usage {
						t.Errorf("got %v, want kind Usage", got)
					}
				default:
					if got == nil || got.Kind != problem.Refused {
						t.Errorf("got %v, want kind Refused", got)
					}
				}
			})
		}
	}
	for m := range reflect.TypeFor[daemon.Caller]().Methods() {
		if !tried[m.Name] {
			t.Errorf("%s is not in the matrix", m.Name)
		}
	}
}

func TestASessionListsReceiptsOfItsRunAlone(t *testing.T) {
	d := newDesk(t).enrol()
	var want string
	prev := ""
	for i, run := range []string{"run-2", runID, "run-2"} {
		envelope, v := d.sign(func(r *receipt.Receipt) {
			r.RunID, r.Sequence = run, int64(i+1)
			if prev != "" {
				r.PrevSeal = prev
			}
		})
		_, err := d.RecordReceipt(d.Context(), daemon.LocalUser(), envelope)
		d.must(err)
		if prev = v.Seal(); run == runID {
			want = v.Seal()
		}
	}
	for _, limit := range []int{0, 1} {
		got, err := d.As(session()).Receipts(d.Context(), repoID, daemon.ReceiptFilter{Limit: limit})
		if err != nil || len(got) != 1 || got[0].Seal != want {
			t.Errorf("limit %d: got %v, %v, want the receipt of the session's run", limit, got, err)
		}
	}
}
