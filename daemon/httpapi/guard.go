package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"striatum/daemon"
	"striatum/daemon/wire"
	"striatum/internal/crew"
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
		if r.ContentLength != 0 {
			return problem.New(problem.Usage, serve, "this call has no body", "")
		}
		return nil
	}
	var err error
	if c.principal, err = s.principal(ctx, c.peer, r.Header); err != nil {
		return err
	}
	if c.principal.Kind == daemon.Session && !c.peer.known {
		c.answer.Header().Set("Connection", "close")
	}
	if r.Header.Get("Content-Type") != "application/json" {
		return problem.New(problem.Usage, serve, "its content type is not application/json", "")
	}
	body, err := s.read(c, r)
	if err != nil {
		return err
	}
	if c.give, err = s.calls.take(c.principal, c.peer); err != nil {
		return err
	}
	if len(body) == 0 {
		body = []byte("null") // huma answers no body itself; this is no document either
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// read reads the body of a call, in one of the places for that.
func (s *Server) read(c *call, r *http.Request) ([]byte, error) {
	most := int64(wire.MaxRequestBytes)
	if c.principal.Kind == daemon.Session {
		most = wire.MaxSessionRequestBytes
	}
	long := problem.New(problem.Usage, serve, fmt.Sprintf("it has more than the %d bytes of a %s's call", most, c.principal.Kind), "")
	if !s.audiences[c.route].has(c.principal.Kind) { // the daemon refuses a short one, and says what
		most = maxForeignBytes
		long = problem.New(problem.Refused, "call "+c.route, fmt.Sprintf("a %s principal may not do that", c.principal.Kind), "")
	}
	if r.ContentLength > most {
		return nil, long
	}
	give, err := s.reads.take(c.principal, c.peer)
	if err != nil {
		return nil, err
	}
	defer give()
	body, err := io.ReadAll(http.MaxBytesReader(c.answer.ResponseWriter, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, long
	}
	if err != nil {
		return nil, problem.New(problem.Usage, serve, "its body did not arrive", "")
	}
	c.read = true
	return body, nil
}

// hangUp makes the answer, which goes out at once, the last of its connection. A
// caller who is still sending a short call can end that, or would not see it.
func (c *call) hangUp() {
	c.answer.Header().Set("Connection", "close")
	// An error would mean that the connection is gone.
	_ = http.NewResponseController(c.answer.ResponseWriter).SetReadDeadline(time.Now().Add(HangUpTimeout)) //nolint:forbidigo // the kernel keeps it
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
		case from.known:
			if err := s.hold(seal.SHA256Hex([]byte(token)), from.uid, operatorUID); err != nil {
				return daemon.Principal{}, err
			}
		}
	case daemon.Lane:
		if from.known {
			s.lanes.add(from.uid) // one too many has no place that is kept for it
		}
	case daemon.Local:
		return refused("its token names nobody", "")
	}
	if from.known {
		p.PeerUID = &from.uid
	}
	return p, nil
}

// hold notes that a user presented a session's token. Of a token that another user
// presented before only operators' uids are noted, which that takes their rights
// from: a user who has many uids would fill the set, and keep all others out.
func (s *Server) hold(token string, uid uint32, operator bool) error {
	refused := func(why, hint string) error { return problem.New(problem.Refused, "check who calls", why, hint) }
	first, ok := s.holders.bind(token, uid)
	switch {
	case !ok:
		return refused("too many sessions' tokens were presented", "start the daemon again")
	case first != uid:
		if operator {
			s.sessions.add(uid)
		}
		return refused("another user presented this session's token before", "mint one for each user; one that was read by another is ended with `striatum token revoke`")
	case !s.sessions.add(uid):
		return refused("too many users hold sessions' tokens", "start the daemon again")
	}
	return nil
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

// list returns all, ascending.
func (u *uids) list() []uint32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.AppendSeq(make([]uint32, 0, len(u.set)), slices.Values(slices.Sorted(maps.Keys(u.set))))
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

// favoured says whether a uid may take the last connections of a socket.
func (s *Server) favoured(uid uint32) bool {
	return !s.sessions.has(uid) && (uid == 0 || slices.Contains(s.cfg.OperatorUIDs, uid) || s.lanes.has(uid))
}

// holders are the users that presented sessions' tokens first, by the token's
// SHA-256.
type holders struct {
	mu  sync.Mutex
	set map[string]uint32
}

// bind returns who presented a token first: uid, if nobody did. It reports false
// where too many were.
func (h *holders) bind(token string, uid uint32) (first uint32, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.set == nil {
		h.set = map[string]uint32{}
	}
	if first, ok = h.set[token]; ok {
		return first, true
	}
	if len(h.set) >= maxSessionTokens {
		return 0, false
	}
	h.set[token] = uid
	return uid, true
}

// rescue answers a call whose handler panicked.
func (c *call) rescue() {
	if v := recover(); v != nil {
		if fault, ok := v.(*crew.Fault); ok {
			c.fail(fmt.Errorf("panic: %s", fault))
			return
		}
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
