package gate_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"sync"
	"testing"

	"striatum/claim"
	"striatum/gate"
	"striatum/receipt"
	"striatum/seal"
)

// crowd is a run of many claims, each with a stored receipt.
type crowd struct {
	ring      seal.Keyring
	envelopes [][]byte
	in        gate.Input // without what comes from the envelopes
}

const crowdSize = 10_000

// makeCrowd signs n receipts in one chain, as a lane that ran n checks.
func makeCrowd(b *testing.B, n int) crowd {
	l := newLane(b, laneID, seal.ClassIsolated)
	c := crowd{ring: l.ring}
	var declared []claim.Claim
	var ups []claim.Update
	prev := receipt.FirstPrevSeal
	c.in = gate.Input{
		RepositoryID: repo, RunID: run, Store: gate.Store{Class: seal.ClassIsolated},
		Tree:   gate.Tree{SHA256: tree, Source: "worktree"},
		Lanes:  []gate.Lane{{KeyID: l.key.Public().ID(), LaneID: l.id, Class: seal.ClassIsolated, EnrolledAt: 1}},
		Policy: &gate.Policy{Digest: digest("policy")},
	}
	for i := range n {
		id := fmt.Sprintf("claim-%05d", i)
		r := facts(id)
		r.Sequence, r.PrevSeal = int64(i+1), prev
		envelope := l.sign(b, r)
		v, err := receipt.Open(envelope, l.ring)
		if err != nil {
			b.Fatal(err)
		}
		prev = v.Seal()
		c.envelopes = append(c.envelopes, envelope)
		c.in.Opened = append(c.in.Opened, openedFor(v.Receipt(), l.id))
		c.in.Required = append(c.in.Required, gate.Requirement{ClaimID: id, Statement: "It holds.", CheckID: r.Check.ID, CheckDigest: r.Check.Digest})
		c.in.Attestations = append(c.in.Attestations, gate.Attestation{CheckDigest: r.Check.Digest, ClosureSHA256: digest("closure"), Position: 1})
		declared = append(declared, claim.Claim{ID: id, Statement: "It holds.", CheckID: r.Check.ID})
		ups = append(ups, claim.Update{ClaimID: id, Receipt: &v})
	}
	ledger, err := claim.New(repo, run, declared)
	if err != nil {
		b.Fatal(err)
	}
	c.in.Ledger = apply(b, ledger, claim.Writer{Principal: claim.Lane, Name: l.id}, ups...)
	return c
}

// judge opens every envelope and evaluates.
func (c crowd) judge(b *testing.B) gate.Report {
	in := c.in
	in.Evidence = make(map[string]gate.Evidence, len(c.envelopes))
	in.History = make([]gate.HistoryEntry, 0, len(c.envelopes))
	for i, envelope := range c.envelopes {
		v, err := receipt.Open(envelope, c.ring)
		if err != nil {
			b.Fatal(err)
		}
		in.Evidence[in.Required[i].ClaimID] = gate.Evidence{Verified: &v, LogPosition: int64(i + 2)}
		in.History = append(in.History, gate.HistoryEntry{Verified: &v, LogPosition: int64(i + 2)})
	}
	return gate.Evaluate(in)
}

var bigCrowd struct {
	once sync.Once
	crowd
}

func tenThousand(b *testing.B) crowd {
	bigCrowd.once.Do(func() { bigCrowd.crowd = makeCrowd(b, crowdSize) })
	return bigCrowd.crowd
}

// BenchmarkEvaluate10k judges 10,000 claims from their stored envelopes:
// signatures, seals and derivations are recomputed, nothing is cached.
func BenchmarkEvaluate10k(b *testing.B) {
	c := tenThousand(b)
	b.ReportAllocs()
	for b.Loop() {
		if r := c.judge(b); !r.Green() || r.Checked != crowdSize {
			b.Fatal(r.Verdict)
		}
	}
}

// BenchmarkEvaluateOpened10k is the same without opening the envelopes.
func BenchmarkEvaluateOpened10k(b *testing.B) {
	c := tenThousand(b)
	in := c.in
	in.Evidence = make(map[string]gate.Evidence, crowdSize)
	for i, envelope := range c.envelopes {
		v, err := receipt.Open(envelope, c.ring)
		if err != nil {
			b.Fatal(err)
		}
		in.Evidence[in.Required[i].ClaimID] = gate.Evidence{Verified: &v, LogPosition: int64(i + 2)}
		in.History = append(in.History, gate.HistoryEntry{Verified: &v, LogPosition: int64(i + 2)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := gate.Evaluate(in); !r.Green() {
			b.Fatal(r.Verdict)
		}
	}
}

// BenchmarkBareSignatures10k is the baseline: one ECDSA verification and the
// SHA-256 of the same bytes for each envelope.
func BenchmarkBareSignatures10k(b *testing.B) {
	c := tenThousand(b)
	block, _ := pem.Decode(c.ring.Keys()[0].Public.PEM())
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		b.Fatal(err)
	}
	key := parsed.(*ecdsa.PublicKey)
	type signed struct{ message, sig []byte }
	var all []signed
	for _, data := range c.envelopes {
		var e struct {
			Payload    string `json:"payload"`
			Signatures []struct {
				Sig string `json:"sig"`
			} `json:"signatures"`
		}
		if err := json.Unmarshal(data, &e); err != nil {
			b.Fatal(err)
		}
		payload, err := base64.StdEncoding.DecodeString(e.Payload)
		if err != nil {
			b.Fatal(err)
		}
		sig, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, signed{seal.PAE(seal.PayloadInToto, payload), sig})
	}
	for b.Loop() {
		for i, s := range all {
			sha256.Sum256(c.envelopes[i])
			digest := sha256.Sum256(s.message)
			if !ecdsa.VerifyASN1(key, digest[:], s.sig) {
				b.Fatal("a signature does not verify")
			}
		}
	}
}
