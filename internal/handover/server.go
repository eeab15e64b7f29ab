package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"striatum/daemon/wire"
	"striatum/internal/crew"
	"striatum/internal/problem"
	"striatum/internal/unixsocket"
	"striatum/seal"
)

// Job is work that was admitted. Exactly one of Run and Drop is called.
type Job interface {
	// Run does the work and tells of it. A context that ends ends the work.
	Run(ctx context.Context, tell func(Message)) (End, error)
	// Drop ends the work before it began.
	Drop(ctx context.Context)
}

// Config is what a Server is made of.
type Config struct {
	// Owner says who answers for a request, before anything of what was handed over is
	// looked at: a user with several uids has the places and turns of one owner.
	Owner func(ctx context.Context, requestID string, from unixsocket.Peer) (string, error)
	// Admit says whether a request of owner may be worked on. It takes over the
	// descriptor.
	Admit func(ctx context.Context, requestID, owner string, fd int, from unixsocket.Peer) (Job, error)
	Log   *slog.Logger
}

// Server serves clients.
type Server struct {
	cfg   Config
	ready chan struct{} // something was queued
	// admits has a place for each that is admitted: of the daemon's places for calls
	// of lanes, some stay for what runs.
	admits chan struct{}

	mu      sync.Mutex
	conns   map[uint32]int
	total   int
	users   map[uint32]*share // of those that are queued, or about to be
	owners  map[string]*share
	queue   []*entry
	running bool
	turns   int
}

// share is what one user or owner has of the queue.
type share struct {
	places int
	turn   int // when it was served last
	// admits has a place for the one of an owner that is admitted.
	admits chan struct{}
}

// entry is one client's work.
type entry struct {
	uid    uint32
	owner  string
	job    Job
	ctx    context.Context //nolint:containedctx // lives as long as the client's connection
	out    *outbox
	done   chan struct{} // closed when the work has ended
	queued bool
	ahead  int // of it, when it came
}

// New returns a Server.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, ready: make(chan struct{}, 1), admits: make(chan struct{}, MaxAdmits), conns: map[uint32]int{}, users: map[uint32]*share{}, owners: map[string]*share{}}
}

// Serve serves clients of l, which it closes, until ctx ends; then it ends what runs
// and waits for that, for StopTimeout at most.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { s.work(serving) })
	failed := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if passes(err) {
				time.Sleep(acceptPause)
				continue
			}
			if err != nil {
				failed <- err
				return
			}
			u, ok := c.(*net.UnixConn)
			if !ok {
				_ = c.Close() // there is no other kind
				continue
			}
			from, err := unixsocket.PeerOf(u)
			if err != nil || !s.connect(from.UID) {
				_ = c.Close() // nothing was said on it
				continue
			}
			all.Go(func() {
				defer s.disconnect(from.UID)
				_ = s.contain(serving, func() error { // it goes to the log
					s.serve(serving, u, from)
					return nil
				})
			})
		}
	}()
	var err error
	select {
	case <-ctx.Done():
		err = l.Close()
		if other := <-failed; !errors.Is(other, net.ErrClosed) {
			err = errors.Join(err, other)
		}
	case err = <-failed:
		err = problem.Wrap(problem.Missing, err, "take clients of the lane", "see what closed its socket, and serve again: striatum lane serve")
		if cerr := l.Close(); !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	stop()
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(StopTimeout):
		err = errors.Join(err, problem.New(problem.Indeterminate, "stop the lane", fmt.Sprintf("what ran did not end within %s", StopTimeout), "the next start seals it as aborted"))
	}
	return err
}

// passes reports whether accepting may go well again: the process or the system has
// no descriptor or memory left for the moment.
func passes(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

func (s *Server) connect(uid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= MaxConnections || s.conns[uid] >= MaxConnectionsOf {
		return false
	}
	s.total++
	s.conns[uid]++
	return true
}

func (s *Server) disconnect(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.conns[uid]--; s.conns[uid] == 0 {
		delete(s.conns, uid)
	}
}

// serve serves one client to its end.
func (s *Server) serve(ctx context.Context, c *net.UnixConn, from unixsocket.Peer) {
	log := s.cfg.Log.With(slog.Int64("peer_uid", int64(from.UID)), slog.Int64("peer_pid", int64(from.PID)))
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	out := newOutbox(c, gone)
	defer func() {
		out.close()
		_ = c.Close() // what could be written was
	}()
	e, err := s.admit(ctx, c, from, out)
	if err != nil {
		log.InfoContext(ctx, "refused", slog.String("why", err.Error()))
		out.add(ended(End{}, err))
		return
	}
	go func() {
		// Nothing may follow the offer: its end is the client's, and so is this.
		_, _ = c.Read(make([]byte, 1))
		gone()
	}()
	select {
	case <-e.done:
	case <-ctx.Done():
		if s.leave(e) {
			e.job.Drop(context.WithoutCancel(ctx))
			out.add(ended(End{}, problem.New(problem.Indeterminate, "run the checks", "it was given up before it began", "run the command again")))
			log.InfoContext(ctx, "dropped")
			return
		}
		<-e.done
	}
	log.InfoContext(ctx, "ended")
}

// admit reads the offer of a client and queues what it asks for.
func (s *Server) admit(ctx context.Context, c *net.UnixConn, from unixsocket.Peer, out *outbox) (*entry, error) {
	const what = "take the worktree"
	if err := c.SetReadDeadline(time.Now().Add(OfferTimeout)); err != nil { //nolint:forbidigo // a deadline is by the system's clock
		return nil, err
	}
	line, fd, err := unixsocket.Receive(c, MaxOfferBytes)
	switch {
	case errors.Is(err, unixsocket.ErrDescriptors), errors.Is(err, unixsocket.ErrLine):
		return nil, problem.Wrap(problem.Usage, err, what, "a client sends one line of JSON with one open folder")
	case err != nil:
		return nil, problem.Wrap(problem.Indeterminate, err, what, "")
	}
	var offer Offer
	err = seal.Decode(line, &offer, seal.Limits{Bytes: MaxOfferBytes, Depth: 2})
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(problem.Wrap(problem.Usage, err, what, "a client sends one line of JSON with one open folder"), syscall.Close(fd))
	}
	if err := s.reserve(from.UID); err != nil {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	job, owner, err := s.ask(ctx, offer.RequestID, fd, from)
	if err != nil {
		s.release(from.UID, owner)
		return nil, err
	}
	e := &entry{uid: from.UID, owner: owner, job: job, ctx: ctx, out: out, done: make(chan struct{}), queued: true}
	s.mu.Lock()
	if e.ahead = len(s.queue); s.running {
		e.ahead++
	}
	out.add(Message{Queued: &Queued{Ahead: e.ahead}})
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
	return e, nil
}

// ask asks whether a request may be worked on, in its turn. It returns the owner, as
// soon as that has a place; the caller releases it.
func (s *Server) ask(ctx context.Context, requestID string, fd int, from unixsocket.Peer) (job Job, owner string, err error) {
	taken := false
	defer func() {
		if !taken {
			err = errors.Join(err, syscall.Close(fd))
		}
	}()
	var who string
	err = s.turn(ctx, func(ctx context.Context) (err error) {
		who, err = s.cfg.Owner(ctx, requestID, from)
		return err
	}, s.admits)
	if err != nil {
		return nil, "", err
	}
	own, err := s.reserveOf(who)
	if err != nil {
		return nil, "", err
	}
	err = s.turn(ctx, func(ctx context.Context) (err error) {
		taken = true
		job, err = s.cfg.Admit(ctx, requestID, who, fd, from)
		return err
	}, own.admits, s.admitsOf(from.UID), s.admits)
	return job, who, err
}

// admitsOf is the one place of a user, who has a place of the queue.
func (s *Server) admitsOf(uid uint32) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[uid].admits
}

// turn calls f when it has a place of each of rooms, for AdmitTimeout at most.
func (s *Server) turn(ctx context.Context, f func(context.Context) error, rooms ...chan struct{}) error {
	waiting, cancel := context.WithTimeout(ctx, AdmitTimeout)
	defer cancel()
	for _, room := range rooms {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		case <-waiting.Done():
			return problem.New(problem.Indeterminate, "take the worktree", "too many others are being taken", "try again")
		}
	}
	admitting, stop := context.WithTimeout(ctx, AdmitTimeout)
	defer stop()
	return s.contain(ctx, func() error { return f(admitting) })
}

// reserve takes a place of the queue for a user.
func (s *Server) reserve(uid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, u := range s.users {
		all += u.places
	}
	_, err := take(s.users, uid, all, "user")
	return err
}

// reserveOf takes a place for an owner, for whom a user has one.
func (s *Server) reserveOf(owner string) (*share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return take(s.owners, owner, 0, "token")
}

func take[K comparable](shares map[K]*share, of K, all int, what string) (*share, error) {
	own := shares[of]
	if own == nil {
		own = &share{admits: make(chan struct{}, 1)}
	}
	if all >= MaxQueue || own.places >= MaxQueueOf {
		return nil, problem.New(problem.Indeterminate, "wait for the lane", fmt.Sprintf("%d wait, %d of them of this %s, and %d may, %d of one %s", max(all, own.places), own.places, what, MaxQueue, MaxQueueOf, what), "try again")
	}
	own.places++
	shares[of] = own
	return own, nil
}

func (s *Server) release(uid uint32, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(uid, owner)
}

// free gives places back; that of an owner if it is not empty. The caller holds the
// lock.
func (s *Server) free(uid uint32, owner string) {
	s.users[uid].places--
	if owner != "" {
		s.owners[owner].places--
	}
	s.forget()
}

// forget drops what nobody has a share of, once nobody who was served waits beside
// others. The caller holds the lock.
func (s *Server) forget() {
	maps.DeleteFunc(s.users, func(_ uint32, u *share) bool { return u.places == 0 && (u.turn == 0 || !s.running) })
	maps.DeleteFunc(s.owners, func(_ string, o *share) bool { return o.places == 0 && (o.turn == 0 || !s.running) })
}

// leave takes e out of the queue; false if it is no longer in it.
func (s *Server) leave(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.queued {
		return false
	}
	e.queued = false
	s.queue = slices.DeleteFunc(s.queue, func(o *entry) bool { return o == e })
	s.free(e.uid, e.owner)
	return true
}

// next takes the first of the user and owner who were served longest ago; nil if
// nobody waits.
func (s *Server) next() *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.queue) > 0
	if !s.running {
		for _, u := range s.users {
			u.turn = 0 // whoever comes next comes first
		}
		for _, o := range s.owners {
			o.turn = 0
		}
		s.forget()
		return nil
	}
	served := func(e *entry) int { return max(s.users[e.uid].turn, s.owners[e.owner].turn) }
	at := 0
	for i, e := range s.queue {
		if served(e) < served(s.queue[at]) {
			at = i
		}
	}
	e := s.queue[at]
	e.queued = false
	s.queue = slices.Delete(s.queue, at, at+1)
	s.turns++
	s.users[e.uid].turn, s.owners[e.owner].turn = s.turns, s.turns
	s.free(e.uid, e.owner)
	return e
}

// work runs what is queued, one after the other, until ctx ends.
func (s *Server) work(ctx context.Context) {
	for ctx.Err() == nil {
		e := s.next()
		if e == nil {
			select {
			case <-s.ready:
			case <-ctx.Done():
			}
			continue
		}
		var end End
		err := s.contain(ctx, func() (err error) {
			end, err = e.job.Run(e.ctx, e.out.add)
			return err
		})
		e.out.add(ended(end, err))
		close(e.done)
	}
}

// contain calls f, whose panic is an error of the one client that brought it about,
// and goes to the log.
func (s *Server) contain(ctx context.Context, f func() error) (err error) {
	if fault := crew.Catch(func() { err = f() }); fault != nil {
		s.cfg.Log.ErrorContext(ctx, "fault", slog.String("panic", fmt.Sprint(fault.Value)), slog.String("stack", string(fault.Stack)))
		return problem.New(problem.Indeterminate, "run the checks", "a fault of the lane", "its log has it")
	}
	return err
}

// ended is the last message.
func ended(end End, err error) Message {
	if err != nil {
		p := problem.Of(err)
		if errors.Is(err, context.Canceled) && p.Kind == problem.Internal {
			p = problem.New(problem.Indeterminate, "run the checks", "it was given up", "run the command again")
		}
		doc, _ := wire.NewProblem(p, "")
		end.Problem = &doc
	}
	return Message{End: &end}
}
