package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// Admit says whether a request may be worked on. It takes over the descriptor.
	Admit func(ctx context.Context, requestID string, fd int, from unixsocket.Peer) (Job, error)
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
	places  map[uint32]int // queued, or about to be
	queue   []*entry
	running bool
	turn    map[uint32]int // when a user was served last
	turns   int
}

// entry is one client's work.
type entry struct {
	uid    uint32
	job    Job
	ctx    context.Context //nolint:containedctx // lives as long as the client's connection
	out    *outbox
	done   chan struct{} // closed when the work has ended
	queued bool
	ahead  int // of it, when it came
}

// New returns a Server.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, ready: make(chan struct{}, 1), admits: make(chan struct{}, MaxAdmits), conns: map[uint32]int{}, places: map[uint32]int{}, turn: map[uint32]int{}}
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
		err = errors.Join(err, l.Close())
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
	job, err := s.ask(ctx, offer.RequestID, fd, from)
	if err != nil {
		s.release(from.UID)
		return nil, err
	}
	e := &entry{uid: from.UID, job: job, ctx: ctx, out: out, done: make(chan struct{}), queued: true}
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

// ask asks whether a request may be worked on, in its turn.
func (s *Server) ask(ctx context.Context, requestID string, fd int, from unixsocket.Peer) (job Job, err error) {
	waiting, cancel := context.WithTimeout(ctx, AdmitTimeout)
	defer cancel()
	select {
	case s.admits <- struct{}{}:
		defer func() { <-s.admits }()
	case <-waiting.Done():
		return nil, errors.Join(problem.New(problem.Indeterminate, "take the worktree", "too many others are being taken", "try again"), syscall.Close(fd))
	}
	admitting, stop := context.WithTimeout(ctx, AdmitTimeout)
	defer stop()
	err = s.contain(ctx, func() (err error) {
		job, err = s.cfg.Admit(admitting, requestID, fd, from)
		return err
	})
	return job, err
}

// reserve takes a place of the queue.
func (s *Server) reserve(uid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, n := range s.places {
		all += n
	}
	if all >= MaxQueue || s.places[uid] >= MaxQueueOf {
		return problem.New(problem.Indeterminate, "wait for the lane", fmt.Sprintf("%d wait, %d of them of this user, and %d may, %d of one user", all, s.places[uid], MaxQueue, MaxQueueOf), "try again")
	}
	s.places[uid]++
	return nil
}

func (s *Server) release(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(uid)
}

// free gives a place back. The caller holds the lock.
func (s *Server) free(uid uint32) {
	if s.places[uid]--; s.places[uid] == 0 {
		delete(s.places, uid)
	}
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
	s.free(e.uid)
	return true
}

// next takes the first of the user who was served longest ago; nil if nobody waits.
func (s *Server) next() *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.queue) > 0
	if !s.running {
		clear(s.turn) // whoever comes next comes first
		return nil
	}
	at := 0
	for i, e := range s.queue {
		if s.turn[e.uid] < s.turn[s.queue[at].uid] {
			at = i
		}
	}
	e := s.queue[at]
	e.queued = false
	s.queue = slices.Delete(s.queue, at, at+1)
	s.free(e.uid)
	s.turns++
	s.turn[e.uid] = s.turns
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
