// Package money counts in whole cents.
package money

import "fmt"

// Cents is an amount of money in cents. It may be negative.
type Cents int64

// String returns the amount with two decimals: Cents(-5) is "-0.05".
func (c Cents) String() string {
	sign := ""
	if c < 0 {
		sign, c = "-", -c
	}
	return fmt.Sprintf("%s%d.%02d", sign, c/100, c%100)
}

// Split divides c into n shares that differ by at most one cent and add up to
// c. The larger shares come first. It returns nil if n is not positive.
func Split(c Cents, n int) []Cents {
	if n <= 0 {
		return nil
	}
	shares := make([]Cents, n)
	rest := c % Cents(n)
	for i := range shares {
		shares[i] = c / Cents(n)
		switch {
		case rest > 0:
			shares[i]++
			rest--
		case rest < 0:
			shares[i]--
			rest++
		}
	}
	return shares
}
