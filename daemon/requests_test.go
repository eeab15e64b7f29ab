package daemon_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/daemon"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

var laneOne = daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}

// ask asks for checks as the session, called by uid 7.
func (d *desk) ask() daemon.RequestInfo {
	d.Helper()
	r, err := d.RequestChecks(d.Context(), over(session(), 7), daemon.CheckAsk{RepositoryID: repoID, RunID: runID, Checks: []string{"builtin:go-test", "schema"}, Commit: "HEAD"})
	d.must(err)
	return r
}

func (d *desk) take(id string) daemon.RequestInfo {
	d.Helper()
	r, err := d.TakeRequest(d.Context(), laneOne, id, 7)
	d.must(err)
	return r
}

func (d *desk) state(id string) daemon.RequestInfo {
	d.Helper()
	r, err := d.RequestState(d.Context(), operator(), id)
	d.must(err)
	return r
}

func TestARequestIsTakenOnceAndEndsOnce(t *testing.T) {
	d := newDesk(t).enrol()
	r := d.ask()
	if len(r.ID) != 32 || r.State != daemon.RequestWaiting || r.UID != 7 || r.By != "session:se-1" {
		t.Errorf("got %+v", r)
	}
	d.refused(problem.Refused, "another user", func() error { _, err := d.TakeRequest(d.Context(), laneOne, r.ID, 8); return err })
	d.refused(problem.Refused, "no such request", func() error { _, err := d.TakeRequest(d.Context(), laneOne, strings.Repeat("0", 32), 7); return err })
	taken := d.take(r.ID)
	if taken.State != daemon.RequestTaken || taken.LaneID != "lane-1" || !cmp.Equal(taken.CheckRequest, r.CheckRequest) {
		t.Errorf("got %+v", taken)
	}
	d.refused(problem.Refused, "took it already", func() error { _, err := d.TakeRequest(d.Context(), laneOne, r.ID, 7); return err })
	envelope, v := d.sign(nil)
	end := daemon.RequestEnd{Outcome: daemon.RequestDone, Why: "", Seals: []string{v.Seal()}}
	d.refused(problem.Refused, "no recorded receipt", func() error { return d.EndRequest(d.Context(), laneOne, r.ID, end) })
	_, err := d.RecordReceipt(d.Context(), laneOne, envelope)
	d.must(err)
	d.refused(problem.Refused, `without a receipt of the check "schema"`, func() error { return d.EndRequest(d.Context(), laneOne, r.ID, end) })
	d.refused(problem.Refused, "without a receipt", func() error {
		return d.EndRequest(d.Context(), laneOne, r.ID, daemon.RequestEnd{Outcome: daemon.RequestDone})
	})
	envelope, other := d.sign(func(r *receipt.Receipt) { r.Check.ID, r.Sequence, r.PrevSeal = "schema", 2, v.Seal() })
	_, err = d.RecordReceipt(d.Context(), laneOne, envelope)
	d.must(err)
	end.Seals = append(end.Seals, other.Seal())
	another := daemon.Principal{Kind: daemon.Lane, Name: "lane-2"}
	d.refused(problem.Refused, "took no such", func() error { return d.EndRequest(d.Context(), another, r.ID, end) })
	for range 2 {
		d.must(d.EndRequest(d.Context(), laneOne, r.ID, end))
	}
	if got := d.state(r.ID); got.State != daemon.RequestDone || !cmp.Equal(got.Seals, end.Seals) {
		t.Errorf("got %+v", got)
	}
	again := d.ask() // which receipts of before do not answer
	d.take(again.ID)
	d.refused(problem.Refused, "recorded before the checks were asked for", func() error { return d.EndRequest(d.Context(), laneOne, again.ID, end) })
	for _, do := range []func() error{
		func() error {
			return d.EndRequest(d.Context(), laneOne, r.ID, daemon.RequestEnd{Outcome: daemon.RequestFailed})
		},
		func() error { _, err := d.TakeRequest(d.Context(), laneOne, r.ID, 7); return err },
	} {
		d.refused(problem.Refused, "", do)
	}
}

func TestARequestThatNobodyTakesExpires(t *testing.T) {
	d := newDesk(t).enrol()
	for range daemon.MaxOpenRequestsOf {
		d.ask()
	}
	r := d.state(d.askRefused())
	d.now = d.now.Add(daemon.RequestTTL)
	if got := d.state(r.ID); got.State != daemon.RequestExpired {
		t.Errorf("got %+v", got)
	}
	d.refused(problem.Refused, "expired", func() error { _, err := d.TakeRequest(d.Context(), laneOne, r.ID, 0); return err })
	d.take(d.ask().ID)
}

// askRefused makes one request too many of the session and returns the id of an open
// one.
func (d *desk) askRefused() string {
	d.Helper()
	d.refused(problem.Indeterminate, "as many as it may", func() error {
		_, err := d.RequestChecks(d.Context(), over(session(), 7), daemon.CheckAsk{RepositoryID: repoID, RunID: runID})
		return err
	})
	r, err := d.RequestChecks(d.Context(), over(operator(), 0), daemon.CheckAsk{RepositoryID: repoID})
	d.must(err)
	return r.ID
}

func TestRequestsAreBoundedInAll(t *testing.T) {
	d := newDesk(t).enrol()
	for i := range daemon.MaxOpenRequests + 1 {
		p := over(daemon.Principal{Kind: daemon.Operator, Name: "op-" + string(rune('a'+i/daemon.MaxOpenRequestsOf))}, 0)
		ask := func() error {
			_, err := d.RequestChecks(d.Context(), p, daemon.CheckAsk{RepositoryID: repoID})
			return err
		}
		if i < daemon.MaxOpenRequests {
			d.must(ask())
		} else {
			d.refused(problem.Indeterminate, "are open", ask)
		}
	}
}

// What is cancelled at once stays in the store too.
func TestATokenAsksOnlySoOften(t *testing.T) {
	d := newDesk(t).enrol()
	for range daemon.MaxRequestsOf {
		d.must(d.CancelRequest(d.Context(), session(), d.ask().ID))
	}
	again := func() error {
		_, err := d.RequestChecks(d.Context(), over(session(), 7), daemon.CheckAsk{RepositoryID: repoID, RunID: runID})
		return err
	}
	d.refused(problem.Indeterminate, "as often as it may", again)
	_, err := d.RequestChecks(d.Context(), over(operator(), 0), daemon.CheckAsk{RepositoryID: repoID})
	d.must(err)
	d.now = d.now.Add(daemon.RequestTTL)
	d.must(again())
}

func TestWhatALaneLeftIsAbandoned(t *testing.T) {
	d := newDesk(t).enrol()
	left, waiting := d.take(d.ask().ID), d.ask()
	n, err := d.AbandonRequests(d.Context(), laneOne)
	d.must(err)
	if got := d.state(left.ID); n != 1 || got.State != daemon.RequestAbandoned || got.Why == "" {
		t.Errorf("%d were abandoned: %+v", n, got)
	}
	if got := d.state(waiting.ID); got.State != daemon.RequestWaiting {
		t.Errorf("got %+v", got)
	}
	d.take(waiting.ID)
	d.must(d.EnrolLane(d.Context(), operator(), daemon.LaneSpec{LaneID: "lane-2", PublicKey: receipttest.Key(t, 2).Public(), Class: seal.ClassShared}))
	_, err = d.RevokeLane(d.Context(), operator(), "lane-1", daemon.RevokedCompromised, 0)
	d.must(err)
	if got := d.state(waiting.ID); got.State != daemon.RequestAbandoned {
		t.Errorf("the lane was revoked: %+v", got)
	}
	last := d.ask()
	d.refused(problem.Refused, "was revoked", func() error { _, err := d.TakeRequest(d.Context(), laneOne, last.ID, 7); return err })
}

func TestARequestEndsWithTheTokenThatAskedForIt(t *testing.T) {
	d := newDesk(t).enrol()
	_, info := d.give(sessionSpec())
	_, other := d.give(sessionSpec())
	asks := func(info daemon.TokenInfo) string {
		p := daemon.Principal{Kind: daemon.Session, Name: info.ID, RepositoryID: repoID, RunID: runID}
		r, err := d.RequestChecks(d.Context(), over(p, 7), daemon.CheckAsk{RepositoryID: repoID, RunID: runID})
		d.must(err)
		return r.ID
	}
	id, kept := asks(info), asks(other)
	_, err := d.RevokeToken(d.Context(), operator(), info.ID)
	d.must(err)
	d.refused(problem.Refused, "token that asked for it was revoked", func() error { _, err := d.TakeRequest(d.Context(), laneOne, id, 7); return err })
	d.take(kept)
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	d := newDesk(t).enrol()
	many := make([]string, daemon.MaxRequestChecks+1)
	for i := range many {
		many[i] = "check-" + strings.Repeat("a", i%60) + string(rune('a'+i/60))
	}
	for name, tt := range map[string]struct {
		p    daemon.Principal
		ask  daemon.CheckAsk
		kind problem.Kind
	}{
		"over TCP":        {session(), daemon.CheckAsk{RepositoryID: repoID, RunID: runID}, problem.Refused},
		"another run":     {over(session(), 7), daemon.CheckAsk{RepositoryID: repoID}, problem.Refused},
		"no repository":   {over(operator(), 7), daemon.CheckAsk{}, problem.Usage},
		"a strange run":   {over(operator(), 7), daemon.CheckAsk{RepositoryID: repoID, RunID: "../x"}, problem.Usage},
		"a strange check": {over(operator(), 7), daemon.CheckAsk{RepositoryID: repoID, Checks: []string{"\x1b[2J"}}, problem.Usage},
		"a check twice":   {over(operator(), 7), daemon.CheckAsk{RepositoryID: repoID, Checks: []string{"a", "a"}}, problem.Usage},
		"many checks":     {over(operator(), 7), daemon.CheckAsk{RepositoryID: repoID, Checks: many}, problem.Usage},
		"a strange rev":   {over(operator(), 7), daemon.CheckAsk{RepositoryID: repoID, Commit: "a\nb"}, problem.Usage},
		"a long rev":      {over(operator(), 7), daemon.CheckAsk{RepositoryID: repoID, Commit: strings.Repeat("a", 201)}, problem.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			d.refused(tt.kind, "", func() error { _, err := d.RequestChecks(d.Context(), tt.p, tt.ask); return err })
		})
	}
	r := d.take(d.ask().ID)
	for _, end := range []daemon.RequestEnd{
		{Outcome: daemon.RequestExpired},
		{Outcome: daemon.RequestDone, Why: strings.Repeat("a", 2001)},
		{Outcome: daemon.RequestDone, Why: "\xff"},
		{Outcome: daemon.RequestDone, Seals: make([]string, daemon.MaxRequestSeals+1)},
		{Outcome: daemon.RequestDone, Seals: []string{"x"}},
	} {
		d.refused(problem.Usage, "", func() error { return d.EndRequest(d.Context(), laneOne, r.ID, end) })
	}
	d.now = d.now.Add(time.Hour) // what a lane has does not expire
	if got := d.state(r.ID); got.State != daemon.RequestTaken {
		t.Errorf("got %+v", got)
	}
}
