package verifiercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/handover"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
	"striatum/verifier"
	"striatum/workflow"
)

// LaneSocket is where a lane listens and is looked for, if nobody says otherwise.
const LaneSocket = "/run/striatum-lane/lane.sock"

// cancelWait is how long a lane that was told to stop has to say how that ended.
const cancelWait = 30 * time.Second

// ask runs the checks by a lane of somebody else's, if this caller has none: a
// session, or an operator who names a lane and whose home has no key of one.
func (o *runOptions) ask(ctx context.Context, f *cli.Factory, s *service.Session, wt daemon.Worktree) (remote bool, err error) {
	named := cmp.Or(o.lane, f.Getenv("STRIATUM_LANE_SOCKET"))
	if f.DaemonSocket() == "" {
		return false, nil
	}
	switch s.Is.Principal.Kind {
	case daemon.Session:
	case daemon.Operator:
		_, kerr := os.Lstat(s.UserHome.PublicKeyPath("lane"))
		if named == "" || kerr == nil {
			return false, nil
		}
	case daemon.Local, daemon.Lane:
		return false, nil
	}
	if o.mutants > 0 {
		return true, problem.New(problem.Usage, "ask a lane for more mutants", "a lane plants as many as the check says", "leave --mutants out, or set `mutants` in the workflow")
	}
	named = cmp.Or(named, LaneSocket)
	if !filepath.IsAbs(named) {
		return true, problem.New(problem.Usage, fmt.Sprintf("call the lane on %q", named), "that is not an absolute path", "set STRIATUM_LANE_SOCKET, or --lane, to the socket's absolute path")
	}
	r := &asked{o: o, f: f, s: s}
	return true, r.run(ctx, named, wt)
}

// asked is a run of checks by a lane of somebody else's.
type asked struct {
	o        *runOptions
	f        *cli.Factory
	s        *service.Session
	request  daemon.RequestInfo
	ring     seal.Keyring
	copies   *binder
	progress *progress
	outcomes []verifier.Outcome
	taken    bool // the lane has the request
	begun    bool // the lane works on it
}

func (a *asked) run(ctx context.Context, socket string, wt daemon.Worktree) (err error) {
	repo, found, err := a.s.FindRepository(ctx, wt)
	if err != nil {
		return err
	}
	if !found {
		return problem.New(problem.Refused, "ask for checks", "the daemon does not know this worktree", "an operator accepts its policy (striatum policy accept), or whoever runs the lane pins its checks (striatum verifier pin --host-here)")
	}
	folder, err := openFolder(wt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	lane, err := handover.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { _ = lane.Close() }() // what it said was read
	run := cmp.Or(a.o.run, a.s.Is.Principal.RunID)
	if a.request, err = a.s.RequestChecks(ctx, daemon.CheckAsk{RepositoryID: repo.ID, RunID: run, Checks: unique(a.o.checks), Commit: a.o.commit}); err != nil {
		return err
	}
	a.progress = newProgress(a.f.Streams, a.f.Now)
	a.copies = &binder{top: wt.Path, streams: a.f.Streams, progress: a.progress}
	a.o.run = run
	end, err := a.talk(ctx, lane, folder)
	a.progress.end()
	if err == nil {
		err = a.confirm(ctx)
	}
	if err != nil && !a.taken {
		a.withdraw(ctx)
	}
	return a.o.conclude(a.f, repo.ID, a.outcomes, end.Declares, err)
}

// openFolder opens the top of a worktree with the caller's own rights.
func openFolder(wt daemon.Worktree) (*os.File, error) {
	const what = "open the worktree"
	folder, err := os.OpenFile(wt.Path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, problem.Wrap(problem.Refused, err, what, "run as a user who may read it")
	}
	st, err := folder.Stat()
	if err != nil {
		return nil, errors.Join(problem.Wrap(problem.Refused, err, what, ""), folder.Close())
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Ino != wt.Inode {
		return nil, errors.Join(problem.New(problem.Indeterminate, what, "another folder took its place", "run the command again"), folder.Close())
	}
	return folder, nil
}

func unique(ids []string) []string {
	var out []string
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// heard is what the lane said, or why nothing more will come.
type heard struct {
	m   handover.Message
	err error
}

// talk hands the folder over and follows what the lane says until it ends. A context
// that ends gives up, and waits until the lane has said how that ended.
func (a *asked) talk(ctx context.Context, lane *handover.Client, folder *os.File) (end handover.End, err error) {
	if err := lane.Offer(a.request.ID, folder); err != nil {
		return end, a.lost(err)
	}
	said, done := make(chan heard), make(chan struct{})
	defer close(done)
	go func() {
		for {
			m, err := lane.Next()
			select {
			case said <- heard{m, err}:
			case <-done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	waiting := time.After(a.o.wait)
	interrupt := ctx.Done()
	var giveUp <-chan time.Time
	var gaveUp error
	for {
		select {
		case h := <-said:
			if h.err != nil {
				if gaveUp != nil {
					return end, gaveUp
				}
				return end, a.lost(h.err)
			}
			if h.m.End != nil {
				return *h.m.End, a.ended(*h.m.End, gaveUp)
			}
			if err := a.hear(context.WithoutCancel(ctx), h.m); err != nil {
				return end, err
			}
			if a.begun {
				waiting = nil
			}
		case <-waiting:
			gaveUp = problem.New(problem.Indeterminate, "wait for the lane", fmt.Sprintf("it worked on others for %s", a.o.wait), "try again, or wait longer with --wait")
			lane.Cancel()
			waiting, giveUp = nil, time.After(cancelWait)
		case <-interrupt:
			gaveUp = context.Cause(ctx)
			lane.Cancel()
			interrupt, waiting, giveUp = nil, nil, time.After(cancelWait)
		case <-giveUp:
			return end, gaveUp
		}
	}
}

// ended is the error of a run that the lane says has ended.
func (a *asked) ended(end handover.End, gaveUp error) error {
	switch {
	case gaveUp != nil:
		return gaveUp
	case end.Problem != nil:
		return end.Problem.Problem()
	}
	return nil
}

// hear takes one message.
func (a *asked) hear(ctx context.Context, m handover.Message) error {
	switch {
	case m.Queued != nil:
		a.taken = true
		if m.Queued.Ahead > 0 {
			a.progress.step("", fmt.Sprintf("wait for the lane: %d before this", m.Queued.Ahead))
		}
	case m.Step != nil:
		a.begun = true
		a.progress.step(m.Step.CheckID, cli.Escape(m.Step.Text))
	case m.Outcome != nil:
		a.begun = true
		o, err := a.outcome(ctx, *m.Outcome)
		if err != nil {
			return err
		}
		a.outcomes = append(a.outcomes, o)
		a.progress.concluded(o)
		return a.copies.keep(o, m.Outcome.Ledger)
	}
	return nil
}

// outcome opens a receipt with the keys of the daemon's lanes. What the lane says
// beside it is only shown.
func (a *asked) outcome(ctx context.Context, said handover.Outcome) (verifier.Outcome, error) {
	const what = "take the lane's receipt"
	envelope := said.Envelope
	var err error
	if len(envelope) == 0 {
		if envelope, err = a.s.Receipt(ctx, said.Seal); err != nil {
			return verifier.Outcome{}, err
		}
	}
	if a.ring.Len() == 0 {
		if a.ring, err = a.s.Keyring(ctx); err != nil {
			return verifier.Outcome{}, err
		}
	}
	v, err := receipt.Open(envelope, a.ring)
	if err != nil {
		return verifier.Outcome{}, problem.Wrap(problem.Indeterminate, err, what, "")
	}
	r := v.Receipt()
	if v.Seal() != said.Seal || r.RepositoryID != a.request.RepositoryID || r.RunID != a.request.RunID {
		return verifier.Outcome{}, problem.New(problem.Indeterminate, what, "it is not one of what was asked for", "")
	}
	o := verifier.Outcome{Check: workflow.CheckRef{ID: r.Check.ID, BacksClaim: r.Check.BacksClaim}, Receipt: v, Envelope: envelope}
	if b := r.Baseline; b != nil && seal.SHA256Hex(said.Census) == b.CensusSHA256 {
		o.Census = said.Census
	}
	if _, builtin := workflow.LookupBuiltin(r.Check.ID); builtin {
		o.Check.ID, o.Check.Uses = "", r.Check.ID
	}
	for _, x := range said.Failing[:min(len(said.Failing), verifier.MaxShown)] {
		o.Failing = append(o.Failing, verifier.Failing{Name: x.Name, Tail: x.Tail})
	}
	return o, nil
}

// confirm asks the daemon whether the request ended with the receipts that the lane
// showed: the lane's word alone ends nothing well.
func (a *asked) confirm(ctx context.Context) error {
	state, err := a.s.RequestState(ctx, a.request.ID)
	if err != nil {
		return err
	}
	var shown []string
	for _, o := range a.outcomes {
		shown = append(shown, o.Receipt.Seal())
	}
	if state.State != daemon.RequestDone || !slices.Equal(state.Seals, shown) || len(shown) == 0 {
		return problem.New(problem.Indeterminate, "run the checks", fmt.Sprintf("the lane says it is done, and the daemon %s", describe(state)), "")
	}
	for _, id := range a.o.checks {
		if !slices.ContainsFunc(a.outcomes, func(o verifier.Outcome) bool { return o.Check.CheckID() == id }) {
			return problem.New(problem.Indeterminate, "run the checks", fmt.Sprintf("the lane says it is done, and has no receipt of the check %q", id), "")
		}
	}
	return nil
}

// withdraw takes back a request that no lane took. One that cannot be taken back
// expires.
func (a *asked) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
	defer cancel()
	_ = a.s.CancelRequest(ctx, a.request.ID)
}

// lost says what the daemon knows of a request whose lane said no more.
func (a *asked) lost(cause error) error {
	const what = "follow the lane"
	ctx, cancel := context.WithTimeout(context.Background(), cancelWait)
	defer cancel()
	state, err := a.s.RequestState(ctx, a.request.ID)
	if err != nil {
		return problem.Wrap(problem.Indeterminate, cause, what, "what became of the request is not known; run the command again")
	}
	return problem.Wrap(problem.Indeterminate, cause, what, "the daemon "+describe(state)+"; the gate shows what counts, or run the command again")
}

// describe says what the daemon knows of a request.
func describe(r daemon.RequestInfo) string {
	text := "calls it " + r.State
	if r.Why != "" {
		text += " (" + r.Why + ")"
	}
	if len(r.Seals) > 0 {
		text += ", with the receipts " + strings.Join(r.Seals, ", ")
	}
	return text
}
