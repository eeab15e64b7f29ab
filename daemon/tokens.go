package daemon

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
)

// An operator token is operatorPrefix and 32 random bytes in unpadded URL-safe
// base64. The store keeps the SHA-256 of the whole text.
const (
	operatorPrefix = "striatum_op_"
	tokenBytes     = 32
)

// kindOperator is how the store names an operator's token.
const kindOperator = "operator"

// MintOperator makes an operator token that is good for ttl and returns its
// operator. It hands the token to keep, the only time that anybody sees it, and
// records it after keep returned nil: whatever dies in between, no token counts
// that nobody has. A local user gets the first one; while one is good, another
// takes its operator.
func (s *Service) MintOperator(ctx context.Context, p Principal, ttl time.Duration, keep func(token string) error) (Principal, error) {
	const what = "mint an operator token"
	if err := p.mustBe(what, Local, Operator); err != nil {
		return Principal{}, err
	}
	var secret [tokenBytes]byte
	if _, err := io.ReadFull(s.cfg.Rand, secret[:]); err != nil {
		return Principal{}, fmt.Errorf("%s: %w", what, err)
	}
	token := operatorPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	row := store.Token{Hash: seal.SHA256Hex([]byte(token)), Kind: kindOperator, By: p.String()}
	row.Name = "op-" + row.Hash[:8]
	now := s.cfg.Now()
	row.ExpiresAt = now.Add(ttl).UTC().Format(time.RFC3339)
	may := func(r store.Reader) error {
		live, found, err := liveOperator(ctx, r, now)
		if err == nil && found && p.Kind != Operator {
			err = problem.New(problem.Refused, what, fmt.Sprintf("the token %s is good until %s", live.Name, live.ExpiresAt), operatorHint)
		}
		return err
	}
	if err := s.view(ctx, what, may); err != nil {
		return Principal{}, err
	}
	if err := keep(token); err != nil {
		return Principal{}, err
	}
	err := s.update(ctx, what, func(w store.Writer) error {
		if err := may(w); err != nil {
			return err
		}
		_, err := w.AddToken(ctx, row)
		return err
	})
	if err != nil {
		return Principal{}, err
	}
	return Principal{Kind: Operator, Name: row.Name}, nil
}

// OperatorToken names the operator token that is good now. found is false when
// there is none.
func (s *Service) OperatorToken(ctx context.Context) (name, expiresAt string, found bool, err error) {
	var live store.Token
	err = s.view(ctx, "look for an operator token", func(r store.Reader) (err error) {
		live, found, err = liveOperator(ctx, r, s.cfg.Now())
		return err
	})
	return live.Name, live.ExpiresAt, found, err
}

func liveOperator(ctx context.Context, r store.Reader, now time.Time) (store.Token, bool, error) {
	revoked, err := revokedTokens(ctx, r)
	if err != nil {
		return store.Token{}, false, err
	}
	var live store.Token
	found := false
	err = store.Each(
		func(p store.Page) ([]store.Row[store.Token], error) { return r.Tokens(ctx, p) },
		func(row store.Row[store.Token]) error {
			t := row.Value
			if t.Kind == kindOperator && !revoked[t.Hash] && !expired(t, now) {
				live, found = t, true
			}
			return nil
		})
	return live, found, err
}

func revokedTokens(ctx context.Context, r store.Reader) (map[string]bool, error) {
	rows, err := store.All(func(p store.Page) ([]store.Row[store.TokenRevocation], error) { return r.TokenRevocations(ctx, p) })
	revoked := map[string]bool{}
	for _, row := range rows {
		revoked[row.Value.Hash] = true
	}
	return revoked, err
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
	const what = "check the token"
	refused := func(why string) error {
		return problem.New(problem.Refused, what, why, "the token file holds the token that `striatum init` showed, and nothing else")
	}
	if !strings.HasPrefix(token, operatorPrefix) {
		return Principal{}, refused("it is not an operator token")
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
		if t.Kind != kindOperator || subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hash)) != 1 {
			return refused("this store does not know it")
		}
		revoked, err := revokedTokens(ctx, r)
		switch {
		case err != nil:
			return err
		case revoked[t.Hash]:
			return refused("it was revoked")
		case expired(t, s.cfg.Now()):
			return refused("it expired at " + t.ExpiresAt)
		}
		p = Principal{Kind: Operator, Name: t.Name}
		return nil
	})
	return p, err
}
