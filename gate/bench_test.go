package gate_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

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

// open returns what is to be judged, with every envelope opened.
func (c crowd) open(b *testing.B) gate.Input {
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
	return in
}

var bigCrowd struct {
	once sync.Once
	crowd
}

func tenThousand(b *testing.B) crowd {
	bigCrowd.once.Do(func() { bigCrowd.crowd = makeCrowd(b, crowdSize) })
	return bigCrowd.crowd
}

// BenchmarkRatioEvaluate10k judges 10,000 claims from their stored envelopes:
// signatures, seals and derivations are recomputed, nothing is cached. In turn
// it does what no reader can leave out: one ECDSA verification and the SHA-256
// of the same bytes for each envelope. It reports the medians of the processor
// time of both (garbage collection included) and their ratio, and how much
// memory evidence and report hold, for each claim.
func BenchmarkRatioEvaluate10k(b *testing.B) {
	c := tenThousand(b)
	bare := c.bareSignatures(b)
	var ours, theirs []time.Duration
	var report gate.Report
	var in gate.Input
	for b.Loop() {
		ours = append(ours, busy(b, func() {
			in = c.open(b)
			report = gate.Evaluate(in)
		}))
		if !report.Green() || report.Checked != crowdSize {
			b.Fatal(report.Verdict)
		}
		theirs = append(theirs, busy(b, bare))
	}
	held := heap()
	runtime.KeepAlive(report)
	runtime.KeepAlive(in)
	report, in = gate.Report{}, gate.Input{}
	held -= heap()
	slices.Sort(ours)
	slices.Sort(theirs)
	x, y := ours[len(ours)/2], theirs[len(theirs)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(x.Milliseconds()), "gate-ms")
	b.ReportMetric(float64(y.Milliseconds()), "bare-ms")
	b.ReportMetric(float64(x)/float64(y), "ratio")
	b.ReportMetric(float64(held)/crowdSize, "held-B/claim")
}

// busy returns the processor time that f takes in the whole process.
func busy(b *testing.B, f func()) time.Duration {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := used()
	f()
	return used() - start
}

// heap returns how many bytes are in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkEvaluateOpened10k is the same without opening the envelopes.
func BenchmarkEvaluateOpened10k(b *testing.B) {
	in := tenThousand(b).open(b)
	b.ReportAllocs()
	for b.Loop() {
		if r := gate.Evaluate(in); !r.Green() {
			b.Fatal(r.Verdict)
		}
	}
}

// bareSignatures returns what verifies each envelope's signature and computes its
// SHA-256.
func (c crowd) bareSignatures(b *testing.B) func() {
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
	return func() {
		for i, s := range all {
			sha256.Sum256(c.envelopes[i])
			digest := sha256.Sum256(s.message)
			if !ecdsa.VerifyASN1(key, digest[:], s.sig) {
				b.Fatal("a signature does not verify")
			}
		}
	}
}
