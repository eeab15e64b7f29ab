package verifier_test

import (
	"context"
	"strings"
	"testing"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/workflow"
)

// TestInterruptedCheckEndsInAReceipt cancels at each step. A number that was
// taken ends in a receipt that says aborted; before that there is none, and the
// lane is free for the next check either way.
func TestInterruptedCheckEndsInAReceipt(t *testing.T) {
	l := open(t)
	root := testenv.Tree(t, good)
	vet := workflow.CheckRef{Uses: "builtin:go-vet"}
	for _, c := range []struct {
		step     string
		check    workflow.CheckRef
		receipts int
	}{
		{"freeze the tree", goTest, 0},
		{"measure the tools", goTest, 0},
		{"start the sandbox engine", goTest, 1},
		{"read the module", goTest, 1},
		{"fetch dependencies", goTest, 1},
		{"compile the tests, and again with planted failures", goTest, 1},
		{"negative control", goTest, 1},
		{"both runs", goTest, 1},
		{"negative control", vet, 1},
		{"run 1 of 2", vet, 1},
		{"run 2 of 2", vet, 1},
	} {
		t.Run(c.check.Uses+" "+c.step, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			outcomes, err := l.verify(ctx, t, root, c.check, func(_, step string) {
				if step == c.step {
					cancel()
				}
			})
			if err == nil || ctx.Err() == nil || len(outcomes) != c.receipts {
				t.Fatalf("%d outcomes, error %v; want %d and the interruption", len(outcomes), err, c.receipts)
			}
			for _, o := range outcomes {
				r := o.Receipt.Receipt()
				if r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "aborted") {
					t.Errorf("%s, codes %s; want indeterminate, aborted", r.Classification, codes(r))
				}
			}
		})
	}
	if r := l.receiptOf(t, root, goTest); r.Classification != receipt.Asserted {
		t.Errorf("the next check: %s, codes %s; want asserted", r.Classification, codes(r))
	}
}

// TestRunsThatDifferAreNoAgreement: in each run the coin of sixty-four subtests
// says which of them are skipped, so that both runs pass and differ.
func TestRunsThatDifferAreNoAgreement(t *testing.T) {
	l := open(t)
	text := good + `-- coin_test.go --
package m

import (
	"crypto/rand"
	"fmt"
	"testing"
)

func TestCoin(t *testing.T) {
	var coins [64]byte
	_, _ = rand.Read(coins[:])
	for i, c := range coins {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if c&1 == 0 {
				t.Skip()
			}
		})
	}
}
`
	r := l.receiptOf(t, testenv.Tree(t, text), goTest)
	if r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "no_reexecution_agreement") {
		t.Errorf("%s, codes %s; want indeterminate, no_reexecution_agreement", r.Classification, codes(r))
	}
}
