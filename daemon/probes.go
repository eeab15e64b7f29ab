package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
)

// The bounds of a probe.
const (
	MaxProbeUsers     = 256
	MaxProbeFindings  = 100
	MaxProbeTextBytes = 512 // of each text of a finding, and of a user's name
	// MaxReachedSpans is how many times of a lane's reach are kept apart; of more the
	// oldest two count as one, with what lies between.
	MaxReachedSpans = 32
)

// Probe is what a probe of a lane's host found: the users that it tried, and what
// they reach or what could not be told of them. One that tried nobody, or found
// anything, failed.
type Probe struct {
	Users    []string             `json:"users,omitempty"`
	Findings []store.ProbeFinding `json:"findings,omitempty"`
}

// OK reports whether the probe found the lane out of the reach of every user.
func (p Probe) OK() bool { return len(p.Users) > 0 && len(p.Findings) == 0 }

// row is what the store keeps of p, which follows before, at its place in the log.
func (p Probe) row(laneID string, by Principal, before store.LaneProbe, at int64) store.LaneProbe {
	row := store.LaneProbe{LaneID: laneID, OK: p.OK(), Spans: before.Spans, Users: p.Users, Findings: p.Findings, By: by.String()}
	i := slices.IndexFunc(p.Findings, func(f store.ProbeFinding) bool { return f.Reach })
	switch {
	case i >= 0:
		row.Reached, row.ReachedAt = text(p.Findings[i]), at
		if before.Reached != "" {
			row.ReachedAt = before.ReachedAt
		}
	case !row.OK || by.Kind != Operator:
		row.Reached, row.ReachedAt = before.Reached, before.ReachedAt
	case before.Reached != "":
		row.Spans = append(slices.Clone(before.Spans), store.LogSpan{From: before.ReachedAt, To: at})
		if len(row.Spans) > MaxReachedSpans {
			row.Spans[1].From = row.Spans[0].From
			row.Spans = row.Spans[1:]
		}
	}
	return row
}

// check says whether p is within its bounds.
func (p Probe) check(what string) error {
	bad := func(why string) error { return problem.New(problem.Usage, what, why, "") }
	switch {
	case len(p.Users) > MaxProbeUsers:
		return bad(fmt.Sprintf("%d users are more than %d", len(p.Users), MaxProbeUsers))
	case len(p.Findings) > MaxProbeFindings:
		return bad(fmt.Sprintf("%d findings are more than %d", len(p.Findings), MaxProbeFindings))
	case len(p.Users) == 0 && len(p.Findings) == 0:
		return bad("it tried nobody, and does not say so")
	}
	texts := slices.Clone(p.Users)
	for _, f := range p.Findings {
		if f.Code == "" {
			return bad("a finding has no code")
		}
		texts = append(texts, f.Code, f.User, f.What)
	}
	for _, text := range texts {
		if len(text) > MaxProbeTextBytes || !utf8.ValidString(text) {
			return bad(fmt.Sprintf("a text of it is no UTF-8 of %d bytes at most", MaxProbeTextBytes))
		}
	}
	return nil
}

// RecordProbe keeps what a probe of a lane's host found: a lane its own, an operator
// any. While the newest one failed, the lane counts as shared; one that passed makes
// it what it was enrolled as, and never more. What a user could reach may have been
// copied: that stands until an operator, who may know better, brings one that passed.
// What was recorded from the first probe that found it up to that one stays shared.
func (s *Service) RecordProbe(ctx context.Context, p Principal, laneID string, found Probe) error {
	what := fmt.Sprintf("record the probe of lane %q", clip(laneID))
	if err := p.mustBe(what, Lane, Operator); err != nil {
		return err
	}
	if p.Kind == Lane && p.Name != laneID {
		return problem.New(problem.Refused, what, fmt.Sprintf("it is lane %q that brings it", p.Name), "")
	}
	if err := found.check(what); err != nil {
		return err
	}
	return s.update(ctx, what, func(w store.Writer) error {
		all, err := lanes(ctx, w)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(l LaneInfo) bool { return l.LaneID == laneID && l.Revoked == "" }) {
			return problem.New(problem.Usage, what, "no such lane is enrolled, with a key that was not revoked", "`striatum lane list` names all")
		}
		return addProbe(ctx, w, found, laneID, p)
	})
}

// addProbe adds a probe. It follows the newest of that lane's name, also one from
// before the lane had this key: what a user reached then is not forgotten.
func addProbe(ctx context.Context, w store.Writer, found Probe, laneID string, by Principal) error {
	before, err := w.LaneProbe(ctx, laneID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	head, err := w.Head(ctx)
	if err != nil {
		return err
	}
	at, err := w.AddLaneProbe(ctx, found.row(laneID, by, before.Value, head.Position+1))
	if err == nil && at != head.Position+1 {
		err = fmt.Errorf("the log's entry %d follows %d", at, head.Position)
	}
	return err
}

// lowered says what the newest probe of a lane found, if it failed or one before it
// stands against the lane; empty where it does not.
func lowered(newest store.LaneProbe) string {
	switch {
	case !newest.OK:
		return summary(newest)
	case newest.Reached != "":
		return "it passed, but one before found " + newest.Reached
	}
	return ""
}

// probeOf returns the newest probe of a lane since its enrolment.
func probeOf(ctx context.Context, r store.Reader, lane store.Row[store.Lane]) (row store.Row[store.LaneProbe], found bool, err error) {
	row, err = r.LaneProbe(ctx, lane.Value.LaneID)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.Position < lane.Position {
		return store.Row[store.LaneProbe]{}, false, nil
	}
	return row, err == nil, err
}

// summary is the first finding of a failed probe, and how many more there are.
func summary(p store.LaneProbe) string {
	if len(p.Findings) == 0 {
		return "it failed"
	}
	s := text(p.Findings[0])
	if more := len(p.Findings) - 1; more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// text is a finding in a line.
func text(f store.ProbeFinding) string {
	s := f.Code
	if f.User != "" {
		s += " by " + f.User
	}
	if f.What != "" {
		s += ": " + f.What
	}
	if len(s) > 160 {
		s = clip(s)
	}
	return s
}

// Host is what a probe of the daemon's host has to know. A service in the process
// of a command, which nobody calls from outside, knows nothing of it.
type Host struct {
	// SessionUIDs are those that presented a session's token since the daemon
	// started; OperatorUIDs may call as operators; UID is the daemon's own.
	SessionUIDs, OperatorUIDs []uint32
	UID                       uint32
	// Files are what no session may read or write: home, store, configuration.
	Files []string
}

// Host tells an operator or a lane, and knows nothing of itself: see Host.
func (c Caller) Host(context.Context) (Host, error) {
	return Host{}, c.p.mustBe("describe the daemon's host", Lane, Operator)
}

// RecordProbe records what a probe of a lane's host found.
func (c Caller) RecordProbe(ctx context.Context, laneID string, found Probe) error {
	return c.s.RecordProbe(ctx, c.p, laneID, found)
}

// CountsAs is the class that what a lane signs counts as now. What was recorded at a
// place of Probe.Spans counts as shared whatever this says.
func (l LaneInfo) CountsAs() seal.Class {
	if l.Lowered != "" {
		return seal.ClassShared
	}
	return seal.Class(l.Class)
}

// CountsAlways is the class that everything counts as that the lane's key signed, also
// for a reader who does not know at which place in the log it was recorded.
func (l LaneInfo) CountsAlways() seal.Class {
	if len(l.Probe.Spans) > 0 {
		return seal.ClassShared
	}
	return l.CountsAs()
}
