package verifiercmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"striatum/daemon"
	"striatum/daemon/httpapi"
	"striatum/daemon/wire"
	"striatum/internal/beneath"
	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/execban"
	"striatum/internal/handover"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/store"
	"striatum/store/sqlite"
)

// hall is a daemon with an enrolled lane, a worktree that it knows, and an operator
// who asks.
type hall struct {
	testing.TB
	*daemon.Service
	dir, tree, lane string // folders; the lane's socket
	asking          daemon.Principal
	env             map[string]string
	store           store.Store

	mu    sync.Mutex
	ahead time.Duration // of the daemon's clock
}

const hallRepository = "repo-1"

func newHall(t *testing.T) *hall {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root serves a lane")
	}
	dir, err := os.MkdirTemp("", "hall") //nolint:usetesting // its path is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{TB: t, dir: dir, tree: filepath.Join(dir, "tree"), lane: filepath.Join(dir, "lane")}
	now := func() time.Time {
		h.mu.Lock()
		defer h.mu.Unlock()
		return time.Now().Add(h.ahead)
	}
	st, err := sqlite.Open(t.Context(), filepath.Join(dir, "store.db"), now)
	h.must(err)
	h.store = st
	h.Service = daemon.New(daemon.Config{
		Store: st, Now: now, Rand: rand.Reader, StoreClass: seal.ClassShared, StoreName: "sqlite", Home: filepath.Join(dir, "daemon"), ReportKey: receipttest.Key(t, 7),
	})
	operator := daemon.Principal{Kind: daemon.Operator, Name: "op-0"}
	uid := uint32(0)
	h.asking = daemon.Principal{Kind: daemon.Operator, Name: "op-1", PeerUID: &uid}
	own, _, err := home.Open(t.Context(), filepath.Join(dir, "home"), rand.Reader)
	h.must(err)
	h.must(h.EnrolLane(t.Context(), operator, daemon.LaneSpec{LaneID: "lane-1", PublicKey: own.LaneKey.Public(), Class: seal.ClassShared}))
	token, hash, err := daemon.DrawToken(rand.Reader, daemon.Lane)
	h.must(err)
	_, err = h.RecordToken(t.Context(), operator, daemon.TokenSpec{Kind: daemon.Lane, LaneID: "lane-1", TTL: time.Hour}, hash)
	h.must(err)
	h.must(os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	h.must(os.Mkdir(h.tree, 0o755))
	wt, err := home.Worktree(h.tree)
	h.must(err)
	h.must(h.BindRepository(t.Context(), operator, wt, hallRepository))
	h.env = map[string]string{
		"STRIATUM_HOME": own.Dir, "STRIATUM_SOCKET": filepath.Join(dir, "daemon.sock"), "STRIATUM_TOKEN_FILE": filepath.Join(dir, "token"), "PATH": os.Getenv("PATH"), "HOME": dir,
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", h.env["STRIATUM_SOCKET"])
	h.must(err)
	server := httpapi.New(httpapi.Config{Service: h.Service, Log: slog.New(slog.DiscardHandler), Now: time.Now, Rand: rand.Reader, Confined: execban.Read})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		for _, err := range []error{<-ended, st.Close(), os.RemoveAll(dir)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

func (h *hall) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// serving tells when a lane's log says that it serves.
type serving struct {
	mu   sync.Mutex
	text bytes.Buffer
	once sync.Once
	at   chan struct{}
}

func (s *serving) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	if strings.Contains(s.text.String(), `"serving"`) {
		s.once.Do(func() { close(s.at) })
	}
	return len(p), nil
}

// serve runs `striatum lane serve` and returns what stops it.
func (h *hall) serve() (stop func() error) {
	h.Helper()
	log := &serving{at: make(chan struct{})}
	f := &cli.Factory{
		Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: log},
		Getenv:  func(name string) string { return h.env[name] }, Getwd: os.Getwd, Now: time.Now, Rand: rand.Reader,
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := NewServe(f)
	cmd.SetArgs([]string{"--listen", h.lane})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	select {
	case <-log.at:
	case err := <-ended:
		h.Fatalf("it does not serve: %v", err)
	}
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	h.Cleanup(func() {
		if err := stop(); err != nil {
			h.Error(err)
		}
	})
	return stop
}

// request asks for a check as the uid given.
func (h *hall) request(uid uint32) string {
	h.Helper()
	p := h.asking
	p.PeerUID = &uid
	r, err := h.RequestChecks(h.Context(), p, daemon.CheckAsk{RepositoryID: hallRepository, Checks: []string{"none"}})
	h.must(err)
	return r.ID
}

// offer hands the folder over and returns the problem that it ends with.
func (h *hall) offer(id, folder string) *problem.Problem {
	h.Helper()
	c, err := handover.Dial(h.Context(), h.lane)
	h.must(err)
	defer func() { h.must(c.Close()) }()
	dir, err := os.Open(folder)
	h.must(err)
	defer func() { h.must(dir.Close()) }()
	h.must(c.Offer(id, dir))
	for {
		m, err := c.Next()
		h.must(err)
		if m.End == nil {
			continue
		}
		if m.End.Problem == nil {
			h.Fatal("it ended without a problem")
		}
		return m.End.Problem.Problem()
	}
}

func (h *hall) state(id string) daemon.RequestInfo {
	h.Helper()
	r, err := h.RequestState(h.Context(), h.asking, id)
	h.must(err)
	return r
}

func TestALaneRefusesWhatItWasNotAskedFor(t *testing.T) {
	h := newHall(t)
	h.serve()
	used := h.request(0)
	if p := h.offer(used, h.tree); p.Kind != problem.Usage || !strings.Contains(p.What, "no check") {
		t.Errorf("a check that there is not: %v", p)
	}
	if s := h.state(used); s.State != daemon.RequestFailed || !strings.Contains(s.Why, "no check") {
		t.Errorf("got %+v", s)
	}
	other := filepath.Join(h.dir, "other")
	h.must(os.Mkdir(other, 0o755))
	wt, err := home.Worktree(other)
	h.must(err)
	h.must(h.BindRepository(t.Context(), daemon.Principal{Kind: daemon.Operator, Name: "op-0"}, wt, "repo-2"))
	foreign := h.request(0)
	for _, tt := range []struct{ name, id, folder, want string }{
		{"an id that was used", used, h.tree, "took it already"},
		{"an id that is none", strings.Repeat("0", 32), h.tree, "no such request"},
		{"an odd id", "../x\x1b", h.tree, "no such request"},
		{"another user's", h.request(7), h.tree, "another user asked for it"},
		{"a folder that is no worktree", h.request(0), "/etc", "does not know it"},
		{"another repository's", foreign, other, "of another repository"},
	} {
		if p := h.offer(tt.id, tt.folder); p.Kind != problem.Refused || !strings.Contains(p.Why, tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, p, tt.want)
		}
	}
	if s := h.state(foreign); s.State != daemon.RequestFailed {
		t.Errorf("got %+v", s)
	}
	h.mu.Lock()
	h.ahead = daemon.RequestTTL / 2
	h.mu.Unlock()
	late := h.request(0)
	h.mu.Lock()
	h.ahead = 2 * daemon.RequestTTL
	h.mu.Unlock()
	if p := h.offer(late, h.tree); p.Kind != problem.Refused || !strings.Contains(p.Why, "expired") {
		t.Errorf("an expired one: got %v", p)
	}
	last := h.request(0)
	_, err = h.RevokeLane(t.Context(), h.asking, "lane-1", daemon.RevokedRetired, 0)
	h.must(err)
	if p := h.offer(last, h.tree); p.Kind != problem.Refused || !strings.Contains(p.Why, "was revoked") {
		t.Errorf("a revoked lane: got %v", p)
	}
}

// losing lets the lane call the daemon through something that loses the answers to
// calls of a path.
func (h *hall) losing(path string) {
	h.Helper()
	daemonSocket := h.env["STRIATUM_SOCKET"]
	h.env["STRIATUM_SOCKET"] = filepath.Join(h.dir, "losing.sock")
	to := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "striatumd"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", daemonSocket)
		}},
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			to.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		to.ServeHTTP(answer, r)
		if answer.Code != http.StatusOK {
			h.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
		panic(http.ErrAbortHandler) // the connection ends without a word
	})}
	l, err := new(net.ListenConfig).Listen(h.Context(), "unix", h.env["STRIATUM_SOCKET"])
	h.must(err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	h.Cleanup(func() {
		h.must(server.Close())
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			h.Error(err)
		}
	})
}

func TestATakeWhoseAnswerIsLostIsAbandoned(t *testing.T) {
	h := newHall(t)
	h.losing(wire.TakeRequest)
	h.serve()
	id := h.request(0)
	if p := h.offer(id, h.tree); p.Kind != problem.Indeterminate {
		t.Errorf("got %v", p)
	}
	if s := h.state(id); s.State != daemon.RequestAbandoned || s.LaneID != "lane-1" || len(s.Seals) != 0 {
		t.Errorf("got %+v", s)
	}
	h.refusedTwice(id)
}

func TestAnEndWhoseAnswerIsLostIsSaidOnce(t *testing.T) {
	h := newHall(t)
	h.losing(wire.EndRequest)
	h.serve()
	id := h.request(0)
	if p := h.offer(id, h.tree); p.Kind != problem.Usage {
		t.Errorf("got %v", p)
	}
	if s := h.state(id); s.State != daemon.RequestFailed {
		t.Errorf("got %+v", s)
	}
	h.refusedTwice(id)
}

// refusedTwice offers a request that is over.
func (h *hall) refusedTwice(id string) {
	h.Helper()
	before := h.state(id)
	if _, err := h.TakeRequest(h.Context(), daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}, id, 0); problem.Of(err) == nil || problem.Of(err).Kind != problem.Refused {
		h.Errorf("taken again: got %v", err)
	}
	if after := h.state(id); after.State != before.State {
		h.Errorf("got %s, want %s", after.State, before.State)
	}
}

func TestALaneWhoseCallersFileSystemHangsGoesOn(t *testing.T) {
	h := newHall(t)
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this machine has no FUSE: %v", err)
	}
	at, link := filepath.Join(h.dir, "silent"), filepath.Join(h.dir, "link")
	h.must(errors.Join(os.Mkdir(at, 0o755), os.Symlink(at, link)))
	h.must(unix.Mount("silent", at, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=7,group_id=7,allow_other", device)))
	t.Cleanup(func() { h.must(unix.Unmount(at, unix.MNT_DETACH)) })
	answer := sync.OnceFunc(func() { h.must(unix.Close(device)) }) // whoever waits is told that the program has ended
	t.Cleanup(answer)
	git := filepath.Join(h.tree, ".git")
	h.must(os.WriteFile(git, []byte("gitdir: "+link+"/repo/worktrees/w\n"), 0o644))
	h.serve()
	id := h.request(0)
	if p := h.offer(id, h.tree); p.Kind != problem.Indeterminate || !strings.Contains(p.Why, link) || !strings.Contains(p.Why, beneath.ErrHeld.Error()) {
		t.Errorf("got %v", p)
	}
	if s := h.state(id); s.State != daemon.RequestAbandoned || !strings.Contains(s.Why, link) {
		t.Errorf("got %+v", s)
	}
	h.must(os.Remove(git))
	again := func() *problem.Problem {
		id := h.request(0)
		defer func() { h.must(h.CancelRequest(t.Context(), h.asking, id)) }()
		return h.offer(id, h.tree)
	}
	if p := again(); p.Kind != problem.Indeterminate || !strings.Contains(p.Why, beneath.ErrThreads.Error()) {
		t.Errorf("while its thread is held: got %v", p)
	}
	answer()
	p := again()
	for strings.Contains(p.Why, beneath.ErrThreads.Error()) { // until the thread has ended
		time.Sleep(100 * time.Millisecond)
		p = again()
	}
	if p.Kind != problem.Usage {
		t.Errorf("after it answered: got %v", p)
	}
}

func TestALaneIsServedByOneProcessWhichEndsWhatAnotherLeft(t *testing.T) {
	h := newHall(t)
	left := h.request(0)
	_, err := h.TakeRequest(t.Context(), daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}, left, 0)
	h.must(err)
	stop := h.serve()
	if s := h.state(left); s.State != daemon.RequestAbandoned {
		t.Errorf("got %+v", s)
	}
	f := &cli.Factory{
		Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard},
		Getenv:  func(name string) string { return h.env[name] }, Getwd: os.Getwd, Now: time.Now, Rand: rand.Reader,
	}
	second := NewServe(f)
	second.SetArgs([]string{"--listen", h.lane + "2"})
	second.SilenceErrors, second.SilenceUsage = true, true
	if p := problem.Of(second.ExecuteContext(t.Context())); p == nil || p.Kind != problem.Refused || !strings.Contains(p.Hint, "another process serves it") {
		t.Errorf("a second one: got %v", p)
	}
	h.must(stop())
	if _, err := os.Stat(h.lane); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	_, err = handover.Dial(t.Context(), h.lane)
	if p := problem.Of(err); p == nil || p.Kind != problem.Missing {
		t.Errorf("no lane: got %v, want kind Missing", err)
	}
}

func TestAJobThatPanicsIsNotDone(t *testing.T) {
	h := newHall(t)
	id := h.request(0)
	info, err := h.TakeRequest(t.Context(), daemon.Principal{Kind: daemon.Lane, Name: "lane-1"}, id, 0)
	h.must(err)
	f := &cli.Factory{Getenv: func(name string) string { return h.env[name] }, Now: time.Now, Rand: rand.Reader}
	s := &served{f: f, log: slog.New(slog.DiscardHandler), unsaid: map[string]daemon.RequestEnd{}}
	s.Session, err = service.Open(t.Context(), f, "")
	h.must(err)
	defer func() { h.must(s.Close()) }()
	h.must(s.openHome(t.Context(), f))
	opener, err := new(beneath.Threads).NewOpener(beneath.Caller{}, "root")
	h.must(err)
	dir, err := beneath.Open(h.tree)
	h.must(err)
	j := &job{served: s, opener: opener, dir: dir, worktree: daemon.Worktree{Path: h.tree}, request: info}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		_, _ = j.Run(t.Context(), func(handover.Message) { panic("a fault") })
	}()
	if got := h.state(id); got.State != daemon.RequestFailed || got.Why == "" {
		t.Errorf("got %+v", got)
	}
	lane, err := s.openLane(f, s.log, nil, nil)
	h.must(err)
	if err := lane.Settle(t.Context(), 0); err != nil {
		t.Errorf("the lane is still held: %v", err)
	}
}

func TestALaneListensOnlyWhereNobodyElseWrites(t *testing.T) {
	h := newHall(t)
	dir := filepath.Join(h.dir, "open")
	h.must(os.Mkdir(dir, 0o755))
	h.must(os.Chown(dir, 54321, 0))
	f := &cli.Factory{Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, Getenv: func(name string) string { return h.env[name] }, Getwd: os.Getwd, Now: time.Now, Rand: rand.Reader}
	cmd := NewServe(f)
	cmd.SetArgs([]string{"--listen", filepath.Join(dir, "lane")})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if p := problem.Of(cmd.ExecuteContext(t.Context())); p == nil || p.Kind != problem.Refused || !strings.Contains(p.Why, "not owned by root") {
		t.Errorf("got %v", p)
	}
}

// session runs `verifier run` with a session's token in the worktree.
func (h *hall) session(args ...string) error {
	h.Helper()
	token, hash, err := daemon.DrawToken(rand.Reader, daemon.Session)
	h.must(err)
	_, err = h.RecordToken(h.Context(), h.asking, daemon.TokenSpec{Kind: daemon.Session, RepositoryID: hallRepository, TTL: time.Hour}, hash)
	h.must(err)
	file := filepath.Join(h.dir, "session")
	h.must(os.WriteFile(file, []byte(token), 0o600))
	env := map[string]string{"STRIATUM_HOME": filepath.Join(h.dir, "user"), "STRIATUM_SOCKET": h.env["STRIATUM_SOCKET"], "STRIATUM_LANE_SOCKET": h.lane}
	cmd := newRun(&cli.Factory{
		Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard},
		Getenv:  func(name string) string { return env[name] }, Getwd: func() (string, error) { return h.tree, nil }, Now: time.Now, Rand: rand.Reader,
	})
	cmd.SetArgs(append([]string{"--worktree-exact", "--token-file", file}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.ExecuteContext(h.Context())
}

// waiting counts the requests that wait for a lane.
func (h *hall) waiting() int {
	h.Helper()
	n := 0
	h.must(h.store.View(h.Context(), func(r store.Reader) error {
		rows, err := r.OpenCheckRequests(h.Context(), time.Now().UTC().Format(time.RFC3339), store.Page{})
		n = len(rows)
		return err
	}))
	return n
}

func TestASessionIsToldWhatTheLaneSays(t *testing.T) {
	h := newHall(t)
	if p := problem.Of(h.session("--check", "none")); p == nil || p.Kind != problem.Missing || !strings.Contains(p.What, "call the lane") {
		t.Errorf("no lane: got %v", p)
	}
	h.serve()
	if p := problem.Of(h.session("--check", "none")); p == nil || p.Kind != problem.Usage || !strings.Contains(p.What, `there is no check "none"`) {
		t.Errorf("got %v", p)
	}
	if p := problem.Of(h.session("--lane", "relative")); p == nil || p.Kind != problem.Usage {
		t.Errorf("a relative socket: got %v", p)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "user")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a session got a home: %v", err)
	}
}

// TestALaneThatSaysNothingTrueIsNoSuccess has servers in the lane's place.
func TestALaneThatSaysNothingTrueIsNoSuccess(t *testing.T) {
	for name, says := range map[string]string{
		"hangs up":      "",
		"no JSON":       "hello\n",
		"half a line":   `{"end": {`,
		"done at once":  `{"end": {"declares": true}}` + "\n",
		"not a receipt": `{"outcome": {"seal": "x", "envelope": "e30="}}` + "\n" + `{"end": {"declares": true}}` + "\n",
		"no receipt":    `{"outcome": {"seal": "` + strings.Repeat("0", 64) + `"}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall(t)
			var lc net.ListenConfig
			l, err := lc.Listen(t.Context(), "unix", h.lane)
			h.must(err)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(says))
				_ = c.Close()
			}()
			p := problem.Of(h.session())
			if p == nil || p.Kind.ExitCode() == 0 || p.Kind == problem.Internal {
				t.Errorf("got %v", p)
			}
			h.must(l.Close())
			<-ended
			if n := h.waiting(); n != 0 {
				t.Errorf("%d requests still wait", n)
			}
		})
	}
}
