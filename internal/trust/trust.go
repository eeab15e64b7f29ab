// Package trust reads and writes trust files: the signed, versioned word of an
// operator about which keys exist, what each may sign, and which are revoked.
// It is what lets a reader on another machine tell an isolated lane from a
// shared one without asking a store.
//
// A trust file is a DSSE envelope (package seal, payload type PayloadType) that
// the root key signed. Its payload, in canonical JSON:
//
//	schema_version  striatum.trust.v1
//	version         from 1; each new file of a root has a higher one
//	expires_at      RFC 3339 UTC; from then on the file is refused
//	keys[]          public_key (PEM, SPKI), role (lane, report), class (shared,
//	                isolated), lane_id (for the role lane), repositories (ids;
//	                empty: all), revoked (empty, retired or compromised);
//	                of a revoked key also since (the place in the operator's log
//	                from which on nothing counts) and receipts (the seals of those
//	                that were recorded before it)
//
// A reader who has seen a version refuses older ones: Seen remembers them per
// root key. Of a revoked key nothing counts but the receipts that the file names:
// only a log can say whether one came before the revocation, and a receipt's own
// number and time are the word of whoever holds the key.
package trust

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"striatum/seal"
)

// SchemaVersion marks a trust file of this format, PayloadType its envelope.
const (
	SchemaVersion = "striatum.trust.v1"
	PayloadType   = "application/vnd.striatum.trust+json"
)

// The bounds of a trust file.
const (
	MaxBytes    = 4 << 20
	MaxReceipts = 10_000 // of all keys
	maxKeys     = 1000
)

// The errors of Open beside those of package seal, and of Seen.Admit.
var (
	ErrInvalid = errors.New("not a valid trust file")
	ErrExpired = errors.New("the trust file has expired")
	ErrOlder   = errors.New("a newer version of the trust file was seen")
)

// File is an opened trust file.
type File struct {
	SchemaVersion string  `json:"schema_version"`
	Version       int64   `json:"version"`
	ExpiresAt     string  `json:"expires_at"`
	Keys          []Entry `json:"keys"`
}

// Revocation says why a key no longer counts.
type Revocation string

// The revocations.
const (
	NotRevoked  Revocation = ""
	Retired     Revocation = "retired"
	Compromised Revocation = "compromised"
)

// Entry is one key of a trust file.
type Entry struct {
	PublicKey    string     `json:"public_key"`
	Role         seal.Role  `json:"role"`
	Class        seal.Class `json:"class"`
	LaneID       string     `json:"lane_id"`
	Repositories []string   `json:"repositories"`
	Revoked      Revocation `json:"revoked"`
	Since        int64      `json:"since,omitempty"`
	Receipts     []string   `json:"receipts,omitempty"` // sorted
}

// key returns what a keyring needs to know. The public key must parse.
func (e Entry) key() (seal.Key, error) {
	pub, err := seal.ParsePublicKey([]byte(e.PublicKey))
	return seal.Key{Public: pub, Role: e.Role, Class: e.Class, LaneID: e.LaneID}, err
}

// Sign signs f, whose schema version need not be set, with a root key.
func Sign(f File, root *seal.PrivateKey) ([]byte, error) {
	f.SchemaVersion = SchemaVersion
	if err := f.validate(); err != nil {
		return nil, fmt.Errorf("sign trust file: %w", err)
	}
	payload, err := seal.Canonical(f)
	if err != nil {
		return nil, fmt.Errorf("sign trust file: %w", err)
	}
	env, err := seal.Sign(root, PayloadType, payload)
	if err == nil && len(env) > MaxBytes {
		err = fmt.Errorf("sign trust file: %d bytes are more than the limit of %d", len(env), MaxBytes)
	}
	return env, err
}

// Open verifies a trust file with the root's public key. Its errors are
// ErrInvalid, ErrExpired, seal.ErrUnknownKey and seal.ErrBadSignature.
func Open(envelope []byte, root seal.PublicKey, now time.Time) (File, error) {
	if len(envelope) > MaxBytes {
		return File{}, fmt.Errorf("open trust file: %w: %d bytes are more than the limit of %d", ErrInvalid, len(envelope), MaxBytes)
	}
	ring := seal.NewKeyring(seal.Key{Public: root, Role: seal.RoleRoot})
	payload, _, err := seal.Open(envelope, PayloadType, ring, seal.RoleRoot)
	if errors.Is(err, seal.ErrMalformed) {
		return File{}, fmt.Errorf("open trust file: %w: %w", ErrInvalid, err)
	}
	if err != nil {
		return File{}, fmt.Errorf("open trust file: %w", err)
	}
	var f File
	if err := seal.Decode(payload, &f, seal.Limits{Bytes: MaxBytes}); err != nil {
		return File{}, fmt.Errorf("open trust file: %w: %w", ErrInvalid, err)
	}
	if err := f.validate(); err != nil {
		return File{}, fmt.Errorf("open trust file: %w: %w", ErrInvalid, err)
	}
	if again, err := seal.Canonical(f); err != nil || !bytes.Equal(again, payload) {
		return File{}, fmt.Errorf("open trust file: %w: not canonical JSON", ErrInvalid)
	}
	if expires, err := time.Parse(time.RFC3339, f.ExpiresAt); err != nil || !now.Before(expires) {
		return File{}, fmt.Errorf("open trust file: %w at %s", ErrExpired, f.ExpiresAt)
	}
	return f, nil
}

func (f File) validate() error {
	if f.SchemaVersion != SchemaVersion {
		return fmt.Errorf("schema_version: %.80q where %q is due", f.SchemaVersion, SchemaVersion)
	}
	if f.Version < 1 {
		return fmt.Errorf("version: %d is below 1", f.Version)
	}
	if _, err := time.Parse(time.RFC3339, f.ExpiresAt); err != nil || !strings.HasSuffix(f.ExpiresAt, "Z") {
		return fmt.Errorf("expires_at: %.80q is not a time in RFC 3339 and UTC", f.ExpiresAt)
	}
	if len(f.Keys) > maxKeys {
		return fmt.Errorf("keys: %d are more than the limit of %d", len(f.Keys), maxKeys)
	}
	seen, receipts := map[string]bool{}, 0
	for i, e := range f.Keys {
		if receipts += len(e.Receipts); receipts > MaxReceipts {
			return fmt.Errorf("keys/%d/receipts: the file has more than the limit of %d", i, MaxReceipts)
		}
		k, err := e.key()
		if err == nil {
			err = e.validate()
		}
		if err == nil && string(k.Public.PEM()) != e.PublicKey {
			err = errors.New("public_key: an unusual spelling of its PEM block")
		}
		if err == nil && seen[k.Public.ID()] {
			err = errors.New("the key is there twice")
		}
		if err != nil {
			return fmt.Errorf("keys/%d: %w", i, err)
		}
		seen[k.Public.ID()] = true
	}
	return nil
}

func (e Entry) validate() error {
	if e.Role != seal.RoleLane && e.Role != seal.RoleReport {
		return fmt.Errorf("role: %.80q is neither lane nor report", e.Role)
	}
	if e.Class != seal.ClassShared && e.Class != seal.ClassIsolated {
		return fmt.Errorf("class: %.80q is neither shared nor isolated", e.Class)
	}
	if (e.Role == seal.RoleLane) != (e.LaneID != "") {
		return errors.New("lane_id: lanes have one, other keys none")
	}
	switch e.Revoked {
	case NotRevoked, Retired, Compromised:
	default:
		return fmt.Errorf("revoked: %.80q is neither retired nor compromised", e.Revoked)
	}
	if e.Since < 0 || e.Revoked == NotRevoked && (e.Since != 0 || len(e.Receipts) > 0) {
		return errors.New("since, receipts: revoked keys have them")
	}
	for i, s := range e.Receipts {
		if !seal.ValidDigest(s) || i > 0 && s <= e.Receipts[i-1] {
			return fmt.Errorf("receipts/%d: not a seal, or not after the one before it", i)
		}
	}
	return nil
}

// Keyring returns all keys of the file, the revoked ones too: whoever uses it
// must ask Admits.
func (f File) Keyring() seal.Keyring {
	var keys []seal.Key
	for _, e := range f.Keys {
		if k, err := e.key(); err == nil {
			keys = append(keys, k)
		}
	}
	return seal.NewKeyring(keys...)
}

// Admits says why the receipt of a repository with that seal, which the key
// signed, does not count; nil means that it does.
func (f File) Admits(key seal.PublicKey, repositoryID, sealDigest string) error {
	for _, e := range f.Keys {
		if e.PublicKey != string(key.PEM()) {
			continue
		}
		if _, named := slices.BinarySearch(e.Receipts, sealDigest); e.Revoked != NotRevoked && !named {
			return fmt.Errorf("the key is revoked: %s, and the trust file does not name this receipt as one from before that", e.Revoked)
		}
		if len(e.Repositories) > 0 && !slices.Contains(e.Repositories, repositoryID) {
			return fmt.Errorf("the key does not count for repository %q", repositoryID)
		}
		return nil
	}
	return errors.New("the key is not in the trust file")
}
