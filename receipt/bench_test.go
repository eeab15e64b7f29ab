package receipt_test

import (
	"fmt"
	"testing"

	"striatum/receipt"
	"striatum/receipt/receipttest"
)

// BenchmarkOpen opens a receipt with 200 tests in its census.
func BenchmarkOpen(b *testing.B) {
	k := receipttest.Key(b, 1)
	facts := receipttest.Facts()
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("example.com/module/package%d TestSomething%d", i%7, i))
	}
	facts.Census.PassedTests = receipt.NewList(names)
	env, _ := receipttest.Sign(b, facts, k)
	ring := receipttest.Ring(k)
	b.SetBytes(int64(len(env)))
	for b.Loop() {
		if _, err := receipt.Open(env, ring); err != nil {
			b.Fatal(err)
		}
	}
}
