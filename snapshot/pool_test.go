package snapshot

import (
	"errors"
	"testing"

	"striatum/internal/crew"
)

func TestAPanicOfAWorkerEndsTheOthersAndIsTheCallers(t *testing.T) {
	p := newPool()
	dropped := 0
	for range 3 {
		p.push(func(*worker) error { t.Error("it was begun"); return nil }, func() { dropped++ })
	}
	p.push(func(*worker) error { panic("a fault") }, nil) // the newest, which comes first
	fault := crew.Catch(func() { _ = p.run(t.Context(), 1) })
	if fault == nil || fault.Value != "a fault" || dropped != 3 {
		t.Errorf("got %v; %d were dropped", fault, dropped)
	}
}

func TestAPanicEndsWorkersThatWait(t *testing.T) {
	p := newPool()
	p.push(func(*worker) error { panic("a fault") }, nil)
	if fault := crew.Catch(func() { _ = p.run(t.Context(), 4) }); fault == nil {
		t.Error("it did not panic")
	}
}

func TestWhatIsNotBegunIsDropped(t *testing.T) {
	p := newPool()
	dropped := 0
	p.push(func(*worker) error { return nil }, func() { dropped++ })
	bad := errors.New("bad")
	p.push(func(*worker) error { return bad }, nil)
	if err := p.run(t.Context(), 1); !errors.Is(err, bad) || dropped != 1 {
		t.Errorf("got %v; %d were dropped", err, dropped)
	}
}
