// Package wire is what striatumd and its client say to each other: HTTP, each
// call a POST of one JSON document that is answered by one. Server (package
// httpapi) and client share these types, so that neither can drift.
//
// Documents are decoded strictly on both sides. A token goes in the header
// "Authorization: Bearer TOKEN" and nowhere else. What fails is answered with a
// Problem, whose kind is that of the embedded service, so that a command exits
// alike in both.
package wire

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"striatum/allowlist"
	"striatum/claim"
	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/seal"
)

// The bounds of a call.
const (
	MaxRequestBytes        = 8 << 20
	MaxSessionRequestBytes = 1 << 20 // of a session
	MaxResponseBytes       = 64 << 20
	MaxDepth               = 32
)

// The paths of the calls.
const (
	Describe          = "/v1/describe"
	FindRepository    = "/v1/repository/find"
	MeetRepository    = "/v1/repository/meet"
	BindRepository    = "/v1/repository/bind"
	Policy            = "/v1/policy/read"
	AcceptPolicy      = "/v1/policy/accept"
	Gate              = "/v1/gate/read"
	Summary           = "/v1/gate/summary"
	BindClaim         = "/v1/claim/bind"
	RecordOpened      = "/v1/opened/record"
	RecordReceipt     = "/v1/receipt/record"
	Receipt           = "/v1/receipt/read"
	Receipts          = "/v1/receipt/list"
	Explain           = "/v1/receipt/explain"
	Attestable        = "/v1/attestation/look"
	Attest            = "/v1/attestation/attest"
	RevokeAttestation = "/v1/attestation/revoke"
	Attestations      = "/v1/attestation/list"
	Closure           = "/v1/closure/read"
	EnrolLane         = "/v1/lane/enrol"
	RevokeLane        = "/v1/lane/revoke"
	Lanes             = "/v1/lane/list"
	TrustedLanes      = "/v1/lane/trusted"
	RecordProbe       = "/v1/lane/probe"
	Host              = "/v1/host/read"
	VerifyLog         = "/v1/log/verify"
	CheckMint         = "/v1/token/check"
	RecordToken       = "/v1/token/record"
	RevokeToken       = "/v1/token/revoke" //nolint:gosec // the path of a call
	Tokens            = "/v1/token/list"   //nolint:gosec // likewise
)

// The paths of the calls about requests for checks.
const (
	RequestChecks   = "/v1/request/ask"
	TakeRequest     = "/v1/request/take"
	EndRequest      = "/v1/request/end"
	CancelRequest   = "/v1/request/cancel"
	RequestState    = "/v1/request/read"
	AbandonRequests = "/v1/request/abandon"
)

// The paths that need no token and are read with GET.
const (
	Health = "/healthz"
	Ready  = "/readyz"
)

// MediaProblem is the media type of a Problem.
const MediaProblem = "application/problem+json"

// kinds are the words for the kinds of problem. They never change.
var kinds = []struct {
	word   string
	kind   problem.Kind
	status int
}{
	{"no", problem.No, 409},
	{"usage", problem.Usage, 400},
	{"refused", problem.Refused, 403},
	{"indeterminate", problem.Indeterminate, 503},
	{"void", problem.Void, 409},
	{"invalid", problem.Invalid, 422},
	{"missing", problem.Missing, 503},
	{"unfilled", problem.Unfilled, 409},
	{"internal", problem.Internal, 500},
}

// Problem is the answer to a call that failed.
type Problem struct {
	Kind      string `json:"kind" enum:"no,usage,refused,indeterminate,void,invalid,missing,unfilled,internal"`
	What      string `json:"what"`
	Why       string `json:"why"`
	Hint      string `json:"hint"`
	RequestID string `json:"request_id"`
}

// NewProblem returns p for the wire, and its HTTP status.
func NewProblem(p *problem.Problem, requestID string) (doc Problem, status int) {
	doc = Problem{Kind: "internal", What: p.What, Why: p.Why, Hint: p.Hint, RequestID: requestID}
	status = 500
	for _, k := range kinds {
		if k.kind == p.Kind {
			doc.Kind, status = k.word, k.status
		}
	}
	return doc, status
}

// Problem returns d as the service's own. A kind that is none is Internal: never
// a success.
func (d Problem) Problem() *problem.Problem {
	kind := problem.Internal
	for _, k := range kinds {
		if k.word == d.Kind {
			kind = k.kind
		}
	}
	return problem.New(kind, d.What, d.Why, d.Hint)
}

// Empty is a document that says nothing.
type Empty struct{}

// Principal is who asks.
type Principal struct {
	Kind         string   `json:"kind" enum:"local,session,lane,operator"`
	Name         string   `json:"name"`
	RepositoryID string   `json:"repository_id"`
	RunID        string   `json:"run_id"`
	Jobs         []string `json:"jobs,omitempty"`
}

// NewPrincipal returns p for the wire.
func NewPrincipal(p daemon.Principal) Principal {
	return Principal{Kind: p.Kind.String(), Name: p.Name, RepositoryID: p.RepositoryID, RunID: p.RunID, Jobs: append([]string{}, p.Jobs...)}
}

// Principal returns p as the service's own; of no kind if it names none.
func (p Principal) Principal() daemon.Principal {
	kind, _ := ParseKind(p.Kind)
	return daemon.Principal{Kind: kind, Name: p.Name, RepositoryID: p.RepositoryID, RunID: p.RunID, Jobs: p.Jobs}
}

// ParseKind reads the word for a kind of principal.
func ParseKind(word string) (daemon.Kind, error) {
	for _, k := range []daemon.Kind{daemon.Local, daemon.Session, daemon.Lane, daemon.Operator} {
		if word == k.String() {
			return k, nil
		}
	}
	return 0, fmt.Errorf("%q is no kind of principal", word)
}

// Description answers Describe.
type Description struct {
	StoreClass seal.Class `json:"store_class" enum:"shared,isolated"`
	StoreName  string     `json:"store_name"`
	Home       string     `json:"home"`
	Principal  Principal  `json:"principal"`
}

// Worktree says where a worktree's top is: its real path, as a Go string literal
// where that is not UTF-8, and the numbers of its device and inode, in decimal.
type Worktree struct {
	Path   string `json:"path" maxLength:"16384"`
	Device string `json:"device"`
	Inode  string `json:"inode"`
}

// NewWorktree returns wt for the wire.
func NewWorktree(wt daemon.Worktree) Worktree {
	path := wt.Path
	if !utf8.ValidString(path) {
		path = strconv.Quote(path)
	}
	return Worktree{Path: path, Device: strconv.FormatUint(wt.Device, 10), Inode: strconv.FormatUint(wt.Inode, 10)}
}

// maxPath bounds the path of a worktree, in bytes, as it is on the wire.
const maxPath = 16 << 10

// Worktree returns w as the service's own. The error is a problem of kind Usage.
func (w Worktree) Worktree() (daemon.Worktree, error) {
	bad := func(why string) (daemon.Worktree, error) {
		return daemon.Worktree{}, problem.New(problem.Usage, "read the worktree's place", why, "")
	}
	if len(w.Path) > maxPath {
		return bad(fmt.Sprintf("its path has more than %d bytes", maxPath))
	}
	path := w.Path
	if strings.HasPrefix(path, `"`) {
		var err error
		if path, err = strconv.Unquote(path); err != nil || utf8.ValidString(path) {
			return bad("its path is quoted, and should not be")
		}
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return bad("its path is not absolute and clean")
	}
	device, err := strconv.ParseUint(w.Device, 10, 64)
	if err != nil {
		return bad("its device is not a number")
	}
	inode, err := strconv.ParseUint(w.Inode, 10, 64)
	if err != nil {
		return bad("its inode is not a number")
	}
	return daemon.Worktree{Path: path, Device: device, Inode: inode}, nil
}

// Repository answers FindRepository and MeetRepository. Found and Created are
// those of the method.
type Repository struct {
	RepositoryID string `json:"repository_id"`
	Found        bool   `json:"found"`
	Created      bool   `json:"created"`
}

// Binding asks BindRepository.
type Binding struct {
	Worktree     Worktree `json:"worktree"`
	RepositoryID string   `json:"repository_id"`
}

// OfRepository names a repository.
type OfRepository struct {
	RepositoryID string `json:"repository_id"`
}

// PolicyFound answers Policy.
type PolicyFound struct {
	Found  bool                  `json:"found"`
	Policy daemon.AcceptedPolicy `json:"policy"`
}

// Acceptance asks AcceptPolicy.
type Acceptance struct {
	RepositoryID string       `json:"repository_id"`
	Files        daemon.Files `json:"files,omitempty"`
	Digest       string       `json:"digest"`
}

// GateQuery asks Gate and Summary. Floor is empty, "asserted" or "verified".
type GateQuery struct {
	RepositoryID    string       `json:"repository_id"`
	RunID           string       `json:"run_id"`
	Floor           string       `json:"floor"`
	RequireIsolated bool         `json:"require_isolated"`
	Tree            gate.Tree    `json:"tree"`
	Files           daemon.Files `json:"files,omitempty"`
}

// NewGateQuery returns q for the wire.
func NewGateQuery(q daemon.GateQuery) GateQuery {
	floor := ""
	if q.Floor != 0 {
		floor = strings.ToLower(q.Floor.String())
	}
	return GateQuery{q.RepositoryID, q.RunID, floor, q.RequireIsolated, q.Tree, q.Files}
}

// Query returns q as the service's own. The error is a problem of kind Usage.
func (q GateQuery) Query() (daemon.GateQuery, error) {
	if len(q.Files) > daemon.MaxPolicyFiles {
		return daemon.GateQuery{}, problem.New(problem.Usage, "read the gate", fmt.Sprintf("%d files are more than a policy's %d", len(q.Files), daemon.MaxPolicyFiles), "")
	}
	out := daemon.GateQuery{RepositoryID: q.RepositoryID, RunID: q.RunID, RequireIsolated: q.RequireIsolated, Tree: q.Tree, Files: q.Files}
	switch q.Floor {
	case "":
	case "asserted":
		out.Floor = claim.Asserted
	case "verified":
		out.Floor = claim.Verified
	default:
		return daemon.GateQuery{}, problem.New(problem.Usage, "read the gate", "the floor is neither asserted nor verified", "")
	}
	return out, nil
}

// Report answers Gate and, with an Envelope, Summary.
type Report struct {
	Report   gate.Report `json:"report"`
	Envelope []byte      `json:"envelope,omitempty"`
}

// Envelope is a signed document.
type Envelope struct {
	Envelope []byte `json:"envelope,omitempty"`
}

// Sealed names a receipt.
type Sealed struct {
	Seal string `json:"seal"`
}

// ReceiptQuery asks Receipts.
type ReceiptQuery struct {
	RepositoryID string               `json:"repository_id"`
	Filter       daemon.ReceiptFilter `json:"filter"`
}

// ReceiptList answers Receipts.
type ReceiptList struct {
	Receipts []daemon.ReceiptInfo `json:"receipts,omitempty"`
}

// Explanation asks Explain.
type Explanation struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Attestation asks Attest.
type Attestation struct {
	Query  daemon.AttestQuery `json:"query"`
	Digest string             `json:"digest"`
}

// Attested answers Attest.
type Attested struct {
	Position int64 `json:"position"`
	Fresh    bool  `json:"fresh"`
}

// AttestationRevocation asks RevokeAttestation.
type AttestationRevocation struct {
	RepositoryID string `json:"repository_id"`
	CheckID      string `json:"check_id"`
	Position     int64  `json:"position"`
}

// Positions answers RevokeAttestation.
type Positions struct {
	Positions []int64 `json:"positions,omitempty"`
}

// AttestationList answers Attestations.
type AttestationList struct {
	Attestations []daemon.AttestationInfo `json:"attestations,omitempty"`
}

// Lane asks EnrolLane. PublicKey is PEM.
type Lane struct {
	LaneID    string     `json:"lane_id"`
	PublicKey string     `json:"public_key"`
	Class     seal.Class `json:"class" enum:"shared,isolated"`
	// Probe is what a probe of its host found before; may be absent.
	Probe *daemon.Probe `json:"probe,omitempty"`
}

// Probed asks RecordProbe.
type Probed struct {
	LaneID string       `json:"lane_id"`
	Probe  daemon.Probe `json:"probe"`
}

// HostKnown answers Host.
type HostKnown struct {
	SessionUIDs  []uint32 `json:"session_uids" nullable:"false"`
	OperatorUIDs []uint32 `json:"operator_uids" nullable:"false"`
	UID          uint32   `json:"uid"`
	Files        []string `json:"files" nullable:"false"`
}

// LaneRevocation asks RevokeLane.
type LaneRevocation struct {
	LaneID string `json:"lane_id"`
	Kind   string `json:"kind" enum:"retired,compromised"`
	Since  int64  `json:"since"`
}

// LaneList answers Lanes and RevokeLane.
type LaneList struct {
	Lanes []daemon.LaneInfo `json:"lanes,omitempty"`
}

// Most asks TrustedLanes how many receipts it is to name.
type Most struct {
	Receipts int `json:"receipts"`
}

// TrustedLaneList answers TrustedLanes.
type TrustedLaneList struct {
	Lanes []daemon.TrustedLane `json:"lanes,omitempty"`
}

// Entries answers VerifyLog.
type Entries struct {
	Entries int64 `json:"entries"`
}

// Token asks CheckMint and, with the hash of a token, RecordToken.
type Token struct {
	Kind         string   `json:"kind" enum:"operator,session,lane"`
	TTLSeconds   int64    `json:"ttl_seconds"`
	RepositoryID string   `json:"repository_id"`
	RunID        string   `json:"run_id"`
	Jobs         []string `json:"jobs,omitempty"`
	LaneID       string   `json:"lane_id"`
	SHA256       string   `json:"sha256"`
}

// NewToken returns spec for the wire. A life of less than whole seconds is none.
func NewToken(spec daemon.TokenSpec, sha256 string) Token {
	seconds := int64(0)
	if spec.TTL%time.Second == 0 {
		seconds = int64(spec.TTL / time.Second)
	}
	return Token{spec.Kind.String(), seconds, spec.RepositoryID, spec.RunID, append([]string{}, spec.Jobs...), spec.LaneID, sha256}
}

// Spec returns t as the service's own. The error is a problem of kind Usage.
func (t Token) Spec() (daemon.TokenSpec, error) {
	kind, err := ParseKind(t.Kind)
	if err != nil {
		return daemon.TokenSpec{}, problem.New(problem.Usage, "mint a token", "its kind is none", "")
	}
	if t.TTLSeconds < 0 || t.TTLSeconds > int64(daemon.MaxTokenTTL/time.Second)+1 {
		t.TTLSeconds = 0 // which no token may have
	}
	return daemon.TokenSpec{
		Kind: kind, TTL: time.Duration(t.TTLSeconds) * time.Second,
		RepositoryID: t.RepositoryID, RunID: t.RunID, Jobs: t.Jobs, LaneID: t.LaneID,
	}, nil
}

// TokenList answers Tokens.
type TokenList struct {
	Tokens []daemon.TokenInfo `json:"tokens,omitempty"`
}

// TokenID asks RevokeToken.
type TokenID struct {
	ID string `json:"id"`
}

// Count answers RevokeToken.
type Count struct {
	Count int `json:"count"`
}

// Healthy answers Health: what is in force. CanStartPrograms is false only where
// the kernel refuses it on every thread.
type Healthy struct {
	Status            string     `json:"status" enum:"ok"`
	CanStartPrograms  bool       `json:"can_start_programs"`
	Threads           int        `json:"threads"`
	NoNewPrivsThreads int        `json:"no_new_privs_threads"`
	FilteredThreads   int        `json:"filtered_threads"`
	StoreClass        seal.Class `json:"store_class" enum:"shared,isolated"`
	// StoreClassWhy says why a store that was to be isolated is not.
	StoreClassWhy string `json:"store_class_why"`
}

// Readiness answers Ready: whether the store answers.
type Readiness struct {
	Ready bool `json:"ready"`
}

// Declared is a claim that a workflow declares.
type Declared struct {
	ID        string `json:"id"`
	Statement string `json:"statement"`
	CheckID   string `json:"check_id"`
	JobID     string `json:"job_id"`
}

// ClaimBinding asks for BindClaim. Declares is false where there is no workflow.
type ClaimBinding struct {
	RepositoryID string     `json:"repository_id"`
	RunID        string     `json:"run_id"`
	Declares     bool       `json:"declares"`
	Declared     []Declared `json:"declared" nullable:"false"`
	ClaimID      string     `json:"claim_id"`
	Seal         string     `json:"seal"`
}

// NewClaimBinding returns b for the wire.
func NewClaimBinding(b daemon.ClaimBinding) ClaimBinding {
	out := ClaimBinding{
		RepositoryID: b.RepositoryID, RunID: b.RunID, Declares: b.Declared != nil, Declared: []Declared{}, ClaimID: b.ClaimID, Seal: b.Seal,
	}
	for _, c := range b.Declared {
		out.Declared = append(out.Declared, Declared{c.ID, c.Statement, c.CheckID, c.JobID})
	}
	return out
}

// Binding returns b as the service's own.
func (b ClaimBinding) Binding() daemon.ClaimBinding {
	out := daemon.ClaimBinding{RepositoryID: b.RepositoryID, RunID: b.RunID, ClaimID: b.ClaimID, Seal: b.Seal}
	if b.Declares {
		out.Declared = []claim.Claim{}
		for _, c := range b.Declared {
			out.Declared = append(out.Declared, claim.Claim{ID: c.ID, Statement: c.Statement, CheckID: c.CheckID, JobID: c.JobID})
		}
	}
	return out
}

// Ledger answers BindClaim: the run's claim ledger as it is kept.
type Ledger struct {
	Ledger []byte `json:"ledger"`
}

// ClosureDigest asks for Closure.
type ClosureDigest struct {
	SHA256 string `json:"sha256"`
}

// ClosureKnown answers Closure: the parts of a closure and the lines of its
// definition's files. Known is false where the store does not know it.
type ClosureKnown struct {
	Known bool                    `json:"known"`
	Parts []allowlist.ClosurePart `json:"parts" nullable:"false"`
	Files []byte                  `json:"files"`
}

// RequestID asks CancelRequest and RequestState.
type RequestID struct {
	RequestID string `json:"request_id"`
}

// Taking asks TakeRequest.
type Taking struct {
	RequestID string `json:"request_id"`
	UID       uint32 `json:"uid"`
}

// Ending asks EndRequest.
type Ending struct {
	RequestID string            `json:"request_id"`
	End       daemon.RequestEnd `json:"end"`
}
