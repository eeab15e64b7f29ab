package verifier

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"striatum/allowlist"
	"striatum/internal/beneath"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/verifier/images"
	"striatum/verifier/journal"
	"striatum/verifier/modules"
	"striatum/verifier/toolchain"
	"striatum/workflow"
)

// Recorder is where a lane's evidence goes, besides its own journal. Each call
// may come again after a crash and must then change nothing.
type Recorder interface {
	// RecordOpened stores a signed opened record.
	RecordOpened(ctx context.Context, envelope []byte) error
	// RecordReceipt stores a signed receipt.
	RecordReceipt(ctx context.Context, envelope []byte) error
}

// Config is what a lane is made of. Dir is its private folder.
type Config struct {
	Dir     string
	Journal *journal.Journal
	// OpenOutputs opens the store of streams; it is called with the lane held.
	OpenOutputs func() (*journal.Outputs, error)
	Snapshots   snapshot.Store
	Snapshot    snapshot.Options
	Toolchain   toolchain.Config
	// OpenModules opens the module store; chain says which proxies its go asks.
	OpenModules func(chain toolchain.Toolchain) (*modules.Store, error)
	// OpenImages opens the store of toolchain images.
	OpenImages func() (*images.Store, error)
	OpenEngine func(context.Context) (sandbox.Engine, error)
	Key        *seal.PrivateKey
	Lane       receipt.Lane
	Version    string // of striatum
	SelfSHA256 string // of the running binary
	Recorder   Recorder
	// Keyring has the lane's own key: a receipt is opened before it is handed out.
	Keyring func(context.Context) (seal.Keyring, error)
	Now     func() time.Time
	Rand    io.Reader
	Log     *slog.Logger
	// Progress is told each step of each check; check is empty for steps that
	// belong to no check. It may be nil.
	Progress func(check, step string)
	// Waiting is told who holds the lane when Run has to wait. It may be nil.
	Waiting func(journal.Holder)
}

// Lane runs checks and signs receipts. One process at a time holds a lane; Run
// waits for it.
type Lane struct{ cfg Config }

// New returns a lane. Every field of cfg but the optional callbacks is
// required.
func New(cfg Config) *Lane { return &Lane{cfg: cfg} }

// Request names what to verify and for whom.
type Request struct {
	RepositoryID, RunID, JobID string
	Requester                  string
	// Root is the top of the worktree; Commit, when set, the revision whose
	// blobs count instead of the worktree's files.
	Root, Commit string
	// Dir is the open worktree at Root, read with the rights that it was opened with;
	// nil: Root is opened.
	Dir  *beneath.Dir
	Wait time.Duration // for the lane, at most
	// Mutants is how many mutants of the product a check plants at least, where it
	// plants some; never less than the check says.
	Mutants int
	// Select reads the frozen tree and says which checks to run. Digests are
	// of the documents in that tree.
	Select func(tree string) (Selection, error)
	// Concluded is told each check's outcome as soon as it is recorded.
	Concluded func(ctx context.Context, o Outcome) error
}

// Selection is what a frozen tree's documents say.
type Selection struct {
	Checks []workflow.CheckRef
	// Externals are the entries of the intent that checks name, by id.
	Externals map[string]allowlist.Row
	// Pins are those of the checks with a pinned toolchain, by id.
	Pins                                   map[string]allowlist.Pin
	PolicySHA256, IntentSHA256, PinsSHA256 string
}

// Outcome is one check's receipt with what people want to see of it.
type Outcome struct {
	Check    workflow.CheckRef
	Receipt  receipt.Verified
	Envelope []byte
	Manifest string // path of the tree manifest in the lane's store
	// Failing are the tests and diagnostics to show, with the tail of their
	// output. At most MaxShown.
	Failing []Failing
	// Census is a baseline with the tests of the check alone, by whose digest the
	// receipt names it; empty if it names none.
	Census []byte
}

// Failing is one failed test or diagnostic.
type Failing struct {
	Name string
	Tail string // the last lines of its output, at most 4 KiB
}

// MaxShown bounds Outcome.Failing.
const MaxShown = 20

// heapLimit is what the process's heap keeps to while a lane runs, softly: beyond
// it garbage is collected more often. What a check can make the lane hold is less.
const heapLimit = 64 << 20

// Run verifies a request: it seals what an earlier process left open, freezes
// the tree, and runs each check to a signed and recorded receipt. Outcomes hold
// what was sealed, also when the error is not nil; a cancelled context seals
// the check under way as aborted first.
//
// Errors are problem.Problem values: Refused for a tree that must not be read,
// Missing for what this machine lacks, Indeterminate when the lane is busy.
func (l *Lane) Run(ctx context.Context, req Request) (outcomes []Outcome, err error) {
	err = l.each(ctx, "verifier run", req, func(r *run) error {
		o, err := r.conclude(ctx)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, o)
		if req.Concluded != nil {
			if err := req.Concluded(context.WithoutCancel(ctx), o); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
	return outcomes, err
}

// each takes the lane, freezes the tree, and does something with each check that
// the request selects there, until that is an error.
func (l *Lane) each(ctx context.Context, what string, req Request, do func(*run) error) (err error) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(heapLimit))
	f, err := l.begin(ctx, what, req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.session.Release()) }()
	t, err := l.measureFor(ctx, f.sel.Checks)
	if err != nil {
		return err
	}
	l.progress("", "start the sandbox engine")
	engine, err := l.cfg.OpenEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	for _, check := range f.sel.Checks {
		if err := do(&run{frozen: f, lane: l, req: req, check: check, engine: engine, tools: t}); err != nil {
			return err
		}
	}
	return nil
}

// frozen is a lane that is held, with a tree to work on.
type frozen struct {
	session *journal.Session
	outputs *journal.Outputs
	snap    snapshot.Snapshot
	sel     Selection
}

// begin takes the lane, seals what an earlier process left open, freezes the tree
// and reads what is asked of it. The caller must release the session.
func (l *Lane) begin(ctx context.Context, what string, req Request) (f frozen, err error) {
	if f.session, err = l.cfg.Journal.Lock(ctx, what, req.Wait, l.waiting); err != nil {
		return f, err
	}
	ready := false // also where something panics
	defer func() {
		if !ready {
			err = errors.Join(err, f.session.Release())
		}
	}()
	if err := l.settle(ctx, f.session); err != nil {
		return f, err
	}
	if f.outputs, err = l.cfg.OpenOutputs(); err != nil {
		return f, err
	}
	l.progress("", "freeze the tree")
	if f.snap, err = l.freeze(ctx, req); err != nil {
		return f, err
	}
	f.sel, err = req.Select(f.snap.Dir)
	ready = err == nil
	return f, err
}

func (l *Lane) waiting(h journal.Holder) {
	if l.cfg.Waiting != nil {
		l.cfg.Waiting(h)
	}
}

func (l *Lane) progress(check, step string) {
	if l.cfg.Progress != nil {
		l.cfg.Progress(check, step)
	}
}

// freeze copies the tree into the lane's store.
func (l *Lane) freeze(ctx context.Context, req Request) (snapshot.Snapshot, error) {
	if err := l.cfg.Snapshots.Sweep(); err != nil {
		return snapshot.Snapshot{}, err
	}
	var snap snapshot.Snapshot
	var err error
	opt := l.cfg.Snapshot
	opt.Dir = req.Dir
	if req.Commit != "" {
		snap, err = snapshot.FreezeCommit(ctx, req.Root, req.Commit, l.cfg.Snapshots, opt)
	} else {
		snap, err = snapshot.Freeze(ctx, req.Root, l.cfg.Snapshots, opt)
	}
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	_, err = l.cfg.Snapshots.Trim(snap.TreeSHA256)
	return snap, err
}

// Settle takes the lane, and seals and records what an earlier process left open.
func (l *Lane) Settle(ctx context.Context, wait time.Duration) (err error) {
	session, err := l.cfg.Journal.Lock(ctx, "settle", wait, l.waiting)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Release()) }()
	return l.settle(ctx, session)
}

// settle seals the numbers that an earlier process left open, and records what
// it sealed but could not record.
func (l *Lane) settle(ctx context.Context, session *journal.Session) error {
	left, err := session.Leftovers()
	if err != nil {
		return err
	}
	for _, e := range left {
		body := e.Aborted(l.cfg.Now(), "it ended before the check was concluded")
		if _, err := l.seal(e, body); err != nil {
			return fmt.Errorf("seal an aborted check: %w", err)
		}
		l.cfg.Log.InfoContext(ctx, "sealed an aborted check", slog.String("check_id", e.Opened.CheckID), slog.Int64("sequence", e.Opened.Sequence))
	}
	return l.recordPending(ctx, session)
}

// recordPending hands finished receipts to the recorder, oldest first.
func (l *Lane) recordPending(ctx context.Context, session *journal.Session) error {
	pending, err := l.cfg.Journal.Pending()
	if err != nil {
		return err
	}
	type item struct {
		sealed           string
		opened, envelope []byte
		sequence         int64
	}
	items := make([]item, 0, len(pending))
	for _, s := range pending {
		opened, envelope, err := l.cfg.Journal.Load(s)
		if err != nil {
			return err
		}
		r, err := receipt.Parse(envelope)
		if err != nil {
			return err
		}
		items = append(items, item{s, opened, envelope, r.Sequence})
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.sequence, b.sequence) })
	for _, it := range items {
		if err := l.cfg.Recorder.RecordOpened(ctx, it.opened); err != nil {
			return err
		}
		if err := l.cfg.Recorder.RecordReceipt(ctx, it.envelope); err != nil {
			return err
		}
		if err := session.MarkRecorded(it.sealed); err != nil {
			return err
		}
	}
	return nil
}

// seal signs body and finishes the entry with it.
func (l *Lane) seal(e *journal.Entry, body receipt.Receipt) ([]byte, error) {
	envelope, _, err := receipt.Sign(body, l.cfg.Key)
	if err != nil {
		return nil, err
	}
	if _, err := e.Finish(envelope); err != nil {
		return nil, err
	}
	return envelope, nil
}

// nonce returns 32 random hex digits.
func (l *Lane) nonce() (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(l.cfg.Rand, b[:]); err != nil {
		return "", fmt.Errorf("draw a nonce: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// limits are the lane's own, replaced by those that the check names.
func limits(ref *workflow.Limits) (sandbox.Limits, error) {
	lim := DefaultLimits()
	if ref == nil {
		return lim, nil
	}
	b, err := ref.Parse()
	if err != nil {
		return lim, problem.Wrap(problem.Invalid, err, "read the check's limits", "")
	}
	lim.WallClock = cmp.Or(b.WallClock, lim.WallClock)
	lim.MemoryBytes = cmp.Or(b.MemoryBytes, lim.MemoryBytes)
	lim.Pids = cmp.Or(b.Pids, lim.Pids)
	lim.MilliCPUs = cmp.Or(b.MilliCPUs, lim.MilliCPUs)
	lim.OutputBytes = cmp.Or(b.OutputBytes, lim.OutputBytes)
	lim.DiskBytes = cmp.Or(b.DiskBytes, lim.DiskBytes)
	return lim, nil
}

// DefaultLimits are those of each execution of a check that names none.
func DefaultLimits() sandbox.Limits {
	return sandbox.Limits{
		WallClock:   15 * time.Minute,
		MemoryBytes: 6 << 30,
		Pids:        1024,
		MilliCPUs:   int64(runtime.NumCPU()) * 1000,
		OutputBytes: 64 << 20,
		DiskBytes:   2 << 30,
	}
}
