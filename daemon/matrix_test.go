package daemon_test

import (
	"testing"
	"time"

	"striatum/claim"
	"striatum/daemon"
	"striatum/internal/problem"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

func TestMatrixOfPrincipals(t *testing.T) {
	kinds := []daemon.Principal{
		daemon.LocalUser(),
		{Kind: daemon.Session, Name: "s-1", Jobs: []string{"verify"}},
		{Kind: daemon.Lane, Name: "lane-1"},
		operator(),
		{},
	}
	place := daemon.Worktree{Path: "/w", Device: 1, Inode: 2}
	files := policyFiles(t)
	_, policy, err := files.Document()
	if err != nil {
		t.Fatal(err)
	}
	declared := []claim.Claim{{ID: "tests-pass", Statement: "The tests pass.", CheckID: "builtin:go-test", JobID: "verify"}}
	// Each operation with a letter per principal, in the order above: y or n.
	tests := []struct {
		name, allowed string
		do            func(d *desk, p daemon.Principal) error
	}{
		{"record opened", "ynyyn", func(d *desk, p daemon.Principal) error {
			_, v := d.sign(nil)
			return d.RecordOpened(d.Context(), p, d.opened(v.Receipt()))
		}},
		{"record receipt", "ynyyn", func(d *desk, p daemon.Principal) error {
			envelope, _ := d.sign(nil)
			_, err := d.RecordReceipt(d.Context(), p, envelope)
			return err
		}},
		{"declare claims", "ynyyn", func(d *desk, p daemon.Principal) error {
			_, err := d.UpdateClaims(d.Context(), p, repoID, runID, declared, nil)
			return err
		}},
		{"assert a claim", "yynyn", func(d *desk, p daemon.Principal) error {
			_, err := d.UpdateClaims(d.Context(), daemon.LocalUser(), repoID, runID, declared, nil)
			d.must(err)
			_, err = d.UpdateClaims(d.Context(), p, repoID, runID, nil, []claim.Update{{ClaimID: "tests-pass", Status: claim.Asserted}})
			return err
		}},
		{"bind a receipt", "ynyyn", func(d *desk, p daemon.Principal) error {
			envelope, v := d.sign(nil)
			_, err := d.RecordReceipt(d.Context(), daemon.LocalUser(), envelope)
			d.must(err)
			_, err = d.UpdateClaims(d.Context(), daemon.LocalUser(), repoID, runID, declared, nil)
			d.must(err)
			_, err = d.UpdateClaims(d.Context(), p, repoID, runID, nil, []claim.Update{{ClaimID: "tests-pass", Receipt: &v}})
			return err
		}},
		{"enrol another lane", "nnnyn", func(d *desk, p daemon.Principal) error {
			return d.EnrolLane(d.Context(), p, daemon.LaneSpec{LaneID: "lane-2", PublicKey: receipttest.Key(t, 2).Public(), Class: seal.ClassShared})
		}},
		{"mint the first token", "ynnyn", func(d *desk, p daemon.Principal) error {
			_, err := d.MintOperator(d.Context(), p, time.Hour, forget)
			return err
		}},
		{"mint another token", "nnnyn", func(d *desk, p daemon.Principal) error {
			_, err := d.MintOperator(d.Context(), daemon.LocalUser(), time.Hour, forget)
			d.must(err)
			_, err = d.MintOperator(d.Context(), p, time.Hour, forget)
			return err
		}},
		{"bind a repository", "nnnyn", func(d *desk, p daemon.Principal) error {
			return d.BindRepository(d.Context(), p, place, "mine")
		}},
		{"accept a policy", "nnnyn", func(d *desk, p daemon.Principal) error {
			return d.AcceptPolicy(d.Context(), p, repoID, files, policy)
		}},
		{"explain a receipt", "nnnyn", func(d *desk, p daemon.Principal) error {
			envelope, v := d.sign(nil)
			_, err := d.RecordReceipt(d.Context(), daemon.LocalUser(), envelope)
			d.must(err)
			return d.Explain(d.Context(), p, v.Seal(), "flaky")
		}},
		{"read the gate", "yyyyy", func(d *desk, _ daemon.Principal) error {
			_, err := d.Gate(d.Context(), daemon.GateQuery{RepositoryID: repoID})
			return err
		}},
	}
	for _, tt := range tests {
		for i, p := range kinds {
			t.Run(tt.name+"/"+p.Kind.String(), func(t *testing.T) {
				err := tt.do(newDesk(t).enrol(), p)
				if tt.allowed[i] == 'y' {
					if err != nil {
						t.Errorf("refused: %v", err)
					}
					return
				}
				if got := problem.Of(err); got == nil || got.Kind != problem.Refused {
					t.Errorf("got %v, want kind Refused", err)
				}
			})
		}
	}
}
