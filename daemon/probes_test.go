package daemon_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/store"
)

var (
	passed = daemon.Probe{Users: []string{"agent"}}
	failed = daemon.Probe{Users: []string{"agent"}, Findings: []store.ProbeFinding{
		{Code: "secret_readable", User: "agent", What: "/var/lib/lane/keys/lane.pem", Reach: true}, {Code: "named_in_sudoers", User: "agent", Reach: true},
	}}
)

// isolated is a checked desk over an isolated store, whose lane is enrolled with a
// class and, if that is not nil, a probe.
func isolated(t *testing.T, class seal.Class, probe *daemon.Probe) *checked {
	c := newChecked(t)
	other := newDesk(t) // without the lane that newChecked enrols
	other.Service = daemon.New(daemon.Config{
		Store: other.store, Now: func() time.Time { return other.now }, Rand: rand.Reader, StoreClass: seal.ClassIsolated, StoreName: "sqlite", Home: "/home/x", ReportKey: receipttest.Key(t, 7),
	})
	c.desk = other
	c.must(c.EnrolLane(t.Context(), operator(), daemon.LaneSpec{LaneID: "lane-1", PublicKey: c.lane.Public(), Class: class, Probe: probe}))
	c.attempt(1, receipt.FirstPrevSeal, nil)
	return c
}

func (c *checked) probe(found daemon.Probe) {
	c.Helper()
	c.must(c.RecordProbe(c.Context(), daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}, "lane-1", found))
}

func (c *checked) shared() (sentence string) {
	for _, b := range c.gate(c.query()).Claims[0].Bases {
		if b.Code == gate.LaneNotIsolated {
			sentence = b.Sentence
		}
	}
	return sentence
}

func TestAFailedProbeMakesALaneShared(t *testing.T) {
	c := isolated(t, seal.ClassIsolated, nil)
	if got := c.shared(); got != "" {
		t.Fatalf("before any probe: %s", got)
	}
	c.probe(failed)
	if got := c.shared(); !strings.Contains(got, "secret_readable by agent: /var/lib/lane/keys/lane.pem; and 1 more") {
		t.Errorf("got %q", got)
	}
	all, err := c.Lanes(t.Context())
	c.must(err)
	if len(all) != 1 || all[0].Lowered == "" || all[0].Class != "isolated" || all[0].ProbedAt == "" || len(all[0].Probe.Findings) != 2 {
		t.Errorf("got %+v", all)
	}
	ring, err := c.Keyring(t.Context())
	c.must(err)
	if got := ring.Keys()[0].Class; got != seal.ClassShared {
		t.Errorf("got class %q of a lane that was lowered", got)
	}
	// The key may have been copied: nothing that the lane says ends that.
	untold := daemon.Probe{Findings: []store.ProbeFinding{{Code: "no_user_known"}}}
	for _, next := range []daemon.Probe{passed, untold, passed} {
		c.probe(next)
		if got := c.shared(); got == "" || next.OK() && !strings.Contains(got, "one before found secret_readable") {
			t.Errorf("after %+v: %q", next, got)
		}
	}
	c.must(c.RecordProbe(c.Context(), operator(), "lane-1", untold))
	c.probe(passed)
	if got := c.shared(); got == "" {
		t.Error("an operator's probe that told nothing ended what one before found")
	}
	c.must(c.RecordProbe(c.Context(), operator(), "lane-1", passed))
	if got := c.shared(); got != "" {
		t.Errorf("after an operator's that passed: %s", got)
	}
	c.probe(untold)
	if got := c.shared(); !strings.Contains(got, "no_user_known") {
		t.Errorf("one that tried nobody: got %q", got)
	}
	c.probe(passed)
	if got := c.shared(); got != "" {
		t.Errorf("after one that passed, where nobody reached anything: %s", got)
	}
}

func TestAProbeNeverRaisesALane(t *testing.T) {
	c := isolated(t, seal.ClassShared, &passed)
	before := c.shared()
	c.probe(passed)
	if got := c.shared(); got == "" || got != before {
		t.Errorf("got %q, want %q", got, before)
	}
}

func TestAProbeIsRecordedWithTheLane(t *testing.T) {
	c := isolated(t, seal.ClassIsolated, &failed)
	if got := c.shared(); !strings.Contains(got, "secret_readable") {
		t.Errorf("got %q", got)
	}
	// A new key of the lane is a new word of the operator; the old one stays lowered.
	key := receipttest.Key(t, 2)
	c.must(c.EnrolLane(t.Context(), operator(), daemon.LaneSpec{LaneID: "lane-1", PublicKey: key.Public(), Class: seal.ClassIsolated}))
	all, err := c.Lanes(t.Context())
	c.must(err)
	if len(all) != 2 || all[0].Lowered == "" || all[1].Lowered != "" || all[1].ProbedAt != "" {
		t.Errorf("got %+v", all)
	}
}

func TestAProbeHasBounds(t *testing.T) {
	d := newDesk(t).enrol()
	lane := daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}
	finding := store.ProbeFinding{Code: "secret_readable"}
	for words, found := range map[string]daemon.Probe{
		"users are more than":    {Users: make([]string, daemon.MaxProbeUsers+1)},
		"findings are more than": {Findings: slices.Repeat([]store.ProbeFinding{finding}, daemon.MaxProbeFindings+1)},
		"tried nobody":           {},
		"has no code":            {Findings: []store.ProbeFinding{{What: "/k"}}},
		"no UTF-8 of":            {Users: []string{"\xff"}},
		"bytes at most":          {Users: []string{strings.Repeat("a", daemon.MaxProbeTextBytes+1)}},
	} {
		d.refused(problem.Usage, words, func() error { return d.RecordProbe(t.Context(), lane, "lane-1", found) })
	}
	d.refused(problem.Usage, "no such lane", func() error { return d.RecordProbe(t.Context(), operator(), "lane-9", passed) })
	d.refused(problem.Refused, `it is lane "lane-2"`, func() error {
		return d.RecordProbe(t.Context(), daemon.Principal{Kind: daemon.Lane, Name: "lane-2"}, "lane-1", passed)
	})
	_, err := d.RevokeLane(t.Context(), operator(), "lane-1", daemon.RevokedRetired, 0)
	d.must(err)
	d.refused(problem.Usage, "not revoked", func() error { return d.RecordProbe(t.Context(), lane, "lane-1", passed) })
}

func TestWhatWasRecordedWithinAUsersReachStaysShared(t *testing.T) {
	c := isolated(t, seal.ClassIsolated, nil)
	c.probe(failed)
	c.attempt(2, c.last, nil) // recorded between the probes
	c.must(c.RecordProbe(t.Context(), operator(), "lane-1", passed))
	within := c.shared()
	if !strings.Contains(within, "a probe found that a user reached the lane") {
		t.Errorf("after an operator's that passed: got %q", within)
	}
	all, err := c.Lanes(t.Context())
	c.must(err)
	spans := all[0].Probe.Spans
	if len(spans) != 1 || spans[0].From <= all[0].Position || spans[0].To <= spans[0].From || all[0].CountsAs() != seal.ClassIsolated || all[0].CountsAlways() != seal.ClassShared {
		t.Errorf("got %+v", all[0])
	}
	c.probe(passed)
	if got := c.shared(); got != within {
		t.Errorf("after another that passed: got %q", got)
	}
	c.attempt(3, c.last, nil)
	if got := c.shared(); got != "" {
		t.Errorf("recorded after it: %q", got)
	}
}

func TestAnotherKeyOfALaneForgetsNoReach(t *testing.T) {
	c := isolated(t, seal.ClassIsolated, nil)
	c.probe(failed)
	c.attempt(2, c.last, nil)
	other, err := seal.GenerateKey(rand.Reader)
	c.must(err)
	c.must(c.EnrolLane(t.Context(), operator(), daemon.LaneSpec{LaneID: "lane-1", Class: seal.ClassIsolated, PublicKey: other.Public()}))
	c.probe(passed) // the lane's own word
	if got := c.shared(); got == "" {
		t.Error("what was recorded within a user's reach counts, because the lane has another key")
	}
	c.must(c.RecordProbe(t.Context(), operator(), "lane-1", passed))
	if got := c.shared(); !strings.Contains(got, "a probe found that a user reached the lane") {
		t.Errorf("after an operator's: %q", got)
	}
}

func TestManyTimesOfAReachAreKeptAsFewer(t *testing.T) {
	c := isolated(t, seal.ClassIsolated, nil)
	var first int64
	for i := range daemon.MaxReachedSpans + 2 {
		c.probe(failed)
		c.must(c.RecordProbe(t.Context(), operator(), "lane-1", passed))
		all, err := c.Lanes(t.Context())
		c.must(err)
		spans := all[0].Probe.Spans
		if i == 0 {
			first = spans[0].From
		}
		if want := min(i+1, daemon.MaxReachedSpans); len(spans) != want || spans[0].From != first {
			t.Fatalf("after %d: got %d from %d, want %d from %d", i+1, len(spans), spans[0].From, want, first)
		}
	}
}
