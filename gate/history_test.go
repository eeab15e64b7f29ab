package gate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"striatum/claim"
	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

// story grows a random history of one repository as honest lanes and stores
// write it: numbers are opened before they are sealed, every sealed one is
// stored, and the ledger follows the writer's rules. Lanes may die with a
// number open and begin a new epoch.
type story struct {
	t      testing.TB
	rng    *rand.Rand
	lanes  []lane
	chains []chainEnd
	now    int64 // the log's last position
	in     gate.Input
}

type chainEnd struct {
	epoch string
	next  int64
	prev  string
}

var (
	storyClaims = []string{"claim-a", "claim-b", "claim-c"}
	storyTrees  = []string{digest("tree"), digest("tree-2")}
)

func newStory(t testing.TB, rng *rand.Rand, lanes []lane) *story {
	s := &story{t: t, rng: rng, lanes: lanes, now: int64(len(lanes))}
	var claims []claim.Claim
	for _, id := range storyClaims {
		k := facts(id).Check
		claims = append(claims, claim.Claim{ID: id, Statement: "It holds.", CheckID: k.ID})
		s.in.Required = append(s.in.Required, gate.Requirement{ClaimID: id, CheckID: k.ID, CheckDigest: k.Digest})
		if rng.IntN(4) > 0 {
			s.in.Attestations = append(s.in.Attestations, gate.Attestation{CheckDigest: k.Digest, ClosureSHA256: digest("closure"), Position: 1})
		}
	}
	ledger, err := claim.New(repo, run, claims)
	if err != nil {
		t.Fatal(err)
	}
	s.in.RepositoryID, s.in.RunID, s.in.Ledger = repo, run, ledger
	s.in.Store = gate.Store{Class: seal.ClassIsolated}
	s.in.Tree = gate.Tree{SHA256: storyTrees[0], Source: "worktree"}
	s.in.Policy = &gate.Policy{Digest: digest("policy")}
	s.in.Evidence = map[string]gate.Evidence{}
	for i, l := range lanes {
		class := seal.ClassIsolated
		if rng.IntN(4) == 0 {
			class = seal.ClassShared
		}
		s.in.Lanes = append(s.in.Lanes, gate.Lane{KeyID: l.key.Public().ID(), LaneID: l.id, Class: class, EnrolledAt: int64(i + 1)})
		s.chains = append(s.chains, chainEnd{fmt.Sprintf("epoch-%d", i), 1, receipt.FirstPrevSeal})
	}
	return s
}

func (s *story) pick(n int) int { return s.rng.IntN(n) }

// attempt opens a number and, mostly, seals and stores it. Each change is
// applied to the facts.
func (s *story) attempt(changes ...func(*receipt.Receipt)) *receipt.Verified {
	i := s.pick(len(s.lanes))
	end := &s.chains[i]
	r := facts(storyClaims[s.pick(len(storyClaims))])
	r.LaneEpoch, r.Sequence, r.PrevSeal = end.epoch, end.next, end.prev
	r.Inputs.TreeSHA256 = storyTrees[s.pick(8)/7]
	if s.pick(8) == 0 {
		r.Tools.ClosureSHA256 = digest("closure-2")
	}
	for _, change := range changes {
		change(&r)
	}
	s.now++
	s.in.Opened = append(s.in.Opened, openedFor(r, s.lanes[i].id))
	if len(changes) == 0 && s.pick(12) == 0 { // killed; its number stays open
		s.chains[i] = chainEnd{fmt.Sprintf("%s-%d", end.epoch, s.now), 1, receipt.FirstPrevSeal}
		return nil
	}
	v := s.lanes[i].seal(s.t, r)
	s.now++
	s.in.History = append(s.in.History, gate.HistoryEntry{Verified: v, LogPosition: s.now})
	*end = chainEnd{end.epoch, end.next + 1, v.Seal()}
	return v
}

// outcome is a random change of the facts.
func (s *story) outcome(r *receipt.Receipt) {
	switch s.pick(10) {
	case 0, 1:
		fails(r)
	case 2:
		r.Control.Outcome, r.Control.Why = receipt.Invalid, "command not found"
	case 3:
		r.Executions[1].ResultSHA256 = digest("result-2")
	case 4:
		r.Posture.Facets[0].OK = false
	case 5:
		r.RunID = "run-2"
	}
}

// bind lets the lane bind v to its claim, as verifier run does.
func (s *story) bind(v *receipt.Verified) {
	r := v.Receipt()
	if r.RunID != run {
		return
	}
	s.in.Ledger = apply(s.t, s.in.Ledger, claim.Writer{Principal: claim.Lane, Name: r.Lane.LaneID},
		claim.Update{ClaimID: r.Check.BacksClaim, Receipt: v})
	s.in.Evidence[r.Check.BacksClaim] = gate.Evidence{Verified: v, LogPosition: s.now}
}

// grow adds one event of any kind.
func (s *story) grow() {
	switch s.pick(10) {
	case 0: // a person says so, where the rules allow it
		id := storyClaims[s.pick(len(storyClaims))]
		if next, err := s.in.Ledger.Apply(claim.Writer{Principal: claim.Local}, []claim.Update{{ClaimID: id, Status: claim.Asserted}}); err == nil {
			s.in.Ledger = next
		}
	case 1: // an operator explains a failure
		for _, e := range s.in.History {
			if e.Verified.Receipt().Classification == receipt.Failed {
				s.in.Explanations = append(s.in.Explanations, gate.Explanation{Seal: e.Verified.Seal(), Reason: "flaky"})
				break
			}
		}
	default:
		change := s.outcome
		var v *receipt.Verified
		if s.pick(4) == 0 {
			v = s.attempt()
		} else {
			v = s.attempt(change)
		}
		if v != nil && s.pick(10) > 0 {
			s.bind(v)
		}
	}
}

// harm adds evidence against a claim, in one of the ways it can come.
func (s *story) harm() string {
	switch s.pick(9) {
	case 0:
		v := s.attempt(fails)
		if s.pick(2) == 0 {
			s.bind(v)
		}
		return "a failed receipt"
	case 1:
		s.bindMaybe(s.attempt(func(r *receipt.Receipt) {
			e := execution(receipt.Pass, "2026-01-01T00:00:00Z")
			r.Control.Execution, r.Control.Outcome = &e, receipt.DidNotFail
		}))
		return "a void receipt"
	case 2:
		l := &s.in.Lanes[s.pick(len(s.in.Lanes))]
		if since := 1 + s.rng.Int64N(s.now+1); l.RevokedAt == 0 || since < l.RevokedAt {
			l.RevokedAt, l.Kind = since, gate.Compromised
		}
		return "a revoked lane"
	case 3:
		if len(s.in.Attestations) > 0 {
			s.in.Attestations[s.pick(len(s.in.Attestations))].RevokedAt = s.now
		}
		return "a revoked attestation"
	case 4:
		id := storyClaims[s.pick(len(storyClaims))]
		problems := []gate.Problem{gate.Absent, gate.Unavailable, gate.Unparseable, gate.SealMismatch, gate.SignatureInvalid, gate.UnknownLane}
		if e, ok := s.in.Evidence[id]; ok {
			s.in.History = slices.DeleteFunc(s.in.History, func(h gate.HistoryEntry) bool { return h.Verified == e.Verified })
			s.in.Evidence[id] = gate.Evidence{Problem: problems[s.pick(len(problems))], LogPosition: e.LogPosition}
		}
		return "a damaged receipt"
	case 5:
		i := s.pick(len(s.lanes))
		r := facts(storyClaims[s.pick(len(storyClaims))])
		r.LaneEpoch, r.Sequence, r.PrevSeal = s.chains[i].epoch, s.chains[i].next, s.chains[i].prev
		s.in.Opened = append(s.in.Opened, openedFor(r, s.lanes[i].id))
		s.chains[i] = chainEnd{fmt.Sprintf("%s-%d", r.LaneEpoch, s.now), 1, receipt.FirstPrevSeal}
		return "an open number"
	case 6:
		s.in.Lanes[s.pick(len(s.in.Lanes))].Lowered = "secret_readable"
		return "a probe that failed"
	case 7:
		l := &s.in.Lanes[s.pick(len(s.in.Lanes))]
		from := s.rng.Int64N(s.now + 1)
		l.Reached = append(l.Reached, gate.Span{From: from, To: from + 1 + s.rng.Int64N(s.now+1)})
		return "a time within a user's reach"
	}
	id := storyClaims[s.pick(len(storyClaims))]
	s.in.Ledger = apply(s.t, s.in.Ledger, claim.Writer{Principal: claim.Operator, Name: "op"}, claim.Update{ClaimID: id, Status: claim.Designed})
	return "an author who lowers"
}

func (s *story) bindMaybe(v *receipt.Verified) {
	if s.pick(2) == 0 {
		s.bind(v)
	}
}

// reading is what may not rise.
type reading struct {
	status claim.Status
	green  bool
}

func read(in gate.Input) map[string]reading {
	out := map[string]reading{}
	for _, c := range gate.Evaluate(in).Claims {
		out[c.ID] = reading{c.Effective, c.Signal == gate.Green}
	}
	return out
}

// raised names a claim that reads higher in b than in a.
func raised(a, b map[string]reading) (string, bool) {
	for id, was := range a {
		if is := b[id]; is.status > was.status || is.green && !was.green {
			return fmt.Sprintf("%s: %s green=%t became %s green=%t", id, was.status, was.green, is.status, is.green), true
		}
	}
	return "", false
}

const stories = 120

func lanesForStories(t testing.TB) []lane {
	return []lane{newLane(t, "lane-1", seal.ClassIsolated), newLane(t, "lane-2", seal.ClassIsolated)}
}

func TestEvidenceAgainstAClaimNeverRaisesAnyClaim(t *testing.T) {
	lanes := lanesForStories(t)
	greens := 0
	for seed := range uint64(stories) {
		s := newStory(t, rand.New(rand.NewPCG(seed, 1)), lanes)
		for range 1 + s.pick(10) {
			s.grow()
		}
		for range 4 {
			before := read(s.in)
			for _, r := range before {
				if r.green {
					greens++
				}
			}
			what := s.harm()
			if diff, ok := raised(before, read(s.in)); ok {
				t.Fatalf("seed %d: %s raised %s", seed, what, diff)
			}
		}
	}
	if greens < stories {
		t.Errorf("only %d green claims were harmed: the histories are too poor to show anything", greens)
	}
}

func TestRemovingAReceiptOrAttestationNeverRaisesAClaim(t *testing.T) {
	lanes := lanesForStories(t)
	reds := 0
	for seed := range uint64(stories) {
		s := newStory(t, rand.New(rand.NewPCG(seed, 2)), lanes)
		for range 2 + s.pick(10) {
			s.grow()
		}
		if s.pick(3) == 0 {
			s.harm()
		}
		for len(s.in.History)+len(s.in.Attestations) > 0 {
			before := gate.Evaluate(s.in)
			for _, c := range before.Claims {
				if c.Signal == gate.Red {
					reds++
				}
			}
			was := read(s.in)
			// Every single removal from here, then one of them for good.
			n := len(s.in.History) + len(s.in.Attestations)
			for k := range n {
				if diff, ok := raised(was, read(without(s.in, k))); ok {
					t.Fatalf("seed %d: removing %d of %d raised %s\n%s", seed, k, n, diff, describe(before.Claims[0]))
				}
			}
			s.in = without(s.in, s.pick(n))
		}
	}
	if reds < stories {
		t.Errorf("only %d red claims were there: the histories are too poor to show anything", reds)
	}
}

// without returns in without its k-th receipt or, past those, attestation.
func without(in gate.Input, k int) gate.Input {
	if k >= len(in.History) {
		k -= len(in.History)
		in.Attestations = slices.Delete(slices.Clone(in.Attestations), k, k+1)
		return in
	}
	gone := in.History[k].Verified
	in.History = slices.Delete(slices.Clone(in.History), k, k+1)
	evidence := map[string]gate.Evidence{}
	for id, e := range in.Evidence {
		if e.Verified == gone {
			e = gate.Evidence{Problem: gate.Absent}
		}
		evidence[id] = e
	}
	in.Evidence = evidence
	return in
}
