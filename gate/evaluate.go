package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"striatum/claim"
	"striatum/receipt"
	"striatum/seal"
)

// Evaluate judges every required claim of in. The report depends on nothing
// else, and not on the order of the input's lists.
func Evaluate(in Input) Report {
	r := Report{
		SchemaVersion: SchemaVersion,
		RepositoryID:  in.RepositoryID,
		RunID:         in.RunID,
		Store:         in.Store,
		Tree:          in.Tree,
		Floor:         in.floor(),
		LedgerSeal:    in.Ledger.Seal(),
		Claims:        []Claim{},
		Undeclared:    []Undeclared{},
	}
	if r.Store.Class != seal.ClassIsolated {
		r.Store.Class = seal.ClassShared
	}
	if in.Policy != nil {
		r.PolicySHA256 = in.Policy.Digest
	}
	required := requirements(in.Required)
	h := newHistory(&in)
	drift := in.drift()
	attested := in.attestations()
	lanes := 0 // claims that rest on an isolated lane
	shared := r.Store.Class != seal.ClassIsolated
	known := make(map[string]bool, len(required))
	for i, req := range required {
		known[req.ClaimID] = true
		j := judge{in: &in, history: h, req: req, floor: r.Floor, drift: drift, attested: attested}
		j.ambiguous = i > 0 && required[i-1].ClaimID == req.ClaimID ||
			i+1 < len(required) && required[i+1].ClaimID == req.ClaimID
		c := j.claim()
		if c.Receipt != "" {
			r.Checked++
			if j.laneIsolated {
				lanes++
			} else {
				shared = true
			}
		}
		r.Claims = append(r.Claims, c)
	}
	for _, c := range in.Ledger.Claims() {
		if !known[c.ID] {
			r.Undeclared = append(r.Undeclared, Undeclared{ID: c.ID, Statement: c.Statement, Authored: c.Status, Author: c.Author})
		}
	}
	r.conclude(!shared && lanes > 0)
	return r
}

// requirements returns the list ascending by claim, without repetitions. One
// claim with two checks stays there twice.
func requirements(list []Requirement) []Requirement {
	sorted := slices.Clone(list)
	for i := range sorted {
		names := slices.Clone(sorted[i].AllowSkips.Names)
		slices.Sort(names)
		sorted[i].AllowSkips.Names = slices.Compact(names)
	}
	compare := func(a, b Requirement) int {
		return cmp.Or(
			strings.Compare(a.ClaimID, b.ClaimID), strings.Compare(a.CheckID, b.CheckID),
			strings.Compare(a.CheckDigest, b.CheckDigest), strings.Compare(a.ProtectedCommit, b.ProtectedCommit),
			strings.Compare(a.Statement, b.Statement),
			compareBool(a.Builtin, b.Builtin), compareBool(a.WeakerThanBuiltin, b.WeakerThanBuiltin),
			compareBool(a.Pinned, b.Pinned), compareBool(a.AllowSkips.Any, b.AllowSkips.Any),
			slices.Compare(a.AllowSkips.Names, b.AllowSkips.Names))
	}
	slices.SortFunc(sorted, compare)
	return slices.CompactFunc(sorted, func(a, b Requirement) bool { return compare(a, b) == 0 })
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// drift names the policy's files that differ in the judged tree, ascending.
func (in *Input) drift() []string {
	if in.Policy == nil || in.Tree.SHA256 == "" {
		return nil
	}
	var paths []string
	for path, digest := range in.Policy.Files {
		if in.TreeFiles[path] != digest {
			paths = append(paths, path)
		}
	}
	for path := range in.TreeFiles {
		if _, ok := in.Policy.Files[path]; !ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// maxFindings is how many findings of a claim's receipt a report repeats.
const maxFindings = 10

// judge gathers the bases of one claim.
type judge struct {
	in        *Input
	history   *history
	req       Requirement
	ambiguous bool // the claim is required twice, differently
	floor     claim.Status
	drift     []string
	attested  map[bytesKey]Code

	authored     claim.Claim
	found        bool // the ledger has the claim
	bases        []Basis
	hidden       bool // evidence exists that cannot be seen
	laneIsolated bool
	laneLowered  string // what a probe found of a lane that else is isolated
	laneReached  *Span  // that the receipt lies in, where nothing else is against the lane
}

// add notes a failed condition. The sentence is built by fmt.Sprintf.
func (j *judge) add(code Code, fix, format string, args ...any) {
	sentence := format
	if len(args) > 0 {
		sentence = fmt.Sprintf(format, args...)
	}
	effect := code.effect()
	if j.in.RequireIsolated && (code == LaneNotIsolated || code == StoreNotIsolated) {
		effect = Missing
	}
	j.bases = append(j.bases, Basis{Code: code, Effect: effect, Sentence: sentence, Fix: fix})
}

// claim judges j.req.
func (j *judge) claim() Claim {
	j.authored, j.found = j.in.Ledger.Find(j.req.ClaimID)
	c := Claim{
		ID: j.req.ClaimID, Statement: j.req.Statement, CheckID: j.req.CheckID,
		Authored: claim.Designed, Rung: RungNone, SkipsAllowed: j.skipsAllowed(),
		Findings: receipt.CountFindings(nil, 0),
	}
	if j.found {
		c.Authored, c.Author = j.authored.Status, j.authored.Author
	}
	key := inputKey{j.req.CheckDigest, j.in.Tree.SHA256}
	verified := j.evidence()
	var body *receipt.Receipt
	if verified != nil {
		r := verified.Receipt()
		body = &r
		key = keyOf(body)
		c.Receipt, c.EnvelopeSHA256, c.LaneID = verified.Seal(), verified.EnvelopeSHA256(), verified.Key().LaneID
		if m := r.Mutants; m != nil {
			c.Mutants = &Mutants{m.Killed, m.Survived, m.Statements, m.Reached}
		}
		if p := r.Inputs.Protected; p != nil {
			c.Protected = &Protected{p.Commit, p.Files, p.Restored.Count, p.Added.Count, p.Removed.Count, p.TreeSHA256}
		}
		if r.Census != nil {
			c.Skipped = r.Census.Skipped
		}
		c.Findings = receipt.CountFindings(r.Findings, maxFindings)
		for i := range c.Findings.Details {
			d := &c.Findings.Details[i]
			d.Path, d.Detail = clip(d.Path), clip(d.Detail)
		}
	}
	j.conditions(verified, body, key)
	attempted, tree := "the receipt's tree", key
	if j.judged() {
		attempted, tree = "this tree", inputKey{j.req.CheckDigest, j.in.Tree.SHA256}
	}
	if a := j.history.attempts[tree]; a != nil {
		c.Attempts = *a
	}
	c.Rung = j.rung(body)
	c.Effective = min(c.Authored, j.earned())
	j.askAuthor(c)
	slices.SortStableFunc(j.bases, func(a, b Basis) int { return cmp.Compare(a.rank(), b.rank()) })
	c.Bases = append([]Basis{}, j.bases...)
	c.Signal = j.signal(c.Effective)
	c.Says = c.says(body, attempted, j.req.Scope)
	return c
}

// earned is what the bases leave.
func (j *judge) earned() claim.Status {
	earned := claim.Verified
	for _, b := range j.bases {
		switch b.Effect {
		case Against:
			return claim.Designed
		case Missing, Cap:
			earned = claim.Asserted
		}
	}
	if j.hidden {
		return claim.Designed
	}
	return earned
}

// askAuthor names the author where nothing else keeps the claim below the
// floor.
func (j *judge) askAuthor(c Claim) {
	if c.Authored >= j.floor || c.Authored >= j.earned() {
		return
	}
	for _, b := range j.bases {
		if b.Effect != Cap {
			return
		}
	}
	j.add(AuthoredBelowFloor, j.verify(), "%s set the claim to %s, below the floor %s", quoteOr(c.Author, "its author"), c.Authored, j.floor)
}

func (j *judge) signal(effective claim.Status) Signal {
	signal := Green
	if effective < j.floor {
		signal = Amber
	}
	for _, b := range j.bases {
		switch b.Effect {
		case Against:
			return Red
		case Missing:
			signal = Amber
		case Cap:
		}
	}
	return signal
}

func (j *judge) rung(r *receipt.Receipt) Rung {
	builtin := j.req.Builtin
	if r != nil {
		builtin = builtin || r.Check.Kind == receipt.Builtin
	}
	switch {
	case builtin || j.req.CheckID == "":
		return RungNone
	case r != nil && j.attestation(r) == "":
		return RungAttested
	case r != nil || j.req.Pinned:
		return RungPinnedUnattested
	}
	return RungNamedUnpinned
}

// attestation says whether an operator's word covers the receipt's bytes: the
// empty code, or why not.
func (j *judge) attestation(r *receipt.Receipt) Code {
	closure := closureOf(r)
	if code, ok := j.attested[bytesKey{r.Check.Digest, closure}]; ok && closure != "" {
		return code
	}
	return AttestationMissing
}

// otherBytes reports whether an attestation that stands is about other bytes of the
// receipt's check.
func (j *judge) otherBytes(r *receipt.Receipt) bool {
	_, ok := j.attested[bytesKey{check: r.Check.Digest}]
	return ok
}

func (j *judge) skipsAllowed() SkipsAllowed {
	switch {
	case j.req.AllowSkips.Any:
		return SkipsAny
	case len(j.req.AllowSkips.Names) > 0:
		return SkipsListed
	}
	return SkipsNone
}

func quoteOr(s, other string) string {
	if s == "" {
		return other
	}
	return fmt.Sprintf("%q", s)
}
