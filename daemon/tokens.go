package daemon

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"striatum/gate"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
	"striatum/workflow"
)

// A token is the prefix of its kind and 32 random bytes in unpadded URL-safe
// base64. The store keeps the SHA-256 of the whole text.
const (
	operatorPrefix = "striatum_op_"
	sessionPrefix  = "striatum_se_"
	lanePrefix     = "striatum_la_"
	tokenBytes     = 32
)

// The bounds of a token.
const (
	MinTokenTTL  = time.Minute
	MaxTokenTTL  = 366 * 24 * time.Hour
	MaxTokenJobs = 100
	maxTokenText = 128 // bytes; no good token is as long
)

// tokenPrefix returns how a token of kind k begins, "" where k has no tokens.
func tokenPrefix(k Kind) string {
	switch k {
	case Operator:
		return operatorPrefix
	case Session:
		return sessionPrefix
	case Lane:
		return lanePrefix
	case Local:
	}
	return ""
}

// tokenID is how people name a token: its kind and the first digits of its hash.
func tokenID(k Kind, hash string) string {
	return strings.TrimSuffix(strings.TrimPrefix(tokenPrefix(k), "striatum_"), "_") + "-" + hash[:8]
}

// tokenKind is the kind whose word the store has; the zero Kind for another.
func tokenKind(word string) Kind {
	for _, k := range []Kind{Operator, Session, Lane} {
		if word == k.String() {
			return k
		}
	}
	return 0
}

// TokenSpec says whose token is to be minted. A session's is bound to one
// repository, to one run of it (empty: what is outside any run) and to the jobs
// that it holds; a lane's to a lane id. TTL is whole seconds, from MinTokenTTL to
// MaxTokenTTL.
type TokenSpec struct {
	Kind                Kind
	TTL                 time.Duration
	RepositoryID, RunID string
	Jobs                []string
	LaneID              string
}

// TokenInfo is what the store knows of a token. ID is how RevokeToken names it.
type TokenInfo struct {
	store.Token
	ID         string `json:"id"`
	Position   int64  `json:"position"`
	RecordedAt string `json:"recorded_at"`
	Revoked    bool   `json:"revoked"`
	Expired    bool   `json:"expired"`
}

// Good reports whether the token would be let in.
func (t TokenInfo) Good() bool { return !t.Revoked && !t.Expired }

// DrawToken draws a token of kind k, and its SHA-256, which is all that anybody
// but its holder may keep.
func DrawToken(random io.Reader, k Kind) (token, sha256 string, err error) {
	var secret [tokenBytes]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return "", "", fmt.Errorf("draw a token: %w", err)
	}
	token = tokenPrefix(k) + base64.RawURLEncoding.EncodeToString(secret[:])
	return token, seal.SHA256Hex([]byte(token)), nil
}

// MintOperator makes an operator token that is good for ttl and returns its
// operator. It hands the token to keep, the only time that anybody sees it, and
// records it after keep returned nil: whatever dies in between, no token counts
// that nobody has. A local user gets the first one; while one is good, another
// takes its operator.
func (s *Service) MintOperator(ctx context.Context, p Principal, ttl time.Duration, keep func(token string) error) (Principal, error) {
	spec := TokenSpec{Kind: Operator, TTL: ttl}
	if err := s.CheckMint(ctx, p, spec); err != nil {
		return Principal{}, err
	}
	token, hash, err := DrawToken(s.cfg.Rand, Operator)
	if err != nil {
		return Principal{}, err
	}
	if err := keep(token); err != nil {
		return Principal{}, err
	}
	info, err := s.RecordToken(ctx, p, spec, hash)
	if err != nil {
		return Principal{}, err
	}
	return Principal{Kind: Operator, Name: info.Name}, nil
}

// CheckMint says whether p may mint such a token now, and records nothing.
func (s *Service) CheckMint(ctx context.Context, p Principal, spec TokenSpec) error {
	if err := spec.check(p); err != nil {
		return err
	}
	return s.view(ctx, spec.what(), func(r store.Reader) error { return s.mayMint(ctx, r, p, spec) })
}

// RecordToken makes the token with that SHA-256 count. Its text is drawn
// (DrawToken) and kept by whoever asks, so the service never sees it.
func (s *Service) RecordToken(ctx context.Context, p Principal, spec TokenSpec, sha256 string) (info TokenInfo, err error) {
	if err := spec.check(p); err != nil {
		return TokenInfo{}, err
	}
	if !seal.ValidDigest(sha256) {
		return TokenInfo{}, problem.New(problem.Usage, spec.what(), "the token's SHA-256 is not 64 lower-case hex digits", "")
	}
	row := store.Token{
		Hash: sha256, Kind: spec.Kind.String(), Name: tokenID(spec.Kind, sha256), By: p.String(),
		RepositoryID: spec.RepositoryID, RunID: spec.RunID, Jobs: slices.Sorted(slices.Values(spec.Jobs)),
	}
	if spec.Kind == Lane {
		row.Name = spec.LaneID
	}
	err = s.update(ctx, spec.what(), func(w store.Writer) error {
		if err := s.mayMint(ctx, w, p, spec); err != nil {
			return err
		}
		now, err := s.time(ctx, w)
		if err != nil {
			return err
		}
		row.ExpiresAt = now.Add(spec.TTL).UTC().Format(time.RFC3339)
		info = TokenInfo{Token: row, ID: tokenID(spec.Kind, sha256)}
		info.Position, err = w.AddToken(ctx, row)
		if errors.Is(err, store.ErrConflict) {
			return problem.New(problem.Refused, spec.what(), "the store has this token already", "draw another")
		}
		return err
	})
	if err != nil {
		return TokenInfo{}, err
	}
	return info, nil
}

// Tokens lists all tokens, oldest first, for operators.
func (s *Service) Tokens(ctx context.Context, p Principal) (out []TokenInfo, err error) {
	const what = "list the tokens"
	if err := p.mustBe(what, Operator); err != nil {
		return nil, err
	}
	err = s.view(ctx, what, func(r store.Reader) error {
		out, err = s.tokens(ctx, r)
		return err
	})
	return out, err
}

// RevokeToken ends every good token with that ID, from the next request on. It
// returns how many those were.
func (s *Service) RevokeToken(ctx context.Context, p Principal, id string) (revoked int, err error) {
	what := fmt.Sprintf("revoke the token %q", clip(id))
	if err := p.mustBe(what, Operator); err != nil {
		return 0, err
	}
	err = s.update(ctx, what, func(w store.Writer) error {
		revoked = 0
		all, err := s.tokens(ctx, w)
		if err != nil {
			return err
		}
		found := false
		for _, t := range all {
			if t.ID != id {
				continue
			}
			found = true
			if t.Revoked {
				continue
			}
			if _, err := w.AddTokenRevocation(ctx, store.TokenRevocation{Hash: t.Hash, By: p.String()}); err != nil {
				return err
			}
			revoked++
		}
		if !found {
			return problem.New(problem.Usage, what, "there is none in this store", "`striatum token list` names all")
		}
		return nil
	})
	return revoked, err
}

func (t TokenSpec) what() string {
	switch t.Kind {
	case Session:
		return "mint a session token"
	case Lane:
		return "mint a lane token"
	case Operator, Local:
	}
	return "mint an operator token"
}

// check says whether t makes sense and whether p could ever mint it.
func (t TokenSpec) check(p Principal) error {
	usage := func(why, hint string) error { return problem.New(problem.Usage, t.what(), why, hint) }
	if t.Kind == Operator {
		if err := p.mustBe(t.what(), Local, Operator); err != nil {
			return err
		}
	} else if err := p.mustBe(t.what(), Operator); err != nil {
		return err
	}
	bound := t.RepositoryID != "" || t.RunID != "" || len(t.Jobs) > 0
	switch {
	case tokenPrefix(t.Kind) == "":
		return usage("its kind is none of operator, session and lane", "")
	case t.TTL < MinTokenTTL || t.TTL > MaxTokenTTL || t.TTL%time.Second != 0:
		return usage(fmt.Sprintf("it would be good for %s", t.TTL), "it may be good for a minute to 366 days, in whole seconds")
	case t.Kind != Session && bound:
		return usage("only a session's is bound to a repository, run or job", "")
	case t.Kind != Lane && t.LaneID != "":
		return usage("only a lane's is bound to a lane", "")
	case t.Kind == Session && !workflow.ValidID(t.RepositoryID):
		return usage("it names no repository id", "`striatum policy show` prints the worktree's")
	case t.RunID != "" && !workflow.ValidID(t.RunID):
		return usage("its run is not an id", "an id is 1 to 64 of a-z, 0-9, dot, underscore and hyphen, and begins with a letter or digit")
	case len(t.Jobs) > MaxTokenJobs:
		return usage(fmt.Sprintf("%d jobs are more than %d", len(t.Jobs), MaxTokenJobs), "")
	}
	for i, job := range t.Jobs {
		if !workflow.ValidID(job) {
			return usage(fmt.Sprintf("the job %q is not an id", clip(job)), "it is one of the workflow's jobs")
		}
		if slices.Contains(t.Jobs[:i], job) {
			return usage(fmt.Sprintf("the job %q is named twice", job), "")
		}
	}
	return nil
}

// mayMint says whether the state of the store allows it.
func (s *Service) mayMint(ctx context.Context, r store.Reader, p Principal, spec TokenSpec) error {
	switch {
	case spec.Kind == Operator && p.Kind != Operator:
		live, found, err := s.liveOperator(ctx, r)
		if err == nil && found {
			err = problem.New(problem.Refused, spec.what(), fmt.Sprintf("the token %s is good until %s", live.Name, live.ExpiresAt), operatorHint)
		}
		return err
	case spec.Kind == Lane:
		lanes, err := gateLanes(ctx, r)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(lanes, func(l gate.Lane) bool { return l.LaneID == spec.LaneID && l.Kind == gate.NotRevoked }) {
			return problem.New(problem.Usage, spec.what(), fmt.Sprintf("no lane %q is enrolled, with a key that was not revoked", clip(spec.LaneID)), "`striatum lane list` names all")
		}
	}
	return nil
}

// OperatorToken names the operator token that is good now. found is false when
// there is none.
func (s *Service) OperatorToken(ctx context.Context) (name, expiresAt string, found bool, err error) {
	var live TokenInfo
	err = s.view(ctx, "look for an operator token", func(r store.Reader) (err error) {
		live, found, err = s.liveOperator(ctx, r)
		return err
	})
	return live.Name, live.ExpiresAt, found, err
}

func (s *Service) liveOperator(ctx context.Context, r store.Reader) (live TokenInfo, found bool, err error) {
	all, err := s.tokens(ctx, r)
	for _, t := range all {
		if tokenKind(t.Kind) == Operator && t.Good() {
			live, found = t, true
		}
	}
	return live, found, err
}

func (s *Service) tokens(ctx context.Context, r store.Reader) ([]TokenInfo, error) {
	revoked, err := revokedTokens(ctx, r)
	if err != nil {
		return nil, err
	}
	now, err := s.time(ctx, r)
	if err != nil {
		return nil, err
	}
	rows, err := store.All(func(p store.Page) ([]store.Row[store.Token], error) { return r.Tokens(ctx, p) })
	out := make([]TokenInfo, 0, len(rows))
	for _, row := range rows {
		t := row.Value
		if !seal.ValidDigest(t.Hash) {
			return nil, fmt.Errorf("%w: the token at %d has no hash", store.ErrCorrupt, row.Position)
		}
		out = append(out, TokenInfo{
			Token: t, ID: tokenID(tokenKind(t.Kind), t.Hash), Position: row.Position, RecordedAt: row.RecordedAt,
			Revoked: revoked[t.Hash], Expired: expired(t, now),
		})
	}
	return out, err
}

func revokedTokens(ctx context.Context, r store.Reader) (map[string]bool, error) {
	rows, err := store.All(func(p store.Page) ([]store.Row[store.TokenRevocation], error) { return r.TokenRevocations(ctx, p) })
	revoked := map[string]bool{}
	for _, row := range rows {
		revoked[row.Value.Hash] = true
	}
	return revoked, err
}

// time is the clock's, but not before the newest entry of the log: a clock that
// was set back makes no token good again.
func (s *Service) time(ctx context.Context, r store.Reader) (time.Time, error) {
	now := s.cfg.Now()
	head, err := r.Head(ctx)
	if err != nil || head.Position == 0 {
		return now, err
	}
	newest, err := time.Parse(time.RFC3339, head.RecordedAt)
	if err != nil {
		return now, fmt.Errorf("%w: the time of log entry %d is none", store.ErrCorrupt, head.Position)
	}
	if newest.After(now) {
		return newest, nil
	}
	return now, nil
}

// expired takes a time that cannot be read for one that is over.
func expired(t store.Token, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, t.ExpiresAt)
	return err != nil || !now.Before(at)
}

// Authenticate returns whose token it is. The empty token is the local user.
// Every other one that is not good now is refused, with nothing in the message
// that helps to guess.
func (s *Service) Authenticate(ctx context.Context, token string) (Principal, error) {
	if token == "" {
		return LocalUser(), nil
	}
	const what, another = "check the token", "an operator mints another with `striatum token mint`; once no operator's is good, `striatum token mint --kind operator` takes none"
	refused := func(why string) error {
		return problem.New(problem.Refused, what, why, "the token file holds one token, as it was shown once, and nothing else")
	}
	var kind Kind
	for _, k := range []Kind{Operator, Session, Lane} {
		if strings.HasPrefix(token, tokenPrefix(k)) && len(token) <= maxTokenText {
			kind = k
		}
	}
	if kind == 0 {
		return Principal{}, refused("it is not a token of striatum")
	}
	hash := seal.SHA256Hex([]byte(token))
	var p Principal
	err := s.view(ctx, what, func(r store.Reader) error {
		row, err := r.Token(ctx, hash)
		if errors.Is(err, store.ErrNotFound) {
			return refused("this store does not know it")
		}
		if err != nil {
			return err
		}
		t := row.Value
		if tokenKind(t.Kind) != kind || subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hash)) != 1 {
			return refused("this store does not know it")
		}
		revoked, err := revokedTokens(ctx, r)
		if err != nil {
			return err
		}
		now, err := s.time(ctx, r)
		switch {
		case err != nil:
			return err
		case revoked[t.Hash]:
			return problem.New(problem.Refused, what, "it was revoked", another)
		case expired(t, now):
			return problem.New(problem.Refused, what, "it expired at "+t.ExpiresAt, another)
		}
		p = Principal{Kind: kind, Name: t.Name, RepositoryID: t.RepositoryID, RunID: t.RunID, Jobs: t.Jobs}
		return nil
	})
	return p, err
}
