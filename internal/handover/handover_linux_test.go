package handover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/internal/problem"
	"striatum/internal/unixsocket"
)

// bench is a server whose jobs end when they are told to.
type bench struct {
	testing.TB
	socket string
	log    lockedBuffer
	stop   func()
	ended  chan error

	mu      sync.Mutex
	began   chan string // ids, as they begin
	release map[string]chan struct{}
	dropped []string
	fds     int // that were handed over and are open
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

type job struct {
	b  *bench
	id string
	fd int
}

func (j *job) close() {
	j.b.mu.Lock()
	defer j.b.mu.Unlock()
	j.b.fds--
	if err := unix.Close(j.fd); err != nil {
		j.b.Error(err)
	}
}

func (j *job) Drop(context.Context) {
	j.close()
	j.b.mu.Lock()
	defer j.b.mu.Unlock()
	j.b.dropped = append(j.b.dropped, j.id)
}

func (j *job) Run(ctx context.Context, tell func(Message)) (End, error) {
	defer j.close()
	for i := range 1000 {
		tell(Message{Step: &Step{CheckID: j.id, Text: fmt.Sprint("step ", i)}})
	}
	if j.id == "a job's fault" {
		panic(j.id)
	}
	j.b.began <- j.id
	select {
	case <-j.b.gate(j.id):
		tell(Message{Outcome: &Outcome{Seal: j.id, Envelope: make([]byte, 1<<20)}})
		return End{Declares: true}, nil
	case <-ctx.Done():
		tell(Message{Outcome: &Outcome{Seal: "aborted"}})
		return End{}, ctx.Err()
	}
}

func (b *bench) gate(id string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.release[id] == nil {
		b.release[id] = make(chan struct{})
	}
	return b.release[id]
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a client talks to root's lanes alone")
	}
	dir, err := os.MkdirTemp("", "lane") //nolint:usetesting // its path is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{TB: t, socket: filepath.Join(dir, "s"), began: make(chan string, 100), release: map[string]chan struct{}{}, ended: make(chan error, 1)}
	s := New(Config{Log: slog.New(slog.NewJSONHandler(&b.log, nil)), Owner: ownerOf, Admit: func(_ context.Context, id, _ string, fd int, _ unixsocket.Peer) (Job, error) {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || id == "" {
			return nil, errors.Join(problem.New(problem.Refused, "take it", "that is no folder", ""), unix.Close(fd))
		}
		if id == "a fault" {
			panic(errors.Join(errors.New(id), unix.Close(fd)))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fds++
		return &job{b, id, fd}, nil
	}})
	l, err := unixsocket.Listen(t.Context(), b.socket, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() { b.ended <- s.Serve(ctx, &exhausted{Listener: l}) }()
	t.Cleanup(func() {
		stop()
		for _, err := range []error{<-b.ended, os.RemoveAll(dir)} {
			if err != nil {
				t.Error(err)
			}
		}
		if b.fds != 0 {
			t.Errorf("%d descriptors were left open", b.fds)
		}
	})
	return b
}

// ownerOf takes what stands before a slash in an id.
func ownerOf(_ context.Context, id string, _ unixsocket.Peer) (string, error) {
	owner, _, found := strings.Cut(id, "/")
	if !found {
		owner = "somebody"
	}
	return owner, nil
}

// exhausted is a listener that has no descriptor left at first.
type exhausted struct {
	net.Listener
	once sync.Once
}

func (l *exhausted) Accept() (c net.Conn, err error) {
	l.once.Do(func() { err = os.NewSyscallError("accept4", unix.EMFILE) })
	if err != nil {
		return nil, err
	}
	return l.Listener.Accept()
}

// offer asks for the work with that id.
func (b *bench) offer(id string) *Client {
	b.Helper()
	c, err := Dial(b.Context(), b.socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	folder, err := os.Open("/")
	if err != nil {
		b.Fatal(err)
	}
	defer folder.Close()
	if err := c.Offer(id, folder); err != nil {
		b.Fatal(err)
	}
	return c
}

// queued waits until the server has queued what c asked for.
func (b *bench) queued(c *Client) {
	b.Helper()
	if m, err := c.Next(); err != nil || m.Queued == nil {
		b.Fatalf("got %+v, %v, want it queued", m, err)
	}
}

// end reads to the end, and returns it with the seals of the outcomes.
func (b *bench) end(c *Client) (End, []string) {
	b.Helper()
	var seals []string
	for {
		m, err := c.Next()
		switch {
		case err != nil:
			b.Fatal(err)
		case m.Outcome != nil:
			seals = append(seals, m.Outcome.Seal)
		case m.End != nil:
			return *m.End, seals
		}
	}
}

func TestUsersAndOwnersTakeTurns(t *testing.T) {
	s := New(Config{})
	for i, of := range []struct {
		uid   uint32
		owner string
	}{{1, "a"}, {1, "a"}, {1, "b"}, {2, "c"}, {3, "d"}, {4, "a"}, {5, "a"}, {2, "d"}} {
		if err := s.reserve(of.uid); err != nil {
			t.Fatal(err)
		}
		if _, err := s.reserveOf(of.owner); err != nil {
			t.Fatal(err)
		}
		s.queue = append(s.queue, &entry{uid: of.uid, owner: of.owner, queued: true, ahead: i})
	}
	var got []string
	for e := s.next(); e != nil; e = s.next() {
		got = append(got, fmt.Sprintf("%d%s.%d", e.uid, e.owner, e.ahead))
	}
	if want := "1a.0 2c.3 3d.4 1a.1 2d.7 1b.2 4a.5 5a.6"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if len(s.users) != 0 || len(s.owners) != 0 {
		t.Errorf("places are still taken: %v, %v", s.users, s.owners)
	}
}

func TestAUserWithManyUIDsIsOneOwner(t *testing.T) {
	s := New(Config{Owner: ownerOf, Admit: func(context.Context, string, string, int, unixsocket.Peer) (Job, error) { return &job{}, nil }})
	folder := func() int {
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	for uid := range uint32(MaxQueueOf) {
		if err := s.reserve(uid); err != nil {
			t.Fatal(err)
		}
		fd := folder()
		if _, owner, err := s.ask(t.Context(), "one/x", fd, unixsocket.Peer{UID: uid}); err != nil || owner != "one" {
			t.Fatalf("got %q, %v", owner, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	fd := folder()
	_, _, err := s.ask(t.Context(), "one/x", fd, unixsocket.Peer{UID: MaxQueueOf})
	if p := problem.Of(err); p == nil || p.Kind != problem.Indeterminate || !strings.Contains(p.Why, "of one token") {
		t.Errorf("got %v", err)
	}
	if err := unix.Close(fd); !errors.Is(err, unix.EBADF) {
		t.Errorf("its descriptor is open: %v", err)
	}
	fd = folder()
	if _, _, err := s.ask(t.Context(), "another/x", fd, unixsocket.Peer{UID: 0}); err != nil {
		t.Errorf("another token: got %v", err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestOneRunsAtATimeAndEachEnds(t *testing.T) {
	b := newBench(t)
	first, second := b.offer("a"), b.offer("b")
	b.queued(first)
	b.queued(second)
	one := <-b.began
	select {
	case two := <-b.began:
		t.Errorf("%s and %s run at once", one, two)
	default:
	}
	close(b.gate("a"))
	close(b.gate("b"))
	for id, c := range map[string]*Client{"a": first, "b": second} {
		if end, seals := b.end(c); end.Problem != nil || !end.Declares || len(seals) != 1 || seals[0] != id {
			t.Errorf("got %+v, %v", end, seals)
		}
	}
}

func TestHangingUpEndsTheWork(t *testing.T) {
	b := newBench(t)
	running := b.offer("running")
	b.queued(running)
	<-b.began
	waiting := b.offer("waiting")
	b.queued(waiting)
	waiting.Cancel()
	if end, _ := b.end(waiting); end.Problem == nil || end.Problem.Kind != "indeterminate" {
		t.Errorf("got %+v", end)
	}
	if len(b.dropped) != 1 || b.dropped[0] != "waiting" {
		t.Errorf("dropped %v", b.dropped)
	}
	running.Cancel()
	if end, seals := b.end(running); end.Problem == nil || len(seals) != 1 || seals[0] != "aborted" {
		t.Errorf("got %+v, %v", end, seals)
	}
}

func TestAFaultEndsTheRequestThatBroughtItAboutAlone(t *testing.T) {
	b := newBench(t)
	for range MaxQueueOf + 1 { // none of them keeps a place
		for _, id := range []string{"a fault", "a job's fault"} {
			if end, _ := b.end(b.offer(id)); end.Problem == nil || end.Problem.Kind != "indeterminate" {
				t.Errorf("%s: got %+v", id, end.Problem)
			}
		}
	}
	next := b.offer("next")
	<-b.began
	close(b.gate("next"))
	if end, seals := b.end(next); end.Problem != nil || len(seals) != 1 {
		t.Errorf("got %+v, %v", end.Problem, seals)
	}
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if !strings.Contains(b.log.String(), `"panic":"a job's fault"`) {
		t.Error("the log does not have it")
	}
}

func TestFewAreAdmittedAtOnce(t *testing.T) {
	began, goOn := make(chan string, MaxQueueOf), make(chan struct{})
	s := New(Config{Owner: ownerOf, Admit: func(_ context.Context, id, _ string, fd int, _ unixsocket.Peer) (Job, error) {
		began <- id
		<-goOn
		return nil, errors.Join(errors.New(id), unix.Close(fd))
	}})
	folder := func() int {
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	refused := func(id string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		fd := folder()
		if _, _, err := s.ask(ctx, id, fd, unixsocket.Peer{}); problem.Of(err).Kind != problem.Indeterminate {
			t.Errorf("%s: got %v", id, err)
		}
		if err := unix.Close(fd); !errors.Is(err, unix.EBADF) {
			t.Errorf("%s: its descriptor is open: %v", id, err)
		}
	}
	ended := make(chan error, MaxAdmits)
	for i := range MaxAdmits {
		uid, fd := uint32(i), folder()
		if err := s.reserve(uid); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _, err := s.ask(t.Context(), fmt.Sprintf("%d/first", i), fd, unixsocket.Peer{UID: uid})
			ended <- err
		}()
		<-began
		if room := s.admitsOf(uid); len(room) != cap(room) {
			t.Error("another token of the same user could be admitted beside it")
		}
		if len(s.owners[fmt.Sprint(i)].admits) != cap(s.owners[fmt.Sprint(i)].admits) {
			t.Error("another of its owner could be admitted beside it")
		}
	}
	refused("next/x")
	close(goOn)
	for range MaxAdmits {
		if err := <-ended; err == nil || !strings.HasSuffix(err.Error(), "/first") {
			t.Errorf("got %v", err)
		}
	}
	if len(began) != 0 || len(s.admits) != 0 {
		t.Errorf("%d more began, %d places are taken", len(began), len(s.admits))
	}
}

func TestAFullQueueIsToldAtOnce(t *testing.T) {
	b := newBench(t)
	running := b.offer("running")
	b.queued(running)
	<-b.began
	for i := range MaxQueueOf {
		b.queued(b.offer(fmt.Sprint(i)))
	}
	if end, _ := b.end(b.offer("more")); end.Problem == nil || end.Problem.Kind != "indeterminate" || !strings.Contains(end.Problem.Why, "of one user") {
		t.Errorf("got %+v", end.Problem)
	}
	b.stop() // which ends what runs and drops what waits
	if end, seals := b.end(running); end.Problem == nil || len(seals) != 1 {
		t.Errorf("got %+v, %v", end, seals)
	}
	err := <-b.ended
	if b.ended <- nil; err != nil || len(b.dropped) != MaxQueueOf {
		t.Errorf("%v; dropped %v", err, b.dropped)
	}
}

func TestASlowReaderHoldsNobodyUp(t *testing.T) {
	b := newBench(t)
	slow := b.offer("slow")
	<-b.began
	close(b.gate("slow"))
	next := b.offer("next")
	<-b.began
	close(b.gate("next"))
	for _, c := range []*Client{next, slow} {
		if end, seals := b.end(c); end.Problem != nil || len(seals) != 1 {
			t.Errorf("got %+v, %v", end.Problem, seals)
		}
	}
}

// TestBadOffers sends what is no offer. How many descriptors come with it, of which
// file, and what is said.
func TestBadOffers(t *testing.T) {
	b := newBench(t)
	line := `{"request_id": "x"}` + "\n"
	for name, tt := range map[string]struct {
		text  string
		files []string
		want  string
	}{
		"no descriptor":    {line, nil, "one descriptor"},
		"two descriptors":  {line, []string{"/", "/"}, "one descriptor"},
		"many descriptors": {line, strings.Split(strings.Repeat("/ ", 40)+"/", " "), "one descriptor"},
		"a file":           {line, []string{"/etc/passwd"}, "no folder"},
		"a bad id":         {`{"request_id": ""}` + "\n", []string{"/"}, "no folder"},
		"no JSON":          {"hello\n", []string{"/"}, "one line of JSON"},
		"another key":      {`{"request_id": "x", "uid": 0}` + "\n", []string{"/"}, "one line of JSON"},
		"two lines":        {line + line, []string{"/"}, "not one line"},
		"too long":         {`{"request_id": "` + strings.Repeat("x", MaxOfferBytes) + `"}` + "\n", []string{"/"}, "not one line"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", b.socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var fds []int
			for _, path := range tt.files {
				fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				fds = append(fds, fd)
			}
			before := descriptorsOf(t)
			if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte(tt.text), unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			var m Message
			if err := json.NewDecoder(conn).Decode(&m); err != nil {
				t.Fatal(err)
			}
			if m.End == nil || m.End.Problem == nil || !strings.Contains(m.End.Problem.Why+m.End.Problem.Hint, tt.want) {
				t.Errorf("got %+v", m)
			}
			if after := descriptorsOf(t); after > before+1 { // the server's end of the connection
				t.Errorf("%d descriptors were open, and %d are", before, after)
			}
			for _, fd := range fds {
				if err := unix.Close(fd); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// descriptorsOf counts this process's descriptors.
func descriptorsOf(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestResultsThatAreTooManyAreCut(t *testing.T) {
	near, far := net.Pipe()
	o := newOutbox(near, func() {})
	for range 5 {
		o.add(Message{Outcome: &Outcome{Seal: "s", Envelope: make([]byte, maxHeldBytes/4)}})
	}
	o.add(Message{End: &End{}})
	go o.close()
	dec := json.NewDecoder(far)
	whole, all := 0, 0
	for {
		var m Message
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.End != nil {
			break
		}
		if all++; m.Outcome.Seal == "s" && m.Outcome.Envelope != nil {
			whole++
		}
	}
	if all != 5 || whole == 0 || whole == 5 {
		t.Errorf("%d of %d outcomes are whole", whole, all)
	}
}

func TestAListenerThatSomethingElseClosesEndsTheServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "lane") //nolint:usetesting // its path is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	l, err := unixsocket.Listen(t.Context(), filepath.Join(dir, "s"), "")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- New(Config{Log: slog.New(slog.DiscardHandler)}).Serve(t.Context(), l) }()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	p := problem.Of(err)
	if p == nil || p.Kind != problem.Missing || p.Kind.ExitCode() != 7 || !strings.Contains(p.What, "take clients") || p.Hint == "" || !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
