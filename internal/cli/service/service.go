// Package service gives a command the service that it works with: that of the
// daemon whose socket --socket or STRIATUM_SOCKET names, else the embedded one of
// the user's home. Which of them it is makes no difference to a command; where a
// daemon is named, nothing falls back on the home.
package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/daemon/client"
	"striatum/gate"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/seal"
)

// Service is what commands do with the service, as whoever asks: the methods of
// daemon.Caller, which are described there. A problem has the same kind from each
// implementation.
type Service interface {
	Describe(ctx context.Context) (daemon.Description, error)
	FindRepository(ctx context.Context, wt daemon.Worktree) (daemon.Repository, bool, error)
	Repository(ctx context.Context, wt daemon.Worktree) (daemon.Repository, bool, error)
	Policy(ctx context.Context, repositoryID string) (daemon.AcceptedPolicy, bool, error)
	AcceptPolicy(ctx context.Context, repositoryID string, files daemon.Files, digest string) error
	Gate(ctx context.Context, q daemon.GateQuery) (gate.Report, error)
	Summary(ctx context.Context, q daemon.GateQuery) (gate.Report, []byte, error)
	RecordOpened(ctx context.Context, envelope []byte) error
	RecordReceipt(ctx context.Context, envelope []byte) (sealDigest string, err error)
	Bind(ctx context.Context, b daemon.ClaimBinding) (ledger []byte, err error)
	Receipt(ctx context.Context, sealDigest string) (envelope []byte, err error)
	Closure(ctx context.Context, digest string) (parts []allowlist.ClosurePart, files []byte, err error)
	Explain(ctx context.Context, name, reason string) error
	Attestable(ctx context.Context, q daemon.AttestQuery) (daemon.Attestable, error)
	Attest(ctx context.Context, q daemon.AttestQuery, digest string) (position int64, fresh bool, err error)
	RevokeAttestation(ctx context.Context, repositoryID, checkID string, position int64) ([]int64, error)
	Attestations(ctx context.Context, repositoryID string) ([]daemon.AttestationInfo, error)
	EnrolLane(ctx context.Context, spec daemon.LaneSpec) error
	RevokeLane(ctx context.Context, laneID, kind string, since int64) ([]daemon.LaneInfo, error)
	Lanes(ctx context.Context) ([]daemon.LaneInfo, error)
	TrustedLanes(ctx context.Context, most int) ([]daemon.TrustedLane, error)
	Keyring(ctx context.Context) (seal.Keyring, error)
	RecordProbe(ctx context.Context, laneID string, found daemon.Probe) error
	Host(ctx context.Context) (daemon.Host, error)
	CheckMint(ctx context.Context, spec daemon.TokenSpec) error
	RecordToken(ctx context.Context, spec daemon.TokenSpec, sha256 string) (daemon.TokenInfo, error)
	Tokens(ctx context.Context) ([]daemon.TokenInfo, error)
	RevokeToken(ctx context.Context, id string) (int, error)
	RequestChecks(ctx context.Context, ask daemon.CheckAsk) (daemon.RequestInfo, error)
	TakeRequest(ctx context.Context, id string, uid uint32) (daemon.RequestInfo, error)
	EndRequest(ctx context.Context, id string, end daemon.RequestEnd) error
	CancelRequest(ctx context.Context, id string) error
	RequestState(ctx context.Context, id string) (daemon.RequestInfo, error)
	AbandonRequests(ctx context.Context) (int, error)
}

var (
	_ Service = daemon.Caller{}
	_ Service = (*client.Client)(nil)
)

// Session is an open service. The caller must Close it.
type Session struct {
	Service
	// Is says what store this is and who asks.
	Is daemon.Description
	// UserHome is the user's own home, which exists if the service is embedded.
	UserHome *home.Home

	close func() error
}

// Open opens the service that the environment names, for whoever's token lies in
// tokenFile or in the file that STRIATUM_TOKEN_FILE names. Errors are problems: of
// kind Missing for a daemon that cannot be reached.
func Open(ctx context.Context, f *cli.Factory, tokenFile string) (s *Session, err error) {
	if socket := f.DaemonSocket(); socket != "" {
		s, err = dial(ctx, f, socket, tokenFile)
	} else {
		s, err = inProcess(ctx, f, tokenFile)
	}
	if err != nil {
		return nil, err
	}
	if s.Is, err = s.Describe(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func dial(ctx context.Context, f *cli.Factory, socket, tokenFile string) (*Session, error) {
	if !filepath.IsAbs(socket) {
		return nil, problem.New(problem.Usage, fmt.Sprintf("call the daemon on %q", socket), "that is not an absolute path", "set STRIATUM_SOCKET, or --socket, to the socket's absolute path")
	}
	token, err := embedded.Token(f, tokenFile)
	if err != nil {
		return nil, err
	}
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return nil, err
	}
	c, err := client.Open(ctx, socket, token)
	if err != nil {
		return nil, err
	}
	return &Session{Service: c, UserHome: &home.Home{Dir: dir}, close: c.Close}, nil
}

func inProcess(ctx context.Context, f *cli.Factory, tokenFile string) (*Session, error) {
	s, err := embedded.Open(ctx, f)
	if err != nil {
		return nil, err
	}
	p, err := s.Principal(ctx, f, tokenFile)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Session{Service: s.Service.As(p), UserHome: s.Home, close: s.Close}, nil
}

// Close ends the session.
func (s *Session) Close() error { return s.close() }
