package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"striatum/seal"
)

// The names that other tools match.
const (
	statementType = "https://in-toto.io/Statement/v1"
	// PredicateType is the predicate type of a receipt's statement; cosign wants
	// it as --type.
	PredicateType = "https://in-toto.io/attestation/test-result/v0.1"
	bodyName      = "urn:striatum:receipt:v1"
)

type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	Result        string       `json:"result"`
	Configuration []descriptor `json:"configuration"`
	PassedTests   []string     `json:"passedTests"`
	WarnedTests   []string     `json:"warnedTests"`
	FailedTests   []string     `json:"failedTests"`
}

type descriptor struct {
	Name        string            `json:"name"`
	Digest      map[string]string `json:"digest"`
	Annotations *Receipt          `json:"annotations,omitempty"`
}

// sealOf returns the seal of r, whatever its SealDigest.
func sealOf(r Receipt) (string, error) {
	r.SealDigest = ""
	body, err := seal.Canonical(&r)
	if err != nil {
		return "", err
	}
	return seal.SHA256Hex(body), nil
}

// sealWithin returns the seal of the receipt that body is the canonical JSON of,
// with the digest as its seal_digest. No other field of a receipt has that name,
// and in a string its quotes would be escaped, so the cut leaves the body
// without its seal_digest.
func sealWithin(body []byte, digest string) (sealDigest string, found bool) {
	before, after, found := bytes.Cut(body, []byte(`,"seal_digest":"`+digest+`"`))
	h := sha256.New()
	h.Write(before)
	h.Write(after)
	return hex.EncodeToString(h.Sum(nil)), found && seal.ValidDigest(digest)
}

// opens is how each statement begins in canonical JSON; what follows is its
// receipt, as "annotations".
const opens = `{"_type":"` + statementType + `","predicate":{"configuration":[{`

// isStatement reports whether payload is the statement of r in canonical JSON.
// body is r in canonical JSON; what its array holds behind it is overwritten.
func isStatement(payload []byte, r *Receipt, body []byte) bool {
	s := statementOf(r)
	s.Predicate.Configuration[0].Annotations = nil
	both, err := seal.AppendCanonical(body, s)
	if err != nil {
		return false
	}
	after, ok := bytes.CutPrefix(both[len(body):], []byte(opens))
	for _, part := range [][]byte{[]byte(opens + `"annotations":`), body, []byte(","), after} {
		if !ok {
			return false
		}
		payload, ok = bytes.CutPrefix(payload, part)
	}
	return ok && len(payload) == 0
}

// statementOf builds the whole statement of a sealed receipt.
func statementOf(r *Receipt) statement {
	digest := map[string]string{"gitTree": r.Inputs.TreeSHA256}
	if r.Inputs.ManifestSHA256 != "" {
		digest["sha256"] = r.Inputs.ManifestSHA256
	}
	if r.Inputs.GitCommit != "" {
		digest["gitCommit"] = r.Inputs.GitCommit
	}
	p := predicate{Result: resultOf(r), Configuration: configurationOf(r)}
	if r.Census != nil {
		p.PassedTests = r.Census.PassedTests.Names
		p.WarnedTests = r.Census.SkippedTests.Names
		p.FailedTests = r.Census.FailedTests.Names
	}
	return statement{
		Type:          statementType,
		Subject:       []subject{{Name: "worktree", Digest: digest}},
		PredicateType: PredicateType,
		Predicate:     p,
	}
}

func resultOf(r *Receipt) string {
	switch {
	case !r.Classification.mayPass():
		return "FAILED"
	case r.Census != nil && (r.Census.Skipped > 0 || r.Census.SkippedTests.Count > 0):
		return "WARNED"
	default:
		return "PASSED"
	}
}

func configurationOf(r *Receipt) []descriptor {
	out := []descriptor{{Name: bodyName, Digest: map[string]string{"sha256": r.SealDigest}, Annotations: r}}
	add := func(name, sha256 string) {
		if sha256 != "" {
			out = append(out, descriptor{Name: name, Digest: map[string]string{"sha256": sha256}})
		}
	}
	add("check", r.Check.Digest)
	add("closure", r.Tools.ClosureSHA256)
	if _, digest, ok := strings.Cut(r.Tools.Image, "@sha256:"); ok {
		add("image", digest)
	}
	add("definition", r.Inputs.DefinitionSHA256)
	if p := r.Inputs.Protected; p != nil {
		out = append(out, descriptor{Name: "tree that ran", Digest: map[string]string{"gitTree": p.TreeSHA256, "sha256": p.ManifestSHA256}})
	}
	add("policy", r.Inputs.PolicySHA256)
	add("intent", r.Inputs.IntentSHA256)
	add("pins", r.Inputs.PinsSHA256)
	if r.Inputs.Dependencies != nil {
		add("dependencies", r.Inputs.Dependencies.Digest)
	}
	add("environment", r.Tools.EnvironmentSHA)
	add("sandbox profile", r.Posture.SeccompSHA256)
	add("lane build", r.Tools.StriatumSHA256)
	return out
}
