package seal

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
)

// maxPEM bounds a key file.
const maxPEM = 16 << 10

// Role is what a key may sign. A receipt signed in another role is refused.
type Role string

// The roles: RoleLane signs receipts, opened records and pins; RoleReport
// signs reports and checkpoints; RoleRoot signs trust files.
const (
	RoleLane   Role = "lane"
	RoleReport Role = "report"
	RoleRoot   Role = "root"
)

// Class says whether a key is out of the reach of the agent that it judges.
type Class string

// The classes of key, lane and store.
const (
	ClassShared   Class = "shared"
	ClassIsolated Class = "isolated"
)

// PrivateKey is an ECDSA P-256 key. Make one by GenerateKey or ParsePrivateKey.
type PrivateKey struct {
	key    *ecdsa.PrivateKey
	public PublicKey
}

// GenerateKey draws a key from rand, which must be cryptographically secure.
func GenerateKey(rand io.Reader) (*PrivateKey, error) {
	var scalar [32]byte
	for range 64 { // a draw is outside the group's order once in 2^32
		if _, err := io.ReadFull(rand, scalar[:]); err != nil {
			return nil, fmt.Errorf("generate key: %w", err)
		}
		if k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar[:]); err == nil {
			return newPrivateKey(k)
		}
	}
	return nil, errors.New("generate key: the source of randomness is broken")
}

// ParsePrivateKey reads a PEM file with one PKCS 8 block of a P-256 key. The
// error never holds key bytes.
func ParsePrivateKey(data []byte) (*PrivateKey, error) {
	der, err := onePEM(data, "PRIVATE KEY")
	if err != nil {
		return nil, fmt.Errorf("parse private key: %w", err)
	}
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("parse private key: not PKCS 8")
	}
	ec, ok := k.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, errors.New("parse private key: not an ECDSA P-256 key")
	}
	return newPrivateKey(ec)
}

func newPrivateKey(k *ecdsa.PrivateKey) (*PrivateKey, error) {
	pub, err := newPublicKey(&k.PublicKey)
	if err != nil {
		return nil, err
	}
	return &PrivateKey{key: k, public: pub}, nil
}

// PEM returns the key as a PKCS 8 PEM block.
func (k *PrivateKey) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Public returns the public half.
func (k *PrivateKey) Public() PublicKey { return k.public }

// String keeps the secret out of logs.
func (k *PrivateKey) String() string { return "private key of " + k.public.id }

// GoString keeps the secret out of logs.
func (k *PrivateKey) GoString() string { return k.String() }

// PublicKey is an ECDSA P-256 or Ed25519 key; values are comparable with ==.
// The zero value is no key, and verifies nothing.
type PublicKey struct {
	spki string // DER
	id   string
}

// ParsePublicKey reads a PEM file with one SPKI block.
func ParsePublicKey(data []byte) (PublicKey, error) {
	der, err := onePEM(data, "PUBLIC KEY")
	if err != nil {
		return PublicKey{}, fmt.Errorf("parse public key: %w", err)
	}
	k, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return PublicKey{}, fmt.Errorf("parse public key: %w", err)
	}
	pub, err := newPublicKey(k)
	if err != nil {
		return PublicKey{}, fmt.Errorf("parse public key: %w", err)
	}
	if pub.spki != string(der) {
		return PublicKey{}, errors.New("parse public key: an unusual encoding of the key")
	}
	return pub, nil
}

// newPublicKey takes an *ecdsa.PublicKey on P-256 or an ed25519.PublicKey.
func newPublicKey(key any) (PublicKey, error) {
	var wire []byte // the key in the SSH wire format (RFC 5656, RFC 8709)
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return PublicKey{}, errors.New("the curve is not P-256")
		}
		point, err := k.Bytes()
		if err != nil {
			return PublicKey{}, fmt.Errorf("encode public key: %w", err)
		}
		wire = sshStrings([]byte("ecdsa-sha2-nistp256"), []byte("nistp256"), point)
	case ed25519.PublicKey:
		wire = sshStrings([]byte("ssh-ed25519"), k)
	default:
		return PublicKey{}, errors.New("neither an ECDSA P-256 nor an Ed25519 key")
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(wire)
	return PublicKey{spki: string(der), id: "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])}, nil
}

// sshStrings joins parts, each after its length in four bytes.
func sshStrings(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(p)))
		out = append(out, p...)
	}
	return out
}

// PEM returns the key as an SPKI PEM block.
func (p PublicKey) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte(p.spki)})
}

// DER returns the key as SPKI bytes.
func (p PublicKey) DER() []byte { return []byte(p.spki) }

// ID returns the key id: "SHA256:" and the unpadded base64 of the SHA-256 of the
// key in SSH wire format. It is empty for the zero key.
func (p PublicKey) ID() string { return p.id }

// parsed returns the key as the standard library has it, or nil.
func (p PublicKey) parsed() crypto.PublicKey {
	key, err := x509.ParsePKIXPublicKey([]byte(p.spki))
	if err != nil {
		return nil
	}
	return key
}

// verifies reports whether sig is the signature by a parsed key over the PAE of
// payload.
func verifies(key crypto.PublicKey, payloadType string, payload, sig []byte) bool {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(k, paeSum(payloadType, payload), sig)
	case ed25519.PublicKey:
		return ed25519.Verify(k, PAE(payloadType, payload), sig)
	}
	return false
}

// onePEM returns the bytes of the only block in data, which has the given type
// and no headers. White space around it is allowed, other text is not.
func onePEM(data []byte, kind string) ([]byte, error) {
	if len(data) > maxPEM {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", len(data), maxPEM)
	}
	data = bytes.TrimSpace(data)
	if !bytes.HasPrefix(data, []byte("-----BEGIN ")) {
		return nil, errors.New("not a PEM file")
	}
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, errors.New("not a PEM file")
	}
	if block.Type != kind {
		return nil, fmt.Errorf("a PEM block %q where %q is due", block.Type, kind)
	}
	if len(block.Headers) > 0 || len(rest) > 0 {
		return nil, errors.New("more than one plain PEM block")
	}
	return block.Bytes, nil
}
