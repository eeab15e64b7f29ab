package verifiercmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/claim"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/snapshot"
	"striatum/verifier"
	"striatum/workflow"
)

// runOptions are the flags of `verifier run`.
type runOptions struct {
	checks    []string
	all       bool
	worktree  string
	exact     bool
	commit    string
	run       string
	mutants   int
	wait      time.Duration
	lane      string
	tokenFile string
	output    cli.Output
}

// maxMutants is what a workflow may ask for too.
const maxMutants = 1000

func newRun(f *cli.Factory) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run checks in sandboxes and seal a receipt for each",
		Long: `Run freezes the worktree and runs each named check on the copy: the negative
control first, then twice. Each check ends in a signed receipt, also when it
fails or cannot be judged, and its claim is bound to that receipt. After the
results stand the skipped tests, the mutants of the product that no test noticed,
and the findings: what a pass does not speak for.

With a daemon and a session's token it asks a lane (striatum lane serve), which reads
the worktree with the caller's rights; so it does with an operator's token and --lane,
unless the home has a lane's key.

Exit codes: 0 every check passed, 1 one failed, 4 one could not be judged,
5 one is void (its negative control did not do its work), 2 no such check, 3
refused, 6 a document is invalid, 7 this machine lacks something, 8 a check is
unfilled or unpinned. Of several checks the worst counts: 3, 6, 7, 1, 5, 4.`,
		Example: `  striatum verifier run --all
  striatum verifier run --check builtin:go-test --output json
  striatum verifier run --all --commit HEAD`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.execute(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&o.checks, "check", nil, "run this check; may be given several times")
	fl.BoolVar(&o.all, "all", false, "run every check of the workflow (the default when there is one)")
	fl.StringVar(&o.worktree, "worktree", "", "the worktree, or a folder in it (default: the working directory)")
	fl.BoolVar(&o.exact, "worktree-exact", false, "take the folder itself as the top of the worktree")
	fl.StringVar(&o.commit, "commit", "", "check the blobs of this revision instead of the files")
	fl.StringVar(&o.run, "run", "", "the run that the claims belong to (default: none)")
	fl.IntVar(&o.mutants, "mutants", 0, "plant at least so many mutants of the product in go-test (default: what the check says, else 3)")
	fl.DurationVar(&o.wait, "wait", 10*time.Minute, "how long to wait for the lane while another process holds it")
	fl.StringVar(&o.lane, "lane", "", "ask the lane that listens on this `socket` (default: STRIATUM_LANE_SOCKET; for a session "+LaneSocket+")")
	fl.StringVar(&o.tokenFile, "token-file", "", "`file` with an operator's, a session's or a lane's token (default: STRIATUM_TOKEN_FILE, else no token)")
	cmd.MarkFlagsMutuallyExclusive("check", "all")
	cli.AddOutput(cmd, &o.output)
	return cmd
}

// top returns the top of the worktree that was named.
func (o *runOptions) top(f *cli.Factory) (string, error) {
	dir := o.worktree
	if dir == "" {
		var err error
		if dir, err = f.Getwd(); err != nil {
			return "", problem.Wrap(problem.Usage, err, "find the worktree", "name it with --worktree")
		}
	}
	if o.exact {
		return dir, nil
	}
	return snapshot.FindTop(dir)
}

func (o *runOptions) execute(ctx context.Context, f *cli.Factory) (err error) {
	if o.wait < 0 {
		return problem.New(problem.Usage, "--wait is negative", "", "give a duration such as 10m")
	}
	if o.mutants < 0 || o.mutants > maxMutants {
		return problem.New(problem.Usage, fmt.Sprintf("--mutants is not between 0 and %d", maxMutants), "", "leave it out for what the check says")
	}
	if o.lane != "" && f.DaemonSocket() == "" {
		return problem.New(problem.Usage, "ask a lane", "without a daemon there is none to ask", "name the daemon with --socket or STRIATUM_SOCKET")
	}
	top, err := o.top(f)
	if err != nil {
		return err
	}
	wt, err := home.Worktree(top)
	if err != nil {
		return err
	}
	in, err := service.Open(ctx, f, o.tokenFile)
	if err != nil {
		return err
	}
	if remote, err := o.ask(ctx, f, in, wt); remote || err != nil {
		return errors.Join(err, in.Close())
	}
	s, err := openFor(ctx, f, in, wt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.created {
		f.Streams.Notef("this worktree is now repository %s in the store of %s", s.repo.ID, cli.Escape(s.Is.Home))
	}
	b := &binder{service: s.Session, repository: s.repo.ID, run: o.run, top: s.worktree.Path, outputs: outputsDir(s.home), streams: f.Streams, progress: s.progress}
	outcomes, err := s.lane.Run(ctx, verifier.Request{
		RepositoryID: s.repo.ID, RunID: o.run, Requester: s.Is.Principal.String(),
		Root: s.worktree.Path, Commit: o.commit, Wait: o.wait, Mutants: o.mutants,
		Select: func(tree string) (verifier.Selection, error) {
			files, err := embedded.PolicyFiles(tree)
			if err != nil {
				return verifier.Selection{}, err
			}
			sel, declared, err := selection(files, o.checks)
			b.declared = declared
			if err != nil {
				return sel, err
			}
			return sel, pinned(&sel, files, func(intentPath string) (*allowlist.Pins, string, error) {
				return s.pins(ctx, intentPath)
			}, s.fingerprint)
		},
		Concluded: b.concluded,
	})
	s.progress.end()
	return o.conclude(f, s.repo.ID, outcomes, len(b.declared) > 0, err)
}

// conclude prints what a run came to, whose error it is given, and returns that of
// the command.
func (o *runOptions) conclude(f *cli.Factory, repositoryID string, outcomes []verifier.Outcome, declares bool, err error) error {
	if perr := o.print(f.Streams, repositoryID, outcomes); perr != nil {
		return errors.Join(err, perr)
	}
	if err != nil {
		return interrupted(err, len(outcomes))
	}
	if !declares {
		f.Streams.Notef("no workflow declares a claim for this; generate one with: striatum workflow generate --shape verification_gate --write")
	}
	if kind, bad := worst(outcomes); bad {
		return cli.SilentError{Kind: kind}
	}
	return nil
}

// interrupted says how far a run came that its caller ended: the checks that
// the table shows have their receipts.
func interrupted(err error, ended int) error {
	if ended == 0 || !errors.Is(err, context.Canceled) {
		return err
	}
	return &problem.Problem{
		Kind: problem.Indeterminate, What: "interrupted", Why: "each check above has its receipt, the one under way an aborted one; no other was begun",
		Hint: "run the command again", Err: err,
	}
}

// selection reads the workflow among the frozen tree's files and chooses the checks
// with those ids, all of the workflow's where there are none.
func selection(files daemon.Files, ids []string) (verifier.Selection, []claim.Claim, error) {
	_, policy, err := files.Document()
	if err != nil {
		return verifier.Selection{}, nil, err
	}
	sel := verifier.Selection{PolicySHA256: policy}
	w, found, err := files.Workflow()
	if err != nil {
		return verifier.Selection{}, nil, err
	}
	var declared []claim.Claim
	known := map[string]workflow.CheckRef{}
	if found {
		declared = daemon.DeclaredClaims(w)
		for _, c := range w.Checks() {
			known[c.CheckID()] = c.CheckRef
			if len(ids) == 0 {
				sel.Checks = append(sel.Checks, c.CheckRef)
			}
		}
		sel.IntentSHA256 = digestOf(files[w.IntentPath])
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		ref, ok := known[id]
		switch {
		case ok:
		case workflow.PlainBuiltin(id):
			ref = workflow.CheckRef{Uses: id}
		default:
			return verifier.Selection{}, nil, problem.New(problem.Usage, fmt.Sprintf("there is no check %q", id),
				"it is neither in the workflow nor a builtin", "name one of: "+strings.Join(named(known), ", "))
		}
		sel.Checks = append(sel.Checks, ref)
	}
	if len(sel.Checks) == 0 {
		return verifier.Selection{}, nil, problem.New(problem.Usage, "no check is named",
			fmt.Sprintf("the tree has no %s with checks", workflow.DefaultPath),
			"name one, such as --check builtin:go-test, or run: striatum workflow generate --shape verification_gate --write")
	}
	return sel, declared, nil
}

// named lists what --check may name: the workflow's checks and the builtins.
func named(known map[string]workflow.CheckRef) []string {
	ids := slices.Sorted(slices.Values(slices.AppendSeq(verifier.Builtins(), maps.Keys(known))))
	return slices.Compact(ids)
}

// pinned adds what the intent and this host's pins say of the checks that are
// pinned: those that are not builtins, and builtins with their toolchain. One that
// is unfilled or unpinned ends the run before anything is executed.
func pinned(sel *verifier.Selection, files daemon.Files, pins func(intentPath string) (*allowlist.Pins, string, error), fingerprint string) error {
	if !slices.ContainsFunc(sel.Checks, func(c workflow.CheckRef) bool { return c.External() || workflow.ToolchainBuiltin(c.Uses) }) {
		return nil
	}
	intent, path, err := files.Intent()
	if err != nil {
		return err
	}
	found, digest, err := pins(path)
	if err != nil {
		return err
	}
	rows, err := allowlist.Join(intent, found, nil, fingerprint)
	if err != nil {
		return err
	}
	sel.PinsSHA256, sel.Externals, sel.Pins = digest, map[string]allowlist.Row{}, map[string]allowlist.Pin{}
	for _, c := range sel.Checks {
		what := fmt.Sprintf("run the check %q", c.CheckID())
		if workflow.ToolchainBuiltin(c.Uses) {
			pin, why, err := allowlist.ToolchainPin(c, found, fingerprint)
			if err != nil {
				return err
			}
			if why != "" {
				return problem.New(problem.Unfilled, what, fmt.Sprintf("its toolchain is not pinned on host %s: %s", fingerprint, why), "run: "+allowlist.PinCommand)
			}
			sel.Pins[c.CheckID()] = pin
		}
		if !c.External() {
			continue
		}
		i := slices.IndexFunc(rows, func(r allowlist.Row) bool { return r.Entry.ID == c.ID })
		switch {
		case i < 0:
			return problem.New(problem.Invalid, what, fmt.Sprintf("the intent %q has no such entry", path), "`striatum workflow validate` lists what does not fit")
		case len(rows[i].Unfilled) > 0:
			return problem.New(problem.Unfilled, what, fmt.Sprintf("%s#%s is an unfilled template", path, rows[i].Unfilled[0]), "fill it, then run: "+allowlist.PinCommand)
		case rows[i].Unpinned != nil:
			u := rows[i].Unpinned
			return problem.New(problem.Unfilled, what, fmt.Sprintf("%s#%s is not pinned on host %s: %s", path, u.EntryPointer, u.HostFingerprint, u.Why), "run: "+u.FixCommand)
		case rows[i].Entry.BacksClaim != c.BacksClaim:
			return problem.New(problem.Invalid, what, fmt.Sprintf("the workflow lets it back the claim %q and the intent %q", c.BacksClaim, rows[i].Entry.BacksClaim), "make them equal")
		}
		sel.Externals[c.ID] = rows[i]
	}
	return nil
}

// selfDigest is the digest of the running binary.
func selfDigest() (path, digest string, err error) {
	path, err = os.Executable()
	if err != nil {
		return "", "", fmt.Errorf("find the running program: %w", err)
	}
	fh, err := os.Open("/proc/self/exe")
	if errors.Is(err, os.ErrNotExist) {
		fh, err = os.Open(path)
	}
	if err != nil {
		return "", "", fmt.Errorf("read the running program: %w", err)
	}
	defer func() { _ = fh.Close() }() // only read
	d := sha256.New()
	if _, err := io.Copy(d, fh); err != nil {
		return "", "", fmt.Errorf("read the running program: %w", err)
	}
	return path, hex.EncodeToString(d.Sum(nil)), nil
}
