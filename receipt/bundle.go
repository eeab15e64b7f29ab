package receipt

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"striatum/seal"
)

type bundle struct {
	MediaType    string          `json:"mediaType"`
	Material     material        `json:"verificationMaterial"`
	DSSEEnvelope json.RawMessage `json:"dsseEnvelope"`
}

type material struct {
	PublicKey publicKeyHint `json:"publicKey"`
}

type publicKeyHint struct {
	Hint string `json:"hint"`
}

// Bundle returns the receipt as a Sigstore bundle v0.3 without log entries, for
// tools that read nothing else. The hint is the base64 of the SHA-256 of pub's
// SPKI bytes, as cosign writes it. It is an error if pub did not sign envelope.
func Bundle(envelope []byte, pub seal.PublicKey) ([]byte, error) {
	ring := seal.NewKeyring(seal.Key{Public: pub, Role: seal.RoleLane, Class: seal.ClassShared})
	if _, err := Open(envelope, ring); err != nil {
		return nil, fmt.Errorf("bundle receipt: %w", err)
	}
	sum := sha256.Sum256(pub.DER())
	out, err := seal.Canonical(bundle{
		MediaType:    "application/vnd.dev.sigstore.bundle.v0.3+json",
		Material:     material{PublicKey: publicKeyHint{Hint: base64.StdEncoding.EncodeToString(sum[:])}},
		DSSEEnvelope: envelope,
	})
	if err != nil {
		return nil, fmt.Errorf("bundle receipt: %w", err)
	}
	return out, nil
}
