package seal

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// PayloadInToto is the payload type of in-toto statements.
const PayloadInToto = "application/vnd.in-toto+json"

// MaxEnvelope is the largest envelope, in bytes, that is signed or opened.
const MaxEnvelope = 16 << 20

// The errors of Open; test with errors.Is.
var (
	// ErrMalformed: the bytes are not the one spelling of an envelope with one
	// signature over a payload of the expected type.
	ErrMalformed = errors.New("malformed envelope")
	// ErrUnknownKey: the envelope names a key that is not in the keyring, or the
	// keyring is empty.
	ErrUnknownKey = errors.New("signed by an unknown key")
	// ErrBadSignature: the named key (or, if none is named, every known key)
	// did not make this signature over these bytes.
	ErrBadSignature = errors.New("signature does not match")
	// ErrWrongRole: the signature is good, but the key may not sign this.
	ErrWrongRole = errors.New("signed by a key that has another role")
)

type envelope struct {
	Payload     string      `json:"payload"`
	PayloadType string      `json:"payloadType"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid,omitempty"`
	Sig   string `json:"sig"`
}

// PAE returns the bytes that a DSSE signature covers.
func PAE(payloadType string, payload []byte) []byte {
	return append(paeHead(payloadType, payload), payload...)
}

// paeHead returns what stands before the payload in PAE.
func paeHead(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload))
}

// paeSum returns the SHA-256 of PAE.
func paeSum(payloadType string, payload []byte) []byte {
	h := sha256.New()
	h.Write(paeHead(payloadType, payload))
	h.Write(payload)
	return h.Sum(nil)
}

// Sign returns payload in an envelope with k's signature. Equal arguments give
// equal bytes.
func Sign(k *PrivateKey, payloadType string, payload []byte) ([]byte, error) {
	sig, err := k.key.Sign(nil, paeSum(payloadType, payload), crypto.SHA256) // nil: deterministic, RFC 6979
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	end, err := tail(payloadType, signature{KeyID: k.public.id, Sig: base64.StdEncoding.EncodeToString(sig)})
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	out := append(base64.StdEncoding.AppendEncode([]byte(head), payload), end...)
	if len(out) > MaxEnvelope {
		return nil, fmt.Errorf("sign: an envelope of %d bytes is more than the limit of %d", len(out), MaxEnvelope)
	}
	return out, nil
}

// head is how an envelope begins, up to the payload in base64.
const head = `{"payload":"`

// tail returns how the one spelling of an envelope ends, after its payload.
func tail(payloadType string, sig signature) ([]byte, error) {
	b, err := AppendCanonical([]byte(`","payloadType":`), payloadType)
	if err != nil {
		return nil, err
	}
	b, err = AppendCanonical(append(b, `,"signatures":`...), []signature{sig})
	if err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// Unverified is what an envelope says, before anybody checked who signed it.
type Unverified struct {
	Payload []byte
	KeyID   string // a hint only; may be empty
	sig     []byte
}

// Peek parses an envelope without verifying it. Its only error is ErrMalformed.
func Peek(data []byte, payloadType string) (Unverified, error) {
	// A payload that stands where it must is cut out, for it is most of the text.
	text, payload, cut := data, []byte(nil), false
	if after, ok := bytes.CutPrefix(data, []byte(head)); ok && len(data) <= MaxEnvelope {
		if n := bytes.IndexByte(after, '"'); n >= 0 {
			if payload, cut = base64Exact(after[:n]); cut {
				text = append([]byte(head), after[n:]...)
			}
		}
	}
	var e envelope
	if err := Decode(text, &e, Limits{Bytes: MaxEnvelope, Depth: 4}); err != nil {
		return Unverified{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if e.PayloadType != payloadType {
		return Unverified{}, fmt.Errorf("%w: payload type %q where %q is due", ErrMalformed, e.PayloadType, payloadType)
	}
	if len(e.Signatures) != 1 {
		return Unverified{}, fmt.Errorf("%w: %d signatures where one is due", ErrMalformed, len(e.Signatures))
	}
	if _, ok := base64Exact([]byte(e.Payload)); !ok {
		return Unverified{}, fmt.Errorf("%w: the payload is not plain base64", ErrMalformed)
	}
	sig, ok := base64Exact([]byte(e.Signatures[0].Sig))
	if !ok || len(sig) == 0 {
		return Unverified{}, fmt.Errorf("%w: the signature is not plain base64", ErrMalformed)
	}
	end, err := tail(e.PayloadType, e.Signatures[0])
	if err != nil || !cut || !bytes.Equal(text[len(head):], end) {
		return Unverified{}, fmt.Errorf("%w: not canonical JSON", ErrMalformed)
	}
	return Unverified{Payload: payload, KeyID: e.Signatures[0].KeyID, sig: sig}, nil
}

var strictBase64 = base64.StdEncoding.Strict()

// base64Exact decodes standard padded base64 that has no other spelling: without
// line ends, which the decoder skips, and without bits that it would not use.
func base64Exact(s []byte) ([]byte, bool) {
	b, err := strictBase64.AppendDecode(nil, s)
	return b, err == nil && base64.StdEncoding.EncodedLen(len(b)) == len(s)
}

// Open verifies an envelope and returns its payload and the key that signed it,
// which is in ring with the given role. Errors: ErrMalformed, ErrUnknownKey,
// ErrBadSignature, ErrWrongRole.
func Open(data []byte, payloadType string, ring Keyring, role Role) ([]byte, Key, error) {
	u, err := Peek(data, payloadType)
	if err != nil {
		return nil, Key{}, err
	}
	candidates, wrongRole := 0, false
	for _, k := range ring.keys {
		if u.KeyID != "" && u.KeyID != k.Public.ID() {
			continue
		}
		candidates++
		if !verifies(k.parsed, payloadType, u.Payload, u.sig) {
			continue
		}
		if k.Role == role {
			return u.Payload, k.Key, nil
		}
		wrongRole = true
	}
	switch {
	case wrongRole:
		return nil, Key{}, fmt.Errorf("%w: not %q", ErrWrongRole, role)
	case candidates == 0 && u.KeyID != "":
		return nil, Key{}, fmt.Errorf("%w %q", ErrUnknownKey, u.KeyID)
	case candidates == 0:
		return nil, Key{}, fmt.Errorf("%w: the keyring is empty", ErrUnknownKey)
	}
	return nil, Key{}, ErrBadSignature
}
