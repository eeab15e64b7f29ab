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

// inputKey is "this check and these inputs" as an opened record can name them.
type inputKey struct{ check, tree string }

// failureKey is what a failure must share with a pass to contradict it.
type failureKey struct{ check, tree, closure, dependencies string }

func keyOf(r *receipt.Receipt) inputKey { return inputKey{r.Check.Digest, r.Inputs.TreeSHA256} }

// closureOf is the digest of every byte of the check's tools: of the measured
// closure or, for tools from an image, of the image.
func closureOf(r *receipt.Receipt) string {
	if _, digest, ok := strings.Cut(r.Tools.Image, "@sha256:"); ok && r.Tools.ClosureSHA256 == "" {
		return digest
	}
	return r.Tools.ClosureSHA256
}

func failureKeyOf(r *receipt.Receipt) failureKey {
	k := failureKey{check: r.Check.Digest, tree: r.Inputs.TreeSHA256, closure: closureOf(r)}
	if r.Inputs.Dependencies != nil {
		k.dependencies = r.Inputs.Dependencies.Digest
	}
	return k
}

// newest is the latest unexplained receipt of some inputs by its place in the
// log.
type newest struct {
	position int64
	seal     string
}

// history answers the questions that need more than the receipt of the claim.
type history struct {
	newest    map[inputKey]newest
	attempts  map[inputKey]*Attempts
	failures  map[failureKey][]string // seals of unexplained failures
	failing   map[inputKey][]string   // the same, by less
	chains    map[string]*chain       // by lane epoch
	unsealed  map[inputKey][]unsealed
	explained map[string]bool
}

// chain is what is wrong with the numbers of one lane epoch.
type chain struct {
	holes        []hole // unexplained, ascending
	firstUnknown int64  // the first number in a hole that nothing tells about; 0: none
	equivocated  int64  // a number that was sealed twice; 0: none
}

// hole is a run of numbers without a receipt. Explaining name explains it.
type hole struct {
	from, to int64
	name     string
}

func (h hole) String() string {
	if h.from == h.to {
		return fmt.Sprintf("%d", h.from)
	}
	return fmt.Sprintf("%d to %d", h.from, h.to)
}

// unsealed is an opened number without a receipt, unexplained.
type unsealed struct {
	number int64
	laneID string
	name   string
}

// OpenedName is the digest that stands for an opened record in an Explanation:
// the SHA-256 of its canonical JSON. It explains a number whose lane will never
// seal it.
func OpenedName(o receipt.Opened) string {
	data, err := seal.Canonical(o)
	if err != nil {
		return "" // not a record that OpenOpened lets through
	}
	return seal.SHA256Hex(data)
}

// record is one thing known about one number of a chain.
type record struct {
	epoch      string
	sequence   int64
	seal, prev string // seal is empty for an opened record
	opened     *receipt.Opened
}

func newHistory(in *Input) *history {
	h := &history{
		newest:    map[inputKey]newest{},
		attempts:  map[inputKey]*Attempts{},
		failures:  map[failureKey][]string{},
		failing:   map[inputKey][]string{},
		chains:    map[string]*chain{},
		unsealed:  map[inputKey][]unsealed{},
		explained: make(map[string]bool, len(in.Explanations)),
	}
	for _, e := range in.Explanations {
		if e.Seal != "" {
			h.explained[e.Seal] = true
		}
	}
	records := make([]record, 0, len(in.History)+len(in.Opened)+len(in.Places))
	seen := make(map[string]inputKey, len(in.History))
	add := func(v *receipt.Verified, position int64) {
		if v == nil {
			return
		}
		if key, ok := seen[v.Seal()]; ok {
			h.place(key, v.Seal(), position)
			return
		}
		r := v.Receipt()
		if r.RepositoryID != in.RepositoryID {
			return
		}
		key := keyOf(&r)
		seen[v.Seal()] = key
		h.place(key, v.Seal(), position)
		h.count(key, v.Seal(), &r)
		records = append(records, record{epoch: r.LaneEpoch, sequence: r.Sequence, seal: v.Seal(), prev: r.PrevSeal})
	}
	for _, e := range in.History {
		add(e.Verified, e.LogPosition)
	}
	for _, e := range in.Evidence {
		add(e.Verified, e.LogPosition)
	}
	for _, p := range in.Places {
		records = append(records, record{epoch: p.LaneEpoch, sequence: p.Sequence, seal: p.Seal, prev: p.PrevSeal})
	}
	for i := range in.Opened {
		if o := &in.Opened[i]; o.RepositoryID == in.RepositoryID {
			records = append(records, record{epoch: o.LaneEpoch, sequence: o.Sequence, prev: o.PrevSeal, opened: o})
		}
	}
	h.link(records)
	return h
}

// place notes where in the log a receipt stands. What an operator explained
// away supersedes nothing: were it lost, its hole would be explained too.
func (h *history) place(key inputKey, seal string, position int64) {
	if n := h.newest[key]; !h.explained[seal] && (position > n.position || position == n.position && seal > n.seal) {
		h.newest[key] = newest{position, seal}
	}
}

// count counts one receipt.
func (h *history) count(key inputKey, seal string, r *receipt.Receipt) {
	a := h.attemptsOf(key)
	a.Made++
	switch r.Classification {
	case receipt.Failed:
		a.Failed++
		if !h.explained[seal] {
			fk := failureKeyOf(r)
			h.failures[fk] = append(h.failures[fk], seal)
			h.failing[key] = append(h.failing[key], seal)
		}
	case receipt.Void, receipt.Indeterminate:
		a.Inconclusive++
	case receipt.Asserted, receipt.VerifiedEligible:
	}
}

func (h *history) attemptsOf(k inputKey) *Attempts {
	a := h.attempts[k]
	if a == nil {
		a = &Attempts{}
		h.attempts[k] = a
	}
	return a
}

// link walks the numbers of each chain and notes holes and double seals.
func (h *history) link(records []record) {
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(strings.Compare(a.epoch, b.epoch), cmp.Compare(a.sequence, b.sequence),
			strings.Compare(a.seal, b.seal), strings.Compare(a.prev, b.prev))
	})
	for len(records) > 0 {
		epoch := records[0].epoch
		n := prefix(records, func(r record) bool { return r.epoch == epoch })
		c := &chain{}
		h.chains[epoch] = c
		h.linkChain(c, records[:n])
		records = records[n:]
	}
}

// linkChain reads one chain, ascending; under one number, opened records come
// first. The seal of a number without a receipt is what the next one names as
// previous, a receipt rather than an opened record.
func (h *history) linkChain(c *chain, records []record) {
	next := int64(1) // the lowest number not accounted for
	var pending []record
	var last string // the seal of number next-1, if it has a receipt
	for len(records) > 0 {
		n := prefix(records, func(r record) bool { return r.sequence == records[0].sequence })
		group := records[:n]
		records = records[n:]
		number := group[0].sequence
		if number < next {
			continue // numbers begin at 1; Open refuses others
		}
		if number > next {
			last = "" // what group names as previous is a lost receipt
		}
		h.settle(c, next-1, pending, group[n-1].prev)
		pending = nil
		if number > next {
			h.lose(c, hole{next, number - 1, group[n-1].prev})
		}
		sealed := ""
		for _, r := range group {
			if r.seal == "" {
				continue
			}
			if sealed != "" && sealed != r.seal || last != "" && r.prev != last {
				c.equivocated = number
			}
			sealed = r.seal
		}
		if sealed == "" {
			pending = group
		}
		last, next = sealed, number+1
	}
	h.settle(c, next-1, pending, "")
}

// settle notes a number that was opened and has no receipt. sealed is the last
// seal of its hole as the number after it names it, if there is one; explaining
// that or the opened record itself explains the hole.
func (h *history) settle(c *chain, number int64, opened []record, sealed string) {
	if len(opened) == 0 || h.explained[sealed] {
		return
	}
	for _, r := range opened {
		name := OpenedName(*r.opened)
		if h.explained[name] {
			continue
		}
		if n := len(c.holes); n == 0 || c.holes[n-1].from != number {
			c.holes = append(c.holes, hole{number, number, name})
		}
		k := inputKey{r.opened.CheckDigest, r.opened.TreeSHA256}
		h.unsealed[k] = append(h.unsealed[k], unsealed{number, r.opened.LaneID, name})
		h.attemptsOf(k).Made++
		h.attemptsOf(k).Unsealed++
	}
}

// lose notes a run of numbers about which nothing is known but, from the number
// after it, the last one's seal. One explanation covers the run.
func (h *history) lose(c *chain, lost hole) {
	if h.explained[lost.name] {
		return
	}
	c.holes = append(c.holes, lost)
	if c.firstUnknown == 0 {
		c.firstUnknown = lost.from
	}
}

// prefix returns how many records from the first on satisfy f.
func prefix(records []record, f func(record) bool) int {
	for i, r := range records {
		if !f(r) {
			return i
		}
	}
	return len(records)
}

// holesBefore describes the holes before a number, at most three. It returns
// the name of the first, and whether one of them may have been for any check.
func (h *history) holesBefore(epoch string, number int64) (text, name string, unknown bool) {
	c := h.chains[epoch]
	if c == nil {
		return "", "", false
	}
	var parts []string
	for _, hole := range c.holes {
		if hole.from >= number {
			break
		}
		if len(parts) == 3 {
			parts = append(parts, "others")
			break
		}
		if name == "" {
			name = hole.name
		}
		parts = append(parts, hole.String())
	}
	return strings.Join(parts, ", "), name, c.firstUnknown != 0 && c.firstUnknown < number
}

// contradiction returns an unexplained failure of the same inputs other than
// the receipt itself; empty if there is none.
func (h *history) contradiction(own string, r *receipt.Receipt) string {
	least := ""
	for _, seal := range h.failures[failureKeyOf(r)] {
		if seal != own && (least == "" || seal < least) {
			least = seal
		}
	}
	return least
}

// failureOf returns an unexplained failure of a check on a tree, whatever its
// other inputs; empty if there is none.
func (h *history) failureOf(k inputKey) string {
	if seals := h.failing[k]; len(seals) > 0 {
		return slices.Min(seals)
	}
	return ""
}

// lane returns the enrolment that covers what a key signed at a position, and
// the code of why there is none.
func (in *Input) lane(keyID string, position int64) (Lane, Code) {
	code := LaneUnknown
	var covering Lane
	found := false
	for _, l := range in.Lanes {
		if l.KeyID != keyID || position < l.EnrolledAt {
			continue
		}
		if l.RevokedAt != 0 && position >= l.RevokedAt {
			if l.Kind == Compromised {
				return Lane{}, LaneRevoked
			}
			code = LaneRevoked
			continue
		}
		// Of two enrolments that cover it the weaker class counts.
		if !found || covering.isolated(position) && !l.isolated(position) {
			covering, found = l, true
		}
	}
	if !found {
		return Lane{}, code
	}
	return covering, ""
}

// bytesKey is what an attestation is about.
type bytesKey struct{ check, closure string }

// attestations says for each check and closure that an operator spoke of
// whether his word stands: the empty code, or AttestationRevoked. A check of which
// some bytes are attested has the empty code without a closure, too.
func (in *Input) attestations() map[bytesKey]Code {
	out := make(map[bytesKey]Code, len(in.Attestations))
	for _, a := range in.Attestations {
		k := bytesKey{a.CheckDigest, a.ClosureSHA256}
		switch code, known := out[k]; {
		case a.RevokedAt == 0:
			out[k], out[bytesKey{check: a.CheckDigest}] = "", ""
		case !known || code != "":
			out[k] = AttestationRevoked
		}
	}
	return out
}

// floor is the higher of the caller's and the policy's, and at least ASSERTED.
func (in *Input) floor() claim.Status {
	f := max(in.Floor, claim.Asserted)
	if in.Policy != nil {
		f = max(f, in.Policy.Floor)
	}
	return min(f, claim.Verified)
}
