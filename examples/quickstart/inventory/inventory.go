// Package inventory keeps how many of each item are in stock.
package inventory

import "fmt"

// Stock maps an item's name to its count. Its zero value is empty.
type Stock struct {
	counts map[string]int
}

// Add puts n of item into stock. It fails if n is not positive.
func (s *Stock) Add(item string, n int) error {
	if n <= 0 {
		return fmt.Errorf("add %d of %q: the count is not positive", n, item)
	}
	if s.counts == nil {
		s.counts = make(map[string]int)
	}
	s.counts[item] += n
	return nil
}

// Take removes n of item. It fails, and takes nothing, if there are fewer.
func (s *Stock) Take(item string, n int) error {
	if have := s.counts[item]; n <= 0 || n > have {
		return fmt.Errorf("take %d of %q: there are %d", n, item, have)
	}
	s.counts[item] -= n
	return nil
}

// Count returns how many of item are in stock.
func (s *Stock) Count(item string) int { return s.counts[item] }
