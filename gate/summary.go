package gate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"striatum/claim"
	"striatum/seal"
)

// The levels that a summary may state. A verified subject is an asserted one
// too, so it has both.
const (
	LevelAsserted = "STRIATUM_ASSERTED"
	LevelVerified = "STRIATUM_VERIFIED"
)

// SummaryPredicate is the predicate type of a SLSA verification summary.
const SummaryPredicate = "https://slsa.dev/verification_summary/v1"

// SummaryOptions is what a summary says beside the report. VerifierID and
// ResourceURI are URIs and must be set. TimeVerified is left out if zero.
type SummaryOptions struct {
	VerifierID   string
	ResourceURI  string
	TimeVerified time.Time
}

type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     summary   `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type summary struct {
	Verifier           verifier      `json:"verifier"`
	TimeVerified       string        `json:"timeVerified,omitempty"`
	ResourceURI        string        `json:"resourceUri"`
	Policy             descriptor    `json:"policy"`
	InputAttestations  []attestation `json:"inputAttestations,omitempty"`
	VerificationResult string        `json:"verificationResult"`
	VerifiedLevels     []string      `json:"verifiedLevels"`
}

type verifier struct {
	ID string `json:"id"`
}

type descriptor struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest,omitempty"`
}

type attestation struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

// Summary returns the canonical in-toto Statement v1 of a SLSA verification
// summary over r; the caller signs it as seal.PayloadInToto. It is PASSED only
// if r is green. Its subject is the judged tree, and a report without one has
// no summary: that, a commit id that is not one, and an option that is not set
// are errors. STRIATUM_VERIFIED stands in it only if every required claim is
// VERIFIED and the trust is isolated.
func Summary(r Report, o SummaryOptions) ([]byte, error) {
	switch {
	case !isURI(o.VerifierID):
		return nil, fmt.Errorf("summarise gate report: verifier id %q is not a URI", o.VerifierID)
	case !isURI(o.ResourceURI):
		return nil, fmt.Errorf("summarise gate report: resource %q is not a URI", o.ResourceURI)
	case !seal.ValidDigest(r.Tree.SHA256):
		return nil, errors.New("summarise gate report: it judges no tree")
	}
	digests := map[string]string{"gitTree": r.Tree.SHA256}
	if r.Tree.ManifestSHA256 != "" {
		digests["sha256"] = r.Tree.ManifestSHA256
	}
	if commit, ok := strings.CutPrefix(r.Tree.Source, "commit:"); ok {
		if !isCommit(commit) {
			return nil, fmt.Errorf("summarise gate report: %q is not a full commit id", commit)
		}
		digests["gitCommit"] = commit
	}
	s := statement{
		Type:          "https://in-toto.io/Statement/v1",
		Subject:       []subject{{Name: "worktree", Digest: digests}},
		PredicateType: SummaryPredicate,
		Predicate: summary{
			Verifier:           verifier{ID: o.VerifierID},
			ResourceURI:        o.ResourceURI,
			Policy:             descriptor{URI: "urn:striatum:policy:none"},
			InputAttestations:  inputAttestations(r),
			VerificationResult: "FAILED",
			VerifiedLevels:     []string{"FAILED"},
		},
	}
	if r.PolicySHA256 != "" {
		s.Predicate.Policy = descriptor{"urn:striatum:policy:accepted", map[string]string{"sha256": r.PolicySHA256}}
	}
	if !o.TimeVerified.IsZero() {
		s.Predicate.TimeVerified = o.TimeVerified.UTC().Format(time.RFC3339)
	}
	if levels := r.levels(); len(levels) > 0 {
		s.Predicate.VerificationResult = "PASSED"
		s.Predicate.VerifiedLevels = levels
	}
	data, err := seal.Canonical(s)
	if err != nil {
		return nil, fmt.Errorf("summarise gate report: %w", err)
	}
	return data, nil
}

// levels are those that every required claim reaches; none unless r is green.
func (r Report) levels() []string {
	if !r.Green() || r.NothingChecked() {
		return nil
	}
	lowest := claim.Verified
	for _, c := range r.Claims {
		lowest = min(lowest, c.Effective)
	}
	switch {
	case lowest == claim.Verified && r.Trust == seal.ClassIsolated:
		return []string{LevelAsserted, LevelVerified}
	case lowest >= claim.Asserted:
		return []string{LevelAsserted}
	}
	return nil
}

// inputAttestations lists the envelopes of all receipts that were opened for a
// claim, each once, by seal.
func inputAttestations(r Report) []attestation {
	var out []attestation
	for _, c := range r.Claims {
		if c.Receipt != "" {
			out = append(out, attestation{"urn:striatum:receipt:" + c.Receipt, map[string]string{"sha256": c.EnvelopeSHA256}})
		}
	}
	slices.SortFunc(out, func(a, b attestation) int { return strings.Compare(a.URI, b.URI) })
	return slices.CompactFunc(out, func(a, b attestation) bool { return a.URI == b.URI })
}

// isURI asks for a scheme and printable ASCII, which is what consumers compare.
func isURI(s string) bool {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || scheme == "" || rest == "" || len(s) > 2000 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// isCommit accepts full object ids of SHA-1 and SHA-256 repositories.
func isCommit(s string) bool {
	return seal.ValidDigest(s) || len(s) == 40 && seal.ValidDigest(s+strings.Repeat("0", 24))
}
