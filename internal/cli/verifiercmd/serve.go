package verifiercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/claim"
	"striatum/daemon"
	"striatum/internal/beneath"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/filelock"
	"striatum/internal/handover"
	"striatum/internal/problem"
	"striatum/internal/reach"
	"striatum/internal/unixsocket"
	"striatum/internal/worktree"
	"striatum/verifier"
	"striatum/verifier/journal"
)

const (
	// serveLockWait is how long a lane waits for one that is stopping.
	serveLockWait = 2 * time.Second
	// laneWait is how long it waits for a `verifier run` with its home.
	laneWait = 10 * time.Minute
	// endTimeout bounds telling the daemon how a request ended.
	endTimeout = 20 * time.Second
	// maxReasonBytes is what the daemon takes of a reason.
	maxReasonBytes = 1000
)

// serveOptions are the flags of `lane serve`.
type serveOptions struct{ listen, group, tokenFile string }

// NewServe returns `striatum lane serve`.
func NewServe(f *cli.Factory) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the checks that sessions ask for (lane)",
		Long: `Serve runs the lane of this home for others: whoever may connect to its socket hands
over an open worktree and the id of a request that it made with the daemon. The
worktree is read with the caller's rights, nothing is written into it, and one check
runs at a time. The receipts go to the daemon. It runs in the foreground as root,
logs a JSON line for each request, and on SIGTERM ends what runs, which is sealed as
aborted.`,
		Example: "  striatum lane serve --group agents --token-file lane.token",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.serve(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.listen, "listen", LaneSocket, "the unix `socket` to listen on; its folder must exist")
	fl.StringVar(&o.group, "group", "", "the `group` whose members may connect (default: root's)")
	fl.StringVar(&o.tokenFile, "token-file", "", "`file` with the lane's token (default: STRIATUM_TOKEN_FILE)")
	return cmd
}

func (o *serveOptions) serve(ctx context.Context, f *cli.Factory) (err error) {
	const what = "serve the lane of this home"
	switch {
	case f.DaemonSocket() == "":
		return problem.New(problem.Usage, what, "requests lie with a daemon, and none is named", "name its socket with --socket or STRIATUM_SOCKET")
	case !filepath.IsAbs(o.listen):
		return problem.New(problem.Usage, what, "--listen is not an absolute path", "")
	case os.Geteuid() != 0:
		return problem.New(problem.Missing, what, "only root takes a caller's rights", "run it as root")
	}
	if o.listen, err = settled(o.listen); err != nil {
		kind := problem.Refused
		if errors.Is(err, fs.ErrNotExist) {
			kind = problem.Missing
		}
		return problem.Wrap(kind, err, what, "let the socket lie in a folder of root's, such as "+filepath.Dir(LaneSocket))
	}
	s := &served{f: f, log: slog.New(slog.NewJSONHandler(f.Streams.Err, nil)), unsaid: map[string]daemon.RequestEnd{}}
	if s.Session, err = service.Open(ctx, f, o.tokenFile); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.Is.Principal.Kind != daemon.Lane {
		return problem.New(problem.Refused, what, "the token is not a lane's", "an operator mints the lane's: striatum token mint --kind lane --lane ID")
	}
	if err := s.openHome(ctx, f); err != nil {
		return err
	}
	if s.fingerprint, err = hostFingerprint(s.home.LaneDir(), f.Rand); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, serveLockWait)
	defer cancel()
	release, err := filelock.Lock(wait, filepath.Join(s.home.LaneDir(), ".serve"))
	if err != nil {
		return problem.Wrap(problem.Refused, err, what, "another process serves it; stop that one first")
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := s.settle(ctx); err != nil {
		return err
	}
	l, err := unixsocket.Listen(ctx, o.listen, o.group)
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "serving", slog.String("socket", o.listen), slog.String("lane", s.laneID))
	err = handover.New(handover.Config{Owner: s.owner, Admit: s.admit, Log: s.log}).Serve(ctx, l)
	s.log.InfoContext(ctx, "stopped")
	return err
}

// settled returns the path of a socket without links above it. The error is why others
// than root could put something into its place: root sets its mode by that path.
func settled(socket string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(socket))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(socket)), reach.RootOnly(dir)
}

// served is a lane that works for others.
type served struct {
	opened
	f       *cli.Factory
	log     *slog.Logger
	threads beneath.Threads

	mu     sync.Mutex
	unsaid map[string]daemon.RequestEnd // what the daemon could not be told yet
}

// settle ends what a killed process left: its requests and its open receipts.
func (s *served) settle(ctx context.Context) error {
	n, err := s.AbandonRequests(ctx)
	if err != nil {
		return err
	}
	lane, err := s.openLane(s.f, s.log, nil, nil)
	if err != nil {
		return err
	}
	if err := lane.Settle(ctx, serveLockWait); err != nil {
		s.log.WarnContext(ctx, "what an earlier process left is settled by the next run", slog.String("why", err.Error()))
	}
	s.log.InfoContext(ctx, "settled", slog.Int("abandoned", n))
	return nil
}

// owner says whose token asked for a request, if the user did who brings it.
func (s *served) owner(ctx context.Context, id string, from unixsocket.Peer) (string, error) {
	info, err := s.RequestState(ctx, id)
	if err == nil && info.UID != int64(from.UID) {
		err = problem.New(problem.Refused, "take the request for checks", "another user asked for it", "run the command again, which asks anew")
	}
	return info.By, err
}

// admit takes a request of owner for the worktree that a client handed over.
func (s *served) admit(ctx context.Context, id, owner string, fd int, from unixsocket.Peer) (_ handover.Job, err error) {
	const what = "take the worktree"
	opener, err := s.threads.NewOpener(beneath.Caller{UID: from.UID, GID: from.GID, Groups: from.Groups}, owner)
	if err != nil {
		kind, hint := problem.Missing, ""
		if errors.Is(err, beneath.ErrThreads) {
			kind, hint = problem.Indeterminate, "end the program of that file system, or wait until it answers"
		}
		return nil, errors.Join(problem.Wrap(kind, err, what, hint), os.NewFile(uintptr(fd), "worktree").Close())
	}
	j := &job{served: s, opener: opener}
	taken := false // also where something panics
	defer func() {
		if !taken {
			j.close()
		}
	}()
	if j.dir, err = opener.Adopt(fd); err != nil {
		return nil, unreadable(err, what)
	}
	if j.worktree, err = place(j.dir); err != nil {
		return nil, unreadable(err, what)
	}
	repo, found, err := s.FindRepository(ctx, j.worktree)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, problem.New(problem.Refused, what, "the daemon does not know it", "an operator runs there: striatum policy show")
	}
	s.tell(ctx)
	if j.request, err = s.TakeRequest(ctx, id, from.UID); err != nil {
		if unsure(err) {
			s.end(ctx, id, daemon.RequestEnd{Outcome: daemon.RequestAbandoned, Why: "the lane does not know whether it took it"})
		}
		return nil, err
	}
	s.log.InfoContext(ctx, "took", slog.String("request", j.request.ID), slog.String("by", j.request.By), slog.Int64("uid", j.request.UID))
	if j.request.RepositoryID != repo.ID {
		err := problem.New(problem.Refused, what, "it is the worktree of another repository than the request's", "")
		s.end(ctx, j.request.ID, daemon.RequestEnd{Outcome: daemon.RequestFailed, Why: err.Error()})
		return nil, err
	}
	taken = true
	return j, nil
}

// unreadable is the problem of a folder that could not be opened.
func unreadable(err error, what string) error {
	if errors.Is(err, beneath.ErrHeld) {
		return problem.Wrap(problem.Indeterminate, err, what, "see why its file system hangs, and run the command again")
	}
	return problem.Wrap(problem.Refused, err, what, "hand over a folder of the machine's that you may read")
}

// place says where an open worktree is.
func place(dir *beneath.Dir) (daemon.Worktree, error) {
	st, err := dir.Stat()
	if err != nil {
		return daemon.Worktree{}, err
	}
	path, err := dir.Path()
	return daemon.Worktree{Path: path, Device: st.Dev, Inode: st.Ino}, err
}

// end tells the daemon what became of a request; what it cannot be told now is told
// with the next request, or is abandoned by the next start.
func (s *served) end(ctx context.Context, id string, end daemon.RequestEnd) {
	s.note(id, end)
	s.tell(ctx)
}

func (s *served) note(id string, end daemon.RequestEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaid[id] = end
}

// unsure reports whether an error leaves open what the daemon did.
func unsure(err error) bool {
	p := problem.Of(err)
	return p != nil && (p.Kind == problem.Missing || p.Kind == problem.Indeterminate || p.Kind == problem.Internal)
}

func (s *served) tell(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	for id, end := range s.unsaid {
		err := s.EndRequest(ctx, id, end)
		if p := problem.Of(err); p != nil && p.Kind == problem.Refused && end.Outcome == daemon.RequestDone {
			end = daemon.RequestEnd{Outcome: daemon.RequestFailed, Why: reason(err)}
			s.unsaid[id] = end
			err = s.EndRequest(ctx, id, end)
		}
		if unsure(err) && len(s.unsaid) <= daemon.MaxOpenRequests {
			s.log.WarnContext(ctx, "the daemon was not told how a request ended", slog.String("request", id), slog.String("why", err.Error()))
			return
		}
		attrs := []any{slog.String("request", id), slog.String("outcome", end.Outcome), slog.String("why", end.Why)}
		if err != nil {
			attrs = append(attrs, slog.String("refused", err.Error()))
		}
		s.log.InfoContext(ctx, "ended", attrs...)
		delete(s.unsaid, id)
	}
}

// job is one request that was taken.
type job struct {
	*served
	opener   *beneath.Opener
	dir      *beneath.Dir
	worktree daemon.Worktree
	request  daemon.RequestInfo
}

func (j *job) close() {
	if j.dir != nil {
		_ = j.dir.Close() // it was only read
	}
	j.opener.Close()
}

// Drop implements handover.Job.
func (j *job) Drop(ctx context.Context) {
	defer j.close()
	j.end(ctx, j.request.ID, daemon.RequestEnd{Outcome: daemon.RequestCancelled, Why: "the client hung up, or the lane was stopped, before it began"})
}

// Run implements handover.Job.
func (j *job) Run(ctx context.Context, tell func(handover.Message)) (end handover.End, err error) {
	defer j.close()
	var seals []string
	returned := false
	defer func() {
		out := daemon.RequestEnd{Outcome: daemon.RequestDone, Seals: seals}
		switch {
		case !returned:
			out.Outcome, out.Why = daemon.RequestFailed, "a fault of the lane"
		case err != nil:
			out.Outcome, out.Why = daemon.RequestFailed, reason(err)
			switch {
			case errors.Is(err, beneath.ErrHeld):
				out.Outcome = daemon.RequestAbandoned
			case ctx.Err() != nil:
				out.Outcome = daemon.RequestCancelled
			}
		}
		j.end(ctx, j.request.ID, out)
	}()
	end, err = j.run(ctx, tell, &seals)
	returned = true
	return end, err
}

// run runs the checks, and notes the seals of their receipts.
func (j *job) run(ctx context.Context, tell func(handover.Message), seals *[]string) (end handover.End, err error) {
	step := func(check, text string) {
		tell(handover.Message{Step: &handover.Step{CheckID: check, Text: text}})
	}
	lane, err := j.openLane(j.f, j.log, step, func(h journal.Holder) {
		step("", fmt.Sprintf("wait for process %d, which has the lane", h.PID))
	})
	if err != nil {
		return end, err
	}
	root, err := worktree.Of(j.dir)
	if err != nil {
		return end, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	var declared []claim.Claim
	_, err = lane.Run(ctx, verifier.Request{
		RepositoryID: j.request.RepositoryID, RunID: j.request.RunID, Requester: j.request.By,
		Root: j.worktree.Path, Dir: j.dir, Commit: j.request.Commit, Wait: laneWait,
		Select: func(tree string) (verifier.Selection, error) {
			files, err := embedded.PolicyFiles(tree)
			if err != nil {
				return verifier.Selection{}, err
			}
			var sel verifier.Selection
			if sel, declared, err = selection(files, j.request.Checks); err != nil {
				return sel, err
			}
			end.Declares = len(declared) > 0
			if len(sel.Checks) > daemon.MaxRequestChecks {
				return sel, problem.New(problem.Refused, "run the checks", fmt.Sprintf("the workflow has more than %d", daemon.MaxRequestChecks), "name some of them with --check")
			}
			return sel, pinned(&sel, files, func(intentPath string) (*allowlist.Pins, string, error) {
				ring, err := j.Keyring(ctx)
				if err != nil {
					return nil, "", err
				}
				return embedded.PinsIn(root, intentPath, j.fingerprint, ring)
			}, j.fingerprint)
		},
		Concluded: func(ctx context.Context, o verifier.Outcome) error {
			*seals = append(*seals, o.Receipt.Seal())
			ledger, err := bind(ctx, j.Session, j.request.RepositoryID, j.request.RunID, declared, o)
			if err != nil {
				return err
			}
			said := &handover.Outcome{Seal: o.Receipt.Seal(), Envelope: o.Envelope, Ledger: ledger, Census: o.Census}
			for _, x := range o.Failing {
				said.Failing = append(said.Failing, handover.Failing{Name: x.Name, Tail: x.Tail})
			}
			tell(handover.Message{Outcome: said})
			return nil
		},
	})
	return end, err
}

// reason is what the daemon is told of an error.
func reason(err error) string {
	p := problem.Of(err)
	why := p.What
	if p.Why != "" {
		why += ": " + p.Why
	}
	why = cli.Escape(why)
	return strings.ToValidUTF8(why[:min(len(why), maxReasonBytes)], "")
}
