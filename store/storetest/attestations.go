package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"striatum/store"
)

func testAttestations(t *testing.T, s store.Store) {
	a := store.Attestation{RepositoryID: "repo-1", CheckID: "schema", CheckDigest: digest(3), ClosureSHA256: digest(6), By: "operator"}
	attest := func(a store.Attestation) (position int64, err error) {
		err = s.Update(t.Context(), func(w store.Writer) error {
			position, err = w.AddAttestation(t.Context(), a)
			return err
		})
		return position, err
	}
	again := func(ctx context.Context, w store.Writer) error {
		_, err := w.AddAttestation(ctx, a)
		return err
	}
	for range 3 {
		position := attestOnce(t, func() (int64, error) { return attest(a) })
		refused(t, s, store.ErrConflict, again)
		revoke := func(ctx context.Context, w store.Writer) error {
			_, err := w.AddAttestationRevocation(ctx, store.AttestationRevocation{RepositoryID: "repo-1", Attestation: position})
			return err
		}
		update(t, s, revoke)
		refused(t, s, store.ErrConflict, revoke)
	}
	for _, change := range []func(*store.Attestation){
		func(a *store.Attestation) { a.RepositoryID = "repo-2" },
		func(a *store.Attestation) { a.CheckDigest = digest(4) },
		func(a *store.Attestation) { a.ClosureSHA256 = digest(7) },
	} {
		other := a
		change(&other)
		if _, err := attest(other); err != nil {
			t.Errorf("%v beside those of other bytes: %v", other, err)
		}
	}
}

// attestOnce calls attest in several goroutines and expects that one of them
// gets its row.
func attestOnce(t *testing.T, attest func() (int64, error)) (position int64) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	rows := 0
	for range 4 {
		wg.Go(func() {
			at, err := attest()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				position = at
				rows++
			case !errors.Is(err, store.ErrConflict):
				t.Errorf("got %v, want ErrConflict", err)
			}
		})
	}
	wg.Wait()
	if rows != 1 {
		t.Errorf("%d attestations of the same bytes are active, want 1", rows)
	}
	return position
}
