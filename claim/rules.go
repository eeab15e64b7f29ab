package claim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"striatum/receipt"
)

// Errors of the writer's rules; each error of Apply and Declare wraps one of
// them or ErrInvalid.
var (
	// ErrNotAllowed: this writer may not make this change.
	ErrNotAllowed = errors.New("not allowed to write this claim")
	// ErrAboveEvidence: the status is higher than what stands behind it.
	ErrAboveEvidence = errors.New("status is above its evidence")
	// ErrWrongReceipt: the receipt is about another claim, check or repository.
	ErrWrongReceipt = errors.New("receipt does not belong to this claim")
)

// Principal is the kind of a writer. The zero Principal may write nothing.
type Principal uint8

// The principals that write claims.
const (
	_ Principal = iota
	Session
	Lane
	Local
	Operator
)

// String returns the name that an author begins with.
func (p Principal) String() string {
	switch p {
	case Session:
		return "session"
	case Lane:
		return "lane"
	case Local:
		return "local"
	case Operator:
		return "operator"
	}
	return "none"
}

// Writer is who changes a ledger. Name is the session's, lane's or operator's
// own (a lane's is its lane id) and may be empty for Local. Jobs are those that
// a session holds.
type Writer struct {
	Principal Principal
	Name      string
	Jobs      []string
}

func (w Writer) author() string {
	if w.Name == "" {
		return w.Principal.String()
	}
	return w.Principal.String() + ":" + w.Name
}

func (w Writer) validate() error {
	switch w.Principal {
	case Session, Lane, Operator:
		if !validName(w.Name) {
			return fmt.Errorf("%w: a %s needs a name, and %q is none", ErrNotAllowed, w.Principal, clip(w.Name))
		}
		return nil
	case Local:
		if w.Name != "" && !validName(w.Name) {
			return fmt.Errorf("%w: %q is not a name", ErrNotAllowed, clip(w.Name))
		}
		return nil
	}
	return fmt.Errorf("%w: the writer has no principal", ErrNotAllowed)
}

// Update is one change. A lane's carries the Receipt and leaves Status zero:
// the receipt decides. Any other writer's carries a Status and no Receipt.
// Statement and JobID are only for a claim that the ledger does not know yet.
type Update struct {
	ClaimID   string
	Status    Status
	Receipt   *receipt.Verified
	Statement string
	JobID     string
}

// supports returns the highest status that may stand over a bound receipt of
// class c. An indeterminate one said nothing, so it takes nothing away.
func supports(c receipt.Classification) (Status, bool) {
	switch c {
	case receipt.Failed, receipt.Void:
		return Designed, true
	case receipt.Asserted:
		return Asserted, true
	case receipt.VerifiedEligible, receipt.Indeterminate:
		return Verified, true
	}
	return 0, false
}

// Declare adds the claims of a workflow that the ledger lacks, as DESIGNED. A
// known claim whose statement or check differs from what is declared is
// another claim now: its evidence is dropped and it is DESIGNED again. Claims
// that are no longer declared stay, marked undeclared. Of each given claim
// only ID, Statement, CheckID and JobID count; a higher status or evidence in
// it is ErrAboveEvidence.
func (l Ledger) Declare(claims []Claim) (Ledger, error) {
	next := slices.Clone(l.doc.Claims)
	for i := range next {
		next[i].Undeclared = true
	}
	declared := make(map[string]bool, len(claims))
	var added []Claim
	for _, c := range claims {
		if declared[c.ID] {
			return Ledger{}, fmt.Errorf("%w: claim %q is declared twice", ErrInvalid, clip(c.ID))
		}
		declared[c.ID] = true
		if c.Status > Designed || c.ReceiptRef != "" || c.EvidenceDigest != "" {
			return Ledger{}, fmt.Errorf("%w: declared claim %q must enter as DESIGNED, without evidence", ErrAboveEvidence, clip(c.ID))
		}
		fresh := Claim{
			ID: c.ID, Statement: c.Statement, CheckID: c.CheckID, JobID: c.JobID,
			Status: Designed, Author: "workflow",
		}
		i, known := find(next, c.ID)
		switch {
		case !known:
			added = append(added, fresh)
		case next[i].Statement != c.Statement || next[i].CheckID != c.CheckID:
			next[i] = fresh
		default:
			next[i].JobID = c.JobID
			next[i].Undeclared = false
		}
	}
	return l.succeed(merge(next, added))
}

// Apply makes all of ups, or none: the first that breaks a rule is the error.
// Several updates of one claim are made in order.
func (l Ledger) Apply(w Writer, ups []Update) (Ledger, error) {
	if l.IsZero() {
		return Ledger{}, fmt.Errorf("%w: there is no ledger to change", ErrInvalid)
	}
	if err := w.validate(); err != nil {
		return Ledger{}, err
	}
	next := slices.Clone(l.doc.Claims)
	for _, u := range ups {
		i, known := find(next, u.ClaimID)
		c := Claim{ID: u.ClaimID, Statement: u.Statement, JobID: u.JobID, Status: Designed, Undeclared: true}
		if known {
			c = next[i]
		}
		changed, err := w.change(l, c, known, u)
		if err != nil {
			return Ledger{}, fmt.Errorf("write claim %q: %w", clip(u.ClaimID), err)
		}
		if known {
			next[i] = changed
		} else {
			next = slices.Insert(next, i, changed)
		}
	}
	return l.succeed(next)
}

// change returns c as u makes it.
func (w Writer) change(l Ledger, c Claim, known bool, u Update) (Claim, error) {
	if known && (u.Statement != "" && u.Statement != c.Statement || u.JobID != "" && u.JobID != c.JobID) {
		return c, fmt.Errorf("%w: an update cannot change its statement or its job", ErrNotAllowed)
	}
	before := c
	switch w.Principal {
	case Lane:
		if !known {
			return c, fmt.Errorf("%w: a lane adds no claims", ErrNotAllowed)
		}
		if err := w.bind(l, &c, u); err != nil {
			return c, err
		}
	case Session:
		if c.JobID == "" || !slices.Contains(w.Jobs, c.JobID) {
			return c, fmt.Errorf("%w: session %q does not hold its job %q", ErrNotAllowed, w.Name, clip(c.JobID))
		}
		if err := state(&c, u); err != nil {
			return c, err
		}
	case Local, Operator:
		if err := state(&c, u); err != nil {
			return c, err
		}
	}
	if !known || c != before {
		c.Author = w.author()
	}
	return c, nil
}

// state sets a status that somebody states.
func state(c *Claim, u Update) error {
	if u.Receipt != nil {
		return fmt.Errorf("%w: only a lane binds a receipt", ErrNotAllowed)
	}
	if !u.Status.Valid() {
		return fmt.Errorf("%w: the update has no status", ErrInvalid)
	}
	if u.Status == Verified {
		return fmt.Errorf("%w: only a lane's receipt makes a claim VERIFIED", ErrAboveEvidence)
	}
	if c.ReceiptRef != "" && u.Status > c.Status {
		if most, _ := supports(c.EvidenceClass); u.Status > most {
			return fmt.Errorf("%w: its receipt %s is %s", ErrAboveEvidence, c.ReceiptRef, c.EvidenceClass)
		}
	}
	c.Status = u.Status
	return nil
}

// bind sets the evidence of c to the receipt and its status to what that gives.
func (w Writer) bind(l Ledger, c *Claim, u Update) error {
	if u.Receipt == nil {
		return fmt.Errorf("%w: a lane writes with a receipt", ErrNotAllowed)
	}
	r := u.Receipt.Receipt()
	switch {
	case u.Receipt.Key().LaneID != w.Name:
		return fmt.Errorf("%w: lane %q did not sign it", ErrNotAllowed, w.Name)
	case r.RepositoryID != l.doc.RepositoryID:
		return fmt.Errorf("%w: it is of the repository %q", ErrWrongReceipt, clip(r.RepositoryID))
	case r.Check.BacksClaim != c.ID:
		return fmt.Errorf("%w: its check backs %q", ErrWrongReceipt, clip(r.Check.BacksClaim))
	case r.Check.ID != c.CheckID:
		return fmt.Errorf("%w: it is of the check %q, and the claim rests on %q", ErrWrongReceipt, clip(r.Check.ID), c.CheckID)
	}
	most, ok := supports(r.Classification)
	if !ok {
		return fmt.Errorf("%w: classification %q is not known", ErrWrongReceipt, clip(string(r.Classification)))
	}
	if r.Classification == receipt.Indeterminate {
		most = c.Status
	}
	if u.Status != 0 && u.Status != most {
		return fmt.Errorf("%w: the receipt is %s, which gives %s and not %s", ErrAboveEvidence, r.Classification, most, u.Status)
	}
	c.Status = most
	c.ReceiptRef = u.Receipt.Seal()
	c.EvidenceDigest = u.Receipt.Seal()
	c.BoundInputDigest = r.Inputs.TreeSHA256
	c.EvidenceClass = r.Classification
	return nil
}

// merge returns the sorted union; added has no id of sorted.
func merge(sorted, added []Claim) []Claim {
	all := append(sorted, added...)
	slices.SortFunc(all, func(a, b Claim) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// succeed returns the ledger that follows l with the given claims, or l itself
// if nothing differs.
func (l Ledger) succeed(claims []Claim) (Ledger, error) {
	if !l.IsZero() && slices.Equal(l.doc.Claims, claims) {
		return l, nil
	}
	doc := l.doc
	doc.Claims = claims
	doc.PrevSeal = l.doc.LedgerSeal
	if err := doc.validate(); err != nil {
		return Ledger{}, err
	}
	return sealed(doc)
}
