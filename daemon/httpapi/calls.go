package httpapi

import (
	"context"
	"net/http"
	"path"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/daemon/wire"
	"striatum/internal/problem"
	"striatum/seal"
)

// schemaName names a type in the description by its package and its name, which
// tells gate.Claim from claim.Claim.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Name() == "" {
		return hint
	}
	return strings.ReplaceAll(path.Base(t.PkgPath()), "-", "") + "." + t.Name()
}

// input is what huma reads; the document in it is decoded by package seal.
type input struct {
	RawBody []byte `contentType:"application/json"`
}

type output[T any] struct{ Body T }

// on registers a call: a document in, a document out. No long one is read of a
// principal that it is not for.
func on[In, Out any](s *Server, path string, of audience, summary string, do func(ctx context.Context, c daemon.Caller, in In) (Out, error)) {
	op := s.operation(http.MethodPost, path, summary)
	s.audiences[path] = of
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[In](), true, "")},
	}}
	op.Security = []map[string][]string{{"token": {}}}
	op.MaxBodyBytes = wire.MaxRequestBytes
	op.SkipValidateBody = true // package seal is stricter
	huma.Register(s.api, op, func(ctx context.Context, raw *input) (*output[Out], error) {
		var in In
		if err := seal.Decode(raw.RawBody, &in, seal.Limits{Bytes: wire.MaxRequestBytes, Depth: wire.MaxDepth}); err != nil {
			return nil, answerTo(ctx, err)
		}
		out, err := do(ctx, s.cfg.Service.As(callOf(ctx).principal), in)
		if err != nil {
			return nil, answerTo(ctx, err)
		}
		return &output[Out]{out}, nil
	})
}

// watch registers a document that is read without a token.
func watch[Out any](s *Server, path, summary string, do func(ctx context.Context) (Out, error)) {
	huma.Register(s.api, s.operation(http.MethodGet, path, summary), func(ctx context.Context, _ *struct{}) (*output[Out], error) {
		out, err := do(ctx)
		if err != nil {
			return nil, answerTo(ctx, err)
		}
		return &output[Out]{out}, nil
	})
}

func (s *Server) operation(method, path, summary string) huma.Operation {
	problems := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Problem](), true, "")
	return huma.Operation{
		OperationID: strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/"), "/", "-"),
		Method:      method, Path: path, Summary: summary,
		Responses: map[string]*huma.Response{
			"200":     {Description: "Done."},
			"default": {Description: "It failed.", Content: map[string]*huma.MediaType{wire.MediaProblem: {Schema: problems}}},
		},
	}
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// answerTo turns an error into what huma answers with: the document of fail.
func answerTo(ctx context.Context, err error) error {
	c := callOf(ctx)
	doc, status := wire.NewProblem(c.public(err), c.id)
	return &statusError{doc, status}
}

// statusError is a Problem as huma answers with it.
type statusError struct {
	wire.Problem
	status int
}

// Error implements error.
func (e *statusError) Error() string { return e.What }

// GetStatus implements huma.StatusError.
func (e *statusError) GetStatus() int { return e.status }

// ContentType implements huma.ContentTypeFilter.
func (e *statusError) ContentType(string) string { return wire.MediaProblem }

func (s *Server) register() {
	s.registerStore()
	s.registerEvidence()
	s.registerPeople()
	s.registerRequests()
	watch(s, wire.Health, "Say what is in force", s.health)
	watch(s, wire.Ready, "Say whether the store answers", func(ctx context.Context) (wire.Readiness, error) {
		err := s.cfg.Service.Ping(ctx)
		return wire.Readiness{Ready: err == nil}, err
	})
}

func (s *Server) health(context.Context) (wire.Healthy, error) {
	state, err := s.cfg.Confined()
	if err != nil {
		return wire.Healthy{}, err
	}
	return wire.Healthy{
		Status: "ok", CanStartPrograms: !state.Holds(), Threads: state.Threads, NoNewPrivsThreads: state.NoNewPrivs,
		FilteredThreads: state.Filtered, StoreClass: s.cfg.Service.StoreClass(), StoreClassWhy: s.cfg.ClassWhy,
	}, nil
}

func (s *Server) registerStore() {
	on(s, wire.Describe, readers, "Name the store and who asks", func(ctx context.Context, c daemon.Caller, _ wire.Empty) (wire.Description, error) {
		d, err := c.Describe(ctx)
		return wire.Description{StoreClass: d.StoreClass, StoreName: d.StoreName, Home: d.Home, Principal: wire.NewPrincipal(d.Principal)}, err
	})
	on(s, wire.FindRepository, readers, "Look up the repository of a worktree", func(ctx context.Context, c daemon.Caller, in wire.Worktree) (wire.Repository, error) {
		wt, err := in.Worktree()
		if err != nil {
			return wire.Repository{}, err
		}
		repo, found, err := c.FindRepository(ctx, wt)
		return wire.Repository{RepositoryID: repo.ID, Found: found}, err
	})
	on(s, wire.MeetRepository, recorders, "Look up the repository of a worktree, and mint an id for a new one", func(ctx context.Context, c daemon.Caller, in wire.Worktree) (wire.Repository, error) {
		wt, err := in.Worktree()
		if err != nil {
			return wire.Repository{}, err
		}
		repo, created, err := c.Repository(ctx, wt)
		return wire.Repository{RepositoryID: repo.ID, Found: true, Created: created}, err
	})
	on(s, wire.BindRepository, operators, "Make a worktree count as a repository (operator)", func(ctx context.Context, c daemon.Caller, in wire.Binding) (out wire.Empty, err error) {
		wt, err := in.Worktree.Worktree()
		if err != nil {
			return out, err
		}
		return out, c.BindRepository(ctx, wt, in.RepositoryID)
	})
	on(s, wire.Policy, readers, "Read the accepted policy", func(ctx context.Context, c daemon.Caller, in wire.OfRepository) (out wire.PolicyFound, err error) {
		out.Policy, out.Found, err = c.Policy(ctx, in.RepositoryID)
		return out, err
	})
	on(s, wire.AcceptPolicy, operators, "Accept a policy (operator)", func(ctx context.Context, c daemon.Caller, in wire.Acceptance) (out wire.Empty, err error) {
		return out, c.AcceptPolicy(ctx, in.RepositoryID, in.Files, in.Digest)
	})
	on(s, wire.Gate, readers, "Judge the required claims", func(ctx context.Context, c daemon.Caller, in wire.GateQuery) (out wire.Report, err error) {
		q, err := in.Query()
		if err != nil {
			return out, err
		}
		out.Report, err = c.Gate(ctx, q)
		return out, err
	})
	on(s, wire.Summary, operators, "Judge, and sign a verification summary (operator)", func(ctx context.Context, c daemon.Caller, in wire.GateQuery) (out wire.Report, err error) {
		q, err := in.Query()
		if err != nil {
			return out, err
		}
		out.Report, out.Envelope, err = c.Summary(ctx, q)
		return out, err
	})
	on(s, wire.VerifyLog, operators, "Verify the whole log (operator)", func(ctx context.Context, c daemon.Caller, _ wire.Empty) (out wire.Entries, err error) {
		out.Entries, err = c.VerifyLog(ctx)
		return out, err
	})
}

func (s *Server) registerEvidence() {
	on(s, wire.RecordOpened, recorders, "Record an opened number (lane)", func(ctx context.Context, c daemon.Caller, in wire.Envelope) (out wire.Empty, err error) {
		return out, c.RecordOpened(ctx, in.Envelope)
	})
	on(s, wire.RecordReceipt, recorders, "Record a receipt (lane)", func(ctx context.Context, c daemon.Caller, in wire.Envelope) (out wire.Sealed, err error) {
		out.Seal, err = c.RecordReceipt(ctx, in.Envelope)
		return out, err
	})
	on(s, wire.BindClaim, recorders, "Bind a claim to a recorded receipt (lane)", func(ctx context.Context, c daemon.Caller, in wire.ClaimBinding) (out wire.Ledger, err error) {
		out.Ledger, err = c.Bind(ctx, in.Binding())
		return out, err
	})
	on(s, wire.Receipt, readers, "Read a receipt as it was recorded", func(ctx context.Context, c daemon.Caller, in wire.Sealed) (out wire.Envelope, err error) {
		out.Envelope, err = c.Receipt(ctx, in.Seal)
		return out, err
	})
	on(s, wire.Receipts, readers, "List receipts of a repository", func(ctx context.Context, c daemon.Caller, in wire.ReceiptQuery) (out wire.ReceiptList, err error) {
		out.Receipts, err = c.Receipts(ctx, in.RepositoryID, in.Filter)
		return out, err
	})
	on(s, wire.Explain, operators, "Explain a receipt or a hole (operator)", func(ctx context.Context, c daemon.Caller, in wire.Explanation) (out wire.Empty, err error) {
		return out, c.Explain(ctx, in.Name, in.Reason)
	})
	on(s, wire.Attestable, readers, "Look at what an attestation would be about", func(ctx context.Context, c daemon.Caller, in daemon.AttestQuery) (daemon.Attestable, error) {
		return c.Attestable(ctx, in)
	})
	on(s, wire.Attest, operators, "Attest the bytes of a pin (operator)", func(ctx context.Context, c daemon.Caller, in wire.Attestation) (out wire.Attested, err error) {
		out.Position, out.Fresh, err = c.Attest(ctx, in.Query, in.Digest)
		return out, err
	})
	on(s, wire.RevokeAttestation, operators, "Take attestations back (operator)", func(ctx context.Context, c daemon.Caller, in wire.AttestationRevocation) (out wire.Positions, err error) {
		out.Positions, err = c.RevokeAttestation(ctx, in.RepositoryID, in.CheckID, in.Position)
		return out, err
	})
	on(s, wire.Closure, recorders, "Read what an attested closure has", func(ctx context.Context, c daemon.Caller, in wire.ClosureDigest) (wire.ClosureKnown, error) {
		parts, files, err := c.Closure(ctx, in.SHA256)
		return wire.ClosureKnown{Known: parts != nil, Parts: append([]allowlist.ClosurePart{}, parts...), Files: append([]byte{}, files...)}, err
	})
	on(s, wire.Attestations, readers, "List the attestations of a repository", func(ctx context.Context, c daemon.Caller, in wire.OfRepository) (out wire.AttestationList, err error) {
		out.Attestations, err = c.Attestations(ctx, in.RepositoryID)
		return out, err
	})
}

func (s *Server) registerPeople() {
	on(s, wire.EnrolLane, operators, "Enrol a lane (operator)", func(ctx context.Context, c daemon.Caller, in wire.Lane) (out wire.Empty, err error) {
		key, err := seal.ParsePublicKey([]byte(in.PublicKey))
		if err != nil {
			return out, problem.Wrap(problem.Invalid, err, "enrol the lane", "give its public key, as PEM")
		}
		return out, c.EnrolLane(ctx, daemon.LaneSpec{LaneID: in.LaneID, PublicKey: key, Class: in.Class, Probe: in.Probe})
	})
	on(s, wire.RevokeLane, operators, "End a lane's key (operator)", func(ctx context.Context, c daemon.Caller, in wire.LaneRevocation) (out wire.LaneList, err error) {
		out.Lanes, err = c.RevokeLane(ctx, in.LaneID, in.Kind, in.Since)
		return out, err
	})
	on(s, wire.Lanes, readers, "List the lanes", func(ctx context.Context, c daemon.Caller, _ wire.Empty) (out wire.LaneList, err error) {
		out.Lanes, err = c.Lanes(ctx)
		return out, err
	})
	on(s, wire.TrustedLanes, operators, "Read what a trust file is to say of the lanes (operator)", func(ctx context.Context, c daemon.Caller, in wire.Most) (out wire.TrustedLaneList, err error) {
		out.Lanes, err = c.TrustedLanes(ctx, in.Receipts)
		return out, err
	})
	on(s, wire.RecordProbe, recorders, "Record what a probe of a lane's host found (lane)", func(ctx context.Context, c daemon.Caller, in wire.Probed) (out wire.Empty, err error) {
		return out, c.RecordProbe(ctx, in.LaneID, in.Probe)
	})
	on(s, wire.Host, recorders, "Tell what a probe of the daemon's host has to know (lane)", func(ctx context.Context, c daemon.Caller, _ wire.Empty) (out wire.HostKnown, err error) {
		if _, err := c.Host(ctx); err != nil {
			return out, err
		}
		return wire.HostKnown{
			SessionUIDs: s.sessions.list(), OperatorUIDs: append([]uint32{}, s.cfg.OperatorUIDs...), UID: s.cfg.UID,
			Files: append([]string{}, s.cfg.Files...),
		}, nil
	})
	on(s, wire.CheckMint, operators, "Say whether a token may be minted (operator)", func(ctx context.Context, c daemon.Caller, in wire.Token) (out wire.Empty, err error) {
		spec, err := in.Spec()
		if err != nil {
			return out, err
		}
		return out, c.CheckMint(ctx, spec)
	})
	on(s, wire.RecordToken, operators, "Make a token count, by its hash (operator)", func(ctx context.Context, c daemon.Caller, in wire.Token) (out daemon.TokenInfo, err error) {
		spec, err := in.Spec()
		if err != nil {
			return out, err
		}
		return c.RecordToken(ctx, spec, in.SHA256)
	})
	on(s, wire.Tokens, operators, "List the tokens (operator)", func(ctx context.Context, c daemon.Caller, _ wire.Empty) (out wire.TokenList, err error) {
		out.Tokens, err = c.Tokens(ctx)
		return out, err
	})
	on(s, wire.RevokeToken, operators, "End a token (operator)", func(ctx context.Context, c daemon.Caller, in wire.TokenID) (out wire.Count, err error) {
		out.Count, err = c.RevokeToken(ctx, in.ID)
		return out, err
	})
}

func (s *Server) registerRequests() {
	on(s, wire.RequestChecks, askers, "Ask a lane for checks (session, operator; over a unix socket)", func(ctx context.Context, c daemon.Caller, in daemon.CheckAsk) (daemon.RequestInfo, error) {
		return c.RequestChecks(ctx, in)
	})
	on(s, wire.TakeRequest, recorders, "Take a request for the user who called the lane (lane)", func(ctx context.Context, c daemon.Caller, in wire.Taking) (daemon.RequestInfo, error) {
		return c.TakeRequest(ctx, in.RequestID, in.UID)
	})
	on(s, wire.EndRequest, recorders, "Say what became of a request (lane)", func(ctx context.Context, c daemon.Caller, in wire.Ending) (out wire.Empty, err error) {
		return out, c.EndRequest(ctx, in.RequestID, in.End)
	})
	on(s, wire.CancelRequest, askers, "End a request that no lane has", func(ctx context.Context, c daemon.Caller, in wire.RequestID) (out wire.Empty, err error) {
		return out, c.CancelRequest(ctx, in.RequestID)
	})
	on(s, wire.RequestState, readers, "Read what became of a request", func(ctx context.Context, c daemon.Caller, in wire.RequestID) (daemon.RequestInfo, error) {
		return c.RequestState(ctx, in.RequestID)
	})
	on(s, wire.AbandonRequests, recorders, "End what a lane took and did not end (lane)", func(ctx context.Context, c daemon.Caller, _ wire.Empty) (out wire.Count, err error) {
		out.Count, err = c.AbandonRequests(ctx)
		return out, err
	})
}
