// Package client calls a striatumd on its unix socket. It has those methods of
// daemon.Caller that commands use, whose principal is whoever's token it was given,
// and returns their errors: a problem that the daemon answered with keeps its kind.
// A daemon that cannot be reached is a problem of kind Missing, and one whose answer
// did not arrive, or is none, of kind Indeterminate: never a success.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/daemon/wire"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/seal"
)

// The bounds of a call.
const (
	DialTimeout = 5 * time.Second
	CallTimeout = 2 * time.Minute
)

// Client calls one daemon.
type Client struct {
	socket, token string
	http          *http.Client
	described     daemon.Description
}

// Open connects to the daemon that listens on socket, with a token or, for an
// operator's uid before there is one, without. It asks the daemon at once what it
// is and who asks. The caller must Close it.
func Open(ctx context.Context, socket, token string) (*Client, error) {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, problem.New(problem.Refused, "check the token", "it is not a token of striatum", "the token file holds one token, as it was shown once, and nothing else")
	}
	dialer := net.Dialer{Timeout: DialTimeout}
	c := &Client{socket: socket, token: token, http: &http.Client{
		Timeout: CallTimeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, "unix", socket)
				if err != nil {
					return nil, &unreachableError{err}
				}
				return conn, nil
			},
			MaxConnsPerHost: 4, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	d, err := post[wire.Description](ctx, c, wire.Describe, wire.Empty{})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.described = daemon.Description{StoreClass: d.StoreClass, StoreName: d.StoreName, Home: d.Home, Principal: d.Principal.Principal()}
	return c, nil
}

// Close ends the connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// unreachableError is that nobody answered on the socket.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// post makes one call.
func post[Out any](ctx context.Context, c *Client, path string, in any) (out Out, err error) {
	what := fmt.Sprintf("call the daemon on %q", c.socket)
	lost := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return problem.Wrap(problem.Indeterminate, err, what, "whether the call was carried out is not known; look, then try again")
	}
	body, err := json.Marshal(in)
	if err != nil {
		return out, problem.Wrap(problem.Internal, err, what, "")
	}
	most, hint := wire.MaxRequestBytes, ""
	if c.described.Principal.Kind == daemon.Session {
		most, hint = wire.MaxSessionRequestBytes, "the policy's files are part of it: make those of verification/ fewer or shorter, or let an operator call"
	}
	if len(body) > most {
		return out, problem.New(problem.Usage, what, fmt.Sprintf("it has %d bytes, more than the %d of a %s's call", len(body), most, c.described.Principal.Kind), hint)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://striatumd"+path, bytes.NewReader(body))
	if err != nil {
		return out, problem.Wrap(problem.Internal, err, what, "")
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if unreachable, ok := errors.AsType[*unreachableError](err); ok && ctx.Err() == nil {
		return out, problem.Wrap(problem.Missing, unreachable.err, what, "see that striatumd runs and that its group may connect; nothing was done")
	}
	if err != nil {
		return out, lost(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxResponseBytes+1))
	if err != nil {
		return out, lost(err)
	}
	limits := seal.Limits{Bytes: wire.MaxResponseBytes, Depth: wire.MaxDepth}
	if resp.StatusCode != http.StatusOK {
		var doc wire.Problem
		if err := seal.Decode(data, &doc, limits); err != nil || resp.Header.Get("Content-Type") != wire.MediaProblem {
			return out, lost(fmt.Errorf("it answered %d, and nothing that striatumd says", resp.StatusCode))
		}
		return out, doc.Problem()
	}
	if err := seal.Decode(data, &out, limits); err != nil {
		return out, lost(fmt.Errorf("its answer is not one of striatumd: %w", err))
	}
	return out, nil
}

// Describe returns what the daemon said of itself when it was opened.
func (c *Client) Describe(context.Context) (daemon.Description, error) { return c.described, nil }

// FindRepository implements the method of daemon.Caller, as do all that follow.
func (c *Client) FindRepository(ctx context.Context, wt daemon.Worktree) (daemon.Repository, bool, error) {
	r, err := post[wire.Repository](ctx, c, wire.FindRepository, wire.NewWorktree(wt))
	return daemon.Repository{ID: r.RepositoryID}, r.Found, err
}

// Repository calls the daemon.
func (c *Client) Repository(ctx context.Context, wt daemon.Worktree) (daemon.Repository, bool, error) {
	r, err := post[wire.Repository](ctx, c, wire.MeetRepository, wire.NewWorktree(wt))
	return daemon.Repository{ID: r.RepositoryID}, r.Created, err
}

// Policy calls the daemon.
func (c *Client) Policy(ctx context.Context, repositoryID string) (daemon.AcceptedPolicy, bool, error) {
	r, err := post[wire.PolicyFound](ctx, c, wire.Policy, wire.OfRepository{RepositoryID: repositoryID})
	return r.Policy, r.Found, err
}

// AcceptPolicy calls the daemon.
func (c *Client) AcceptPolicy(ctx context.Context, repositoryID string, files daemon.Files, digest string) error {
	_, err := post[wire.Empty](ctx, c, wire.AcceptPolicy, wire.Acceptance{RepositoryID: repositoryID, Files: files, Digest: digest})
	return err
}

// Gate calls the daemon.
func (c *Client) Gate(ctx context.Context, q daemon.GateQuery) (gate.Report, error) {
	r, err := post[wire.Report](ctx, c, wire.Gate, wire.NewGateQuery(q))
	return r.Report, err
}

// Summary calls the daemon.
func (c *Client) Summary(ctx context.Context, q daemon.GateQuery) (gate.Report, []byte, error) {
	r, err := post[wire.Report](ctx, c, wire.Summary, wire.NewGateQuery(q))
	return r.Report, r.Envelope, err
}

// RecordOpened calls the daemon.
func (c *Client) RecordOpened(ctx context.Context, envelope []byte) error {
	_, err := post[wire.Empty](ctx, c, wire.RecordOpened, wire.Envelope{Envelope: envelope})
	return err
}

// RecordReceipt calls the daemon.
func (c *Client) RecordReceipt(ctx context.Context, envelope []byte) (string, error) {
	r, err := post[wire.Sealed](ctx, c, wire.RecordReceipt, wire.Envelope{Envelope: envelope})
	return r.Seal, err
}

// Bind calls the daemon.
func (c *Client) Bind(ctx context.Context, b daemon.ClaimBinding) ([]byte, error) {
	r, err := post[wire.Ledger](ctx, c, wire.BindClaim, wire.NewClaimBinding(b))
	return r.Ledger, err
}

// Receipt calls the daemon.
func (c *Client) Receipt(ctx context.Context, sealDigest string) ([]byte, error) {
	r, err := post[wire.Envelope](ctx, c, wire.Receipt, wire.Sealed{Seal: sealDigest})
	return r.Envelope, err
}

// Explain calls the daemon.
func (c *Client) Explain(ctx context.Context, name, reason string) error {
	_, err := post[wire.Empty](ctx, c, wire.Explain, wire.Explanation{Name: name, Reason: reason})
	return err
}

// Attestable calls the daemon.
func (c *Client) Attestable(ctx context.Context, q daemon.AttestQuery) (daemon.Attestable, error) {
	return post[daemon.Attestable](ctx, c, wire.Attestable, q)
}

// Attest calls the daemon.
func (c *Client) Attest(ctx context.Context, q daemon.AttestQuery, digest string) (position int64, fresh bool, err error) {
	r, err := post[wire.Attested](ctx, c, wire.Attest, wire.Attestation{Query: q, Digest: digest})
	return r.Position, r.Fresh, err
}

// RevokeAttestation calls the daemon.
func (c *Client) RevokeAttestation(ctx context.Context, repositoryID, checkID string, position int64) ([]int64, error) {
	r, err := post[wire.Positions](ctx, c, wire.RevokeAttestation, wire.AttestationRevocation{RepositoryID: repositoryID, CheckID: checkID, Position: position})
	return r.Positions, err
}

// Attestations calls the daemon.
func (c *Client) Attestations(ctx context.Context, repositoryID string) ([]daemon.AttestationInfo, error) {
	r, err := post[wire.AttestationList](ctx, c, wire.Attestations, wire.OfRepository{RepositoryID: repositoryID})
	return r.Attestations, err
}

// Closure calls the daemon.
func (c *Client) Closure(ctx context.Context, digest string) ([]allowlist.ClosurePart, []byte, error) {
	r, err := post[wire.ClosureKnown](ctx, c, wire.Closure, wire.ClosureDigest{SHA256: digest})
	if err != nil || !r.Known {
		return nil, nil, err
	}
	return r.Parts, r.Files, nil
}

// EnrolLane calls the daemon.
func (c *Client) EnrolLane(ctx context.Context, spec daemon.LaneSpec) error {
	_, err := post[wire.Empty](ctx, c, wire.EnrolLane, wire.Lane{LaneID: spec.LaneID, PublicKey: string(spec.PublicKey.PEM()), Class: spec.Class, Probe: spec.Probe})
	return err
}

// RecordProbe calls the daemon.
func (c *Client) RecordProbe(ctx context.Context, laneID string, found daemon.Probe) error {
	_, err := post[wire.Empty](ctx, c, wire.RecordProbe, wire.Probed{LaneID: laneID, Probe: found})
	return err
}

// Host calls the daemon.
func (c *Client) Host(ctx context.Context) (daemon.Host, error) {
	r, err := post[wire.HostKnown](ctx, c, wire.Host, wire.Empty{})
	return daemon.Host{SessionUIDs: r.SessionUIDs, OperatorUIDs: r.OperatorUIDs, UID: r.UID, Files: r.Files}, err
}

// RevokeLane calls the daemon.
func (c *Client) RevokeLane(ctx context.Context, laneID, kind string, since int64) ([]daemon.LaneInfo, error) {
	r, err := post[wire.LaneList](ctx, c, wire.RevokeLane, wire.LaneRevocation{LaneID: laneID, Kind: kind, Since: since})
	return r.Lanes, err
}

// Lanes calls the daemon.
func (c *Client) Lanes(ctx context.Context) ([]daemon.LaneInfo, error) {
	r, err := post[wire.LaneList](ctx, c, wire.Lanes, wire.Empty{})
	return r.Lanes, err
}

// TrustedLanes calls the daemon.
func (c *Client) TrustedLanes(ctx context.Context, most int) ([]daemon.TrustedLane, error) {
	r, err := post[wire.TrustedLaneList](ctx, c, wire.TrustedLanes, wire.Most{Receipts: most})
	return r.Lanes, err
}

// Keyring makes a keyring of the lanes that the daemon lists.
func (c *Client) Keyring(ctx context.Context) (seal.Keyring, error) {
	lanes, err := c.Lanes(ctx)
	if err != nil {
		return seal.Keyring{}, err
	}
	return daemon.KeyringOf(lanes)
}

// CheckMint calls the daemon.
func (c *Client) CheckMint(ctx context.Context, spec daemon.TokenSpec) error {
	_, err := post[wire.Empty](ctx, c, wire.CheckMint, wire.NewToken(spec, ""))
	return err
}

// RecordToken calls the daemon, which gets the hash alone.
func (c *Client) RecordToken(ctx context.Context, spec daemon.TokenSpec, sha256 string) (daemon.TokenInfo, error) {
	return post[daemon.TokenInfo](ctx, c, wire.RecordToken, wire.NewToken(spec, sha256))
}

// Tokens calls the daemon.
func (c *Client) Tokens(ctx context.Context) ([]daemon.TokenInfo, error) {
	r, err := post[wire.TokenList](ctx, c, wire.Tokens, wire.Empty{})
	return r.Tokens, err
}

// RevokeToken calls the daemon.
func (c *Client) RevokeToken(ctx context.Context, id string) (int, error) {
	r, err := post[wire.Count](ctx, c, wire.RevokeToken, wire.TokenID{ID: id})
	return r.Count, err
}

// RequestChecks calls the daemon.
func (c *Client) RequestChecks(ctx context.Context, ask daemon.CheckAsk) (daemon.RequestInfo, error) {
	return post[daemon.RequestInfo](ctx, c, wire.RequestChecks, ask)
}

// TakeRequest calls the daemon.
func (c *Client) TakeRequest(ctx context.Context, id string, uid uint32) (daemon.RequestInfo, error) {
	return post[daemon.RequestInfo](ctx, c, wire.TakeRequest, wire.Taking{RequestID: id, UID: uid})
}

// EndRequest calls the daemon.
func (c *Client) EndRequest(ctx context.Context, id string, end daemon.RequestEnd) error {
	_, err := post[wire.Empty](ctx, c, wire.EndRequest, wire.Ending{RequestID: id, End: end})
	return err
}

// CancelRequest calls the daemon.
func (c *Client) CancelRequest(ctx context.Context, id string) error {
	_, err := post[wire.Empty](ctx, c, wire.CancelRequest, wire.RequestID{RequestID: id})
	return err
}

// RequestState calls the daemon.
func (c *Client) RequestState(ctx context.Context, id string) (daemon.RequestInfo, error) {
	return post[daemon.RequestInfo](ctx, c, wire.RequestState, wire.RequestID{RequestID: id})
}

// AbandonRequests calls the daemon.
func (c *Client) AbandonRequests(ctx context.Context) (int, error) {
	r, err := post[wire.Count](ctx, c, wire.AbandonRequests, wire.Empty{})
	return r.Count, err
}
