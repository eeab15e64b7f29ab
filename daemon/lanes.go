package daemon

import (
	"context"
	"fmt"

	"striatum/gate"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
)

// LaneSpec is a lane to enrol.
type LaneSpec struct {
	LaneID    string
	PublicKey seal.PublicKey
	Class     seal.Class
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
	switch spec.Class {
	case seal.ClassShared:
	case seal.ClassIsolated:
		if s.cfg.StoreClass != seal.ClassIsolated {
			return problem.New(problem.Refused, what, "this store is shared: whoever runs striatum can write it, so no lane in it is isolated", "enrol it as shared")
		}
	default:
		return problem.New(problem.Usage, what, fmt.Sprintf("%q is not a class", spec.Class), "a class is shared or isolated")
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
		return err
	})
}

func allLanes(ctx context.Context, r store.Reader) ([]store.Row[store.Lane], error) {
	return store.All(func(p store.Page) ([]store.Row[store.Lane], error) { return r.Lanes(ctx, p) })
}

// Keyring returns the keys of all lanes that were ever enrolled. Whether a
// lane's key was revoked is for the gate to judge, by places in the log.
func (s *Service) Keyring(ctx context.Context) (ring seal.Keyring, err error) {
	err = s.view(ctx, "read the lanes", func(r store.Reader) error {
		ring, err = keyring(ctx, r)
		return err
	})
	return ring, err
}

func keyring(ctx context.Context, r store.Reader) (seal.Keyring, error) {
	lanes, err := allLanes(ctx, r)
	if err != nil {
		return seal.Keyring{}, err
	}
	var keys []seal.Key
	for _, l := range lanes {
		public, err := seal.ParsePublicKey([]byte(l.Value.PublicKey))
		if err != nil || public.ID() != l.Value.KeyID {
			return seal.Keyring{}, fmt.Errorf("%w: the key of lane %q does not have its id", store.ErrCorrupt, l.Value.LaneID)
		}
		keys = append(keys, seal.Key{Public: public, Role: seal.RoleLane, Class: seal.Class(l.Value.Class), LaneID: l.Value.LaneID})
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
		for _, rev := range revocations {
			if rev.Value.KeyID != lane.KeyID {
				continue
			}
			if lane.RevokedAt == 0 {
				lane.RevokedAt = rev.Position
			}
			if rev.Value.Kind == revokedRetired && lane.Kind == gate.NotRevoked {
				lane.Kind = gate.Retired
			} else if rev.Value.Kind != revokedRetired {
				lane.Kind = gate.Compromised
			}
		}
		out = append(out, lane)
	}
	return out, nil
}

// revokedRetired is how the store names a key that was put out of use in good
// order; any other word means compromised.
const revokedRetired = "retired"
