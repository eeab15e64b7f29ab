package httpapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"striatum/daemon"
	"striatum/daemon/client"
	"striatum/daemon/httpapi"
	"striatum/daemon/wire"
	"striatum/internal/execban"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/store"
	"striatum/store/sqlite"
)

// agent is set in a process that only makes one call: as another user, as whom the
// test runs itself again. It is the socket's path and the token.
const agent = "STRIATUM_TEST_AGENT"

func TestMain(m *testing.M) {
	if call := os.Getenv(agent); call != "" {
		socket, token, _ := strings.Cut(call, " ")
		if token == "hold" {
			hold(socket)
			os.Exit(0)
		}
		c, err := client.Open(context.Background(), socket, token)
		if err == nil {
			d, _ := c.Describe(context.Background())
			fmt.Println("let in as", d.Principal.Kind)
			err = c.Close()
		}
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// callAs makes one call as another user.
func (d *desk) callAs(uid uint32, token string) string {
	d.Helper()
	cmd := exec.CommandContext(d.Context(), "/proc/self/exe")
	cmd.Env = []string{agent + "=" + d.socket + " " + token}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func TestAnotherUserIsNoOperatorWhateverItHolds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	const somebody = 54321
	d := newDesk(t, nil)
	op, se := d.operator(), d.session()
	for _, tt := range []struct{ token, want string }{
		{op, "uid 54321 is not an operator's"},
		{"", "it has no token"},
		{se, "let in as session"},
	} {
		if got := d.callAs(somebody, tt.token); !strings.Contains(got, tt.want) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	named := newDesk(t, func(c *httpapi.Config, _ *daemon.Config) { c.OperatorUIDs = []uint32{somebody} })
	for _, tt := range []struct{ token, want string }{
		{named.operator(), "let in as operator"},
		{named.session(), "let in as session"},
		{named.operator(), "holds a session's token too"},
	} {
		if got := named.callAs(somebody, tt.token); !strings.Contains(got, tt.want) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	if a := named.describe(named.operator()); a.status != 200 {
		t.Errorf("another uid's session took root's right: %d", a.status)
	}
}

// unfinished begins a call whose body does not end.
func (d *desk) unfinished(network, token string) net.Conn {
	d.Helper()
	return d.begin(network, wire.Describe, token, 2)
}

// begin makes a call of which the first byte of a body of length bytes comes.
func (d *desk) begin(network, path, token string, length int) net.Conn {
	d.Helper()
	at := d.socket
	if network == "tcp" {
		at = d.tcp
	}
	c, err := (&net.Dialer{}).DialContext(d.Context(), network, at)
	d.must(err)
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{", path, token, length)
	d.must(err)
	return c
}

// rest returns what the server answered on c before it closed it.
func (d *desk) rest(c net.Conn) string {
	d.Helper()
	data, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) { // as it is where bytes were not read
		d.Error(err)
	}
	d.must(c.Close())
	return string(data)
}

// lane returns a lane's token.
func (d *desk) lane() string {
	d.Helper()
	d.must(d.EnrolLane(d.Context(), operator(), daemon.LaneSpec{LaneID: "lane-1", PublicKey: receipttest.Key(d.TB, 1).Public(), Class: seal.ClassShared}))
	token, _ := d.token(daemon.TokenSpec{Kind: daemon.Lane, LaneID: "lane-1"})
	return token
}

// until calls as the holder of a token until the answer has a status.
func (d *desk) until(status int, token string) (a answer) {
	d.Helper()
	for range 1000 {
		if a = d.send("tcp", http.MethodPost, wire.Describe, strings.NewReader("{}"), "Authorization", "Bearer "+token); a.status == status {
			return a
		}
	}
	d.Errorf("got %d, want %d", a.status, status)
	return a
}

func TestSessionsTakeNoPlaceOfAnotherKind(t *testing.T) {
	d := newDesk(t, nil)
	op, lane, last := d.operator(), d.lane(), d.session()
	var held []net.Conn
	for range httpapi.MaxSessionsReads / httpapi.MaxSessionCalls {
		se := d.session()
		for range httpapi.MaxSessionCalls {
			held = append(held, d.unfinished("tcp", se))
		}
		// It has what one session gets, and the others have theirs.
		if p := d.until(503, se).problem(t); p.Kind != "indeterminate" || !strings.Contains(p.Why, "as many as may at once") {
			t.Errorf("got %+v", p)
		}
	}
	if p := d.until(503, last).problem(t); !strings.Contains(p.Why, "64 calls of sessions") {
		t.Errorf("got %+v", p)
	}
	for _, token := range []string{op, lane} {
		if a := d.describe(token); a.status != 200 {
			t.Errorf("sessions hold the place of another: %d %s", a.status, a.body)
		}
	}
	if a := d.send("unix", http.MethodGet, wire.Health, nil); a.status != 200 {
		t.Errorf("health takes a place: %d", a.status)
	}
	for _, c := range held {
		d.must(c.Close())
	}
	d.until(200, last)
}

func TestACallWithoutAPlaceIsAnsweredAtOnceAndTheLastOfItsConnection(t *testing.T) {
	d := newDesk(t, nil)
	se, other := d.session(), d.session()
	var held []net.Conn
	for range httpapi.MaxSessionCalls {
		held = append(held, d.unfinished("tcp", se))
	}
	d.until(503, se)
	if got := d.rest(d.unfinished("tcp", se)); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "8 calls of one session are being read") {
		t.Errorf("got %q", got)
	}
	d.until(200, other)
	for _, c := range held {
		d.must(c.Close())
	}
}

func TestNoLongCallIsReadThatIsNotForItsCaller(t *testing.T) {
	d := newDesk(t, nil)
	se, op, lane := d.session(), d.operator(), d.lane()
	for _, tt := range []struct {
		name, path, token string
		length            int
		want, why         string
	}{
		{"an operator's that is long", wire.Gate, op, wire.MaxRequestBytes + 1, "400", "more than the 8388608 bytes"},
		{"a session's of an operator", wire.AcceptPolicy, se, 64<<10 + 1, "403", "a session principal may not do that"},
		{"a session's of a lane", wire.RecordReceipt, se, 64<<10 + 1, "403", "a session principal may not do that"},
		{"a lane's of an operator", wire.VerifyLog, lane, 64<<10 + 1, "403", "a lane principal may not do that"},
		{"a session's that is long", wire.Gate, se, wire.MaxSessionRequestBytes + 1, "400", "more than the 1048576 bytes"},
		{"nobody's", wire.Gate, "x", 2, "403", "it is not a token"},
	} {
		if got := d.rest(d.begin("unix", tt.path, tt.token, tt.length)); !strings.HasPrefix(got, "HTTP/1.1 "+tt.want) || !strings.Contains(got, tt.why) {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
	long := `{"floor":"designed","run_id":"` + strings.Repeat("x", wire.MaxSessionRequestBytes) + `"}`
	if a := d.send("unix", http.MethodPost, wire.Gate, strings.NewReader(long), "Authorization", "Bearer "+lane); a.status != 400 || strings.Contains(string(a.body), "more than") {
		t.Errorf("a lane's: got %d %s", a.status, a.body)
	}
}

func TestASessionsTokenIsOfTheUserWhoPresentsItFirst(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	d := newDesk(t, nil)
	se := d.session()
	for _, tt := range []struct {
		uid  uint32
		want string
	}{{54321, "let in as session"}, {54322, "another user presented this session's token before"}, {54321, "let in as session"}} {
		if got := d.callAs(tt.uid, se); !strings.Contains(got, tt.want) {
			t.Errorf("uid %d: got %q, want %q", tt.uid, got, tt.want)
		}
	}
}

func TestUsersOfSessionsLeaveConnectionsToOperatorsAndLanes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	const first, lanes = 54321, 54320
	d := newDesk(t, nil)
	op, lane, se := d.operator(), d.lane(), d.session()
	if got := d.callAs(lanes, lane); !strings.Contains(got, "let in as lane") {
		t.Errorf("the lane: %q", got)
	}
	users := (httpapi.MaxConnections - httpapi.KeptConnections) / httpapi.MaxConnectionsOfUID
	for i := range users {
		d.holdAs(uint32(first + i))
	}
	if got := d.callAs(uint32(first+users), se); strings.Contains(got, "let in") {
		t.Errorf("one more user was let in: %q", got)
	}
	if a := d.describe(op); a.status != 200 {
		t.Errorf("the operator: %d %s", a.status, a.body)
	}
	if got := d.callAs(lanes, lane); !strings.Contains(got, "let in as lane") {
		t.Errorf("the lane: %q", got)
	}
}

// holdAs holds as many connections as a user may have until the test ends.
func (d *desk) holdAs(uid uint32) {
	d.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(d.Context()), "/proc/self/exe") // it ends with its input
	cmd.Env = []string{agent + "=" + d.socket + " hold"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	in, err := cmd.StdinPipe()
	d.must(err)
	out, err := cmd.StdoutPipe()
	d.must(err)
	d.must(cmd.Start())
	d.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			d.Error(err)
		}
	})
	line := make([]byte, len("held\n"))
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "held\n" {
		d.Errorf("%q, %v", line, err)
	}
}

// hold begins as many calls as a user may have connections, and keeps them until
// its input ends.
func hold(socket string) {
	for range httpapi.MaxConnectionsOfUID {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "unix", socket)
		if err == nil {
			_, err = io.WriteString(c, "GET "+wire.Health+" HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, len("HTTP/1.1 200")))
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestAUserHasSoManyConnections(t *testing.T) {
	d := newDesk(t, nil)
	op := d.operator()
	var held []net.Conn
	for range httpapi.MaxConnectionsOfUID {
		held = append(held, d.unfinished("unix", op))
	}
	c, err := (&net.Dialer{}).DialContext(d.Context(), "unix", d.socket)
	d.must(err)
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("one more was served: %d, %v", n, err)
	}
	d.must(c.Close())
	for _, c := range held {
		d.must(c.Close())
	}
}

func TestStoppingLetsACallFinish(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	d := newDesk(t, func(c *httpapi.Config, _ *daemon.Config) {
		c.Confined = func() (execban.State, error) {
			close(entered)
			<-release
			return execban.State{}, nil
		}
	})
	status := make(chan int, 1)
	go func() { status <- d.send("unix", http.MethodGet, wire.Health, nil).status }()
	<-entered
	d.stop()
	for { // until nobody new is let in
		c, err := (&net.Dialer{}).DialContext(d.Context(), "unix", d.socket)
		if err != nil {
			break
		}
		d.must(c.Close())
	}
	close(release)
	if got := <-status; got != 200 {
		t.Errorf("got %d", got)
	}
	err := <-d.ended
	if d.ended <- nil; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// desk is a server on a socket, with the service behind it.
type desk struct {
	testing.TB
	*daemon.Service
	socket, tcp string
	log         lines
	stop        func()
	ended       chan error
}

// lines is what was logged; several goroutines may write it.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newDesk serves a new store; change makes the configuration another.
func newDesk(t testing.TB, change func(*httpapi.Config, *daemon.Config)) *desk {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "striatumd") //nolint:usetesting // its path is short, and others may reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &desk{TB: t, socket: filepath.Join(dir, "s")}
	service := daemon.Config{
		Store: st, Now: time.Now, Rand: rand.Reader, StoreClass: seal.ClassShared, StoreName: "sqlite", Home: "/home/x",
		ReportKey: receipttest.Key(t, 7),
	}
	cfg := httpapi.Config{
		Log: slog.New(slog.NewJSONHandler(&d.log, nil)), Now: time.Now, Rand: rand.Reader,
		OperatorUIDs: []uint32{uint32(os.Getuid())}, UID: 12345, Confined: execban.Read,
	}
	if change != nil {
		change(&cfg, &service)
	}
	d.Service = daemon.New(service)
	cfg.Service = d.Service
	var lc net.ListenConfig
	socket, err := lc.Listen(t.Context(), "unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	port, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.tcp = port.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	d.stop, d.ended = stop, make(chan error, 1)
	go func() { d.ended <- httpapi.New(cfg).Serve(ctx, socket, port) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-d.ended, st.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func operator() daemon.Principal { return daemon.Principal{Kind: daemon.Operator, Name: "op-1"} }

// token mints a token behind the server's back.
func (d *desk) token(spec daemon.TokenSpec) (token string, info daemon.TokenInfo) {
	d.Helper()
	token, hash, err := daemon.DrawToken(rand.Reader, spec.Kind)
	d.must(err)
	spec.TTL = time.Hour
	info, err = d.RecordToken(d.Context(), operator(), spec, hash)
	d.must(err)
	return token, info
}

func (d *desk) operator() string {
	token, _ := d.token(daemon.TokenSpec{Kind: daemon.Operator})
	return token
}

func (d *desk) session() string {
	token, _ := d.token(daemon.TokenSpec{Kind: daemon.Session, RepositoryID: "repo-1"})
	return token
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) problem(t testing.TB) (p wire.Problem) {
	t.Helper()
	if err := json.Unmarshal(a.body, &p); err != nil || a.header.Get("Content-Type") != wire.MediaProblem {
		t.Errorf("%d %q is no problem: %v", a.status, a.body, err)
	}
	return p
}

// send makes one request on the socket, or on the port.
func (d *desk) send(network, method, path string, body io.Reader, headers ...string) answer {
	d.Helper()
	at := d.socket
	if network == "tcp" {
		at = d.tcp
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(d.Context(), method, "http://striatumd"+path, body)
	d.must(err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Del(headers[i])
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	d.must(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	d.must(err)
	return answer{resp.StatusCode, resp.Header, data}
}

// describe asks, on the socket, who the holder of a token is.
func (d *desk) describe(token string) answer {
	d.Helper()
	return d.send("unix", http.MethodPost, wire.Describe, strings.NewReader("{}"), "Authorization", "Bearer "+token)
}

func TestWhoIsLetIn(t *testing.T) {
	for _, tt := range []struct {
		name, network string
		change        func(*httpapi.Config, *daemon.Config)
		token         func(d *desk) string
		want          string // the kind of principal, or what the refusal says
	}{
		{"an operator", "unix", nil, (*desk).operator, "operator"},
		{"an operator over TCP", "tcp", nil, (*desk).operator, "over the socket only"},
		{"a session", "unix", nil, (*desk).session, "session"},
		{"a session over TCP", "tcp", nil, (*desk).session, "session"},
		{"no token from an operator's uid", "unix", nil, func(*desk) string { return "" }, "local"},
		{"no token over TCP", "tcp", nil, func(*desk) string { return "" }, "it has no token"},
		{"a token of another store", "unix", nil, func(d *desk) string { return newDesk(d.TB, nil).operator() }, "does not know it"},
		{"a truncated token", "unix", nil, func(d *desk) string { s := d.operator(); return s[:len(s)-1] }, "does not know it"},
		{"a revoked token", "unix", nil, func(d *desk) string {
			token, info := d.token(daemon.TokenSpec{Kind: daemon.Operator})
			_, err := d.RevokeToken(d.Context(), operator(), info.ID)
			d.must(err)
			return token
		}, "revoked"},
		{"an operator whose uid presented a session's", "unix", nil, func(d *desk) string {
			if a := d.describe(d.session()); a.status != 200 {
				d.Errorf("the session: %d", a.status)
			}
			return d.operator()
		}, "holds a session's token too"},
		{"no token, of a uid that presented a session's", "unix", nil, func(d *desk) string {
			d.describe(d.session())
			return ""
		}, "it has no token"},
		{"a session of the daemon's uid, over an isolated store", "unix", func(c *httpapi.Config, s *daemon.Config) {
			c.UID, s.StoreClass = uint32(os.Getuid()), seal.ClassIsolated
		}, (*desk).session, "could read the store"},
		{"a session over TCP, over an isolated store", "tcp", func(_ *httpapi.Config, s *daemon.Config) {
			s.StoreClass = seal.ClassIsolated
		}, (*desk).session, "does not say who calls"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t, tt.change)
			headers := []string{}
			token := tt.token(d)
			if token != "" {
				headers = []string{"Authorization", "Bearer " + token}
			}
			a := d.send(tt.network, http.MethodPost, wire.Describe, strings.NewReader("{}"), headers...)
			if a.status == 200 {
				var got wire.Description
				d.must(json.Unmarshal(a.body, &got))
				if got.Principal.Kind != tt.want {
					t.Errorf("let in as %s, want %q", got.Principal.Kind, tt.want)
				}
			} else if p := a.problem(t); a.status != 403 || p.Kind != "refused" || !strings.Contains(p.Why, tt.want) {
				t.Errorf("got %d %+v, want %q", a.status, p, tt.want)
			}
			if s := d.log.String(); token != "" && strings.Contains(s, token[12:]) {
				t.Error("the token stands in the log")
			}
		})
	}
}

func TestAHeaderThatIsNotOneTokenIsRefused(t *testing.T) {
	d := newDesk(t, nil)
	token := d.operator()
	for name, headers := range map[string][]string{
		"two headers":     {"Authorization", "Bearer " + token, "Authorization", "Bearer " + token},
		"another scheme":  {"Authorization", "Basic " + token},
		"no scheme":       {"Authorization", token},
		"an empty header": {"Authorization", ""},
		"over-long":       {"Authorization", "Bearer " + strings.Repeat("x", 300)},
	} {
		a := d.send("unix", http.MethodPost, wire.Describe, strings.NewReader("{}"), headers...)
		if p := a.problem(t); a.status != 403 || p.Kind != "refused" {
			t.Errorf("%s: got %d %+v", name, a.status, p)
		}
	}
}

func TestWhatIsNoCallIsSaidSo(t *testing.T) {
	d := newDesk(t, nil)
	op := d.operator()
	auth := []string{"Authorization", "Bearer " + op}
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		kind                     string
	}{
		{"no such path", "POST", "/v1/none", "{}", auth, 400, "usage"},
		{"another method", "GET", wire.Gate, "", auth, 400, "usage"},
		{"a query", "POST", wire.Describe + "?token=" + op, "{}", auth, 400, "usage"},
		{"a path with dots", "POST", "/v1/../v1/describe", "{}", auth, 400, "usage"},
		{"a path with an escape", "POST", "/v1/describe%00", "{}", auth, 400, "usage"},
		{"no JSON by its type", "POST", wire.Describe, "{}", append([]string{"Content-Type", "text/plain"}, auth...), 400, "usage"},
		{"an unknown key", "POST", wire.Policy, `{"repository_id":"r","extra":1}`, auth, 422, "invalid"},
		{"a key twice", "POST", wire.Policy, `{"repository_id":"r","repository_id":"s"}`, auth, 422, "invalid"},
		{"a wrong type", "POST", wire.Policy, `{"repository_id":1}`, auth, 422, "invalid"},
		{"no document", "POST", wire.Policy, ``, auth, 422, "invalid"},
		{"two documents", "POST", wire.Describe, `{}{}`, auth, 422, "invalid"},
		{"too deep", "POST", wire.Policy, deep, auth, 422, "invalid"},
		{"not UTF-8", "POST", wire.Policy, "{\"repository_id\":\"\xff\"}", auth, 422, "invalid"},
		{"too large", "POST", wire.Policy, strings.Repeat(" ", wire.MaxRequestBytes+1), auth, 400, "usage"},
		{"a relative worktree", "POST", wire.FindRepository, `{"path":"w","device":"1","inode":"2"}`, auth, 400, "usage"},
		{"a worktree on no device", "POST", wire.FindRepository, `{"path":"/w","device":"-1","inode":"2"}`, auth, 400, "usage"},
		{"a floor that is none", "POST", wire.Gate, `{"floor":"designed"}`, auth, 400, "usage"},
		{"a receipt that is none", "POST", wire.Receipt, `{"seal":"'; DROP TABLE receipts; --"}`, auth, 400, "usage"},
		{"an envelope that is none", "POST", wire.RecordReceipt, `{"envelope":"e30="}`, auth, 422, "invalid"},
		{"a token for ever", "POST", wire.CheckMint, `{"kind":"operator","ttl_seconds":9007199254740991}`, auth, 400, "usage"},
		{"a lane's key that is none", "POST", wire.EnrolLane, `{"lane_id":"l","public_key":"x","class":"shared"}`, auth, 422, "invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := d.send("unix", tt.method, tt.path, strings.NewReader(tt.body), tt.headers...)
			p := a.problem(t)
			if a.status != tt.status || p.Kind != tt.kind || p.What == "" || p.RequestID != a.header.Get("X-Request-Id") {
				t.Errorf("got %d %+v, want %d %s", a.status, p, tt.status, tt.kind)
			}
			if strings.Contains(string(a.body), op) {
				t.Error("the answer has the token")
			}
		})
	}
	if strings.Contains(d.log.String(), op[12:]) {
		t.Error("the log has the token")
	}
}

func TestHealthSaysWhatIsInForce(t *testing.T) {
	whole := execban.State{Threads: 4, NoNewPrivs: 4, Filtered: 4, Refused: true}
	for _, state := range []execban.State{whole, {Threads: 4, NoNewPrivs: 4, Filtered: 3, Refused: true}} {
		d := newDesk(t, func(c *httpapi.Config, _ *daemon.Config) {
			c.Confined = func() (execban.State, error) { return state, nil }
		})
		a := d.send("tcp", http.MethodGet, wire.Health, nil)
		var got wire.Healthy
		d.must(json.Unmarshal(a.body, &got))
		if a.status != 200 || got.CanStartPrograms == state.Holds() || got.FilteredThreads != state.Filtered || got.StoreClass != seal.ClassShared {
			t.Errorf("got %d %+v for %+v", a.status, got, state)
		}
		if a := d.send("unix", http.MethodGet, wire.Ready, nil); a.status != 200 {
			t.Errorf("ready: got %d %s", a.status, a.body)
		}
	}
}

// failing is a store whose database says what nobody else should read.
type failing struct {
	store.Store
	err error
}

func (f failing) View(context.Context, func(store.Reader) error) error { return f.err }

func TestWhatTheDatabaseSaysStaysInTheLog(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		kind   string
	}{
		{store.ErrUnavailable, 503, "missing"},
		{store.ErrBusy, 503, "indeterminate"},
		{store.ErrFull, 503, "indeterminate"},
		{store.ErrNewerSchema, 503, "missing"},
		{store.ErrCorrupt, 403, "refused"},
		{errors.New("panic at the database"), 500, "internal"},
	} {
		d := newDesk(t, func(_ *httpapi.Config, s *daemon.Config) {
			s.Store = failing{s.Store, fmt.Errorf("connect to postgres://u:hunter2@db: %w", tt.err)}
		})
		for _, path := range []string{wire.Ready, wire.Lanes} {
			method, body := http.MethodPost, "{}"
			if path == wire.Ready {
				method, body = http.MethodGet, ""
			}
			a := d.send("unix", method, path, strings.NewReader(body))
			if p := a.problem(t); a.status != tt.status || p.Kind != tt.kind || strings.Contains(string(a.body), "hunter2") {
				t.Errorf("%v: got %d %+v", tt.err, a.status, p)
			}
		}
		if !strings.Contains(d.log.String(), "hunter2") {
			t.Error("the log does not say what failed")
		}
	}
}

func TestEveryCallIsLoggedWithItsPeer(t *testing.T) {
	d := newDesk(t, nil)
	a := d.describe(d.operator())
	var line struct {
		RequestID string `json:"request_id"`
		Route     string `json:"route"`
		Status    int    `json:"status"`
		PeerUID   int64  `json:"peer_uid"`
		PeerPID   int64  `json:"peer_pid"`
		Principal string `json:"principal"`
	}
	d.must(json.Unmarshal([]byte(d.log.String()), &line))
	if line.RequestID != a.header.Get("X-Request-Id") || line.Route != wire.Describe || line.Status != 200 ||
		line.PeerUID != int64(os.Getuid()) || line.PeerPID != int64(os.Getpid()) || !strings.HasPrefix(line.Principal, "operator:op-") {
		t.Errorf("got %+v", line)
	}
}

func TestDescriptionOfTheCallsIsCurrent(t *testing.T) {
	want, err := httpapi.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "striatumd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/reference/striatumd.yaml is not current; run make generate")
	}
}

func TestALaneLearnsWhoPresentedASessionsToken(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	d := newDesk(t, func(c *httpapi.Config, _ *daemon.Config) { c.Files = []string{"/home/x"} })
	d.must(d.EnrolLane(t.Context(), daemon.LocalUser(), daemon.LaneSpec{LaneID: "lane-1", PublicKey: receipttest.Key(t, 1).Public(), Class: seal.ClassShared}))
	lane, _ := d.token(daemon.TokenSpec{Kind: daemon.Lane, LaneID: "lane-1"})
	sessions := map[uint32]string{54321: d.session(), 54322: d.session()}
	for _, uid := range []uint32{54322, 54321, 54322} {
		if got := d.callAs(uid, sessions[uid]); !strings.Contains(got, "let in as session") {
			t.Fatalf("got %q", got)
		}
	}
	d.callAs(54323, "")
	c, err := client.Open(t.Context(), d.socket, lane)
	d.must(err)
	host, err := c.Host(t.Context())
	d.must(errors.Join(err, c.Close()))
	if fmt.Sprint(host) != "{[54321 54322] [0] 12345 [/home/x]}" {
		t.Errorf("got %v", host)
	}
}
