package daemon_test

import (
	"slices"
	"testing"

	"striatum/daemon"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

// chain records so many receipts of the desk's lane and returns their seals.
func (d *desk) chain(n int) (seals []string) {
	d.Helper()
	prev := receipt.FirstPrevSeal
	for i := range n {
		envelope, v := d.sign(func(r *receipt.Receipt) { r.Sequence, r.PrevSeal = int64(i+1), prev })
		_, err := d.RecordReceipt(d.Context(), daemon.LocalUser(), envelope)
		d.must(err)
		prev = v.Seal()
		seals = append(seals, prev)
	}
	return seals
}

func TestTheReceiptsOfARevokedLaneAreNamed(t *testing.T) {
	d := newDesk(t).enrol()
	seals := d.chain(4)
	other := receipttest.Key(t, 2)
	d.must(d.EnrolLane(t.Context(), operator(), daemon.LaneSpec{LaneID: "lane-2", PublicKey: other.Public(), Class: seal.ClassShared}))
	foreign, _ := receipttest.Sign(t, func() receipt.Receipt {
		r := receipttest.Facts()
		r.LaneEpoch, r.Lane.LaneID = "epoch-2", "lane-2"
		return r
	}(), other)
	_, err := d.RecordReceipt(t.Context(), daemon.LocalUser(), foreign)
	d.must(err)
	_, err = d.RevokeLane(t.Context(), operator(), "lane-1", daemon.RevokedRetired, 0)
	d.must(err)
	for most, want := range map[int][]string{10: seals, 3: seals[1:], 0: nil} {
		all, err := d.TrustedLanes(t.Context(), operator(), most)
		d.must(err)
		want = slices.Sorted(slices.Values(want))
		if len(all) != 2 || !slices.Equal(all[0].Receipts, want) || all[0].Left != len(seals)-len(want) || all[1].Receipts != nil || all[1].Left != 0 {
			t.Errorf("at most %d: got %+v", most, all)
		}
	}
	_, err = d.RevokeLane(t.Context(), operator(), "lane-1", daemon.RevokedCompromised, 0)
	d.must(err)
	if all, err := d.TrustedLanes(t.Context(), operator(), 10); err != nil || all[0].Receipts != nil {
		t.Errorf("compromised from its enrolment on: got %+v, %v", all, err)
	}
}

func BenchmarkTrustedLanes(b *testing.B) {
	d := newDesk(b).enrol()
	d.chain(2000)
	_, err := d.RevokeLane(b.Context(), operator(), "lane-1", daemon.RevokedRetired, 0)
	d.must(err)
	for b.Loop() {
		if _, err := d.TrustedLanes(b.Context(), operator(), daemon.MaxTrustedReceipts); err != nil {
			b.Fatal(err)
		}
	}
}
