package store

import "striatum/eventlog"

// Kind names what a log entry records. It is part of what is hashed, so a kind
// never changes its name.
type Kind string

// The kinds of entry.
const (
	KindRepository            Kind = "repository"
	KindLane                  Kind = "lane"
	KindLaneRevocation        Kind = "lane_revocation"
	KindToken                 Kind = "token"
	KindTokenRevocation       Kind = "token_revocation"
	KindOpened                Kind = "opened"
	KindReceipt               Kind = "receipt"
	KindLedger                Kind = "ledger"
	KindPolicy                Kind = "policy"
	KindAttestation           Kind = "attestation"
	KindAttestationRevocation Kind = "attestation_revocation"
	KindExplanation           Kind = "explanation"
	KindLaneProbe             Kind = "lane_probe"
)

// The kinds of entry about checks that somebody asks a lane for.
const (
	KindCheckRequest      Kind = "check_request"
	KindCheckRequestTaken Kind = "check_request_taken"
	KindCheckRequestEnd   Kind = "check_request_end"
)

// Row is a value with its place in the log. RecordedAt is RFC 3339, UTC, by the
// clock of whoever wrote it: for people, never to decide an order.
type Row[T any] struct {
	Position   int64
	RecordedAt string
	Value      T
}

// LogRow is an entry of the log with the record that it names.
type LogRow struct {
	Entry  eventlog.Entry
	Record []byte
}

// Place is where a worktree is: the real path of its top, with the numbers of
// its device and inode, so that another folder at the same path is another
// place. Path is valid UTF-8.
type Place struct {
	Path   string `json:"path"`
	Device string `json:"device"` // unsigned decimal
	Inode  string `json:"inode"`  // unsigned decimal
}

// Repository binds a place to a repository id.
type Repository struct {
	RepositoryID string `json:"repository_id"`
	Place        Place  `json:"place"`
	By           string `json:"by"`
}

// Lane enrols a lane's public key (PEM, SPKI). KeyID is the key's id.
type Lane struct {
	KeyID     string `json:"key_id"`
	LaneID    string `json:"lane_id"`
	Class     string `json:"class"`
	PublicKey string `json:"public_key"`
	By        string `json:"by"`
}

// LaneRevocation ends a lane's key. Kind is "retired" or "compromised". Since is
// the place in the log from which on nothing that it signed counts; zero is the
// revocation's own.
type LaneRevocation struct {
	KeyID string `json:"key_id"`
	Kind  string `json:"kind"`
	By    string `json:"by"`
	Since int64  `json:"since,omitempty"`
}

// Token is a credential, kept as the SHA-256 of its text. Kind says whose;
// ExpiresAt is RFC 3339. RepositoryID, RunID and Jobs bind a session's.
type Token struct {
	Hash         string   `json:"token_hash"`
	Kind         string   `json:"kind"`
	Name         string   `json:"name"`
	ExpiresAt    string   `json:"expires_at"`
	By           string   `json:"by"`
	RepositoryID string   `json:"repository_id,omitempty"`
	RunID        string   `json:"run_id,omitempty"`
	Jobs         []string `json:"jobs,omitempty"`
}

// TokenRevocation ends a token.
type TokenRevocation struct {
	Hash string `json:"token_hash"`
	By   string `json:"by"`
}

// Opened is a lane's signed word that a number of its chain is taken. The blob
// is the envelope, and Name what an explanation calls it by.
type Opened struct {
	Name           string `json:"name"`
	LaneEpoch      string `json:"lane_epoch"`
	Sequence       int64  `json:"sequence"`
	RepositoryID   string `json:"repository_id"`
	EnvelopeSHA256 string `json:"envelope_sha256"`
}

// Receipt is a sealed receipt. The blob is the envelope; the rest helps to
// find it. LaneEpoch, Sequence and PrevSeal are its place in its lane's chain.
type Receipt struct {
	Seal           string `json:"seal"`
	KeyID          string `json:"key_id"` // of who signed it
	PrevSeal       string `json:"prev_seal"`
	LaneEpoch      string `json:"lane_epoch"`
	Sequence       int64  `json:"sequence"`
	RepositoryID   string `json:"repository_id"`
	RunID          string `json:"run_id"`
	CheckID        string `json:"check_id"`
	CheckDigest    string `json:"check_digest"`
	TreeSHA256     string `json:"tree_sha256"`
	Classification string `json:"classification"`
	EnvelopeSHA256 string `json:"envelope_sha256"`
}

// Ledger is one state of a run's claim ledger. The blob is the document.
// PrevSeal is the seal of the ledger that it follows, 64 zeros for the first:
// each is followed once.
type Ledger struct {
	RepositoryID   string `json:"repository_id"`
	RunID          string `json:"run_id"`
	Seal           string `json:"seal"`
	PrevSeal       string `json:"prev_seal"`
	By             string `json:"by"`
	DocumentSHA256 string `json:"document_sha256"`
}

// Policy is an accepted policy. The blob is the document, whose SHA-256 is the
// policy's digest; the files that it names are blobs too.
type Policy struct {
	RepositoryID   string `json:"repository_id"`
	DocumentSHA256 string `json:"document_sha256"`
	By             string `json:"by"`
}

// Attestation is an operator's word that a closure may be trusted for a check.
// CheckID is what people called the check then; the digests decide.
type Attestation struct {
	RepositoryID  string `json:"repository_id"`
	CheckID       string `json:"check_id"`
	CheckDigest   string `json:"check_digest"`
	ClosureSHA256 string `json:"closure_sha256"`
	By            string `json:"by"`
}

// AttestationRevocation takes back the attestation at a position.
type AttestationRevocation struct {
	RepositoryID string `json:"repository_id"`
	Attestation  int64  `json:"attestation"`
	By           string `json:"by"`
}

// Explanation is an operator's reason for a failed receipt, a hole in a chain or
// a number that was never sealed. Seal is what RepositoryOf finds.
type Explanation struct {
	RepositoryID string `json:"repository_id"`
	Seal         string `json:"seal"`
	Reason       string `json:"reason"`
	By           string `json:"by"`
}

// CheckRequest asks a lane to run checks. By is the principal that asked and UID
// the uid that it called from. No Checks means every check of the workflow; an
// empty Commit means the worktree's files. ExpiresAt is RFC 3339: until then a lane
// may take it.
type CheckRequest struct {
	ID           string   `json:"request_id"`
	RepositoryID string   `json:"repository_id"`
	RunID        string   `json:"run_id"`
	By           string   `json:"by"`
	UID          int64    `json:"uid"`
	Checks       []string `json:"checks,omitempty"`
	Commit       string   `json:"commit,omitempty"`
	ExpiresAt    string   `json:"expires_at"`
}

// CheckRequestTaken says which lane took a request, once.
type CheckRequestTaken struct {
	ID     string `json:"request_id"`
	LaneID string `json:"lane_id"`
}

// CheckRequestEnd ends a request, once. Outcome is "done", "failed", "cancelled" or
// "abandoned"; Seals are the receipts that came of it.
type CheckRequestEnd struct {
	ID      string   `json:"request_id"`
	By      string   `json:"by"`
	Outcome string   `json:"outcome"`
	Why     string   `json:"why,omitempty"`
	Seals   []string `json:"seals,omitempty"`
}

// LaneProbe is what a probe found that tried, on a lane's host, what the users of
// sessions can reach. OK is false where one reached what it must not, and where
// that could not be told. Users are those that it tried. Reached says what this
// probe, or one before it of the same key, found within a user's reach, unless an
// operator has brought one that passed since; ReachedAt is the place in the log of
// the first that found it. Spans are the earlier times, up to this probe, of which an
// operator ended each with one that passed.
type LaneProbe struct {
	LaneID    string         `json:"lane_id"`
	OK        bool           `json:"ok"`
	Reached   string         `json:"reached,omitempty"`
	ReachedAt int64          `json:"reached_at,omitempty"`
	Spans     []LogSpan      `json:"spans,omitempty"`
	Users     []string       `json:"users,omitempty"`
	Findings  []ProbeFinding `json:"findings,omitempty"`
	By        string         `json:"by"`
}

// LogSpan are the places in the log from From up to, not including, To.
type LogSpan struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// ProbeFinding is one thing that a probe found, of a user or, with none, of the
// host. Reach says that the user reaches what it must not; else something could not
// be told.
type ProbeFinding struct {
	Code  string `json:"code"`
	User  string `json:"user"`
	What  string `json:"what"`
	Reach bool   `json:"reach"`
}
