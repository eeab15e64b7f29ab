package sqlrows

import (
	"context"
	"errors"
	"fmt"

	"striatum/seal"
	"striatum/store"
)

const sqlPutBlob = `INSERT INTO blobs (sha256, data) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE sha256 = $1)`

// PutBlob implements store.Writer.
func (t *Tx) PutBlob(ctx context.Context, data []byte) (string, error) {
	if len(data) > store.MaxBlob {
		return "", fmt.Errorf("keep blob: %d bytes are more than %d", len(data), store.MaxBlob)
	}
	if data == nil {
		data = []byte{} // nil would be NULL
	}
	digest := seal.SHA256Hex(data)
	return digest, t.conn.Exec(ctx, "keep blob", sqlPutBlob, digest, data)
}

const sqlAddRepository = `INSERT INTO repositories (position, repository_id, path, device, inode) VALUES ($1, $2, $3, $4, $5)`

// AddRepository implements store.Writer.
func (t *Tx) AddRepository(ctx context.Context, r store.Repository) (int64, error) {
	return t.add(ctx, store.KindRepository, r, sqlAddRepository, r.RepositoryID, r.Place.Path, r.Place.Device, r.Place.Inode)
}

const sqlAddLane = `INSERT INTO lanes (position, key_id) VALUES ($1, $2)`

// AddLane implements store.Writer.
func (t *Tx) AddLane(ctx context.Context, r store.Lane) (int64, error) {
	return t.add(ctx, store.KindLane, r, sqlAddLane, r.KeyID)
}

const sqlAddLaneRevocation = `INSERT INTO lane_revocations (position, key_id) VALUES ($1, $2)`

// AddLaneRevocation implements store.Writer.
func (t *Tx) AddLaneRevocation(ctx context.Context, r store.LaneRevocation) (int64, error) {
	return t.add(ctx, store.KindLaneRevocation, r, sqlAddLaneRevocation, r.KeyID)
}

const sqlAddToken = `INSERT INTO tokens (position, token_hash) VALUES ($1, $2)`

// AddToken implements store.Writer.
func (t *Tx) AddToken(ctx context.Context, r store.Token) (int64, error) {
	return t.add(ctx, store.KindToken, r, sqlAddToken, r.Hash)
}

const sqlAddTokenRevocation = `INSERT INTO token_revocations (position, token_hash) VALUES ($1, $2)`

// AddTokenRevocation implements store.Writer.
func (t *Tx) AddTokenRevocation(ctx context.Context, r store.TokenRevocation) (int64, error) {
	return t.add(ctx, store.KindTokenRevocation, r, sqlAddTokenRevocation, r.Hash)
}

const sqlAddOpened = `INSERT INTO opened (position, name, repository_id, envelope_sha256) VALUES ($1, $2, $3, $4)`

// AddOpened implements store.Writer.
func (t *Tx) AddOpened(ctx context.Context, r store.Opened) (int64, error) {
	return t.add(ctx, store.KindOpened, r, sqlAddOpened, r.Name, r.RepositoryID, r.EnvelopeSHA256)
}

const sqlAddReceipt = `INSERT INTO receipts (position, seal, prev_seal, repository_id, run_id, check_digest, envelope_sha256)
	VALUES ($1, $2, $3, $4, $5, $6, $7)`

// AddReceipt implements store.Writer.
func (t *Tx) AddReceipt(ctx context.Context, r store.Receipt) (int64, error) {
	return t.add(ctx, store.KindReceipt, r, sqlAddReceipt, r.Seal, r.PrevSeal, r.RepositoryID, r.RunID, r.CheckDigest, r.EnvelopeSHA256)
}

const sqlAddLedger = `INSERT INTO ledgers (position, repository_id, run_id, prev_seal, document_sha256) VALUES ($1, $2, $3, $4, $5)`

// AddLedger implements store.Writer.
func (t *Tx) AddLedger(ctx context.Context, r store.Ledger) (int64, error) {
	newest, err := t.Ledger(ctx, r.RepositoryID, r.RunID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return 0, err
	}
	want := store.NoLedger
	if err == nil {
		want = newest.Value.Seal
	}
	if r.PrevSeal != want {
		return 0, fmt.Errorf("record ledger: %w: it follows %s, and the newest is %s", store.ErrConflict, r.PrevSeal, want)
	}
	return t.add(ctx, store.KindLedger, r, sqlAddLedger, r.RepositoryID, r.RunID, r.PrevSeal, r.DocumentSHA256)
}

const sqlAddPolicy = `INSERT INTO policies (position, repository_id, document_sha256) VALUES ($1, $2, $3)`

// AddPolicy implements store.Writer.
func (t *Tx) AddPolicy(ctx context.Context, r store.Policy) (int64, error) {
	return t.add(ctx, store.KindPolicy, r, sqlAddPolicy, r.RepositoryID, r.DocumentSHA256)
}

const sqlAddAttestation = `INSERT INTO attestations (position, repository_id, check_digest, closure_sha256, replaces)
	VALUES ($1, $2, $3, $4, (SELECT MAX(position) FROM attestations WHERE repository_id = $2 AND check_digest = $3 AND closure_sha256 = $4))`

// AddAttestation implements store.Writer.
func (t *Tx) AddAttestation(ctx context.Context, r store.Attestation) (int64, error) {
	return t.add(ctx, store.KindAttestation, r, sqlAddAttestation, r.RepositoryID, r.CheckDigest, r.ClosureSHA256)
}

const sqlAddAttestationRevocation = `INSERT INTO attestation_revocations (position, repository_id, attestation) VALUES ($1, $2, $3)`

// AddAttestationRevocation implements store.Writer.
func (t *Tx) AddAttestationRevocation(ctx context.Context, r store.AttestationRevocation) (int64, error) {
	return t.add(ctx, store.KindAttestationRevocation, r, sqlAddAttestationRevocation, r.RepositoryID, r.Attestation)
}

const sqlAddExplanation = `INSERT INTO explanations (position, repository_id) VALUES ($1, $2)`

// AddExplanation implements store.Writer.
func (t *Tx) AddExplanation(ctx context.Context, r store.Explanation) (int64, error) {
	return t.add(ctx, store.KindExplanation, r, sqlAddExplanation, r.RepositoryID)
}

const sqlAddLaneProbe = `INSERT INTO lane_probes (position, lane_id) VALUES ($1, $2)`

// AddLaneProbe implements store.Writer.
func (t *Tx) AddLaneProbe(ctx context.Context, r store.LaneProbe) (int64, error) {
	return t.add(ctx, store.KindLaneProbe, r, sqlAddLaneProbe, r.LaneID)
}
