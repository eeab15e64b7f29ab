package verifier

import (
	"context"
	"fmt"

	"striatum/receipt"
	"striatum/verifier/gocheck"
	"striatum/workflow"
)

// MutantsRehearsed is what the tests of a go-test check noticed of the mutants of
// their product.
type MutantsRehearsed struct {
	Check workflow.CheckRef
	// Facts are those of a receipt, derived and unsigned, without a number. Its
	// mutants name every survivor.
	Facts   receipt.Receipt
	Failing []Failing // at most MaxShown
}

// RehearseMutants runs the go-test checks that the request selects as Run does, and
// tries mutants of the product beyond those of a run: up to most of the candidates,
// each with the tests of its own package and, if it survives those, with all that
// have the package, in sight of them. It takes no number and signs nothing: it is
// for people who want to know what their tests do not notice. Rehearsals hold what
// was tried, also of a check that a cancelled context cut short, when the error is
// not nil. Errors are those of Run.
func (l *Lane) RehearseMutants(ctx context.Context, req Request, most int) (done []MutantsRehearsed, err error) {
	err = l.each(ctx, "verifier rehearse", req, func(r *run) error {
		r.everyMutant = most
		facts, err := r.rehearseMutants(ctx)
		if err != nil {
			return err
		}
		done = append(done, MutantsRehearsed{r.check, facts, r.shown})
		return context.Cause(ctx)
	})
	return done, err
}

func (r *run) rehearseMutants(ctx context.Context) (receipt.Receipt, error) {
	p, err := r.procedure()
	if err != nil {
		return receipt.Receipt{}, err
	}
	if r.limits, err = limits(p.limits); err != nil {
		return receipt.Receipt{}, err
	}
	if err := r.draft(p); err != nil {
		return receipt.Receipt{}, err
	}
	err = r.prepare(ctx, p)
	if err == nil {
		err = p.run(ctx, r)
	}
	if ctx.Err() != nil && r.body.Mutants == nil {
		return receipt.Receipt{}, context.Cause(ctx)
	}
	r.conclusion(ctx, err)
	receipt.Derive(&r.body)
	return r.body, nil
}

// tryEvery tries the mutants of a rehearsal. One that its own package's tests let
// live meets all that have the package before it counts as a survivor. The first
// kill must stand, as in a run.
func (r *run) tryEvery(ctx context.Context, cache string, found []gocheck.Mutant, sources map[string][]byte) error {
	m := r.body.Mutants
	fallen := 0
	for tried := 0; tried < len(found) && fallen < maxFallen; {
		left := found[tried:min(len(found), tried+maxRound)]
		tried += len(left)
		for _, inSight := range []bool{false, true} {
			r.step(fmt.Sprintf("mutants of the product: %d of %d, %d killed, %d survived", tried, len(found), m.Killed, m.Survived))
			trials, err := r.trialsOf(left, sources, inSight)
			if err == nil {
				err = r.tryMutants(ctx, cache, trials)
			}
			if err != nil {
				return err
			}
			left = nil
			for _, t := range trials {
				switch {
				case t.came == killed && m.Killed == 0:
					if err := r.confirm(ctx, cache, t, &fallen); err != nil {
						return err
					}
				case t.came == survived && !inSight:
					left = append(left, t.Mutant)
					continue
				}
				r.count(t)
			}
			if len(left) == 0 || fallen >= maxFallen {
				break
			}
		}
	}
	return nil
}
