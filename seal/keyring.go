package seal

import "crypto"

// Key is a public key with what is known about its holder. LaneID is empty
// unless the role is RoleLane and the lane is known.
type Key struct {
	Public PublicKey
	Role   Role
	Class  Class
	LaneID string
}

// Keyring is the set of keys that a reader knows. The zero value is empty; a
// Keyring does not change once made.
type Keyring struct {
	keys []readyKey
}

// readyKey is a key and its form that verifies.
type readyKey struct {
	Key
	parsed crypto.PublicKey
}

// NewKeyring returns a keyring of keys. Zero public keys are left out.
func NewKeyring(keys ...Key) Keyring {
	var r Keyring
	for _, k := range keys {
		if k.Public.ID() != "" {
			r.keys = append(r.keys, readyKey{k, k.Public.parsed()})
		}
	}
	return r
}

// Keys returns the keys in the order given to NewKeyring.
func (r Keyring) Keys() []Key {
	var out []Key
	for _, k := range r.keys {
		out = append(out, k.Key)
	}
	return out
}

// Len returns the number of keys.
func (r Keyring) Len() int { return len(r.keys) }
