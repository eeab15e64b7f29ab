package httpapi

import (
	"strconv"
	"testing"

	"striatum/daemon"
)

func TestEachKindAndEachSessionHasPlacesOfItsOwn(t *testing.T) {
	session := func(i int) daemon.Principal {
		return daemon.Principal{Kind: daemon.Session, Name: "se-" + strconv.Itoa(i)}
	}
	at := func(uid int) peer { return peer{known: true, uid: uint32(uid)} }
	p := newPlaces("running", MaxSessionsCalls)
	var gives []func()
	fill := func(who daemon.Principal, from peer, want int) {
		t.Helper()
		n := 0
		for ; n <= MaxSessionsCalls; n++ {
			give, err := p.take(who, from)
			if err != nil {
				break
			}
			gives = append(gives, give)
		}
		if n != want {
			t.Errorf("%v of uid %d took %d places, want %d", who, from.uid, n, want)
		}
	}
	fill(session(1), at(1), MaxSessionCalls)
	fill(session(2), at(1), 0) // another token of the same user
	fill(session(1), peer{}, 0)
	for i := 2; i <= MaxSessionsCalls/MaxSessionCalls; i++ {
		fill(session(i), peer{}, MaxSessionCalls)
	}
	fill(session(9), at(9), 0)
	fill(daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}, at(1), MaxLaneCalls)
	fill(daemon.Principal{Kind: daemon.Operator, Name: "op-1"}, at(0), MaxOperatorCalls)
	fill(daemon.LocalUser(), at(0), 0)
	for _, give := range gives {
		give()
		give() // a second time it does nothing
	}
	if len(p.taken) != 0 {
		t.Errorf("left: %v", p.taken)
	}
	fill(session(9), at(9), MaxSessionCalls)
}
