package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"striatum/gate"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
	"striatum/workflow"
)

// LaneSpec is a lane to enrol.
type LaneSpec struct {
	LaneID    string
	PublicKey seal.PublicKey
	Class     seal.Class
	// Probe is what a probe of its host found before, recorded with it; may be nil.
	Probe *Probe
}

// LaneID returns the id of the lane that a home makes for itself: a name for
// its key.
func LaneID(key seal.PublicKey) string {
	return "lane-" + seal.SHA256Hex([]byte(key.ID()))[:12]
}

// EnrolLane makes the receipts of a lane's key count, from its place in the log
// on. A local user may enrol the first lane of a store, as shared; every other
// one takes an operator. A shared store takes no isolated lane. To enrol a key
// again with the same id and class does nothing.
func (s *Service) EnrolLane(ctx context.Context, p Principal, spec LaneSpec) error {
	const what = "enrol the lane"
	if err := p.mustBe(what, Local, Operator); err != nil {
		return err
	}
	if !workflow.ValidID(spec.LaneID) {
		return problem.New(problem.Usage, what, fmt.Sprintf("%q is not an id", clip(spec.LaneID)), "an id is 1 to 64 of a-z, 0-9, dot, underscore and hyphen, and begins with a letter or digit")
	}
	switch spec.Class {
	case seal.ClassShared:
	case seal.ClassIsolated:
		if err := p.mustBe(what, Operator); err != nil {
			return err
		}
		if s.cfg.StoreClass != seal.ClassIsolated {
			return problem.New(problem.Refused, what, "this store is shared: whoever runs striatum can write it, so no lane in it is isolated", "enrol it as shared")
		}
	default:
		return problem.New(problem.Usage, what, fmt.Sprintf("%q is not a class", spec.Class), "a class is shared or isolated")
	}
	if spec.Probe != nil {
		if err := p.mustBe(what, Operator); err != nil {
			return err
		}
		if err := spec.Probe.check(what); err != nil {
			return err
		}
	}
	pem := string(spec.PublicKey.PEM())
	return s.update(ctx, what, func(w store.Writer) error {
		lanes, err := allLanes(ctx, w)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			if l.Value.KeyID != spec.PublicKey.ID() {
				continue
			}
			if l.Value.LaneID == spec.LaneID && l.Value.Class == string(spec.Class) {
				return nil
			}
			return problem.New(problem.Refused, what, fmt.Sprintf("its key is enrolled as lane %q, %s", l.Value.LaneID, l.Value.Class), "give the lane a key of its own")
		}
		if len(lanes) > 0 && p.Kind != Operator {
			return problem.New(problem.Refused, what, "this store has a lane, and another takes an operator", operatorHint)
		}
		_, err = w.AddLane(ctx, store.Lane{
			KeyID: spec.PublicKey.ID(), LaneID: spec.LaneID, Class: string(spec.Class), PublicKey: pem, By: p.String(),
		})
		if err == nil && spec.Probe != nil {
			err = addProbe(ctx, w, *spec.Probe, spec.LaneID, p)
		}
		return err
	})
}

func allLanes(ctx context.Context, r store.Reader) ([]store.Row[store.Lane], error) {
	return store.All(func(p store.Page) ([]store.Row[store.Lane], error) { return r.Lanes(ctx, p) })
}

// Keyring returns the keys of all lanes that were ever enrolled, each with the
// class that all that it signed counts as. Whether a lane's key was revoked is for the gate to
// judge, by places in the log.
func (s *Service) Keyring(ctx context.Context) (ring seal.Keyring, err error) {
	err = s.view(ctx, "read the lanes", func(r store.Reader) error {
		infos, err := lanes(ctx, r)
		if err != nil {
			return err
		}
		ring, err = KeyringOf(infos)
		return err
	})
	return ring, err
}

// keyring returns the keys with the classes of their enrolment.
func keyring(ctx context.Context, r store.Reader) (seal.Keyring, error) {
	rows, err := allLanes(ctx, r)
	if err != nil {
		return seal.Keyring{}, err
	}
	infos := make([]LaneInfo, 0, len(rows))
	for _, row := range rows {
		infos = append(infos, LaneInfo{Lane: row.Value})
	}
	return KeyringOf(infos)
}

// KeyringOf returns the keys of lanes. The error wraps store.ErrCorrupt for one
// whose key does not have its id.
func KeyringOf(lanes []LaneInfo) (seal.Keyring, error) {
	var keys []seal.Key
	for _, l := range lanes {
		public, err := seal.ParsePublicKey([]byte(l.PublicKey))
		if err != nil || public.ID() != l.KeyID {
			return seal.Keyring{}, fmt.Errorf("%w: the key of lane %q does not have its id", store.ErrCorrupt, l.LaneID)
		}
		keys = append(keys, seal.Key{Public: public, Role: seal.RoleLane, Class: l.CountsAlways(), LaneID: l.LaneID})
	}
	return seal.NewKeyring(keys...), nil
}

// gateLanes returns the lanes as the gate judges them.
func gateLanes(ctx context.Context, r store.Reader) ([]gate.Lane, error) {
	lanes, err := allLanes(ctx, r)
	if err != nil {
		return nil, err
	}
	revocations, err := store.All(func(p store.Page) ([]store.Row[store.LaneRevocation], error) { return r.LaneRevocations(ctx, p) })
	if err != nil {
		return nil, err
	}
	var out []gate.Lane
	for _, l := range lanes {
		lane := gate.Lane{KeyID: l.Value.KeyID, LaneID: l.Value.LaneID, Class: seal.Class(l.Value.Class), EnrolledAt: l.Position}
		probe, found, err := probeOf(ctx, r, l)
		if err != nil {
			return nil, err
		}
		if found {
			lane.Lowered = lowered(probe.Value)
		}
		for _, s := range probe.Value.Spans {
			lane.Reached = append(lane.Reached, gate.Span{From: s.From, To: s.To})
		}
		for _, rev := range revocations {
			if rev.Value.KeyID != lane.KeyID {
				continue
			}
			at := rev.Position
			if since := rev.Value.Since; since > 0 {
				at = min(at, since)
			}
			if lane.RevokedAt == 0 || at < lane.RevokedAt {
				lane.RevokedAt = at
			}
			if rev.Value.Kind == RevokedRetired && lane.Kind == gate.NotRevoked {
				lane.Kind = gate.Retired
			} else if rev.Value.Kind != RevokedRetired {
				lane.Kind = gate.Compromised
			}
		}
		out = append(out, lane)
	}
	return out, nil
}

// LaneInfo is an enrolled lane. Since is the place in the log from which on what
// its key signed does not count; zero while it was not revoked. Probe is the newest
// since it was enrolled, of the time ProbedAt, which is empty where there is none;
// Lowered says what one that failed found, and makes the lane count as shared.
type LaneInfo struct {
	store.Lane
	Position   int64  `json:"position"`
	RecordedAt string `json:"recorded_at"`
	Revoked    string `json:"revoked"` // "", RevokedRetired or RevokedCompromised
	Since      int64  `json:"since"`

	Probe    store.LaneProbe `json:"probe"`
	ProbedAt string          `json:"probed_at"`
	Lowered  string          `json:"lowered"`
}

// Lanes lists all lanes that were ever enrolled, oldest first.
func (s *Service) Lanes(ctx context.Context) (out []LaneInfo, err error) {
	err = s.view(ctx, "list the lanes", func(r store.Reader) error {
		out, err = lanes(ctx, r)
		return err
	})
	return out, err
}

func lanes(ctx context.Context, r store.Reader) ([]LaneInfo, error) {
	rows, err := allLanes(ctx, r)
	if err != nil {
		return nil, err
	}
	judged, err := gateLanes(ctx, r)
	if err != nil {
		return nil, err
	}
	out := make([]LaneInfo, 0, len(rows))
	for i, row := range rows {
		l := LaneInfo{Lane: row.Value, Position: row.Position, RecordedAt: row.RecordedAt, Since: judged[i].RevokedAt, Lowered: judged[i].Lowered}
		probe, _, err := probeOf(ctx, r, row)
		if err != nil {
			return nil, err
		}
		l.Probe, l.ProbedAt = probe.Value, probe.RecordedAt
		switch judged[i].Kind {
		case gate.NotRevoked:
		case gate.Retired:
			l.Revoked = RevokedRetired
		case gate.Compromised:
			l.Revoked = RevokedCompromised
		}
		out = append(out, l)
	}
	return out, nil
}

// RevokeLane ends every key of the lane with that id: a retired one from now on, a
// compromised one from the place since in the log, or from its enrolment if since
// is zero. What lies before keeps counting. A later revocation can only take more
// away. It returns the keys' ids and where each ends.
func (s *Service) RevokeLane(ctx context.Context, p Principal, laneID, kind string, since int64) (out []LaneInfo, err error) {
	what := fmt.Sprintf("revoke the lane %q", clip(laneID))
	if err := p.mustBe(what, Operator); err != nil {
		return nil, err
	}
	switch {
	case kind != RevokedRetired && kind != RevokedCompromised:
		return nil, problem.New(problem.Usage, what, fmt.Sprintf("%q is not a way to end a key", clip(kind)), "a key is retired or compromised")
	case kind == RevokedRetired && since != 0:
		return nil, problem.New(problem.Usage, what, "a retired key ends now, not since a place in the log", "one that was in other hands is compromised")
	case since < 0:
		return nil, problem.New(problem.Usage, what, "a place in the log is a number from 1 on", "")
	}
	err = s.update(ctx, what, func(w store.Writer) error {
		out = nil
		head, err := w.Head(ctx)
		if err != nil {
			return err
		}
		if since > head.Position {
			return problem.New(problem.Usage, what, fmt.Sprintf("the log has %d entries, not yet %d", head.Position, since), "`striatum lane list` says where each lane was enrolled")
		}
		before, err := lanes(ctx, w)
		if err != nil {
			return err
		}
		for _, l := range before {
			if l.LaneID != laneID {
				continue
			}
			row := store.LaneRevocation{KeyID: l.KeyID, Kind: kind, By: p.String(), Since: since}
			if kind == RevokedCompromised && since == 0 {
				row.Since = l.Position
			}
			ended := l.Since != 0 && (row.Since == 0 || l.Since <= row.Since)
			if ended && (l.Revoked == kind || l.Revoked == RevokedCompromised) {
				continue // it says nothing new
			}
			if _, err := w.AddLaneRevocation(ctx, row); err != nil {
				return err
			}
		}
		after, err := lanes(ctx, w)
		for _, l := range after {
			if l.LaneID == laneID {
				out = append(out, l)
			}
		}
		if err == nil && len(out) == 0 {
			return problem.New(problem.Usage, what, "no such lane is enrolled", "`striatum lane list` names all")
		}
		return err
	})
	return out, err
}

// TrustedLane is a lane as a trust file names it. Receipts are the seals, sorted,
// of what a revoked lane's key signed and the store has from before Since; Left is
// how many older ones are too many to name.
type TrustedLane struct {
	LaneInfo
	Receipts []string `json:"receipts,omitempty"`
	Left     int      `json:"left"`
}

// TrustedLanes returns what a trust file is to say of the lanes. Of the revoked
// ones' receipts it names the newest, most at most.
func (s *Service) TrustedLanes(ctx context.Context, p Principal, most int) (out []TrustedLane, err error) {
	const what = "read what may be trusted"
	if err := p.mustBe(what, Operator); err != nil {
		return nil, err
	}
	if most < 0 || most > MaxTrustedReceipts {
		return nil, problem.New(problem.Usage, what, fmt.Sprintf("%d receipts are more than %d", most, MaxTrustedReceipts), "")
	}
	err = s.view(ctx, what, func(r store.Reader) error {
		all, err := lanes(ctx, r)
		if err != nil {
			return err
		}
		out = make([]TrustedLane, 0, len(all))
		revoked := map[string]int{}
		for i, l := range all {
			out = append(out, TrustedLane{LaneInfo: l})
			if l.Revoked != "" {
				revoked[l.KeyID] = i
			}
		}
		if len(revoked) == 0 {
			return nil
		}
		return nameReceipts(ctx, r, out, revoked, most)
	})
	return out, err
}

// MaxTrustedReceipts bounds what TrustedLanes names.
const MaxTrustedReceipts = 10_000

// nameReceipts walks the log for what the keys of revoked signed while they counted:
// revoked has their places in out. It opens no receipt: the daemon opened each before
// it recorded whose key signed it.
func nameReceipts(ctx context.Context, r store.Reader, out []TrustedLane, revoked map[string]int, most int) error {
	type named struct {
		lane int
		seal string
	}
	var newest []named
	first, end := int64(math.MaxInt64), int64(0)
	for _, i := range revoked {
		first, end = min(first, out[i].Position), max(end, out[i].Since)
	}
	err := eachEntry(ctx, r, first-1, func(row store.LogRow) error {
		if row.Entry.Position >= end {
			return errWalked
		}
		if row.Entry.Kind != string(store.KindReceipt) {
			return nil
		}
		var v store.Receipt
		if err := seal.Decode(row.Record, &v, seal.Limits{}); err != nil {
			return fmt.Errorf("%w: a receipt's record: %w", store.ErrCorrupt, err)
		}
		i, ok := revoked[v.KeyID]
		if !ok || row.Entry.Position < out[i].Position || row.Entry.Position >= out[i].Since {
			return nil
		}
		if newest = append(newest, named{i, v.Seal}); len(newest) > most {
			out[newest[0].lane].Left++
			newest = newest[1:]
		}
		return nil
	})
	if err != nil && !errors.Is(err, errWalked) {
		return err
	}
	for _, n := range newest {
		out[n.lane].Receipts = append(out[n.lane].Receipts, n.seal)
	}
	for i := range out {
		slices.Sort(out[i].Receipts)
	}
	return nil
}

// errWalked ends a walk of the log.
var errWalked = errors.New("what follows does not matter")

// How a lane's key ended. Any other word in the store means compromised.
const (
	RevokedRetired     = "retired"
	RevokedCompromised = "compromised"
)
