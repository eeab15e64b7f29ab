package receipt_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

// BenchmarkRatioOpen opens a receipt a hundred times and, in turn, does as often
// what no reader can leave out: the ECDSA verification and the SHA-256 of the
// envelope. It reports the medians of the processor time of both, per receipt,
// and their ratio.
func BenchmarkRatioOpen(b *testing.B) {
	for _, tests := range []int{0, 200} {
		b.Run(fmt.Sprintf("Tests%d", tests), func(b *testing.B) {
			k := receipttest.Key(b, 1)
			facts := receipttest.Facts()
			var names []string
			for i := range tests {
				names = append(names, fmt.Sprintf("example.com/module/package%d TestSomething%d", i%7, i))
			}
			facts.Census.PassedTests = receipt.NewList(names)
			env, _ := receipttest.Sign(b, facts, k)
			ring := receipttest.Ring(k)
			bare := bareVerification(b, env, k.Public())
			var ours, theirs []time.Duration
			for b.Loop() {
				ours = append(ours, busy(b, func() {
					for range 100 {
						if _, err := receipt.Open(env, ring); err != nil {
							b.Fatal(err)
						}
					}
				}))
				theirs = append(theirs, busy(b, func() {
					for range 100 {
						bare()
					}
				}))
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			x, y := ours[len(ours)/2], theirs[len(theirs)/2]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(env)), "bytes")
			b.ReportMetric(float64(x.Microseconds())/100, "open-us")
			b.ReportMetric(float64(y.Microseconds())/100, "bare-us")
			b.ReportMetric(float64(x)/float64(y), "ratio")
		})
	}
}

// busy returns the processor time that f takes, garbage collection included.
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

// bareVerification returns the verification of env's signature and its SHA-256.
func bareVerification(b *testing.B, env []byte, pub seal.PublicKey) func() {
	var e struct{ Signatures []struct{ Sig string } }
	if err := json.Unmarshal(env, &e); err != nil {
		b.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	if err != nil {
		b.Fatal(err)
	}
	key, err := x509.ParsePKIXPublicKey(pub.DER())
	if err != nil {
		b.Fatal(err)
	}
	message := seal.PAE(seal.PayloadInToto, payloadOf(b, env))
	return func() {
		sha256.Sum256(env)
		digest := sha256.Sum256(message)
		if !ecdsa.VerifyASN1(key.(*ecdsa.PublicKey), digest[:], sig) {
			b.Fatal("the signature does not verify")
		}
	}
}
