package report_test

import (
	"strings"
	"testing"

	"example.com/quickstart/inventory"
	"example.com/quickstart/report"
)

func TestLine(t *testing.T) {
	var s inventory.Stock
	if err := s.Add("bolt", 12); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := report.Line(&b, &s, "bolt", 250); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "bolt: 12 at 2.50 = 30.00\n"; got != want {
		t.Errorf("Line wrote %q, want %q", got, want)
	}
}
