package gate

import (
	"fmt"
	"strings"

	"striatum/claim"
	"striatum/receipt"
	"striatum/seal"
)

// SchemaVersion marks an encoded report of this format.
const SchemaVersion = "striatum.gate_report.v1"

// NothingWasChecked is the verdict of a report that rests on no receipt.
const NothingWasChecked = "nothing was checked"

// Signal is the light that a claim shows. The zero Signal is not green.
type Signal string

// The signals, worst first.
const (
	Red   Signal = "red"
	Amber Signal = "amber"
	Green Signal = "green"
)

// Rung says how far the trust in a check's bytes got. Plain builtins stay at
// RungNone: their bytes are not pinned.
type Rung string

// The rungs, lowest first.
const (
	RungNone             Rung = "none"
	RungNamedUnpinned    Rung = "named_unpinned"
	RungPinnedUnattested Rung = "pinned_unattested"
	RungAttested         Rung = "attested"
)

// Report is a judgement. Claims are ascending by id.
type Report struct {
	SchemaVersion string       `json:"schema_version"`
	RepositoryID  string       `json:"repository_id"`
	RunID         string       `json:"run_id"`
	Store         Store        `json:"store"`
	Trust         seal.Class   `json:"trust"`
	Tree          Tree         `json:"tree"`
	Floor         claim.Status `json:"floor"`
	PolicySHA256  string       `json:"policy_sha256"` // empty: none accepted
	LedgerSeal    string       `json:"ledger_seal"`   // empty: no ledger
	Signal        Signal       `json:"signal"`
	Verdict       string       `json:"verdict"`
	Checked       int          `json:"checked"` // claims whose receipt could be opened
	Claims        []Claim      `json:"claims"`
	Undeclared    []Undeclared `json:"undeclared"`
}

// Claim is the judgement of one required claim. Receipt and EnvelopeSHA256
// identify the receipt that was opened for it, if any; Skipped counts the
// skipped tests in it, Findings what its check left out or rests on.
type Claim struct {
	ID             string       `json:"id"`
	Statement      string       `json:"statement"`
	CheckID        string       `json:"check_id"`
	Authored       claim.Status `json:"authored_status"`
	Author         string       `json:"author"`
	Effective      claim.Status `json:"effective_status"`
	Rung           Rung         `json:"rung"`
	Signal         Signal       `json:"signal"`
	Says           string       `json:"says"`
	Bases          []Basis      `json:"bases"`
	Receipt        string       `json:"receipt"`
	EnvelopeSHA256 string       `json:"envelope_sha256"`
	LaneID         string       `json:"lane_id"`
	Attempts       Attempts     `json:"attempts"`
	Skipped        int64        `json:"skipped"`
	SkipsAllowed   SkipsAllowed `json:"skips_allowed"`
	Mutants        *Mutants     `json:"mutants,omitempty"`
	Protected      *Protected   `json:"protected,omitempty"`

	Findings receipt.Findings `json:"findings"`
}

// Mutants says how many defects planted in the product the tests noticed. Absent:
// the check plants none. Statements and Reached are those of the receipt.
type Mutants struct {
	Killed     int64 `json:"killed"`
	Survived   int64 `json:"survived"`
	Statements int64 `json:"statements"`
	Reached    int64 `json:"reached"`
}

// Protected says that the check ran on the tree TreeSHA256: the receipt's tree with
// files of a commit in place of its own. Absent: it ran on the receipt's tree.
type Protected struct {
	Commit     string `json:"commit"`
	Files      int64  `json:"files"`
	Restored   int64  `json:"restored"`
	Added      int64  `json:"added"`
	Removed    int64  `json:"removed"`
	TreeSHA256 string `json:"tree_sha256"`
}

// SkipsAllowed says by what rule skipped tests may be green.
type SkipsAllowed string

// The rules for skipped tests.
const (
	SkipsNone   SkipsAllowed = "none"
	SkipsListed SkipsAllowed = "listed"
	SkipsAny    SkipsAllowed = "any"
)

// Attempts counts what was started for a check on the judged tree or, where none
// is judged, on the receipt's tree, in all runs: Made in total, of which Failed failed, Inconclusive were void or indeterminate, and
// Unsealed have no receipt, be they running or lost.
type Attempts struct {
	Made         int64 `json:"made"`
	Failed       int64 `json:"failed"`
	Inconclusive int64 `json:"inconclusive"`
	Unsealed     int64 `json:"unsealed"`
}

// on returns it as a phrase: "2 attempts on this tree, 1 failed".
func (a Attempts) on(tree string) string {
	if a.Made == 0 {
		return "no attempt of the required check on " + tree
	}
	s := plural(a.Made, "attempt") + " on " + tree
	if a.Failed > 0 {
		s += fmt.Sprintf(", %d failed", a.Failed)
	}
	if a.Inconclusive > 0 {
		s += fmt.Sprintf(", %d inconclusive", a.Inconclusive)
	}
	if a.Unsealed > 0 {
		s += fmt.Sprintf(", %d without a receipt", a.Unsealed)
	}
	return s
}

// Undeclared is a claim of the ledger that is not required. It never counts.
type Undeclared struct {
	ID        string       `json:"id"`
	Statement string       `json:"statement"`
	Authored  claim.Status `json:"authored_status"`
	Author    string       `json:"author"`
}

// Green reports whether there is a required claim and every one is green.
func (r Report) Green() bool {
	for _, c := range r.Claims {
		if c.Signal != Green {
			return false
		}
	}
	return len(r.Claims) > 0
}

// NothingChecked reports whether no required claim rests on a receipt that
// could be opened.
func (r Report) NothingChecked() bool { return r.Checked == 0 }

// Encode returns the canonical bytes of r, a report that Evaluate made.
func (r Report) Encode() ([]byte, error) {
	data, err := seal.Canonical(r)
	if err != nil {
		return nil, fmt.Errorf("encode gate report: %w", err)
	}
	return data, nil
}

// conclude fills what follows from the claims: signal, verdict and trust.
func (r *Report) conclude(isolated bool) {
	greens := 0
	r.Signal = Green
	for _, c := range r.Claims {
		switch c.Signal {
		case Red:
			r.Signal = Red
		case Amber:
			if r.Signal == Green {
				r.Signal = Amber
			}
		case Green:
			greens++
		}
	}
	if greens == 0 && r.Signal == Green {
		r.Signal = Amber
	}
	r.Trust = seal.ClassShared
	if isolated {
		r.Trust = seal.ClassIsolated
	}
	switch {
	case r.NothingChecked():
		r.Verdict = NothingWasChecked
	default:
		r.Verdict = fmt.Sprintf("%d of %s green at the floor %s", greens, plural(int64(len(r.Claims)), "claim"), r.Floor)
	}
}

// says is the one sentence that stands beside the signal. attempted names the
// tree of the attempts.
func (c *Claim) says(r *receipt.Receipt, attempted, scope string) string {
	var parts []string
	switch {
	case r == nil:
		parts = append(parts, "not checked")
	case c.Signal == Green:
		parts = append(parts, fmt.Sprintf("%s: passed twice after its negative control failed", c.Effective))
	default:
		parts = append(parts, fmt.Sprintf("its receipt is %s", r.Classification))
	}
	if r != nil && scope != "" {
		parts = append(parts, "speaks for "+scope+" alone")
	}
	if r != nil || c.Attempts.Made > 0 {
		parts = append(parts, c.Attempts.on(attempted))
	}
	if c.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%s skipped, allowed: %s", plural(c.Skipped, "test"), c.SkipsAllowed))
	}
	if m := c.Mutants; m != nil {
		parts = append(parts, fmt.Sprintf("%d of %s killed, in %s", m.Killed, plural(m.Killed+m.Survived, "mutant"), plural(m.Statements, "statement")))
	}
	if r != nil && r.Inputs.Protected != nil {
		parts = append(parts, r.Inputs.Protected.String())
	}
	if c.Findings.Count > 0 {
		parts = append(parts, c.Findings.String())
	}
	return strings.Join(parts, "; ")
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
