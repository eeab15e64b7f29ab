package inventory

import "testing"

func TestTakeLeavesTheRest(t *testing.T) {
	var s Stock
	if err := s.Add("bolt", 10); err != nil {
		t.Fatal(err)
	}
	if err := s.Take("bolt", 3); err != nil {
		t.Fatal(err)
	}
	if got := s.Count("bolt"); got != 7 {
		t.Errorf("Count = %d, want 7", got)
	}
}

func TestTakeRefusesMoreThanThereIs(t *testing.T) {
	var s Stock
	if err := s.Take("nut", 1); err == nil {
		t.Error("Take from an empty stock succeeded")
	}
}

func TestAddRefusesNothing(t *testing.T) {
	var s Stock
	for _, n := range []int{0, -1} {
		if err := s.Add("nut", n); err == nil {
			t.Errorf("Add(%d) succeeded", n)
		}
	}
}
