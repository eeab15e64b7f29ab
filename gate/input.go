package gate

import (
	"striatum/claim"
	"striatum/receipt"
	"striatum/seal"
)

// Input is everything that a judgement depends on. Its zero value is judged
// too, as "nothing was checked". Positions are those of the store's log, from
// 1; a zero RevokedAt means not revoked.
type Input struct {
	RepositoryID string
	RunID        string // empty outside any run
	Store        Store
	Floor        claim.Status // the caller's; zero is ASSERTED

	// RequireIsolated makes the two isolation caps count as missing.
	RequireIsolated bool

	Tree     Tree
	Required []Requirement
	Ledger   claim.Ledger
	// Evidence is what was found for the receipt that each claim names, by
	// claim id.
	Evidence map[string]Evidence
	// History is every stored receipt of this repository for the checks that
	// are judged, of all runs, lanes and epochs. Evidence need not be repeated.
	History []HistoryEntry
	// Places are the numbers of the repository's other receipts (of checks
	// that are not judged): they are not holes in the chain.
	Places []Place
	// Opened is every opened record of this repository.
	Opened       []receipt.Opened
	Lanes        []Lane
	Attestations []Attestation
	Explanations []Explanation

	// Policy is nil until an operator accepted one.
	Policy *Policy
	// TreeFiles are the policy's files as they stand in the judged tree: path
	// to SHA-256. It is compared with Policy.Files.
	TreeFiles map[string]string
}

// Store names the store that was read. Problem is set when some of it could
// not be read; it lowers every claim (store_unavailable).
type Store struct {
	Name    string     `json:"name"`
	Home    string     `json:"home"`
	Class   seal.Class `json:"class"` // anything but isolated is shared
	Problem string     `json:"problem"`
}

// Tree is what is being judged: git's SHA-256 tree id, where it comes from
// ("commit:<full id>", or "worktree" if it was read now), and the digest of its
// manifest where that is known. Without SHA256 or Source no tree is judged.
type Tree struct {
	SHA256         string `json:"sha256"`
	Source         string `json:"source"`
	ManifestSHA256 string `json:"manifest_sha256"`
}

// Requirement is a claim that must be green, and the one check that backs it:
// from the accepted policy or, before any, from the workflow.
type Requirement struct {
	ClaimID     string
	Statement   string
	CheckID     string
	CheckDigest string
	// Builtin says that the check is a plain builtin (not builtin+toolchain).
	Builtin bool
	// WeakerThanBuiltin marks an external check that does what a
	// builtin+toolchain check does better.
	WeakerThanBuiltin bool
	// Pinned says that this host has a pin for the external check.
	Pinned     bool
	AllowSkips AllowSkips
	// ProtectedCommit is the commit that the check's protected inputs come from;
	// empty: it has none.
	ProtectedCommit string
	// Scope is what of the tree the check is about, where that is not all: "the
	// packages ./a".
	Scope string
}

// AllowSkips says which skipped tests a green may have. Names are
// "import/path TestName", as in the receipt's census.
type AllowSkips struct {
	Any   bool
	Names []string
}

// Problem says why the receipt that a claim names could not be opened. The
// zero Problem is Absent.
type Problem uint8

// The problems of evidence.
const (
	Absent           Problem = iota // the store has no such receipt
	Unavailable                     // the store could not be read
	Unparseable                     // it is not a receipt
	SealMismatch                    // its content has another seal
	SignatureInvalid                // the signature does not verify
	UnknownLane                     // signed by a key that is not enrolled
)

// Evidence is an opened receipt or, with Verified nil, the Problem.
type Evidence struct {
	Verified    *receipt.Verified
	Problem     Problem
	LogPosition int64
}

// HistoryEntry is an opened receipt and its place in the log.
type HistoryEntry struct {
	Verified    *receipt.Verified
	LogPosition int64
}

// Place is one sealed number of a lane's chain in this repository.
type Place struct {
	LaneEpoch string
	Sequence  int64
	Seal      string
	PrevSeal  string
}

// RevocationKind says why a lane's key is not used any more.
type RevocationKind uint8

// The kinds of revocation. From RevokedAt on nothing that the key signed
// counts; for a compromised key not even if it was enrolled again.
const (
	NotRevoked RevocationKind = iota
	Retired
	Compromised
)

// Lane is one enrolment of a lane's key. It covers the positions from
// EnrolledAt up to, not including, RevokedAt.
type Lane struct {
	KeyID      string
	LaneID     string
	Class      seal.Class
	EnrolledAt int64
	RevokedAt  int64
	Kind       RevocationKind
	// Lowered says what the newest probe of the lane found, if that was made since
	// the enrolment and failed. It makes the lane shared.
	Lowered string
	// Reached are places at which the lane stays shared: a probe had found that a user
	// reached it, and none of an operator's that passed had followed.
	Reached []Span
}

// Span are the places in the log from From up to, not including, To.
type Span struct{ From, To int64 }

// isolated reports whether what the lane signed, and the log has at position, counts
// as out of an agent's reach.
func (l Lane) isolated(position int64) bool {
	return l.Class == seal.ClassIsolated && l.Lowered == "" && l.reached(position) == nil
}

// reached returns the span that position lies in; nil if it lies in none.
func (l Lane) reached(position int64) *Span {
	for i, s := range l.Reached {
		if s.From <= position && position < s.To {
			return &l.Reached[i]
		}
	}
	return nil
}

// Attestation is an operator's word, for this repository, that exactly these
// bytes may be trusted for exactly this check.
type Attestation struct {
	CheckDigest   string
	ClosureSHA256 string
	Position      int64
	RevokedAt     int64
}

// Explanation is an operator's word on a failed receipt, or on a hole in a
// chain (Seal is then the one that the following receipt names as previous).
type Explanation struct {
	Seal   string
	Reason string
	By     string
}

// Policy is the closed set that an operator accepted. Files maps each path to
// the SHA-256 of its accepted bytes, which the store keeps.
type Policy struct {
	Digest     string
	Floor      claim.Status
	AllowReuse bool
	Files      map[string]string
}
