package httpapi

import (
	"fmt"
	"slices"
	"sync"

	"striatum/daemon"
	"striatum/internal/problem"
)

// places bounds what runs at once: for sessions, for lanes, and for operators with
// local users, each for itself, so that none of them can take another's; and of
// the sessions' for each token and each uid.
type places struct {
	doing string // what a call with a place does
	max   map[daemon.Kind]int
	mu    sync.Mutex
	taken map[string]int
}

func newPlaces(doing string, sessions int) *places {
	return &places{doing: doing, taken: map[string]int{}, max: map[daemon.Kind]int{
		daemon.Session: sessions, daemon.Lane: MaxLaneCalls, daemon.Operator: MaxOperatorCalls,
	}}
}

// take takes a place, and returns what gives it back.
func (p *places) take(who daemon.Principal, from peer) (give func(), err error) {
	kind := who.Kind
	if kind == daemon.Local {
		kind = daemon.Operator
	}
	bounds := []bound{{kind.String(), p.max[kind], "of " + kind.String() + "s"}}
	if kind == daemon.Session {
		bounds = append(bounds, bound{"token " + who.Name, MaxSessionCalls, "of one session"})
		if from.known {
			bounds = append(bounds, bound{fmt.Sprintf("uid %d", from.uid), MaxSessionCalls, "of sessions of one user"})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range bounds {
		if p.taken[b.key] >= b.max {
			return nil, problem.New(problem.Indeterminate, serve, fmt.Sprintf("%d calls %s are %s, as many as may at once", b.max, b.of, p.doing), "try again")
		}
	}
	for _, b := range bounds {
		p.taken[b.key]++
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, b := range bounds {
			if p.taken[b.key]--; p.taken[b.key] == 0 {
				delete(p.taken, b.key)
			}
		}
	}), nil
}

// bound is how many places those with key may take.
type bound struct {
	key string
	max int
	of  string
}

// audience is which principals' calls of a route are read whole: the daemon
// decides again, and on more than the kind.
type audience []daemon.Kind

var (
	readers   = audience{daemon.Session, daemon.Lane}
	askers    = audience{daemon.Session}
	recorders = audience{daemon.Lane}
	operators = audience{}
)

// has says whether kind is one of a; operators and local users always are.
func (a audience) has(kind daemon.Kind) bool {
	return kind == daemon.Operator || kind == daemon.Local || slices.Contains(a, kind)
}
