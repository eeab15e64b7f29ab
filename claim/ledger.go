package claim

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"striatum/receipt"
	"striatum/seal"
)

// SchemaVersion marks a ledger of this format.
const SchemaVersion = "striatum.claim_ledger.v1"

// The bounds of a ledger. MaxBytes is what Parse reads at most; the others
// count claims and the bytes of one statement.
const (
	MaxClaims         = 50_000
	MaxBytes          = 64 << 20
	MaxStatementBytes = 2000
)

// NoSeal stands for "nothing before" in a chain of seals.
const NoSeal = "0000000000000000000000000000000000000000000000000000000000000000"

// ErrInvalid is wrapped by every error about a ledger, claim or id that breaks
// the format.
var ErrInvalid = errors.New("invalid claim ledger")

// Claim is one sentence about the work, as authored.
//
// ReceiptRef, BoundInputDigest, EvidenceDigest and EvidenceClass are set
// together, by a lane, or all empty. JobID is the workflow's job that may
// publish the claim; empty means no session may. Author is "kind:name", or the
// kind alone, of the principal that last changed the claim; "workflow" if none
// did since the workflow declared it.
type Claim struct {
	ID               string                 `json:"id"`
	Statement        string                 `json:"statement"`
	Status           Status                 `json:"status"`
	CheckID          string                 `json:"check_id"`
	JobID            string                 `json:"job_id"`
	ReceiptRef       string                 `json:"receipt_ref"`
	BoundInputDigest string                 `json:"bound_input_digest"`
	EvidenceDigest   string                 `json:"evidence_digest"`
	EvidenceClass    receipt.Classification `json:"evidence_classification"`
	Author           string                 `json:"author"`
	Undeclared       bool                   `json:"undeclared"`
}

// Ledger is a sealed, valid list of claims; it cannot be changed. The zero
// Ledger stands for "there is none".
type Ledger struct {
	doc     document
	encoded []byte
}

type document struct {
	SchemaVersion string  `json:"schema_version"`
	RepositoryID  string  `json:"repository_id"`
	RunID         string  `json:"run_id"`
	Claims        []Claim `json:"claims"`
	LedgerSeal    string  `json:"ledger_seal,omitempty"`
	PrevSeal      string  `json:"prev_ledger_seal"`
}

var (
	idPattern     = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9._:+/@][A-Za-z0-9._:+/@-]*$`)
	authorPattern = regexp.MustCompile(`^(workflow|session|lane|local|operator)(:[A-Za-z0-9._:+/@][A-Za-z0-9._:+/@-]*)?$`)
)

const maxNameBytes = 200

// validName reports whether s may name something. Its length is not the pattern's:
// counting there costs every start of the program some milliseconds.
func validName(s string) bool { return len(s) <= maxNameBytes && namePattern.MatchString(s) }

func validAuthor(s string) bool {
	_, name, _ := strings.Cut(s, ":")
	return len(name) <= maxNameBytes && authorPattern.MatchString(s)
}

// New returns the first ledger of a chain. Claims enter as DESIGNED: of each
// only ID, Statement, CheckID and JobID are taken, and one that comes with a
// higher status or with evidence is refused with ErrAboveEvidence. runID is
// empty outside any run.
func New(repositoryID, runID string, claims []Claim) (Ledger, error) {
	before := Ledger{doc: document{
		SchemaVersion: SchemaVersion, RepositoryID: repositoryID, RunID: runID, LedgerSeal: NoSeal,
	}}
	return before.Declare(claims)
}

// Parse reads a ledger, checks its form and recomputes its seal. The error
// wraps ErrInvalid.
func Parse(data []byte) (Ledger, error) {
	var doc document
	if err := seal.Decode(data, &doc, seal.Limits{Bytes: MaxBytes, Depth: 4}); err != nil {
		return Ledger{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := doc.validate(); err != nil {
		return Ledger{}, err
	}
	l, err := sealed(doc)
	if err != nil {
		return Ledger{}, err
	}
	if l.doc.LedgerSeal != doc.LedgerSeal {
		return Ledger{}, fmt.Errorf("%w: its content has the seal %s, not %q", ErrInvalid, l.doc.LedgerSeal, clip(doc.LedgerSeal))
	}
	if !bytes.Equal(l.encoded, data) {
		return Ledger{}, fmt.Errorf("%w: it is not in canonical form (RFC 8785)", ErrInvalid)
	}
	return l, nil
}

// sealed computes the seal of doc, which is valid apart from it.
func sealed(doc document) (Ledger, error) {
	doc.LedgerSeal = ""
	body, err := seal.Canonical(doc)
	if err != nil {
		return Ledger{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	doc.LedgerSeal = seal.SHA256Hex(body)
	// Canonical order puts ledger_seal between "claims" and
	// "prev_ledger_seal", and claims hold no such member on the top level.
	marker := []byte(`,"prev_ledger_seal":`)
	at := bytes.LastIndex(body, marker)
	encoded := slices.Concat(body[:at], []byte(`,"ledger_seal":"`+doc.LedgerSeal+`"`), body[at:])
	return Ledger{doc: doc, encoded: encoded}, nil
}

// IsZero reports whether l is the zero Ledger: no ledger at all.
func (l Ledger) IsZero() bool { return l.encoded == nil }

// Encode returns a copy of the document's canonical bytes; Parse accepts
// exactly those. The zero Ledger has none.
func (l Ledger) Encode() []byte { return bytes.Clone(l.encoded) }

// RepositoryID returns the repository that the ledger is about.
func (l Ledger) RepositoryID() string { return l.doc.RepositoryID }

// RunID returns the run that the ledger is about; empty outside any run.
func (l Ledger) RunID() string { return l.doc.RunID }

// Seal returns the ledger's seal, empty for the zero Ledger.
func (l Ledger) Seal() string { return l.doc.LedgerSeal }

// PrevSeal returns the seal of the ledger that this one follows, NoSeal for
// the first of a chain.
func (l Ledger) PrevSeal() string { return l.doc.PrevSeal }

// Len returns the number of claims.
func (l Ledger) Len() int { return len(l.doc.Claims) }

// Claims returns a copy of the claims, ascending by id.
func (l Ledger) Claims() []Claim { return slices.Clone(l.doc.Claims) }

// Find returns the claim with the given id.
func (l Ledger) Find(id string) (Claim, bool) {
	i, ok := find(l.doc.Claims, id)
	if !ok {
		return Claim{}, false
	}
	return l.doc.Claims[i], true
}

func find(claims []Claim, id string) (int, bool) {
	return slices.BinarySearchFunc(claims, id, func(c Claim, id string) int { return strings.Compare(c.ID, id) })
}

func (d document) validate() error {
	if d.SchemaVersion != SchemaVersion {
		return fmt.Errorf("%w: schema_version is %q, want %q", ErrInvalid, clip(d.SchemaVersion), SchemaVersion)
	}
	if !validName(d.RepositoryID) {
		return fmt.Errorf("%w: repository_id %q is not a name", ErrInvalid, clip(d.RepositoryID))
	}
	if d.RunID != "" && !validName(d.RunID) {
		return fmt.Errorf("%w: run_id %q is not a name", ErrInvalid, clip(d.RunID))
	}
	if !seal.ValidDigest(d.PrevSeal) {
		return fmt.Errorf("%w: prev_ledger_seal %q is not a digest", ErrInvalid, clip(d.PrevSeal))
	}
	if len(d.Claims) > MaxClaims {
		return fmt.Errorf("%w: %d claims are more than the limit of %d", ErrInvalid, len(d.Claims), MaxClaims)
	}
	for i, c := range d.Claims {
		if err := c.validate(); err != nil {
			return fmt.Errorf("%w: /claims/%d: %w", ErrInvalid, i, err)
		}
		if i > 0 && d.Claims[i-1].ID >= c.ID {
			return fmt.Errorf("%w: /claims/%d: id %q is twice there or out of order", ErrInvalid, i, c.ID)
		}
	}
	return nil
}

func (c Claim) validate() error {
	switch {
	case !idPattern.MatchString(c.ID):
		return fmt.Errorf("id %q is not of the form %s", clip(c.ID), idPattern)
	case c.CheckID != "" && !validName(c.CheckID):
		return fmt.Errorf("check_id %q is not a name", clip(c.CheckID))
	case c.JobID != "" && !validName(c.JobID):
		return fmt.Errorf("job_id %q is not a name", clip(c.JobID))
	case !c.Status.Valid():
		return errors.New("it has no status")
	case !validAuthor(c.Author):
		return fmt.Errorf("author %q is not a principal", clip(c.Author))
	}
	if err := checkStatement(c.Statement); err != nil {
		return err
	}
	return c.validateEvidence()
}

func (c Claim) validateEvidence() error {
	if c.ReceiptRef == "" {
		if c.BoundInputDigest != "" || c.EvidenceDigest != "" || c.EvidenceClass != "" {
			return errors.New("it is bound to evidence but names no receipt")
		}
		if c.Status == Verified {
			return errors.New("it is VERIFIED without a receipt")
		}
		return nil
	}
	if !seal.ValidDigest(c.ReceiptRef) || !seal.ValidDigest(c.EvidenceDigest) {
		return errors.New("receipt_ref or evidence_digest is not a digest")
	}
	if c.BoundInputDigest != "" && !seal.ValidDigest(c.BoundInputDigest) {
		return errors.New("bound_input_digest is not a digest")
	}
	most, ok := supports(c.EvidenceClass)
	if !ok {
		return fmt.Errorf("evidence_classification %q is not known", clip(string(c.EvidenceClass)))
	}
	if c.Status > most {
		return fmt.Errorf("status %s is above its evidence, which is %s", c.Status, c.EvidenceClass)
	}
	return nil
}

// checkStatement keeps statements to one printable line, since they are shown
// on terminals.
func checkStatement(s string) error {
	if s == "" || len(s) > MaxStatementBytes {
		return fmt.Errorf("statement has %d bytes, want 1 to %d", len(s), MaxStatementBytes)
	}
	if !utf8.ValidString(s) {
		return errors.New("statement is not valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return fmt.Errorf("statement holds the control character %U", r)
		}
	}
	return nil
}
