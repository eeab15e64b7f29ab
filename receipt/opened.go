package receipt

import (
	"bytes"
	"fmt"

	"striatum/seal"
)

// OpenedSchemaVersion marks an opened record of this format.
const OpenedSchemaVersion = "striatum.opened.v1"

// PayloadOpened is the payload type of an opened record's envelope.
const PayloadOpened = "application/vnd.striatum.opened+json"

// maxOpenedBytes bounds the envelope of an opened record.
const maxOpenedBytes = 64 << 10

// Opened is what a lane signs and syncs before code that it does not trust
// runs: the place in its chain that exactly one receipt will take. RunID and
// JobID are empty outside any run. Requester names who asked for the check.
type Opened struct {
	SchemaVersion string `json:"schema_version"`
	LaneID        string `json:"lane_id"`
	LaneEpoch     string `json:"lane_epoch"`
	RepositoryID  string `json:"repository_id"`
	Sequence      int64  `json:"sequence"`
	PrevSeal      string `json:"prev_seal"`
	RunID         string `json:"run_id"`
	JobID         string `json:"job_id"`
	Nonce         string `json:"nonce"`
	CheckID       string `json:"check_id"`
	CheckDigest   string `json:"check_digest"`
	TreeSHA256    string `json:"tree_sha256"`
	Requester     string `json:"requester"`
	OpenedAt      string `json:"opened_at"`
}

func (o Opened) validate() error {
	c := &checker{}
	c.want(o.SchemaVersion == OpenedSchemaVersion, "schema_version", "%q where %q is due", o.SchemaVersion, OpenedSchemaVersion)
	c.id("lane_id", o.LaneID)
	c.position(o.LaneEpoch, o.Sequence, o.PrevSeal)
	c.id("repository_id", o.RepositoryID)
	c.maybeID("run_id", o.RunID)
	c.maybeID("job_id", o.JobID)
	c.id("nonce", o.Nonce)
	c.id("check_id", o.CheckID)
	c.digest("check_digest", o.CheckDigest)
	c.digest("tree_sha256", o.TreeSHA256)
	c.time("opened_at", o.OpenedAt)
	return c.err()
}

// SignOpened signs o, whose schema version need not be set.
func SignOpened(o Opened, key *seal.PrivateKey) ([]byte, error) {
	o.SchemaVersion = OpenedSchemaVersion
	o.Requester = shorten(o.Requester, 200)
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("sign opened record: %w", err)
	}
	payload, err := seal.Canonical(o)
	if err != nil {
		return nil, fmt.Errorf("sign opened record: %w", err)
	}
	return seal.Sign(key, PayloadOpened, payload)
}

// OpenOpened verifies an opened record. Its errors are those of Open.
func OpenOpened(envelope []byte, ring seal.Keyring) (Opened, error) {
	if len(envelope) > maxOpenedBytes {
		return Opened{}, fmt.Errorf("open opened record: %w: %d bytes are more than the limit of %d", ErrUnparseable, len(envelope), maxOpenedBytes)
	}
	payload, by, err := seal.Open(envelope, PayloadOpened, ring, seal.RoleLane)
	if err != nil {
		return Opened{}, opening(err)
	}
	var o Opened
	if err := seal.Decode(payload, &o, seal.Limits{}); err != nil {
		return Opened{}, fmt.Errorf("open opened record: %w: %w", ErrUnparseable, err)
	}
	if err := o.validate(); err != nil {
		return Opened{}, fmt.Errorf("open opened record: %w: %w", ErrUnparseable, err)
	}
	if again, err := seal.Canonical(o); err != nil || !bytes.Equal(again, payload) {
		return Opened{}, fmt.Errorf("open opened record: %w: not canonical JSON", ErrUnparseable)
	}
	if by.LaneID != "" && by.LaneID != o.LaneID {
		return Opened{}, fmt.Errorf("open opened record: %w: lane %q with the key of %q (%w)", ErrWrongLane, o.LaneID, by.LaneID, seal.ErrWrongRole)
	}
	return o, nil
}
