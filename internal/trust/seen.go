package trust

import (
	"fmt"

	"striatum/seal"
)

// SeenSchemaVersion marks the file of the versions that a home has seen.
const SeenSchemaVersion = "striatum.trust_seen.v1"

// Seen holds the highest version of a trust file seen from each root key, by key
// id.
type Seen struct {
	SchemaVersion string           `json:"schema_version"`
	Versions      map[string]int64 `json:"versions"`
}

// ParseSeen reads what Encode wrote. No bytes at all are an empty Seen.
func ParseSeen(data []byte) (Seen, error) {
	if len(data) == 0 {
		return Seen{}, nil
	}
	var s Seen
	if err := seal.Decode(data, &s, seal.Limits{}); err != nil {
		return Seen{}, fmt.Errorf("read the seen versions: %w", err)
	}
	if s.SchemaVersion != SeenSchemaVersion {
		return Seen{}, fmt.Errorf("read the seen versions: schema_version %q where %q is due", s.SchemaVersion, SeenSchemaVersion)
	}
	return s, nil
}

// Encode returns the canonical bytes of s.
func (s Seen) Encode() ([]byte, error) {
	s.SchemaVersion = SeenSchemaVersion
	return seal.Canonical(s)
}

// Admit notes a version of root's file. It reports whether that changed
// anything; the error is ErrOlder.
func (s *Seen) Admit(root seal.PublicKey, version int64) (changed bool, err error) {
	if seen := s.Versions[root.ID()]; version < seen {
		return false, fmt.Errorf("%w: version %d, and this is version %d", ErrOlder, seen, version)
	} else if version == seen {
		return false, nil
	}
	if s.Versions == nil {
		s.Versions = map[string]int64{}
	}
	s.Versions[root.ID()] = version
	return true, nil
}
