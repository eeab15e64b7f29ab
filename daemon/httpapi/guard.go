package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"striatum/daemon"
	"striatum/daemon/wire"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
)

const serve = "serve the call"

// admit finds out whether a call is one, who makes it, and reads what it says. Of
// a caller who is nobody no more than the header is read.
func (s *Server) admit(ctx context.Context, c *call, r *http.Request) error {
	_, pattern := s.mux.Handler(r)
	_, route, ok := strings.Cut(pattern, " ")
	if !ok || r.URL.RawQuery != "" || r.URL.Path != route {
		return problem.New(problem.Usage, serve, "there is no such call", "docs/reference/striatumd.yaml describes all")
	}
	c.route = route
	if route == wire.Health || route == wire.Ready {
		return nil
	}
	var err error
	if c.principal, err = s.principal(ctx, c.peer, r.Header); err != nil {
		return err
	}
	if r.Header.Get("Content-Type") != "application/json" {
		return problem.New(problem.Usage, serve, "its content type is not application/json", "")
	}
	select {
	case s.calls <- struct{}{}:
		c.counted = true
	default:
		return problem.New(problem.Indeterminate, serve, fmt.Sprintf("%d calls are running, as many as may at once", MaxCalls), "try again")
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.answer.ResponseWriter, r.Body, wire.MaxRequestBytes))
	if err != nil {
		<-s.calls
		c.counted = false
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return problem.New(problem.Usage, serve, fmt.Sprintf("it has more than %d bytes", wire.MaxRequestBytes), "")
		}
		return problem.New(problem.Usage, serve, "its body did not arrive", "")
	}
	if len(body) == 0 {
		body = []byte("null") // huma answers no body itself; this is no document either
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// principal says who makes a call. The package comment has the rules.
func (s *Server) principal(ctx context.Context, from peer, h http.Header) (daemon.Principal, error) {
	const what = "check who calls"
	refused := func(why, hint string) (daemon.Principal, error) {
		return daemon.Principal{}, problem.New(problem.Refused, what, why, hint)
	}
	token, err := bearer(h)
	if err != nil {
		return daemon.Principal{}, err
	}
	operatorUID := from.known && (from.uid == 0 || slices.Contains(s.cfg.OperatorUIDs, from.uid))
	if token == "" {
		if operatorUID && !s.sessions.has(from.uid) {
			return daemon.LocalUser(), nil
		}
		return refused("it has no token", "name the file of one with STRIATUM_TOKEN_FILE; an operator mints it with `striatum token mint`")
	}
	p, err := s.cfg.Service.Authenticate(ctx, token)
	if err != nil {
		return daemon.Principal{}, err
	}
	switch p.Kind {
	case daemon.Operator:
		switch {
		case !from.known:
			return refused("an operator calls over the socket only", "use --socket or STRIATUM_SOCKET")
		case !operatorUID:
			return refused(fmt.Sprintf("uid %d is not an operator's", from.uid), "call as root, or name the uid in the daemon's operator_uids")
		case s.sessions.has(from.uid):
			return refused(fmt.Sprintf("uid %d holds a session's token too", from.uid), "give sessions a user of their own, and start the daemon again")
		}
	case daemon.Session:
		isolated := s.cfg.Service.StoreClass() == seal.ClassIsolated
		switch {
		case !from.known && isolated:
			return refused("the kernel does not say who calls over TCP, and this store is isolated", "use --socket or STRIATUM_SOCKET")
		case isolated && (from.uid == 0 || from.uid == s.cfg.UID):
			return refused(fmt.Sprintf("uid %d could read the store, and this one is isolated", from.uid), "run the session as another user")
		case from.known && !s.sessions.add(from.uid):
			return refused("too many users hold sessions' tokens", "start the daemon again")
		}
	case daemon.Lane:
	case daemon.Local:
		return refused("its token names nobody", "")
	}
	return p, nil
}

// bearer returns the token of a header, "" where there is none.
func bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", nil
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if len(values) > 1 || !ok || token == "" || len(values[0]) > maxAuthorizationText {
		return "", problem.New(problem.Refused, "check who calls", `the header "Authorization" is not one "Bearer TOKEN"`, "")
	}
	return token, nil
}

// uids is a set of users.
type uids struct {
	mu  sync.Mutex
	set map[uint32]bool
}

func (u *uids) has(uid uint32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.set[uid]
}

// add reports false where the set is full.
func (u *uids) add(uid uint32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.set == nil {
		u.set = map[uint32]bool{}
	}
	if !u.set[uid] && len(u.set) >= maxSessionUIDs {
		return false
	}
	u.set[uid] = true
	return true
}

// rescue answers a call whose handler panicked.
func (c *call) rescue() {
	if v := recover(); v != nil {
		c.fail(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
	}
}

// fail answers the call with a Problem.
func (c *call) fail(err error) {
	p := c.public(err)
	if c.answer.status != 0 {
		return // it began to answer already
	}
	doc, status := wire.NewProblem(p, c.id)
	body, err := json.Marshal(doc)
	if err != nil {
		body = []byte("{}") // a struct of strings always encodes
	}
	h := c.answer.Header()
	h.Set("Content-Type", wire.MediaProblem)
	c.answer.WriteHeader(status)
	_, _ = c.answer.Write(body) // the caller is gone
}

// public returns what a caller may read of err. What a database or the system
// said stays in the log, under the call's id.
func (c *call) public(err error) *problem.Problem {
	p := problem.Of(err)
	if d, ok := errors.AsType[*seal.DecodeError](err); ok && p.Kind == problem.Internal {
		return problem.New(problem.Invalid, "read the call", d.Error(), "")
	}
	hint := "the daemon's log has it, as request " + c.id
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		c.fault = err
		return problem.New(problem.Indeterminate, serve, "it took too long", "try again; "+hint)
	case errors.Is(err, context.Canceled):
		return problem.New(problem.Indeterminate, serve, "it was given up", "")
	case p.Kind == problem.Internal:
		c.fault = err
		return problem.New(problem.Internal, serve, "a fault of the daemon", hint)
	}
	for _, known := range []error{store.ErrBusy, store.ErrUnavailable, store.ErrReadOnly, store.ErrFull, store.ErrCorrupt, store.ErrNewerSchema, store.ErrConflict} {
		if errors.Is(err, known) {
			c.fault = err
			return problem.New(p.Kind, p.What, known.Error(), hint)
		}
	}
	return p
}
