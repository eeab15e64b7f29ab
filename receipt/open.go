package receipt

import (
	"errors"
	"fmt"
	"slices"

	"striatum/seal"
)

// The errors of Open and Parse beside those of package seal; test with errors.Is.
var (
	// ErrUnparseable: the bytes are not a receipt in this format.
	ErrUnparseable = errors.New("unreadable receipt")
	// ErrSealMismatch: seal, derived fields or statement do not follow from the
	// facts.
	ErrSealMismatch = errors.New("receipt does not match its seal")
	// ErrWrongLane: the signature is good, but by the key of another lane than
	// the receipt names. Such an error is a seal.ErrWrongRole too.
	ErrWrongLane = errors.New("signed by another lane than it names")
)

// Verified is a receipt whose seal, derived fields, statement and signature
// were checked. Only Open makes one; the zero value is no receipt, and its
// Seal is empty.
type Verified struct {
	receipt  Receipt
	key      seal.Key
	envelope string // SHA-256
}

// Receipt returns a copy of the receipt, which is the caller's own.
func (v Verified) Receipt() Receipt { return v.receipt.clone() }

// Seal returns the seal: the receipt's name everywhere.
func (v Verified) Seal() string { return v.receipt.SealDigest }

// Key returns the key that signed it, as the keyring knew it.
func (v Verified) Key() seal.Key { return v.key }

// EnvelopeSHA256 returns the digest of the envelope's bytes.
func (v Verified) EnvelopeSHA256() string { return v.envelope }

// Open verifies a receipt. Its errors are ErrUnparseable, ErrSealMismatch,
// ErrWrongLane, seal.ErrUnknownKey, seal.ErrBadSignature and seal.ErrWrongRole.
func Open(envelope []byte, ring seal.Keyring) (Verified, error) {
	if len(envelope) > MaxBytes {
		return Verified{}, tooLong(envelope)
	}
	payload, by, err := seal.Open(envelope, seal.PayloadInToto, ring, seal.RoleLane)
	if err != nil {
		return Verified{}, opening(err)
	}
	r, err := parsePayload(payload)
	if err != nil {
		return Verified{}, err
	}
	if by.LaneID != "" && by.LaneID != r.Lane.LaneID {
		return Verified{}, fmt.Errorf("open receipt: %w: lane %q with the key of %q (%w)", ErrWrongLane, r.Lane.LaneID, by.LaneID, seal.ErrWrongRole)
	}
	return Verified{receipt: r, key: by, envelope: seal.SHA256Hex(envelope)}, nil
}

// Parse reads a receipt without looking at its signature: good for showing it,
// never for trusting it. Its errors are ErrUnparseable and ErrSealMismatch.
func Parse(envelope []byte) (Receipt, error) {
	if len(envelope) > MaxBytes {
		return Receipt{}, tooLong(envelope)
	}
	u, err := seal.Peek(envelope, seal.PayloadInToto)
	if err != nil {
		return Receipt{}, opening(err)
	}
	return parsePayload(u.Payload)
}

func tooLong(envelope []byte) error {
	return fmt.Errorf("open receipt: %w: %d bytes are more than the limit of %d", ErrUnparseable, len(envelope), MaxBytes)
}

func opening(err error) error {
	if errors.Is(err, seal.ErrMalformed) {
		return fmt.Errorf("open receipt: %w: %w", ErrUnparseable, err)
	}
	return fmt.Errorf("open receipt: %w", err)
}

// parsePayload reads a statement and computes again everything in it that
// follows from the receipt's facts.
func parsePayload(payload []byte) (Receipt, error) {
	var s statement
	if err := seal.Decode(payload, &s, seal.Limits{Bytes: MaxBytes, Depth: maxDepth}); err != nil {
		return Receipt{}, fmt.Errorf("read receipt: %w: %w", ErrUnparseable, err)
	}
	if len(s.Predicate.Configuration) == 0 || s.Predicate.Configuration[0].Annotations == nil {
		return Receipt{}, fmt.Errorf("read receipt: %w: the statement holds no receipt", ErrUnparseable)
	}
	r := *s.Predicate.Configuration[0].Annotations
	derived := r // Derive changes nothing that is behind a pointer
	Derive(&derived)
	if err := validate(&derived); err != nil {
		return Receipt{}, fmt.Errorf("read receipt: %w: %w", ErrUnparseable, err)
	}
	body, err := seal.AppendCanonical(make([]byte, 0, len(payload)), &r)
	want, found := sealWithin(body, r.SealDigest)
	if err == nil && !found {
		want, err = sealOf(r)
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("read receipt: %w: %w", ErrUnparseable, err)
	}
	if want != r.SealDigest {
		return Receipt{}, fmt.Errorf("read receipt: %w: the body's seal is %s, it says %q", ErrSealMismatch, want, r.SealDigest)
	}
	if r.Classification != derived.Classification || r.Agreement != derived.Agreement ||
		r.Posture.Strict != derived.Posture.Strict || !slices.Equal(r.Reasons, derived.Reasons) {
		return Receipt{}, fmt.Errorf("read receipt: %w: its classification, agreement, reasons or strictness do not follow from its facts", ErrSealMismatch)
	}
	if !isStatement(payload, &r, body) {
		return Receipt{}, fmt.Errorf("read receipt: %w: the statement around it says something else", ErrSealMismatch)
	}
	return r, nil
}
