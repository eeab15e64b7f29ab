package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"striatum/claim"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
	"striatum/store"
)

// maxReason is the most bytes of an explanation.
const maxReason = 2000

// submit says whether p may bring what the lane with that id signed.
func (p Principal) submit(what, laneID string) error {
	if err := p.mustBe(what, Local, Lane, Operator); err != nil {
		return err
	}
	if p.Kind == Lane && p.Name != laneID {
		return problem.New(problem.Refused, what, fmt.Sprintf("lane %q signed it, and lane %q brings it", laneID, p.Name), "")
	}
	return nil
}

// unrevoked refuses a lane none of whose keys counts any more: what it brings could
// still speak against claims.
func unrevoked(ctx context.Context, r store.Reader, what, laneID string) error {
	lanes, err := gateLanes(ctx, r)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(lanes, func(l gate.Lane) bool { return l.LaneID == laneID && l.Kind == gate.NotRevoked }) {
		return problem.New(problem.Refused, what, fmt.Sprintf("the key of lane %q was revoked", laneID), "give the lane another home, whose key an operator enrols")
	}
	return nil
}

// RecordOpened keeps a lane's signed word that it took a number of its chain.
// It must be signed by an enrolled lane. To record the same again does nothing.
func (s *Service) RecordOpened(ctx context.Context, p Principal, envelope []byte) error {
	const what = "record the opened number"
	return s.update(ctx, what, func(w store.Writer) error {
		ring, err := keyring(ctx, w)
		if err != nil {
			return err
		}
		o, err := receipt.OpenOpened(envelope, ring)
		if err != nil {
			return notEvidence(err, what)
		}
		if err := p.submit(what, o.LaneID); err != nil {
			return err
		}
		if err := unrevoked(ctx, w, what, o.LaneID); err != nil {
			return err
		}
		name := gate.OpenedName(o)
		if _, err := w.OpenedNamed(ctx, name); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		digest, err := w.PutBlob(ctx, envelope)
		if err != nil {
			return err
		}
		_, err = w.AddOpened(ctx, store.Opened{
			Name: name, LaneEpoch: o.LaneEpoch, Sequence: o.Sequence, RepositoryID: o.RepositoryID, EnvelopeSHA256: digest,
		})
		return err
	})
}

// RecordReceipt keeps a receipt, opened with the enrolled keys first, and
// returns its seal. To record the same receipt again does nothing.
func (s *Service) RecordReceipt(ctx context.Context, p Principal, envelope []byte) (sealDigest string, err error) {
	const what = "record the receipt"
	err = s.update(ctx, what, func(w store.Writer) error {
		ring, err := keyring(ctx, w)
		if err != nil {
			return err
		}
		v, err := receipt.Open(envelope, ring)
		if err != nil {
			return notEvidence(err, what)
		}
		if err := p.submit(what, v.Key().LaneID); err != nil {
			return err
		}
		if err := unrevoked(ctx, w, what, v.Key().LaneID); err != nil {
			return err
		}
		sealDigest = v.Seal()
		if _, err := w.Receipt(ctx, sealDigest); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		digest, err := w.PutBlob(ctx, envelope)
		if err != nil {
			return err
		}
		r := v.Receipt()
		_, err = w.AddReceipt(ctx, store.Receipt{
			Seal: sealDigest, KeyID: v.Key().Public.ID(), PrevSeal: r.PrevSeal, LaneEpoch: r.LaneEpoch, Sequence: r.Sequence,
			RepositoryID: r.RepositoryID, RunID: r.RunID, CheckID: r.Check.ID, CheckDigest: r.Check.Digest,
			TreeSHA256: r.Inputs.TreeSHA256, Classification: string(r.Classification), EnvelopeSHA256: digest,
		})
		return err
	})
	if err != nil {
		return "", err
	}
	return sealDigest, nil
}

// notEvidence tells a document that is none from one that nobody here trusts.
func notEvidence(err error, what string) error {
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		return problem.Wrap(problem.Refused, err, what, "enrol the lane's key first")
	case errors.Is(err, seal.ErrBadSignature), errors.Is(err, seal.ErrWrongRole), errors.Is(err, receipt.ErrSealMismatch):
		return problem.Wrap(problem.Refused, err, what, "")
	}
	return problem.Wrap(problem.Invalid, err, what, "")
}

// ReceiptInfo is what the store knows of a receipt without opening it.
type ReceiptInfo struct {
	store.Receipt
	Position   int64  `json:"position"`
	RecordedAt string `json:"recorded_at"`
}

// ReceiptFilter selects receipts of a repository. After and Limit page through
// them, oldest first (store.Page).
type ReceiptFilter struct {
	CheckDigest string `json:"check_digest"` // empty: of every check
	After       int64  `json:"after"`
	Limit       int    `json:"limit"`
}

// Receipts lists receipts of a repository.
func (s *Service) Receipts(ctx context.Context, repositoryID string, f ReceiptFilter) ([]ReceiptInfo, error) {
	var out []ReceiptInfo
	err := s.view(ctx, "list receipts", func(r store.Reader) error {
		out = nil
		rows, err := r.Receipts(ctx, repositoryID, f.CheckDigest, store.Page{After: f.After, Limit: f.Limit})
		for _, row := range rows {
			out = append(out, ReceiptInfo{row.Value, row.Position, row.RecordedAt})
		}
		return err
	})
	return out, err
}

// Receipt returns the envelope of a receipt. It is what was recorded, to be
// opened again by whoever relies on it.
func (s *Service) Receipt(ctx context.Context, sealDigest string) (envelope []byte, err error) {
	err = s.view(ctx, fmt.Sprintf("read receipt %s", clip(sealDigest)), func(r store.Reader) error {
		row, err := r.Receipt(ctx, sealDigest)
		if err != nil {
			return err
		}
		envelope, err = r.Blob(ctx, row.Value.EnvelopeSHA256)
		return err
	})
	return envelope, err
}

// Explain records an operator's reason for a receipt that failed, so that it no
// longer speaks against later ones, or for what a lane's chain lacks. name is
// what the gate's fix names: a receipt's seal, the seal that a later receipt
// names as the one before it, or an opened record's name (gate.OpenedName).
func (s *Service) Explain(ctx context.Context, p Principal, name, reason string) error {
	what := fmt.Sprintf("explain %s", clip(name))
	if err := p.mustBe(what, Operator); err != nil {
		return err
	}
	if reason == "" || len(reason) > maxReason || !utf8.ValidString(reason) {
		return problem.New(problem.Usage, what, fmt.Sprintf("a reason is text of 1 to %d bytes", maxReason), "say it with --reason TEXT")
	}
	if name == claim.NoSeal {
		return problem.New(problem.Usage, what, "it is the beginning of every chain", "")
	}
	return s.update(ctx, what, func(w store.Writer) error {
		repositoryID, err := w.RepositoryOf(ctx, name)
		if errors.Is(err, store.ErrNotFound) {
			return problem.New(problem.Usage, what, "it is not found in this store", "`striatum gate read -v` names what can be explained")
		}
		if err != nil {
			return err
		}
		_, err = w.AddExplanation(ctx, store.Explanation{RepositoryID: repositoryID, Seal: name, Reason: reason, By: p.String()})
		return err
	})
}

// clip shortens text from outside for a message.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
