// Package store is the contract for keeping evidence: what every database
// adapter promises, in plain rows. Package storetest is the suite that each
// adapter passes.
//
// # What is kept
//
// All evidence is append-only. Each row is one entry of a hash-chained log
// (package eventlog), written in the same transaction, and its Position in the
// log is the row's identity, its order and the cursor for paging. What is taken
// back (a lane, a token, an attestation) or explained is a new row. Rows are
// JSON records in the log; larger bytes are kept as received, by their SHA-256.
// A row that is read comes from its record, never from the columns that found
// it. A store judges nothing: who may write what is package daemon's business,
// and what is read back is opened and verified again by its reader.
//
// # Transactions
//
// View runs a closure on one unchanging state. Update runs a closure whose
// writes all happen or none; concurrent Updates have the effect of some order.
// A closure may run twice, when the database asks for another try, so it must
// not change anything outside but results that it sets anew each time. After a
// method returned an error other than ErrNotFound, the closure must return one
// too. Closures must not use the store itself.
//
// Any number of processes may use one store at once, and a View never waits
// for an Update.
package store

import (
	"context"
	"errors"
	"strings"

	"striatum/eventlog"
)

// The errors that callers branch on. Everything else is a fault of the
// database.
var (
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("it is there already, or something it builds on is not the newest or not there")
	ErrBusy        = errors.New("the store is busy")
	ErrUnavailable = errors.New("the store cannot be reached")
	ErrReadOnly    = errors.New("the store cannot be written")
	ErrFull        = errors.New("no space is left for the store")
	ErrCorrupt     = errors.New("the store is damaged")
	ErrNewerSchema = errors.New("the store was made by a newer version")
)

// MaxPage is the most rows that a page has.
const MaxPage = 500

// NoLedger is the seal before a run's first ledger: 64 zeros.
var NoLedger = strings.Repeat("0", 64)

// MaxBlob is the most bytes of one blob.
const MaxBlob = 64 << 20

// Page asks for rows after a position, oldest first, at most Limit (zero and
// anything above MaxPage: MaxPage).
type Page struct {
	After int64
	Limit int
}

// Size returns the number of rows that the page may have.
func (p Page) Size() int {
	if p.Limit <= 0 || p.Limit > MaxPage {
		return MaxPage
	}
	return p.Limit
}

// Store keeps evidence.
type Store interface {
	// View runs fn on one state. It returns fn's error.
	View(ctx context.Context, fn func(Reader) error) error
	// Update runs fn, perhaps twice, and commits what it wrote if it returned
	// nil. When Update returns nil, what was written survives a crash.
	Update(ctx context.Context, fn func(Writer) error) error
	// Close releases the store. It must not be used any more.
	Close() error
}

// Reader reads one state. Methods that return one row return ErrNotFound when
// there is none. Lists are ordered by position.
type Reader interface {
	// Head returns the last entry of the log; the zero Entry when it is empty.
	Head(ctx context.Context) (eventlog.Entry, error)
	// Log returns entries with their records.
	Log(ctx context.Context, page Page) ([]LogRow, error)
	// Blob returns the bytes with that SHA-256, which it has checked; other
	// bytes are ErrCorrupt.
	Blob(ctx context.Context, sha256 string) ([]byte, error)

	// RepositoryAt returns the newest binding of exactly this place.
	RepositoryAt(ctx context.Context, place Place) (Row[Repository], error)

	Lanes(ctx context.Context, page Page) ([]Row[Lane], error)
	LaneRevocations(ctx context.Context, page Page) ([]Row[LaneRevocation], error)

	Token(ctx context.Context, hash string) (Row[Token], error)
	Tokens(ctx context.Context, page Page) ([]Row[Token], error)
	TokenRevocations(ctx context.Context, page Page) ([]Row[TokenRevocation], error)

	OpenedNamed(ctx context.Context, name string) (Row[Opened], error)
	Opened(ctx context.Context, repositoryID string, page Page) ([]Row[Opened], error)
	Receipt(ctx context.Context, seal string) (Row[Receipt], error)
	// Receipts lists those of a repository; of one check if checkDigest is not
	// empty.
	Receipts(ctx context.Context, repositoryID, checkDigest string, page Page) ([]Row[Receipt], error)

	// RepositoryOf returns the repository of the receipt with that seal, or that
	// follows one with it, or of the opened record with that name.
	RepositoryOf(ctx context.Context, sealOrName string) (repositoryID string, err error)

	// Ledger returns the newest of a run.
	Ledger(ctx context.Context, repositoryID, runID string) (Row[Ledger], error)
	// Policy returns the one accepted last.
	Policy(ctx context.Context, repositoryID string) (Row[Policy], error)

	Attestations(ctx context.Context, repositoryID string, page Page) ([]Row[Attestation], error)
	AttestationRevocations(ctx context.Context, repositoryID string, page Page) ([]Row[AttestationRevocation], error)
	Explanations(ctx context.Context, repositoryID string, page Page) ([]Row[Explanation], error)

	CheckRequest(ctx context.Context, id string) (Row[CheckRequest], error)
	CheckRequestTaken(ctx context.Context, id string) (Row[CheckRequestTaken], error)
	CheckRequestEnd(ctx context.Context, id string) (Row[CheckRequestEnd], error)
	// OpenCheckRequests lists those that did not end and that were taken, or expire
	// after now (RFC 3339, UTC, whole seconds).
	OpenCheckRequests(ctx context.Context, now string, page Page) ([]Row[CheckRequest], error)
	// LaneProbe returns the newest of a lane.
	LaneProbe(ctx context.Context, laneID string) (Row[LaneProbe], error)
}

// Writer reads and appends. Each Add method returns the position of the new
// row. It returns ErrConflict for a row whose key is there already (a lane's
// key, a token's hash, a receipt's seal, an opened record's name, the
// successor of a ledger, an attestation of the same check and closure that is
// not revoked, the revocation of an attestation, a request's id, its taking and
// its end) and for one that names something that is not there (a blob, the lane,
// token, attestation or request that it is about).
type Writer interface {
	Reader

	// PutBlob keeps data, at most MaxBlob bytes, and returns its SHA-256. To
	// put the same bytes again is no error.
	PutBlob(ctx context.Context, data []byte) (sha256 string, err error)

	AddRepository(ctx context.Context, row Repository) (int64, error)
	AddLane(ctx context.Context, row Lane) (int64, error)
	AddLaneRevocation(ctx context.Context, row LaneRevocation) (int64, error)
	AddToken(ctx context.Context, row Token) (int64, error)
	AddTokenRevocation(ctx context.Context, row TokenRevocation) (int64, error)
	AddOpened(ctx context.Context, row Opened) (int64, error)
	AddReceipt(ctx context.Context, row Receipt) (int64, error)
	AddLedger(ctx context.Context, row Ledger) (int64, error)
	AddPolicy(ctx context.Context, row Policy) (int64, error)
	AddAttestation(ctx context.Context, row Attestation) (int64, error)
	AddAttestationRevocation(ctx context.Context, row AttestationRevocation) (int64, error)
	AddExplanation(ctx context.Context, row Explanation) (int64, error)

	AddCheckRequest(ctx context.Context, row CheckRequest) (int64, error)
	AddCheckRequestTaken(ctx context.Context, row CheckRequestTaken) (int64, error)
	AddCheckRequestEnd(ctx context.Context, row CheckRequestEnd) (int64, error)
	AddLaneProbe(ctx context.Context, row LaneProbe) (int64, error)
}

// All walks every page of a list and returns its rows. It is for lists that a
// person makes (lanes, tokens, attestations); long ones are walked with Each.
func All[T any](list func(Page) ([]Row[T], error)) ([]Row[T], error) {
	var all []Row[T]
	err := Each(list, func(row Row[T]) error {
		all = append(all, row)
		return nil
	})
	return all, err
}

// Each calls fn for every row of a list, page by page. It stops at the first
// error and returns it.
func Each[T any](list func(Page) ([]Row[T], error), fn func(Row[T]) error) error {
	var page Page
	for {
		rows, err := list(page)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := fn(row); err != nil {
				return err
			}
			page.After = row.Position
		}
		if len(rows) < page.Size() {
			return nil
		}
	}
}
