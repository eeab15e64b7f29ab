package gate

import (
	"strings"

	"striatum/allowlist"
	"striatum/receipt"
	"striatum/seal"
)

// conditions asks the thirteen conditions in their order. Without an opened
// receipt only those are asked that do not read it.
func (j *judge) conditions(v *receipt.Verified, r *receipt.Receipt, key inputKey) {
	if v == nil {
		j.askTree()
		j.askPolicy()
		if j.req.Builtin {
			j.capBuiltin()
		}
		j.askUnsealed(key)
		if failed := j.history.failureOf(key); failed != "" {
			j.contradict(failed)
		}
		j.askStore()
		return
	}
	position := j.in.Evidence[j.req.ClaimID].LogPosition
	j.askNewest(v, key, position)
	j.askSigner(v, r, position)
	j.askBinding(v, r)
	j.askTree()
	j.askSubject(r)
	j.askBacking(r)
	j.askPolicy()
	before := len(j.bases)
	j.askOutcome(r) // before the control's: what fails of itself fails with a defect too
	j.askControl(r)
	j.askMutants(r)
	j.askProtected(r)
	j.askPosture(r)
	j.askClassification(r, len(j.bases) > before)
	j.askBaseline(r)
	j.askTrustInBytes(r)
	j.askHistory(v, r, key)
	switch {
	case j.laneLowered != "":
		j.add(LaneNotIsolated, probeLane, "the newest probe of the lane's host does not find it isolated: %s", quoteOr(clip(j.laneLowered), ""))
	case j.laneReached != nil:
		j.add(LaneNotIsolated, j.verify(), "a probe found that a user reached the lane, and what was logged from entry %d to %d stays shared: the receipt is entry %d", j.laneReached.From, j.laneReached.To-1, position)
	case !j.laneIsolated:
		j.add(LaneNotIsolated, noCommand, "the lane is not known to be isolated: whoever runs a shared lane can read its key; an operator enrols an isolated one with striatumd")
	}
	j.askStore()
}

// evidence is condition 1 and 2: it returns the opened receipt that the claim
// names, or nil and says why not.
func (j *judge) evidence() *receipt.Verified {
	if j.in.Store.Problem != "" {
		j.hidden = true
		j.add(StoreUnavailable, "striatum doctor", "the store could not be read in full: %q", j.in.Store.Problem)
	}
	if !j.found || j.authored.ReceiptRef == "" {
		j.add(NoReceiptRef, j.verify(), "no receipt is bound to the claim: its check has not run")
		return nil
	}
	e := j.in.Evidence[j.req.ClaimID]
	if e.Verified != nil {
		return e.Verified
	}
	ref := j.authored.ReceiptRef
	j.hidden = true
	switch e.Problem {
	case Unparseable:
		j.add(ReceiptUnparseable, j.verify(), "what is stored as receipt %s is not a receipt", ref)
	case SealMismatch:
		j.add(ReceiptSealMismatch, j.verify(), "receipt %s was altered: its content has another seal", ref)
	case SignatureInvalid:
		j.add(InvalidSignature, j.verify(), "the signature of receipt %s does not verify", ref)
	case UnknownLane:
		j.add(LaneUnknown, j.verify(), "receipt %s is signed by a key that is not enrolled", ref)
	case Absent:
		j.add(ReceiptUnavailable, j.verify(), "the store has no receipt %s", ref)
	case Unavailable:
		j.add(ReceiptUnavailable, "striatum doctor", "receipt %s could not be read", ref)
	default:
		j.add(ReceiptUnavailable, "striatum doctor", "receipt %s could not be read, for a reason that is not known", ref)
	}
	return nil
}

// askNewest is the rest of condition 1.
func (j *judge) askNewest(v *receipt.Verified, key inputKey, position int64) {
	n := j.history.newest[key]
	if n.seal != v.Seal() && n.position >= position {
		j.add(SupersededReceipt, j.verify(), "a later receipt of this check on this tree exists: %s", n.seal)
	}
}

// askSigner is condition 3.
func (j *judge) askSigner(v *receipt.Verified, r *receipt.Receipt, position int64) {
	key := v.Key()
	lane, code := j.in.lane(key.Public.ID(), position)
	switch {
	case code == LaneRevoked:
		j.add(LaneRevoked, j.verify(), "the key of lane %q was revoked before the receipt was logged", key.LaneID)
	case code != "":
		j.add(LaneUnknown, j.verify(), "no lane with the key %q was enrolled when the receipt was logged", key.Public.ID())
	case lane.LaneID != r.Lane.LaneID:
		j.add(LaneUnknown, j.verify(), "the receipt names lane %q, and its key is of lane %q", r.Lane.LaneID, lane.LaneID)
	default:
		j.laneIsolated = lane.isolated(position) && key.Class == seal.ClassIsolated
		if lane.Class == seal.ClassIsolated && key.Class == seal.ClassIsolated {
			j.laneLowered, j.laneReached = lane.Lowered, lane.reached(position)
		}
	}
}

// askBinding is condition 4 and the first half of 5.
func (j *judge) askBinding(v *receipt.Verified, r *receipt.Receipt) {
	in := j.in
	if r.RepositoryID != in.RepositoryID || in.Ledger.RepositoryID() != in.RepositoryID {
		j.add(WrongRepository, j.verify(), "the receipt is of repository %q, the ledger of %q, and %q is judged",
			r.RepositoryID, in.Ledger.RepositoryID(), in.RepositoryID)
	}
	if in.Ledger.RunID() != in.RunID || r.RunID != in.RunID && !j.reusable(r) {
		j.add(WrongRun, j.verify(), "the receipt is of %s, the ledger of %s, and %s is judged",
			runName(r.RunID), runName(in.Ledger.RunID()), runName(in.RunID))
	}
	c := j.authored
	switch {
	case c.EvidenceDigest == "" || c.BoundInputDigest == "":
		j.add(ClaimUnbound, j.verify(), "the claim is not bound to the bytes of a receipt and a tree")
	case c.EvidenceDigest != v.Seal() || c.ReceiptRef != v.Seal():
		j.add(EvidenceDigestDecayed, j.verify(), "the claim is bound to evidence %s, and the receipt's seal is %s", c.EvidenceDigest, v.Seal())
	case c.BoundInputDigest != r.Inputs.TreeSHA256:
		j.add(ClaimUnbound, j.verify(), "the claim is bound to tree %s, and the receipt saw %s", c.BoundInputDigest, r.Inputs.TreeSHA256)
	}
}

// reusable says whether the policy lets a receipt of another run count: all its
// inputs that the gate can see must be those of a run now.
func (j *judge) reusable(r *receipt.Receipt) bool {
	p := j.in.Policy
	return p != nil && p.AllowReuse &&
		r.Inputs.TreeSHA256 == j.in.Tree.SHA256 && r.Inputs.TreeSHA256 != "" &&
		r.Check.Digest == j.req.CheckDigest && r.Inputs.PolicySHA256 == p.Digest
}

func runName(id string) string {
	if id == "" {
		return "no run"
	}
	return "run " + quoteOr(id, "")
}

// judged reports whether a tree is being judged at all.
func (j *judge) judged() bool {
	t := j.in.Tree
	commit, ok := strings.CutPrefix(t.Source, "commit:")
	return t.SHA256 != "" && (t.Source == "worktree" || ok && commit != "")
}

// askTree is the part of condition 5 that needs no receipt.
func (j *judge) askTree() {
	switch {
	case !j.judged():
		j.add(TreeNotJudged, j.judgeTree(), "no tree is judged: nothing says which bytes the claim is about")
	case !seal.ValidDigest(j.in.Tree.SHA256):
		j.add(TreeNotComparable, j.judgeTree(), "the judged tree %q is not a SHA-256 tree id", j.in.Tree.SHA256)
	}
}

// askSubject is the rest of condition 5.
func (j *judge) askSubject(r *receipt.Receipt) {
	judged := j.in.Tree.SHA256
	if tree := r.Inputs.TreeSHA256; j.judged() && seal.ValidDigest(judged) && tree != judged {
		j.add(StaleTree, j.verify(), "the receipt is about tree %s, and %s is judged", tree, judged)
	}
}

// askBacking is the first half of condition 6.
func (j *judge) askBacking(r *receipt.Receipt) {
	switch {
	case j.ambiguous:
		j.add(CheckDoesNotBackClaim, "striatum policy show", "the claim is required with two different checks")
	case r.Check.BacksClaim != j.req.ClaimID:
		j.add(CheckDoesNotBackClaim, j.verify(), "the receipt's check backs claim %q", r.Check.BacksClaim)
	case r.Check.ID != j.req.CheckID || j.authored.CheckID != j.req.CheckID:
		j.add(CheckDoesNotBackClaim, j.verify(), "the receipt is of check %q, the ledger names %q, and %q is required",
			r.Check.ID, j.authored.CheckID, j.req.CheckID)
	case r.Check.Digest != j.req.CheckDigest || j.req.CheckDigest == "":
		j.add(CheckDoesNotBackClaim, j.verify(), "the receipt is of another definition of check %q: %s, and %q is required",
			r.Check.ID, r.Check.Digest, j.req.CheckDigest)
	}
}

// askPolicy is the rest of condition 6.
func (j *judge) askPolicy() {
	if j.in.Policy == nil {
		j.add(PolicyNotAccepted, showPolicy, "no operator accepted a policy here: the required claims come from the worktree's own workflow")
		return
	}
	if len(j.drift) > 0 {
		shown := j.drift[:min(len(j.drift), 3)]
		j.add(PolicyDrift, showPolicy, "the judged tree differs from the accepted policy in %s, first %q",
			plural(int64(len(j.drift)), "file"), shown)
	}
}

func (j *judge) capBuiltin() {
	j.add(BuiltinCap, noCommand, "a builtin says who ran the tool, not which bytes it was: it stops at ASSERTED; only a check whose bytes are pinned and attested goes higher")
}

// askTrustInBytes is condition 10 and, for all but plain builtins, 11.
func (j *judge) askTrustInBytes(r *receipt.Receipt) {
	if r.Check.Kind == receipt.Builtin || j.req.Builtin {
		j.capBuiltin()
		return
	}
	if j.req.WeakerThanBuiltin {
		j.add(WeakerThanBuiltin, noCommand, "a builtin+toolchain check covers what this external check does: name that one in the workflow")
	}
	closure := closureOf(r)
	switch j.attestation(r) { //nolint:exhaustive // attestation gives these two or none
	case AttestationMissing:
		why := ""
		if j.otherBytes(r) {
			why = "; other bytes of this check are attested, and these are not those: its tools or its definition changed"
		}
		j.add(AttestationMissing, allowlist.AttestCommand(j.req.CheckID), "no operator attested the bytes %s for this check%s", closure, why)
	case AttestationRevoked:
		j.add(AttestationRevoked, noCommand, "an operator took back the attestation of the bytes %s for this check", closure)
	}
}

// askUnsealed is the part of condition 12 that needs no receipt.
func (j *judge) askUnsealed(keys ...inputKey) {
	for _, k := range keys {
		if list := j.history.unsealed[k]; len(list) > 0 {
			u := list[0]
			j.hidden = true
			j.add(AttemptUnsealed, explain(u.name), "number %d of lane %q was opened for this check and has no receipt: it is running, or it was lost",
				u.number, u.laneID)
			return
		}
	}
}

// askHistory is condition 12.
func (j *judge) askHistory(v *receipt.Verified, r *receipt.Receipt, key inputKey) {
	if holes, name, unknown := j.history.holesBefore(r.LaneEpoch, r.Sequence); holes != "" {
		j.hidden = j.hidden || unknown
		j.add(ReceiptChainGap, explain(name), "receipts before number %d of the lane's chain are missing: %s", r.Sequence, holes)
	}
	j.askUnsealed(key, inputKey{j.req.CheckDigest, j.in.Tree.SHA256})
	if c := j.history.chains[r.LaneEpoch]; c != nil && c.equivocated != 0 {
		j.add(LaneEquivocated, noCommand, "the lane sealed two receipts for number %d of its chain, which nothing mends: its key was used twice", c.equivocated)
	}
	if failed := j.history.contradiction(v.Seal(), r); failed != "" {
		j.contradict(failed)
	}
}

func (j *judge) contradict(failed string) {
	j.add(ContradictedByFailure, explain(failed), "receipt %s says that the same check failed on the same inputs", failed)
}

// askStore is the store's half of condition 13.
func (j *judge) askStore() {
	if j.in.Store.Class != seal.ClassIsolated {
		j.add(StoreNotIsolated, noCommand, "the store is writable by whoever runs it; only one that striatumd keeps for an operator is isolated")
	}
}
