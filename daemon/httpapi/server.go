// Package httpapi is the way into the service over HTTP: on a unix socket and, if
// asked for, on a loopback TCP port. It finds out who asks, bounds what comes in,
// and hands each call to package daemon, which alone decides. Package wire has
// the documents.
//
// # Who asks
//
// A call names itself with a token in its Authorization header. On the socket the
// kernel says which uid is at the other end, too:
//
//   - An operator's token counts only on the socket, and only from root or a uid
//     that is named as an operator's.
//   - A uid that has presented a session's token is no operator's, until the
//     daemon starts again.
//   - Over a store that is isolated no session may come from root or from the uid
//     that the daemon runs as, which could read the store itself, nor over TCP.
//   - Without a token an operator's uid is a local user, who can mint the first
//     operator token; everybody else is nobody.
//
// # Bounds
//
// The constants of this file and of package wire; docs/limits.md lists them.
//
//   - A call takes a place to be read in, and one to be carried out in once its body
//     is there. Sessions, lanes, and operators have places of their own, and each
//     session and each uid of sessions has a few of the sessions'. A call that finds
//     none is told so at once and not queued.
//   - A long call that is not for its principal is not read, a session's is smaller,
//     and its token is bound to the uid that presents it first.
//   - Of the connections of a socket some are for root, operators and uids that
//     have presented a lane's token alone. On the port the kernel names nobody:
//     whoever reaches it can hold its connections. A session's call is the last of
//     its connection there.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"striatum/daemon"
	"striatum/daemon/wire"
	"striatum/internal/execban"
)

// The bounds of the server.
const (
	MaxConnections       = 256 // of one listener; more are closed at once
	KeptConnections      = 32  // of a socket's, those that sessions' uids never take
	MaxConnectionsOfUID  = 16  // more are closed at once
	MaxSessionsReads     = 64  // sessions' calls that are read at once
	MaxSessionsCalls     = 32  // sessions' calls that are carried out at once
	MaxSessionCalls      = 8   // of each session, and each uid, of either
	MaxLaneCalls         = 16  // lanes' calls at once, of either
	MaxOperatorCalls     = 16  // operators' and local users' calls at once, of either
	MaxHeaderBytes       = 16 << 10
	HeaderTimeout        = 5 * time.Second
	BodyTimeout          = 30 * time.Second
	CallTimeout          = 50 * time.Second
	AnswerTimeout        = 2 * time.Minute // from the end of the header
	IdleTimeout          = 2 * time.Minute
	HangUpTimeout        = 2 * time.Second // from an answer to a call that is not read
	StopTimeout          = 10 * time.Second
	maxSessionUIDs       = 4096
	maxSessionTokens     = 65536
	requestIDBytes       = 8
	maxForeignBytes      = 64 << 10 // of a call that is not for its caller
	maxAuthorizationText = 256
)

// Config is what a Server is made of. All fields but OperatorUIDs, Files and
// ClassWhy are required.
type Config struct {
	Service *daemon.Service
	Log     *slog.Logger
	Now     func() time.Time
	Rand    io.Reader
	// OperatorUIDs are the uids, beside root, that operators have.
	OperatorUIDs []uint32
	// UID is what the daemon runs as.
	UID uint32
	// Files are what no session may read or write; a probe of the host tries.
	Files []string
	// Confined says whether this process can start programs.
	Confined func() (execban.State, error)
	// ClassWhy says why a store that was to be isolated is not.
	ClassWhy string
}

// Server serves the service.
type Server struct {
	cfg Config
	mux *http.ServeMux
	api huma.API
	// audiences are those of the routes that take a document.
	audiences map[string]audience
	reads     *places
	calls     *places
	sessions  uids
	holders   holders
	lanes     uids
}

// New returns a Server.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), audiences: map[string]audience{},
		reads: newPlaces("being read", MaxSessionsReads), calls: newPlaces("running", MaxSessionsCalls),
	}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "striatumd", Version: "1",
				Description: "The service of Striatum over HTTP, on a unix socket or a loopback port. Documents are decoded strictly: unknown and duplicate keys are refused.",
			},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "An operator's, session's or lane's token."}},
			},
		},
		Formats: huma.DefaultFormats, DefaultFormat: "application/json",
	}
	s.api = humago.New(s.mux, config)
	s.register()
	return s
}

// OpenAPI returns the description of every call, as YAML. Equal code gives equal
// bytes.
func OpenAPI() ([]byte, error) { return New(Config{}).api.OpenAPI().YAML() }

// Serve answers calls on the listeners until ctx ends, then lets those that run
// finish, for StopTimeout at most. It closes the listeners. A connection of a
// unix listener has the peer that the kernel names; any other has none.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: HeaderTimeout, ReadTimeout: BodyTimeout, WriteTimeout: AnswerTimeout, IdleTimeout: IdleTimeout,
		MaxHeaderBytes: MaxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		ConnContext:    withPeer,
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- server.Serve(newListener(l, s.favoured)) }()
	}
	var err error
	keep := func(e error) {
		if !errors.Is(e, http.ErrServerClosed) { // which is how it ends
			err = errors.Join(err, e)
		}
	}
	running := len(listeners)
	select {
	case <-ctx.Done():
	case e := <-ended:
		running--
		keep(e)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
	defer cancel()
	if e := server.Shutdown(stop); e != nil {
		keep(fmt.Errorf("stop: %w", e))
		keep(server.Close())
	}
	for range running {
		keep(<-ended)
	}
	return err
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{start: s.cfg.Now(), id: s.requestID(), peer: peerOf(r.Context()), answer: answer{ResponseWriter: w}}
	defer s.log(r.Context(), c)
	defer c.rescue()
	h := c.answer.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	ctx, cancel := context.WithTimeout(r.Context(), CallTimeout)
	defer cancel()
	if err := s.admit(ctx, c, r); err != nil {
		if r.ContentLength != 0 && !c.read {
			c.hangUp()
		}
		c.fail(err)
		return
	}
	if c.give != nil {
		defer c.give()
	}
	s.mux.ServeHTTP(&c.answer, r.WithContext(context.WithValue(ctx, callKey{}, c)))
}

// call is one request on its way through.
type call struct {
	start     time.Time
	id        string
	peer      peer
	route     string
	principal daemon.Principal
	read      bool   // all of its body
	give      func() // gives its place back, if it has one
	answer    answer
	fault     error // what the log says, and the caller may not read
}

type callKey struct{}

// answer remembers the status that was written.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController through.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (s *Server) requestID() string {
	var b [requestIDBytes]byte
	if _, err := io.ReadFull(s.cfg.Rand, b[:]); err != nil {
		return "none"
	}
	return fmt.Sprintf("%x", b)
}

// log writes the line of a call. Nothing of what the caller sent is in it: the
// route is one of ours, and a principal's name is an id.
func (s *Server) log(ctx context.Context, c *call) {
	level := slog.LevelInfo
	if c.route == wire.Health || c.route == wire.Ready {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("request_id", c.id), slog.String("route", c.route), slog.Int("status", c.answer.status),
		slog.Int64("duration_ms", s.cfg.Now().Sub(c.start).Milliseconds()),
		slog.String("principal", c.principal.String()), slog.Bool("socket", c.peer.known),
	}
	if c.peer.known {
		attrs = append(attrs, slog.Int64("peer_uid", int64(c.peer.uid)), slog.Int64("peer_pid", int64(c.peer.pid)))
	}
	if c.fault != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("fault", c.fault.Error()))
	}
	s.cfg.Log.LogAttrs(ctx, level, "call", attrs...)
}
