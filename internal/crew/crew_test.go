package crew_test

import (
	"strings"
	"testing"

	"striatum/internal/crew"
)

func TestAPanicIsTheCallers(t *testing.T) {
	stopped := make(chan struct{})
	ended := false
	fault := crew.Catch(func() {
		g := crew.Group{Stop: func() { close(stopped) }}
		g.Go(func() {
			<-stopped
			ended = true
		})
		g.Go(func() { panic("a fault") })
		g.Wait()
	})
	if fault == nil || fault.Value != "a fault" || !strings.Contains(fault.String(), "crew_test.TestAPanicIsTheCallers") {
		t.Errorf("got %v", fault)
	}
	if !ended {
		t.Error("it did not wait for the other")
	}
}

func TestAFaultKeepsItsStackFromGroupToGroup(t *testing.T) {
	fault := crew.Catch(func() {
		var outer crew.Group
		outer.Go(func() {
			var inner crew.Group
			inner.Go(func() { panic("within") })
			inner.Wait()
		})
		outer.Wait()
	})
	if fault == nil || fault.Value != "within" {
		t.Errorf("got %v", fault)
	}
}

func TestWithoutAPanicNothingIsCaught(t *testing.T) {
	var g crew.Group
	var n [3]int
	for i := range n {
		g.Go(func() { n[i] = i })
	}
	if fault := crew.Catch(g.Wait); fault != nil || n != [3]int{0, 1, 2} {
		t.Errorf("got %v, %v", fault, n)
	}
}
