package sqlrows

import (
	"context"
	"fmt"

	"striatum/seal"
	"striatum/store"
)

const sqlLog = `SELECT position, kind, recorded_at, digest, prev_hash, hash, record FROM log
	WHERE position > $1 ORDER BY position LIMIT $2`

// Log implements store.Reader.
func (t *Tx) Log(ctx context.Context, page store.Page) (out []store.LogRow, err error) {
	err = t.conn.Each(ctx, "read log", sqlLog, []any{page.After, page.Size()}, func(row Scanner) error {
		var r store.LogRow
		e := &r.Entry
		err := row.Scan(&e.Position, &e.Kind, &e.RecordedAt, &e.Digest, &e.PrevHash, &e.Hash, &r.Record)
		out = append(out, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

const sqlBlob = `SELECT data FROM blobs WHERE sha256 = $1`

// Blob implements store.Reader.
func (t *Tx) Blob(ctx context.Context, sha256 string) ([]byte, error) {
	var data []byte
	err := t.conn.One(ctx, "read blob", sqlBlob, []any{sha256}, func(row Scanner) error { return row.Scan(&data) })
	if err != nil {
		return nil, err
	}
	if seal.SHA256Hex(data) != sha256 {
		return nil, fmt.Errorf("read blob %s: %w: its bytes are others", sha256, store.ErrCorrupt)
	}
	return data, nil
}

// selectFrom begins each statement that reads rows: i is the index, l the log.
// The page is always $1 and $2.
const (
	selectFrom = `SELECT l.position, l.recorded_at, l.record FROM `
	joinLog    = ` i JOIN log l ON l.position = i.position `
	pageOf     = ` i.position > $1 ORDER BY i.position LIMIT $2`
	newestOf   = ` ORDER BY i.position DESC LIMIT 1`
)

const sqlRepositoryAt = selectFrom + `repositories` + joinLog +
	`WHERE i.path = $1 AND i.device = $2 AND i.inode = $3` + newestOf

// RepositoryAt implements store.Reader.
func (t *Tx) RepositoryAt(ctx context.Context, p store.Place) (store.Row[store.Repository], error) {
	return one[store.Repository](ctx, t, sqlRepositoryAt, p.Path, p.Device, p.Inode)
}

const sqlLanes = selectFrom + `lanes` + joinLog + `WHERE` + pageOf

// Lanes implements store.Reader.
func (t *Tx) Lanes(ctx context.Context, page store.Page) ([]store.Row[store.Lane], error) {
	return list[store.Lane](ctx, t, page, sqlLanes)
}

const sqlLaneRevocations = selectFrom + `lane_revocations` + joinLog + `WHERE` + pageOf

// LaneRevocations implements store.Reader.
func (t *Tx) LaneRevocations(ctx context.Context, page store.Page) ([]store.Row[store.LaneRevocation], error) {
	return list[store.LaneRevocation](ctx, t, page, sqlLaneRevocations)
}

const sqlToken = selectFrom + `tokens` + joinLog + `WHERE i.token_hash = $1`

// Token implements store.Reader.
func (t *Tx) Token(ctx context.Context, hash string) (store.Row[store.Token], error) {
	return one[store.Token](ctx, t, sqlToken, hash)
}

const sqlTokens = selectFrom + `tokens` + joinLog + `WHERE` + pageOf

// Tokens implements store.Reader.
func (t *Tx) Tokens(ctx context.Context, page store.Page) ([]store.Row[store.Token], error) {
	return list[store.Token](ctx, t, page, sqlTokens)
}

const sqlTokenRevocations = selectFrom + `token_revocations` + joinLog + `WHERE` + pageOf

// TokenRevocations implements store.Reader.
func (t *Tx) TokenRevocations(ctx context.Context, page store.Page) ([]store.Row[store.TokenRevocation], error) {
	return list[store.TokenRevocation](ctx, t, page, sqlTokenRevocations)
}

const sqlOpenedNamed = selectFrom + `opened` + joinLog + `WHERE i.name = $1`

// OpenedNamed implements store.Reader.
func (t *Tx) OpenedNamed(ctx context.Context, name string) (store.Row[store.Opened], error) {
	return one[store.Opened](ctx, t, sqlOpenedNamed, name)
}

const sqlOpened = selectFrom + `opened` + joinLog + `WHERE i.repository_id = $3 AND` + pageOf

// Opened implements store.Reader.
func (t *Tx) Opened(ctx context.Context, repositoryID string, page store.Page) ([]store.Row[store.Opened], error) {
	return list[store.Opened](ctx, t, page, sqlOpened, repositoryID)
}

const sqlReceipt = selectFrom + `receipts` + joinLog + `WHERE i.seal = $1`

// Receipt implements store.Reader.
func (t *Tx) Receipt(ctx context.Context, sealDigest string) (store.Row[store.Receipt], error) {
	return one[store.Receipt](ctx, t, sqlReceipt, sealDigest)
}

const (
	sqlReceipts        = selectFrom + `receipts` + joinLog + `WHERE i.repository_id = $3 AND` + pageOf
	sqlReceiptsOfCheck = selectFrom + `receipts` + joinLog + `WHERE i.repository_id = $3 AND i.check_digest = $4 AND` + pageOf
)

// Receipts implements store.Reader.
func (t *Tx) Receipts(ctx context.Context, repositoryID, checkDigest string, page store.Page) ([]store.Row[store.Receipt], error) {
	if checkDigest == "" {
		return list[store.Receipt](ctx, t, page, sqlReceipts, repositoryID)
	}
	return list[store.Receipt](ctx, t, page, sqlReceiptsOfCheck, repositoryID, checkDigest)
}

const sqlRepositoryOf = `SELECT repository_id FROM receipts WHERE seal = $1
	UNION ALL SELECT repository_id FROM receipts WHERE prev_seal = $1
	UNION ALL SELECT repository_id FROM opened WHERE name = $1
	LIMIT 1`

// RepositoryOf implements store.Reader.
func (t *Tx) RepositoryOf(ctx context.Context, sealOrName string) (repositoryID string, err error) {
	err = t.conn.One(ctx, "read store", sqlRepositoryOf, []any{sealOrName}, func(row Scanner) error { return row.Scan(&repositoryID) })
	return repositoryID, err
}

const sqlLedger = selectFrom + `ledgers` + joinLog + `WHERE i.repository_id = $1 AND i.run_id = $2` + newestOf

// Ledger implements store.Reader.
func (t *Tx) Ledger(ctx context.Context, repositoryID, runID string) (store.Row[store.Ledger], error) {
	return one[store.Ledger](ctx, t, sqlLedger, repositoryID, runID)
}

const sqlPolicy = selectFrom + `policies` + joinLog + `WHERE i.repository_id = $1` + newestOf

// Policy implements store.Reader.
func (t *Tx) Policy(ctx context.Context, repositoryID string) (store.Row[store.Policy], error) {
	return one[store.Policy](ctx, t, sqlPolicy, repositoryID)
}

const sqlAttestations = selectFrom + `attestations` + joinLog + `WHERE i.repository_id = $3 AND` + pageOf

// Attestations implements store.Reader.
func (t *Tx) Attestations(ctx context.Context, repositoryID string, page store.Page) ([]store.Row[store.Attestation], error) {
	return list[store.Attestation](ctx, t, page, sqlAttestations, repositoryID)
}

const sqlAttestationRevocations = selectFrom + `attestation_revocations` + joinLog + `WHERE i.repository_id = $3 AND` + pageOf

// AttestationRevocations implements store.Reader.
func (t *Tx) AttestationRevocations(ctx context.Context, repositoryID string, page store.Page) ([]store.Row[store.AttestationRevocation], error) {
	return list[store.AttestationRevocation](ctx, t, page, sqlAttestationRevocations, repositoryID)
}

const sqlExplanations = selectFrom + `explanations` + joinLog + `WHERE i.repository_id = $3 AND` + pageOf

// Explanations implements store.Reader.
func (t *Tx) Explanations(ctx context.Context, repositoryID string, page store.Page) ([]store.Row[store.Explanation], error) {
	return list[store.Explanation](ctx, t, page, sqlExplanations, repositoryID)
}

const sqlLaneProbe = selectFrom + `lane_probes` + joinLog + `WHERE i.lane_id = $1` + newestOf

// LaneProbe implements store.Reader.
func (t *Tx) LaneProbe(ctx context.Context, laneID string) (store.Row[store.LaneProbe], error) {
	return one[store.LaneProbe](ctx, t, sqlLaneProbe, laneID)
}
