package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"striatum/eventlog"
	"striatum/seal"
	"striatum/store"
)

// Plain inserts a receipt's three rows (blob, log, receipt) with prepared
// statements in one durable transaction, and does nothing else.
type Plain func(ctx context.Context, envelope []byte, e eventlog.Entry, record []byte, r store.Receipt) error

// Ingest records receipts, one for each Update, in turn with plain inserts of
// the same rows into another, empty database. It reports both medians, and as
// "ratio" the plain time by the store's: 1 is as fast as the database itself.
func Ingest(b *testing.B, s store.Store, plain Plain) {
	b.Helper()
	envelope := strings.Repeat("0123456789abcdef", 512)
	var head eventlog.Entry
	var ours, theirs []time.Duration
	for n := 0; b.Loop(); n++ {
		data := fmt.Appendf(nil, "%d%s", n, envelope)
		r := NewSample(seal.SHA256Hex(data)).Receipt
		r.Seal = digest(n)

		start := time.Now()
		err := s.Update(b.Context(), func(w store.Writer) error {
			if _, err := w.PutBlob(b.Context(), data); err != nil {
				return err
			}
			_, err := w.AddReceipt(b.Context(), r)
			return err
		})
		ours = append(ours, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}

		record, err := seal.Canonical(r)
		if err != nil {
			b.Fatal(err)
		}
		head = eventlog.Next(head, string(store.KindReceipt), start, record)
		start = time.Now()
		err = plain(b.Context(), data, head, record, r)
		theirs = append(theirs, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	x, y := ours[len(ours)/2], theirs[len(theirs)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(x.Microseconds())/1000, "store-ms")
	b.ReportMetric(float64(y.Microseconds())/1000, "plain-ms")
	b.ReportMetric(float64(y)/float64(x), "ratio")
}
