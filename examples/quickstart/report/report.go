// Package report prints what is in stock and what it is worth.
package report

import (
	"fmt"
	"io"

	"example.com/quickstart/inventory"
	"example.com/quickstart/money"
)

// Line writes one line about item, which costs price each, to w.
func Line(w io.Writer, s *inventory.Stock, item string, price money.Cents) error {
	n := s.Count(item)
	_, err := fmt.Fprintf(w, "%s: %d at %s = %s\n", item, n, price, price*money.Cents(n))
	return err
}
