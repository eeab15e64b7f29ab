package sqlrows

import (
	"context"

	"striatum/store"
)

const sqlCheckRequest = selectFrom + `check_requests` + joinLog + `WHERE i.request_id = $1`

// CheckRequest implements store.Reader.
func (t *Tx) CheckRequest(ctx context.Context, id string) (store.Row[store.CheckRequest], error) {
	return one[store.CheckRequest](ctx, t, sqlCheckRequest, id)
}

const sqlCheckRequestTaken = selectFrom + `check_requests_taken` + joinLog + `WHERE i.request_id = $1`

// CheckRequestTaken implements store.Reader.
func (t *Tx) CheckRequestTaken(ctx context.Context, id string) (store.Row[store.CheckRequestTaken], error) {
	return one[store.CheckRequestTaken](ctx, t, sqlCheckRequestTaken, id)
}

const sqlCheckRequestEnd = selectFrom + `check_request_ends` + joinLog + `WHERE i.request_id = $1`

// CheckRequestEnd implements store.Reader.
func (t *Tx) CheckRequestEnd(ctx context.Context, id string) (store.Row[store.CheckRequestEnd], error) {
	return one[store.CheckRequestEnd](ctx, t, sqlCheckRequestEnd, id)
}

const sqlOpenCheckRequests = selectFrom + `check_requests` + joinLog + `WHERE NOT EXISTS (SELECT 1 FROM check_request_ends e WHERE e.request_id = i.request_id)
	AND (i.expires_at > $3 OR EXISTS (SELECT 1 FROM check_requests_taken k WHERE k.request_id = i.request_id)) AND` + pageOf

// OpenCheckRequests implements store.Reader.
func (t *Tx) OpenCheckRequests(ctx context.Context, now string, page store.Page) ([]store.Row[store.CheckRequest], error) {
	return list[store.CheckRequest](ctx, t, page, sqlOpenCheckRequests, now)
}

const sqlAddCheckRequest = `INSERT INTO check_requests (position, request_id, expires_at) VALUES ($1, $2, $3)`

// AddCheckRequest implements store.Writer.
func (t *Tx) AddCheckRequest(ctx context.Context, r store.CheckRequest) (int64, error) {
	return t.add(ctx, store.KindCheckRequest, r, sqlAddCheckRequest, r.ID, r.ExpiresAt)
}

const sqlAddCheckRequestTaken = `INSERT INTO check_requests_taken (position, request_id) VALUES ($1, $2)`

// AddCheckRequestTaken implements store.Writer.
func (t *Tx) AddCheckRequestTaken(ctx context.Context, r store.CheckRequestTaken) (int64, error) {
	return t.add(ctx, store.KindCheckRequestTaken, r, sqlAddCheckRequestTaken, r.ID)
}

const sqlAddCheckRequestEnd = `INSERT INTO check_request_ends (position, request_id) VALUES ($1, $2)`

// AddCheckRequestEnd implements store.Writer.
func (t *Tx) AddCheckRequestEnd(ctx context.Context, r store.CheckRequestEnd) (int64, error) {
	return t.add(ctx, store.KindCheckRequestEnd, r, sqlAddCheckRequestEnd, r.ID)
}
