package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"striatum/seal"
	"striatum/store"
)

const (
	sqlHasBlob = `SELECT 1 FROM blobs WHERE sha256 = ?`
	sqlPutBlob = `INSERT INTO blobs (sha256, data) VALUES (?, ?)`
)

// PutBlob implements store.Writer.
func (t *tx) PutBlob(ctx context.Context, data []byte) (string, error) {
	if len(data) > store.MaxBlob {
		return "", fmt.Errorf("keep blob: %d bytes are more than %d", len(data), store.MaxBlob)
	}
	digest := seal.SHA256Hex(data)
	var there int
	err := t.QueryRowContext(ctx, sqlHasBlob, digest).Scan(&there)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = t.ExecContext(ctx, sqlPutBlob, digest, append([]byte{}, data...)) // never NULL
	}
	return digest, wrap(err, "keep blob")
}

const sqlAddRepository = `INSERT INTO repositories (position, repository_id, path, device, inode) VALUES (?, ?, ?, ?, ?)`

// AddRepository implements store.Writer.
func (t *tx) AddRepository(ctx context.Context, r store.Repository) (int64, error) {
	return t.add(ctx, store.KindRepository, r, sqlAddRepository, r.RepositoryID, r.Place.Path, r.Place.Device, r.Place.Inode)
}

const sqlAddLane = `INSERT INTO lanes (position, key_id) VALUES (?, ?)`

// AddLane implements store.Writer.
func (t *tx) AddLane(ctx context.Context, r store.Lane) (int64, error) {
	return t.add(ctx, store.KindLane, r, sqlAddLane, r.KeyID)
}

const sqlAddLaneRevocation = `INSERT INTO lane_revocations (position, key_id) VALUES (?, ?)`

// AddLaneRevocation implements store.Writer.
func (t *tx) AddLaneRevocation(ctx context.Context, r store.LaneRevocation) (int64, error) {
	return t.add(ctx, store.KindLaneRevocation, r, sqlAddLaneRevocation, r.KeyID)
}

const sqlAddToken = `INSERT INTO tokens (position, token_hash) VALUES (?, ?)`

// AddToken implements store.Writer.
func (t *tx) AddToken(ctx context.Context, r store.Token) (int64, error) {
	return t.add(ctx, store.KindToken, r, sqlAddToken, r.Hash)
}

const sqlAddTokenRevocation = `INSERT INTO token_revocations (position, token_hash) VALUES (?, ?)`

// AddTokenRevocation implements store.Writer.
func (t *tx) AddTokenRevocation(ctx context.Context, r store.TokenRevocation) (int64, error) {
	return t.add(ctx, store.KindTokenRevocation, r, sqlAddTokenRevocation, r.Hash)
}

const sqlAddOpened = `INSERT INTO opened (position, name, repository_id, envelope_sha256) VALUES (?, ?, ?, ?)`

// AddOpened implements store.Writer.
func (t *tx) AddOpened(ctx context.Context, r store.Opened) (int64, error) {
	return t.add(ctx, store.KindOpened, r, sqlAddOpened, r.Name, r.RepositoryID, r.EnvelopeSHA256)
}

const sqlAddReceipt = `INSERT INTO receipts (position, seal, prev_seal, repository_id, run_id, check_digest, envelope_sha256)
	VALUES (?, ?, ?, ?, ?, ?, ?)`

// AddReceipt implements store.Writer.
func (t *tx) AddReceipt(ctx context.Context, r store.Receipt) (int64, error) {
	return t.add(ctx, store.KindReceipt, r, sqlAddReceipt, r.Seal, r.PrevSeal, r.RepositoryID, r.RunID, r.CheckDigest, r.EnvelopeSHA256)
}

const sqlAddLedger = `INSERT INTO ledgers (position, repository_id, run_id, prev_seal, document_sha256) VALUES (?, ?, ?, ?, ?)`

// AddLedger implements store.Writer.
func (t *tx) AddLedger(ctx context.Context, r store.Ledger) (int64, error) {
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

const sqlAddPolicy = `INSERT INTO policies (position, repository_id, document_sha256) VALUES (?, ?, ?)`

// AddPolicy implements store.Writer.
func (t *tx) AddPolicy(ctx context.Context, r store.Policy) (int64, error) {
	return t.add(ctx, store.KindPolicy, r, sqlAddPolicy, r.RepositoryID, r.DocumentSHA256)
}

const sqlAddAttestation = `INSERT INTO attestations (position, repository_id) VALUES (?, ?)`

// AddAttestation implements store.Writer.
func (t *tx) AddAttestation(ctx context.Context, r store.Attestation) (int64, error) {
	return t.add(ctx, store.KindAttestation, r, sqlAddAttestation, r.RepositoryID)
}

const sqlAddAttestationRevocation = `INSERT INTO attestation_revocations (position, repository_id, attestation) VALUES (?, ?, ?)`

// AddAttestationRevocation implements store.Writer.
func (t *tx) AddAttestationRevocation(ctx context.Context, r store.AttestationRevocation) (int64, error) {
	return t.add(ctx, store.KindAttestationRevocation, r, sqlAddAttestationRevocation, r.RepositoryID, r.Attestation)
}

const sqlAddExplanation = `INSERT INTO explanations (position, repository_id) VALUES (?, ?)`

// AddExplanation implements store.Writer.
func (t *tx) AddExplanation(ctx context.Context, r store.Explanation) (int64, error) {
	return t.add(ctx, store.KindExplanation, r, sqlAddExplanation, r.RepositoryID)
}
