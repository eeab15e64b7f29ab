package receipt

import (
	"encoding/base64"
	"fmt"
	"slices"

	"striatum/seal"
)

// MaxBytes is the largest envelope of a receipt, in bytes.
const MaxBytes = 1 << 20

// maxDepth bounds the nesting of a statement.
const maxDepth = 16

// budget says how much of what a check can blow up is kept.
type budget struct {
	names int // of each list
	notes int // findings, incidents, and the reasons of an execution
	text  int // bytes of each free text
}

// maxNotes and maxText are the widest budget; validate holds every receipt to it.
const (
	maxNotes = 200
	maxText  = 2048
)

// budgets are tried in order until the envelope fits.
func budgets() []budget {
	return []budget{{MaxList, maxNotes, maxText}, {250, 100, 1024}, {50, 50, 512}, {10, 20, 256}, {0, 10, 128}}
}

// Sign derives, seals and signs r, whose derived fields and seal need not be
// set. It returns the envelope and the receipt exactly as Open will. What code
// under test can blow up is cut, so that its trouble always gets a receipt: free
// texts, findings, incidents (a last entry "…_cut" counts the rest) and lists
// of names. It is an error if a fact is not valid or if the envelope is larger
// than MaxBytes all the same.
func Sign(r Receipt, key *seal.PrivateKey) ([]byte, Receipt, error) {
	var size int
	for _, b := range budgets() {
		sealed, payload, err := closeUp(r, b)
		if err != nil {
			return nil, Receipt{}, fmt.Errorf("sign receipt: %w", err)
		}
		if size = base64.StdEncoding.EncodedLen(len(payload)); size > MaxBytes {
			continue
		}
		// Decoding here, before anything is signed, proves that Open will.
		again, err := parsePayload(payload)
		if err != nil {
			return nil, Receipt{}, fmt.Errorf("sign receipt %s: %w", sealed.SealDigest, err)
		}
		envelope, err := seal.Sign(key, seal.PayloadInToto, payload)
		if err != nil {
			return nil, Receipt{}, fmt.Errorf("sign receipt: %w", err)
		}
		if size = len(envelope); size <= MaxBytes {
			return envelope, again, nil
		}
	}
	return nil, Receipt{}, fmt.Errorf("sign receipt: an envelope of %d bytes is more than the limit of %d, though all lists are cut", size, MaxBytes)
}

// closeUp returns r cut to b, derived and sealed, and its payload.
func closeUp(r Receipt, b budget) (Receipt, []byte, error) {
	r = r.clone()
	r.SchemaVersion = SchemaVersion
	b.apply(&r)
	Derive(&r)
	if err := validate(&r); err != nil {
		return Receipt{}, nil, err
	}
	var err error
	if r.SealDigest, err = sealOf(r); err != nil {
		return Receipt{}, nil, err
	}
	payload, err := seal.Canonical(statementOf(&r))
	return r, payload, err
}

func (b budget) apply(r *Receipt) {
	for _, e := range r.eachExecution() {
		e.Reasons = b.reasons(e.Reasons)
	}
	r.Control.Why = shorten(r.Control.Why, b.text)
	r.Control.MutationOf = shorten(r.Control.MutationOf, b.text)
	r.Findings = b.findings(r.Findings)
	r.Incidents = b.incidents(r.Incidents)
	for i := range r.Posture.Facets {
		f := &r.Posture.Facets[i]
		f.Required, f.Observed = shorten(f.Required, b.text), shorten(f.Observed, b.text)
	}
	if p := r.Inputs.Protected; p != nil {
		for _, l := range p.lists() {
			*l = l.cut(min(b.names, MaxProtected))
		}
	}
	if r.Control.Differs != nil {
		*r.Control.Differs = r.Control.Differs.cut(b.names)
	}
	if m := r.Mutants; m != nil {
		m.Survivors = append([]Survivor{}, m.Survivors[:min(len(m.Survivors), MaxSurvivors, b.names)]...)
		for i := range m.Survivors {
			m.Survivors[i].Path = shorten(m.Survivors[i].Path, b.text)
		}
	}
	var lists []*List
	if r.Census != nil {
		lists = append(lists, &r.Census.PassedTests, &r.Census.SkippedTests, &r.Census.FailedTests, &r.Census.NotRun)
	}
	if r.Baseline != nil {
		lists = append(lists, r.Baseline.lists()...)
	}
	for _, l := range lists {
		if l.Count == 0 && l.SHA256 == "" {
			*l = NewList(l.Names)
		}
		*l = l.cut(b.names)
	}
}

// keep says how many of n notes stay. One more than the budget still fits: that
// is the place of the entry which counts the rest.
func (b budget) keep(n int) int {
	if n <= b.notes+1 {
		return n
	}
	return b.notes
}

func (b budget) reasons(in []Reason) []Reason {
	out := in[:b.keep(len(in))]
	for i := range out {
		out[i].Detail = shorten(out[i].Detail, b.text)
	}
	if n := len(in) - len(out); n > 0 {
		out = append(slices.Clip(out), Reason{Code: "reasons_cut", Detail: fmt.Sprintf("%d more", n)})
	}
	return out
}

func (b budget) findings(in []Finding) []Finding {
	out := in[:b.keep(len(in))]
	for i := range out {
		out[i].Path, out[i].Detail = shorten(out[i].Path, b.text), shorten(out[i].Detail, b.text)
	}
	if n := len(in) - len(out); n > 0 {
		out = append(slices.Clip(out), Finding{Code: "findings_cut", Detail: fmt.Sprintf("%d more", n)})
	}
	return out
}

// incidents keeps the gravest effect of those that it cuts.
func (b budget) incidents(in []Incident) []Incident {
	out := in[:b.keep(len(in))]
	for i := range out {
		out[i].Detail = shorten(out[i].Detail, b.text)
	}
	rest := in[len(out):]
	if len(rest) == 0 {
		return out
	}
	effect := MakesIndeterminate
	for _, i := range rest {
		if i.Effect != MakesIndeterminate {
			effect = i.Effect
		}
	}
	return append(slices.Clip(out), Incident{Code: "incidents_cut", Effect: effect, Detail: fmt.Sprintf("%d more", len(rest))})
}
