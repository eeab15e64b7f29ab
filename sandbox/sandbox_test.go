package sandbox

import (
	"strings"
	"testing"
)

func TestPostureErrorNamesWhatWasSeenFirst(t *testing.T) {
	e := &PostureError{Reason: "why", Posture: Posture{Facets: []Facet{
		{Name: "a", OK: true}, {Name: "b", Observed: NotObserved}, {Name: "c", Required: "1", Observed: "0"},
	}}}
	if got := e.Error(); !strings.Contains(got, "not strict: c ") || !strings.Contains(got, "why") {
		t.Errorf("got %q", got)
	}
	e.Posture.Facets = e.Posture.Facets[:2]
	if got := e.Error(); !strings.Contains(got, "not observed") || !strings.Contains(got, "why") {
		t.Errorf("got %q", got)
	}
}
