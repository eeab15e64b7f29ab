// Package daemon is the one service layer: who may do what with the store.
// Every way in (in the process of a command, and later HTTP and MCP) calls a
// Service and decides nothing itself.
//
// It starts no program, opens no socket and no worktree. What a caller hands in
// as evidence is opened with the enrolled keys before it is stored, and again
// when it is read for the gate.
//
// # Who may do what
//
//	                               local  session  lane  operator
//	read a repository, its gate    yes    of own   yes   yes
//	read the lanes and their keys  yes    yes      yes   yes
//	verify the log, sign a summary yes    no       no    yes
//	meet a repository              yes    no       yes   yes
//	record opened and receipts     yes    no       own   yes
//	declare a run's claims         yes    no       yes   yes
//	publish claims to ASSERTED     yes    of jobs  no    yes
//	bind a receipt to a claim      yes    no       own   yes
//	enrol the first lane, shared   yes    no       no    yes
//	enrol another, revoke one      no     no       no    yes
//	record a probe of a lane       no     no       own   yes
//	mint the first operator token  yes    no       no    yes
//	mint any other token, list or
//	revoke tokens                  no     no       no    yes
//	ask for checks                 no     of own   no    yes
//	take and end a request         no     no       yes   no
//	bind a repository, accept a
//	policy, attest a check or take
//	that back, explain a receipt   no     no       no    yes
//
// A session's own is the repository and run that its token is bound to. Whatever
// is recorded or bound as evidence counts by its signature, never by who brought
// it. A refusal is a problem of kind Refused.
//
// Methods of Service that take no Principal read, and are for whoever holds the
// store. A way in for others goes through As, whose every method asks who.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
)

// Kind says what a principal is. The zero Kind may do nothing.
type Kind uint8

// The kinds of principal.
const (
	_        Kind = iota
	Local         // an unauthenticated user of the embedded store
	Session       // an agent's session, the verified party
	Lane          // a verifier lane
	Operator      // accepts, attests, enrols
)

// String returns the word for k in messages and records.
func (k Kind) String() string {
	switch k {
	case Local:
		return "local"
	case Session:
		return "session"
	case Lane:
		return "lane"
	case Operator:
		return "operator"
	}
	return "nobody"
}

// Principal is who asks. Name tells principals of one kind apart: a lane's is
// its lane id; Local has none. RepositoryID, RunID and Jobs are what a session is
// bound to. PeerUID is the user whose process calls, nil where no kernel said so.
type Principal struct {
	Kind                Kind
	Name                string
	RepositoryID, RunID string
	Jobs                []string
	PeerUID             *uint32
}

// LocalUser is the principal of whoever calls the embedded service without a
// token.
func LocalUser() Principal { return Principal{Kind: Local} }

// String returns "kind:name", or the kind alone.
func (p Principal) String() string {
	if p.Name == "" {
		return p.Kind.String()
	}
	return p.Kind.String() + ":" + p.Name
}

// Config is what a Service is made of. All fields but Log are required.
type Config struct {
	Store store.Store
	Now   func() time.Time
	Rand  io.Reader
	// StoreClass says whether the store is out of an agent's reach; anything
	// but isolated is shared.
	StoreClass seal.Class
	// StoreName and Home say in every report what was read.
	StoreName, Home string
	// ReportKey signs verification summaries.
	ReportKey *seal.PrivateKey
}

// Service is the service layer over one store. Its methods may be called by
// several goroutines.
type Service struct {
	cfg  Config
	asks asks
}

// New returns a Service. It does not own the store.
func New(cfg Config) *Service {
	if cfg.StoreClass != seal.ClassIsolated {
		cfg.StoreClass = seal.ClassShared
	}
	return &Service{cfg: cfg}
}

// StoreClass returns whether the store is shared or isolated.
func (s *Service) StoreClass() seal.Class { return s.cfg.StoreClass }

// StoreName names the store that the service reads.
func (s *Service) StoreName() string { return s.cfg.StoreName }

// Home names the folder that the service's state lies in.
func (s *Service) Home() string { return s.cfg.Home }

// Ping reads the end of the log, to see that the store answers.
func (s *Service) Ping(ctx context.Context) error {
	return s.view(ctx, "reach the store", func(r store.Reader) error {
		_, err := r.Head(ctx)
		return err
	})
}

// operatorHint tells how to be an operator.
const operatorHint = "give the operator token with --token-file FILE or STRIATUM_TOKEN_FILE; `striatum init` mints a home's, and `striatum init --system` puts a daemon's into /etc/striatumd/operator.token"

func (p Principal) mustBe(what string, kinds ...Kind) error {
	if slices.Contains(kinds, p.Kind) {
		return nil
	}
	hint := ""
	if len(kinds) == 1 && kinds[0] == Operator {
		hint = operatorHint
	}
	why := fmt.Sprintf("a %s principal may not do that", p.Kind)
	if p.Kind == Local && hint != "" {
		why = "this takes an operator, and no operator token was given"
	}
	return problem.New(problem.Refused, what, why, hint)
}

// mustReach refuses a session everything but its own repository.
func (p Principal) mustReach(what, repositoryID string) error {
	if err := p.mustBe(what, Local, Session, Lane, Operator); err != nil {
		return err
	}
	if p.Kind == Session && (p.RepositoryID == "" || p.RepositoryID != repositoryID) {
		return problem.New(problem.Refused, what, "the session's token is bound to another repository", "an operator mints one for this worktree: striatum token mint --kind session --repository ID, with the id that `striatum policy show` prints here")
	}
	return nil
}

// mustReachRun refuses a session everything but its own run.
func (p Principal) mustReachRun(what, repositoryID, runID string) error {
	if err := p.mustReach(what, repositoryID); err != nil {
		return err
	}
	if p.Kind == Session && p.RunID != runID {
		return problem.New(problem.Refused, what, "the session's token is bound to another run", "")
	}
	return nil
}

// view and update run a transaction and turn a failure of the store into a
// problem that names what was tried.
func (s *Service) view(ctx context.Context, what string, fn func(store.Reader) error) error {
	return StoreProblem(s.cfg.Store.View(ctx, fn), what)
}

func (s *Service) update(ctx context.Context, what string, fn func(store.Writer) error) error {
	return StoreProblem(s.cfg.Store.Update(ctx, fn), what)
}

// StoreProblem turns an error of a store into what a user reads. A problem, a
// cancelled context and nil stay as they are.
func StoreProblem(err error, what string) error {
	var p *problem.Problem
	switch {
	case err == nil, errors.As(err, &p), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, store.ErrBusy):
		return problem.Wrap(problem.Indeterminate, err, what, "another process is writing; try again")
	case errors.Is(err, store.ErrUnavailable):
		return problem.Wrap(problem.Missing, err, what, "see that the database server runs and can be reached, then try again")
	case errors.Is(err, store.ErrFull):
		return problem.Wrap(problem.Indeterminate, err, what, "free space on the disk that holds the home, then try again; nothing was lost")
	case errors.Is(err, store.ErrReadOnly):
		return problem.Wrap(problem.Missing, err, what, "make the home writable, or name another with STRIATUM_HOME")
	case errors.Is(err, store.ErrNewerSchema):
		return problem.Wrap(problem.Missing, err, what, "use the newer striatum that wrote it, or another STRIATUM_HOME")
	case errors.Is(err, store.ErrCorrupt):
		return problem.Wrap(problem.Refused, err, what, "restore the store from a backup, or begin with another STRIATUM_HOME")
	case errors.Is(err, store.ErrNotFound):
		return &problem.Problem{Kind: problem.Usage, What: what, Why: "it is not found in this store", Err: err}
	}
	return problem.Wrap(problem.Internal, err, what, "")
}

// hexID returns a prefix and 32 random hex digits.
func (s *Service) hexID(prefix string) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(s.cfg.Rand, b[:]); err != nil {
		return "", fmt.Errorf("draw an id: %w", err)
	}
	return fmt.Sprintf("%s%x", prefix, b), nil
}
