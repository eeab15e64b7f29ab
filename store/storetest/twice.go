package storetest

import (
	"context"
	"errors"

	"striatum/store"
)

// Twice returns a store that runs every closure twice, the first time for
// nothing, as a database may when it asks for another try. Users of a store are
// tested with it.
func Twice(s store.Store) store.Store { return twice{s} }

type twice struct{ store.Store }

var errAgain = errors.New("run the closure again")

func (t twice) View(ctx context.Context, fn func(store.Reader) error) error {
	if err := t.Store.View(ctx, fn); err != nil {
		return err
	}
	return t.Store.View(ctx, fn)
}

func (t twice) Update(ctx context.Context, fn func(store.Writer) error) error {
	err := t.Store.Update(ctx, func(w store.Writer) error {
		if err := fn(w); err != nil {
			return err
		}
		return errAgain
	})
	if !errors.Is(err, errAgain) {
		return err
	}
	return t.Store.Update(ctx, fn)
}
