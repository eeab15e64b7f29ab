package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
	"striatum/workflow"
)

// The bounds of requests for checks.
const (
	RequestTTL           = 10 * time.Minute // until a lane took it
	MaxRequestChecks     = 64
	MaxOpenRequests      = 64
	MaxOpenRequestsOf    = 4   // of one token
	MaxRequestsOf        = 100 // of one token, within RequestTTL
	MaxRequestSeals      = MaxRequestChecks
	maxRequestCommit     = 200  // bytes
	maxRequestWhy        = 2000 // bytes
	maxRequestCheckBytes = 64
)

// What became of a request: states that are computed, then outcomes that are
// recorded. A lane whose key was revoked has abandoned what it took.
const (
	RequestWaiting   = "waiting"
	RequestTaken     = "taken"
	RequestExpired   = "expired"
	RequestDone      = "done"
	RequestFailed    = "failed"
	RequestCancelled = "cancelled"
	RequestAbandoned = "abandoned"
)

// CheckAsk says which checks somebody asks a lane to run: of no names every check of
// the workflow, of no commit the worktree's files.
type CheckAsk struct {
	RepositoryID string   `json:"repository_id"`
	RunID        string   `json:"run_id"`
	Checks       []string `json:"checks,omitempty"`
	Commit       string   `json:"commit"`
}

// RequestEnd says what became of a request that a lane took.
type RequestEnd struct {
	Outcome string   `json:"outcome"`
	Why     string   `json:"why"`
	Seals   []string `json:"seals,omitempty"`
}

// RequestInfo is a request for checks with what became of it. LaneID is who took it.
type RequestInfo struct {
	store.CheckRequest
	Position   int64    `json:"position"`
	RecordedAt string   `json:"recorded_at"`
	State      string   `json:"state"`
	LaneID     string   `json:"lane_id"`
	Why        string   `json:"why"`
	Seals      []string `json:"seals,omitempty"`
}

// requestHint says what to do about a request that a lane does not get.
const requestHint = "run the command again, which asks anew"

// RequestChecks asks for checks of a session's run, or any run of an operator's.
// The request names the uid that the kernel named: whoever calls otherwise than
// over a unix socket is refused.
func (s *Service) RequestChecks(ctx context.Context, p Principal, ask CheckAsk) (RequestInfo, error) {
	const what = "ask for checks"
	if err := p.mustBe(what, Session, Operator); err != nil {
		return RequestInfo{}, err
	}
	if err := p.mustReachRun(what, ask.RepositoryID, ask.RunID); err != nil {
		return RequestInfo{}, err
	}
	if p.PeerUID == nil {
		return RequestInfo{}, problem.New(problem.Refused, what, "the kernel does not say which user asks", "use --socket or STRIATUM_SOCKET")
	}
	if err := ask.check(what); err != nil {
		return RequestInfo{}, err
	}
	if !s.asks.take(p.String(), s.cfg.Now()) {
		return RequestInfo{}, problem.New(problem.Indeterminate, what, fmt.Sprintf("this token asked %d times within %s, as often as it may", MaxRequestsOf, RequestTTL), "try again later")
	}
	id, err := s.hexID("")
	if err != nil {
		return RequestInfo{}, err
	}
	row := store.CheckRequest{
		ID: id, RepositoryID: ask.RepositoryID, RunID: ask.RunID, By: p.String(), UID: int64(*p.PeerUID), Checks: ask.Checks, Commit: ask.Commit,
	}
	err = s.update(ctx, what, func(w store.Writer) error {
		now, err := s.time(ctx, w)
		if err != nil {
			return err
		}
		open, err := s.openRequests(ctx, w, now)
		if err != nil {
			return err
		}
		mine := 0
		for _, r := range open {
			if r.By == row.By {
				mine++
			}
		}
		switch {
		case mine >= MaxOpenRequestsOf:
			return problem.New(problem.Indeterminate, what, fmt.Sprintf("this token has %d open requests, as many as it may", mine), "wait until one has ended, or ten minutes")
		case len(open) >= MaxOpenRequests:
			return problem.New(problem.Indeterminate, what, fmt.Sprintf("%d requests are open, as many as may be", len(open)), "wait until one has ended")
		}
		row.ExpiresAt = now.Add(RequestTTL).UTC().Format(time.RFC3339)
		_, err = w.AddCheckRequest(ctx, row)
		return err
	})
	if err != nil {
		return RequestInfo{}, err
	}
	return s.RequestState(ctx, p, id)
}

// asks are when principals asked for checks of late. Requests stay in the store for
// good, also those that are cancelled at once.
type asks struct {
	mu sync.Mutex
	of map[string][]time.Time
}

// take notes that by asks now; false if it did too often.
func (a *asks) take(by string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for who, times := range a.of {
		late := slices.DeleteFunc(times, func(t time.Time) bool { return t.After(now) || !now.Before(t.Add(RequestTTL)) })
		if a.of[who] = late; len(late) == 0 {
			delete(a.of, who)
		}
	}
	if len(a.of[by]) >= MaxRequestsOf {
		return false
	}
	if a.of == nil {
		a.of = map[string][]time.Time{}
	}
	a.of[by] = append(a.of[by], now)
	return true
}

func (a CheckAsk) check(what string) error {
	usage := func(why, hint string) error { return problem.New(problem.Usage, what, why, hint) }
	switch {
	case !workflow.ValidID(a.RepositoryID):
		return usage("it names no repository id", "`striatum policy show` prints the worktree's")
	case a.RunID != "" && !workflow.ValidID(a.RunID):
		return usage("its run is not an id", "")
	case len(a.Checks) > MaxRequestChecks:
		return usage(fmt.Sprintf("%d checks are more than %d", len(a.Checks), MaxRequestChecks), "ask for some of them first")
	case len(a.Commit) > maxRequestCommit || !printable(a.Commit):
		return usage("the revision is no name of one", "name a full id, HEAD, a branch or a tag")
	}
	for i, id := range a.Checks {
		_, builtin := workflow.LookupBuiltin(id)
		if !builtin && !workflow.ValidID(id) || len(id) > maxRequestCheckBytes {
			return usage(fmt.Sprintf("%q names no check", clip(id)), "")
		}
		if slices.Contains(a.Checks[:i], id) {
			return usage(fmt.Sprintf("the check %q is named twice", id), "")
		}
	}
	return nil
}

// printable says whether s is visible ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// openRequests lists those that wait for a lane or that one works on.
func (s *Service) openRequests(ctx context.Context, r store.Reader, now time.Time) ([]RequestInfo, error) {
	at := now.UTC().Format(time.RFC3339)
	rows, err := store.All(func(p store.Page) ([]store.Row[store.CheckRequest], error) { return r.OpenCheckRequests(ctx, at, p) })
	if err != nil {
		return nil, err
	}
	var open []RequestInfo
	for _, row := range rows {
		info, err := requestInfo(ctx, r, row, now)
		if err != nil {
			return nil, err
		}
		if info.State == RequestWaiting || info.State == RequestTaken {
			open = append(open, info)
		}
	}
	return open, nil
}

// request reads a request and what became of it.
func (s *Service) request(ctx context.Context, r store.Reader, id string) (RequestInfo, error) {
	row, err := r.CheckRequest(ctx, id)
	if err != nil {
		return RequestInfo{}, err
	}
	now, err := s.time(ctx, r)
	if err != nil {
		return RequestInfo{}, err
	}
	return requestInfo(ctx, r, row, now)
}

func requestInfo(ctx context.Context, r store.Reader, row store.Row[store.CheckRequest], now time.Time) (RequestInfo, error) {
	info := RequestInfo{CheckRequest: row.Value, Position: row.Position, RecordedAt: row.RecordedAt, State: RequestWaiting}
	taken, err := r.CheckRequestTaken(ctx, info.ID)
	switch {
	case err == nil:
		info.LaneID, info.State = taken.Value.LaneID, RequestTaken
	case !errors.Is(err, store.ErrNotFound):
		return RequestInfo{}, err
	}
	end, err := r.CheckRequestEnd(ctx, info.ID)
	switch {
	case err == nil:
		info.State, info.Why, info.Seals = end.Value.Outcome, end.Value.Why, end.Value.Seals
		return info, nil
	case !errors.Is(err, store.ErrNotFound):
		return RequestInfo{}, err
	}
	if info.LaneID == "" {
		if at, err := time.Parse(time.RFC3339, info.ExpiresAt); err != nil || !now.Before(at) {
			info.State, info.Why = RequestExpired, "no lane took it in time"
		}
		return info, nil
	}
	err = unrevoked(ctx, r, "look at the request", info.LaneID)
	if p := problem.Of(err); p != nil && p.Kind == problem.Refused {
		info.State, info.Why, err = RequestAbandoned, p.Why, nil
	}
	return info, err
}

// TakeRequest gives a waiting request to the lane that asks, for the process of the
// user uid that called it. It is given once, and not where the token that asked for it
// was revoked since.
func (s *Service) TakeRequest(ctx context.Context, p Principal, id string, uid uint32) (info RequestInfo, err error) {
	const what = "take the request for checks"
	if err := p.mustBe(what, Lane); err != nil {
		return RequestInfo{}, err
	}
	refused := func(why string) error { return problem.New(problem.Refused, what, why, requestHint) }
	err = s.update(ctx, what, func(w store.Writer) error {
		if err := unrevoked(ctx, w, what, p.Name); err != nil {
			return err
		}
		info, err = s.request(ctx, w, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return refused("there is no such request")
		case err != nil:
			return err
		case info.UID != int64(uid):
			return refused("another user asked for it")
		case info.State == RequestTaken || info.LaneID != "":
			return refused(fmt.Sprintf("lane %q took it already", info.LaneID))
		case info.State != RequestWaiting:
			return refused("it is " + info.State)
		}
		if revoked, err := s.allRevoked(ctx, w, info.By); err != nil {
			return err
		} else if revoked {
			return refused("the token that asked for it was revoked")
		}
		info.State, info.LaneID = RequestTaken, p.Name
		_, err = w.AddCheckRequestTaken(ctx, store.CheckRequestTaken{ID: id, LaneID: p.Name})
		return err
	})
	if err != nil {
		return RequestInfo{}, err
	}
	return info, nil
}

// allRevoked reports whether every token of the principal that by names was revoked;
// false where the store has none.
func (s *Service) allRevoked(ctx context.Context, r store.Reader, by string) (bool, error) {
	all, err := s.tokens(ctx, r)
	revoked := false
	for _, t := range all {
		if (Principal{Kind: tokenKind(t.Kind), Name: t.Name}).String() != by {
			continue
		}
		if !t.Revoked {
			return false, err
		}
		revoked = true
	}
	return revoked, err
}

// EndRequest says what became of a request that the lane took. The receipts that it
// names must have been recorded, of that repository and run; one that is done has some,
// of every check that was named. To say the same again does nothing.
func (s *Service) EndRequest(ctx context.Context, p Principal, id string, end RequestEnd) error {
	const what = "end the request for checks"
	if err := p.mustBe(what, Lane); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]string{RequestDone, RequestFailed, RequestCancelled, RequestAbandoned}, end.Outcome):
		return problem.New(problem.Usage, what, fmt.Sprintf("%q is not an outcome", clip(end.Outcome)), "")
	case len(end.Why) > maxRequestWhy || !utf8.ValidString(end.Why):
		return problem.New(problem.Usage, what, fmt.Sprintf("its reason is not text of at most %d bytes", maxRequestWhy), "")
	case len(end.Seals) > MaxRequestSeals:
		return problem.New(problem.Usage, what, fmt.Sprintf("%d receipts are more than %d", len(end.Seals), MaxRequestSeals), "")
	}
	return s.update(ctx, what, func(w store.Writer) error {
		info, err := s.request(ctx, w, id)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && info.LaneID != p.Name:
			return problem.New(problem.Refused, what, "this lane took no such request", "")
		case err != nil:
			return err
		case info.State != RequestTaken:
			if info.State == end.Outcome && slices.Equal(info.Seals, end.Seals) {
				return nil
			}
			return problem.New(problem.Refused, what, "it is "+info.State, "")
		}
		var checked []string
		for _, digest := range end.Seals {
			if !seal.ValidDigest(digest) {
				return problem.New(problem.Usage, what, fmt.Sprintf("%q is no seal", clip(digest)), "")
			}
			row, err := w.Receipt(ctx, digest)
			if errors.Is(err, store.ErrNotFound) || err == nil && (row.Value.RepositoryID != info.RepositoryID || row.Value.RunID != info.RunID) {
				return problem.New(problem.Refused, what, fmt.Sprintf("%s is no recorded receipt of its repository and run", digest), "record it first")
			}
			if err == nil && row.Position < info.Position {
				return problem.New(problem.Refused, what, fmt.Sprintf("%s was recorded before the checks were asked for", digest), "")
			}
			if err != nil {
				return err
			}
			checked = append(checked, row.Value.CheckID)
		}
		if end.Outcome == RequestDone {
			if len(checked) == 0 {
				return problem.New(problem.Refused, what, "it is called done without a receipt", "")
			}
			for _, id := range info.Checks {
				if !slices.Contains(checked, id) {
					return problem.New(problem.Refused, what, fmt.Sprintf("it is called done without a receipt of the check %q", id), "")
				}
			}
		}
		_, err = w.AddCheckRequestEnd(ctx, store.CheckRequestEnd{ID: id, By: p.String(), Outcome: end.Outcome, Why: end.Why, Seals: end.Seals})
		return err
	})
}

// CancelRequest ends a request that no lane took, for whoever made it. An operator
// also ends one that a lane took and does not come back to.
func (s *Service) CancelRequest(ctx context.Context, p Principal, id string) error {
	const what = "cancel the request for checks"
	if err := p.mustBe(what, Session, Operator); err != nil {
		return err
	}
	return s.update(ctx, what, func(w store.Writer) error {
		info, err := s.request(ctx, w, id)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && !p.asked(info):
			return problem.New(problem.Refused, what, "there is no such request of this token", "")
		case err != nil:
			return err
		case info.State == RequestTaken && p.Kind != Operator:
			return problem.New(problem.Refused, what, fmt.Sprintf("lane %q has it", info.LaneID), "hang up at the lane, which ends it")
		case info.State != RequestWaiting && info.State != RequestTaken:
			return nil
		}
		_, err = w.AddCheckRequestEnd(ctx, store.CheckRequestEnd{ID: id, By: p.String(), Outcome: RequestCancelled})
		return err
	})
}

// asked says whether a request counts as the principal's own: every one does as an
// operator's.
func (p Principal) asked(r RequestInfo) bool {
	return p.Kind == Operator || p.Kind == Session && r.By == p.String() && r.RepositoryID == p.RepositoryID && r.RunID == p.RunID
}

// RequestState returns a request, for whoever made it, the lane that may take it or
// has it, and operators.
func (s *Service) RequestState(ctx context.Context, p Principal, id string) (info RequestInfo, err error) {
	const what = "look at the request for checks"
	if err := p.mustBe(what, Session, Lane, Operator); err != nil {
		return RequestInfo{}, err
	}
	err = s.view(ctx, what, func(r store.Reader) error {
		info, err = s.request(ctx, r, id)
		mine := p.asked(info) || p.Kind == Lane && (info.LaneID == "" || info.LaneID == p.Name)
		if errors.Is(err, store.ErrNotFound) || err == nil && !mine {
			return problem.New(problem.Refused, what, "there is no such request of this token", "")
		}
		return err
	})
	if err != nil {
		return RequestInfo{}, err
	}
	return info, nil
}

// AbandonRequests ends what the lane took and did not end, as one does that was
// killed and begins anew. It returns how many those were.
func (s *Service) AbandonRequests(ctx context.Context, p Principal) (ended int, err error) {
	const what = "abandon the lane's requests for checks"
	if err := p.mustBe(what, Lane); err != nil {
		return 0, err
	}
	err = s.update(ctx, what, func(w store.Writer) error {
		ended = 0
		now, err := s.time(ctx, w)
		if err != nil {
			return err
		}
		open, err := s.openRequests(ctx, w, now)
		if err != nil {
			return err
		}
		for _, r := range open {
			if r.LaneID != p.Name {
				continue
			}
			row := store.CheckRequestEnd{ID: r.ID, By: p.String(), Outcome: RequestAbandoned, Why: "the lane ended before the request did"}
			if _, err := w.AddCheckRequestEnd(ctx, row); err != nil {
				return err
			}
			ended++
		}
		return nil
	})
	return ended, err
}
