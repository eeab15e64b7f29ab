package receipt_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

// FuzzReceiptParse takes bytes as the payload of an envelope by a known key, so
// that only the receipt's own rules stand between them and acceptance. What is
// accepted is what Sign makes of it again, byte for byte; what is refused gives
// the zero receipt.
func FuzzReceiptParse(f *testing.F) {
	k := receipttest.Key(f, 1)
	failed := receipttest.Facts()
	failed.Executions[1] = receipttest.Execution(receipt.Fail)
	bare := receipttest.Facts()
	bare.Census, bare.Compile, bare.Executions, bare.Inputs.Dependencies = nil, nil, nil, nil
	for _, facts := range []receipt.Receipt{receipttest.Facts(), failed, bare} {
		env, _ := receipttest.Sign(f, facts, k)
		f.Add(payloadOf(f, env))
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"predicate":{"configuration":[{"annotations":{}}]}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		env, err := seal.Sign(k, seal.PayloadInToto, payload)
		if err != nil {
			t.Skip()
		}
		r, err := receipt.Parse(env)
		v, openErr := receipt.Open(env, receipttest.Ring(k))
		if err != nil {
			if diff := cmp.Diff(receipt.Receipt{}, r); diff != "" || openErr == nil || v.Seal() != "" {
				t.Fatalf("refused (%v), but Open says %v and the value is\n%s", err, openErr, diff)
			}
			return
		}
		again, sealed, err := receipt.Sign(r, k)
		if err != nil {
			t.Fatalf("accepted, but not signed again: %v", err)
		}
		if diff := cmp.Diff(r, sealed); diff != "" || !bytes.Equal(again, env) {
			t.Fatalf("round trip changes the receipt:\n%s", diff)
		}
	})
}

// FuzzReceiptOpen takes bytes as an envelope: none but the signed one opens.
func FuzzReceiptOpen(f *testing.F) {
	k := receipttest.Key(f, 1)
	env, _ := receipttest.Sign(f, receipttest.Facts(), k)
	f.Add(env, 0, byte(0))
	f.Add(env, 30, byte(1))
	f.Add(env, len(env)-5, byte(0x20))
	f.Fuzz(func(t *testing.T, data []byte, at int, flip byte) {
		data = bytes.Clone(data)
		if at >= 0 && at < len(data) {
			data[at] ^= flip
		}
		if _, err := receipt.Open(data, receipttest.Ring(k)); err == nil && !bytes.Equal(data, env) && bytes.Contains(data, []byte("keyid")) {
			t.Fatal("a changed envelope opens")
		}
	})
}
