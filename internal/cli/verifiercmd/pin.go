package verifiercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/receipt"
	"striatum/seal"
	"striatum/verifier"
	"striatum/workflow"
)

// pinOptions are the flags of `verifier pin`.
type pinOptions struct {
	hostHere bool
	force    bool
	diffOnly bool
	receipt  string
	worktree string
	wait     time.Duration
}

func newPin(f *cli.Factory) *cobra.Command {
	var o pinOptions
	cmd := &cobra.Command{
		Use:   "pin --host-here",
		Short: "Record which bytes this host has for the intent's commands",
		Long: `Pin looks, in a sandbox, at what each command of the intent runs on this host:
the program, its interpreters and shared libraries, the declared toolchain roots
(or the toolchain image), and the check's definition in the tree; and at the Go toolchain of each
builtin+toolchain check of the workflow. It executes none of them. What it saw is
signed by the lane and written beside the intent, where git ignores it.

An entry whose pin would change is refused, with the difference, unless --force
is given: new bytes need a new attestation.

--from-receipt holds what is seen here against a receipt in the store, such as one
of another host: nothing is written unless the receipt's check is the same here,
byte for byte, so that an attestation of it counts for both. What differs is shown.
The pin still says only what was seen here.

Exit codes: 0 written, or nothing changed; 1 with --diff-only when something
would change; 3 refused; 6 a definition matches nothing; 7 a command or an image
is not there; 8 every entry is unfilled.`,
		Example: `  striatum verifier pin --host-here
  striatum verifier pin --host-here --diff-only
  striatum verifier pin --host-here --from-receipt SEAL`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.execute(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&o.hostHere, "host-here", false, "pin for the host that this runs on (required: there is no other way)")
	fl.BoolVar(&o.force, "force", false, "replace pins that changed")
	fl.BoolVar(&o.diffOnly, "diff-only", false, "print what would change and write nothing")
	fl.StringVar(&o.receipt, "from-receipt", "", "only if this host has the bytes of the receipt with this `seal`, 64 hex digits")
	fl.StringVar(&o.worktree, "worktree", "", "the worktree, or a folder in it (default: the working directory)")
	fl.DurationVar(&o.wait, "wait", 10*time.Minute, "how long to wait for the lane while another process holds it")
	if err := cmd.MarkFlagRequired("host-here"); err != nil {
		panic(err) // the flag is defined above
	}
	cmd.MarkFlagsMutuallyExclusive("force", "diff-only")
	return cmd
}

func (o *pinOptions) execute(ctx context.Context, f *cli.Factory) (err error) {
	if !o.hostHere || o.wait < 0 {
		return problem.New(problem.Usage, "pin the intent's commands", "--host-here is false, or --wait is negative", "run: "+allowlist.PinCommand)
	}
	if o.receipt != "" && !seal.ValidDigest(o.receipt) {
		return problem.New(problem.Usage, "pin the intent's commands", "--from-receipt is not 64 lower-case hex digits", "`striatum gate read --output json` names the receipts in whole")
	}
	top, err := (&runOptions{worktree: o.worktree}).top(f)
	if err != nil {
		return err
	}
	s, err := open(ctx, f, top, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	intentPath := workflow.DefaultIntentPath
	seen, err := s.lane.Observe(ctx, verifier.Request{
		RepositoryID: s.repo.ID, Requester: s.Is.Principal.String(), Root: s.worktree.Path, Wait: o.wait,
		Select: func(tree string) (verifier.Selection, error) {
			files, err := embedded.PolicyFiles(tree)
			if err != nil {
				return verifier.Selection{}, err
			}
			intent, path, err := files.Intent()
			if err != nil {
				return verifier.Selection{}, err
			}
			intentPath = path
			rows, err := allowlist.Join(intent, nil, nil, "")
			if err != nil {
				return verifier.Selection{}, err
			}
			w, _, err := files.Workflow()
			if err != nil {
				return verifier.Selection{}, err
			}
			var checks []workflow.CheckRef
			for _, c := range w.Checks() {
				if workflow.ToolchainBuiltin(c.Uses) {
					checks = append(checks, c.CheckRef)
				}
			}
			return pinnable(rows, checks, f.Streams)
		},
	})
	s.progress.end()
	if err != nil {
		return err
	}
	for _, x := range seen {
		if x.Why != "" {
			return unpinnable(x, s.home.ConfigPath())
		}
		for _, word := range x.Absent {
			f.Streams.Notef("%s: argv has %q, which is no file or folder of the tree", x.ID, word)
		}
	}
	if o.receipt != "" {
		if err := s.sameAsReceipt(ctx, f.Streams, o.receipt, seen); err != nil {
			return err
		}
	}
	before, _, err := s.pins(ctx, intentPath)
	if err != nil && !o.force {
		return err
	}
	pins, changed := merge(before, seen, s.fingerprint, f.Streams)
	switch {
	case !changed:
		f.Streams.Notef("the pins are as they were")
		return nil
	case o.diffOnly:
		return cli.SilentError{Kind: problem.No}
	case before != nil && replaces(*before, pins) && !o.force:
		return problem.New(problem.Refused, "pin the intent's commands", "a pin that is there would be replaced",
			"read the difference above, then run: "+allowlist.PinCommand+" --force")
	}
	envelope, err := allowlist.SignPins(pins, s.home.LaneKey)
	if err != nil {
		return err
	}
	root, err := worktree.Open(s.worktree.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	path := allowlist.PinsPath(intentPath, s.fingerprint)
	if err := root.WriteFile(path, envelope, 0o644); err != nil {
		return err
	}
	f.Streams.Notef("wrote %s", cli.Escape(path))
	return nil
}

// sameAsReceipt holds what was seen of a receipt's check against that receipt. Each
// difference is printed, and then the error is Refused.
func (o *opened) sameAsReceipt(ctx context.Context, s cli.Streams, sealDigest string, seen []verifier.Observation) error {
	what := "pin by the receipt " + sealDigest[:shortID]
	envelope, err := o.Receipt(ctx, sealDigest)
	if p := problem.Of(err); p != nil && p.Kind == problem.Usage {
		return problem.New(problem.Usage, what, "this store has no such receipt", "`striatum gate read --output json` names the receipts in whole")
	}
	if err != nil {
		return err
	}
	ring, err := o.Keyring(ctx)
	if err != nil {
		return err
	}
	v, err := receipt.Open(envelope, ring)
	if err != nil {
		return problem.Wrap(problem.Refused, err, what, "")
	}
	r := v.Receipt()
	i := slices.IndexFunc(seen, func(x verifier.Observation) bool { return x.ID == r.Check.ID })
	switch {
	case r.RepositoryID != o.repo.ID:
		return problem.New(problem.Refused, what, "it is of another repository, "+r.RepositoryID, "")
	case i < 0:
		return problem.New(problem.Refused, what, fmt.Sprintf("it is of the check %q, which is not pinned here", r.Check.ID), "name the receipt of an external or builtin+toolchain check")
	case r.Tools.ClosureSHA256 == "":
		return problem.New(problem.Refused, what, "its lane saw no bytes of the command", "name the receipt of a run that came further")
	}
	parts, files, err := o.Closure(ctx, r.Tools.ClosureSHA256)
	if err != nil {
		return err
	}
	pin := seen[i].Pin
	lines := receiptDiff(r, parts, string(files), pin)
	if len(lines) == 0 {
		s.Notef("%s has here the bytes of that receipt, of host %s: closure %s", pin.ID, cli.Escape(r.Lane.HostFingerprint), pin.ClosureSHA256)
		return nil
	}
	fmt.Fprintf(s.Out, "! %s: not what receipt %s of host %s saw\n", pin.ID, sealDigest[:shortID], cli.Escape(r.Lane.HostFingerprint))
	for _, l := range lines {
		fmt.Fprintf(s.Out, "    %s\n", cli.Escape(l))
	}
	return problem.New(problem.Refused, what, "this host has other bytes", "read the difference above; to pin what is here all the same: "+allowlist.PinCommand)
}

// receiptDiff says what tells a pin from what a receipt saw, whose closure has those
// parts (nil: unknown), and its definition those lines (empty: unknown); none if
// nothing does.
func receiptDiff(r receipt.Receipt, parts []allowlist.ClosurePart, files string, pin allowlist.Pin) []string {
	var out []string
	differ := func(what, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s was %s and is %s", what, was, is))
		}
	}
	differ("the entry", r.Check.Digest, pin.CheckDigest)
	differ("the program", r.Tools.BinarySHA256, pin.BinarySHA256)
	if r.Tools.ClosureSHA256 == pin.ClosureSHA256 {
		return out
	}
	differ("the closure", r.Tools.ClosureSHA256, pin.ClosureSHA256)
	if parts != nil {
		return slices.Concat(out, allowlist.ClosureDiff(parts, pin.Closure), allowlist.DefinitionDiff(files, pin.Definition))
	}
	for _, p := range pin.Closure {
		if p.Tree != "" {
			differ("the definition in the tree", r.Inputs.DefinitionSHA256, p.SHA256)
		}
	}
	return append(out, "the parts of that closure are in the store only if it was attested: program and definition are all that can be told apart")
}

// pinnable selects every entry that is filled and every check whose toolchain is
// pinned, and names the other entries.
func pinnable(rows []allowlist.Row, checks []workflow.CheckRef, s cli.Streams) (verifier.Selection, error) {
	sel := verifier.Selection{Checks: checks, Externals: map[string]allowlist.Row{}}
	var unfilled []string
	for _, row := range rows {
		if len(row.Unfilled) > 0 {
			unfilled = append(unfilled, row.Unfilled...)
			s.Notef("not pinned: %q is an unfilled template at %s", row.Entry.ID, strings.Join(row.Unfilled, ", "))
			continue
		}
		sel.Checks = append(sel.Checks, workflow.CheckRef{ID: row.Entry.ID, BacksClaim: row.Entry.BacksClaim})
		sel.Externals[row.Entry.ID] = row
	}
	switch {
	case len(rows)+len(checks) == 0:
		return sel, problem.New(problem.Usage, "pin the intent's commands", "the intent names no external check, and the workflow no builtin+toolchain check",
			"plain builtins need no pin; add a check with: striatum workflow generate --shape verification_gate --check ID --write")
	case len(sel.Checks) == 0:
		return sel, problem.New(problem.Unfilled, "pin the intent's commands", "every entry is unfilled, first: "+unfilled[0], "fill it, then run: "+allowlist.PinCommand)
	}
	return sel, nil
}

func unpinnable(o verifier.Observation, config string) error {
	what := fmt.Sprintf("pin the check %q", o.ID)
	switch o.Code {
	case verifier.CommandNotFound:
		return problem.New(problem.Missing, what, o.Why, "install the command below /usr or /opt, or name an image that has it, then run: "+allowlist.PinCommand)
	case verifier.ImageMissing:
		return problem.New(problem.Missing, what, o.Why, `name a folder with an OCI layout, or the image's registry, in "images" in `+config+", then run: "+allowlist.PinCommand)
	case verifier.ImageRefused:
		return problem.New(problem.Refused, what, o.Why, "name another image in the intent, or get it from a source that has its bytes")
	}
	return problem.New(problem.Invalid, what, o.Why, "correct the entry in the intent")
}

// merge puts what was seen in place of what the pins say, prints each difference,
// and reports whether there was one. A pin of an entry that is gone is dropped.
func merge(before *allowlist.Pins, seen []verifier.Observation, fingerprint string, s cli.Streams) (allowlist.Pins, bool) {
	pins := allowlist.Pins{SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: fingerprint, Checks: []allowlist.Pin{}}
	changed := before == nil
	for _, x := range seen {
		pin := x.Pin
		was, ok := allowlist.Pin{}, false
		if before != nil {
			was, ok = before.Pin(pin.ID)
		}
		switch lines := pinDiff(was, pin); {
		case !ok:
			changed = true
			fmt.Fprintf(s.Out, "+ %s: %s, closure %s of %d parts\n", pin.ID, cli.Escape(pin.ResolvedPath), pin.ClosureSHA256, len(pin.Closure))
		case len(lines) == 0:
			pin = was // its time of observation stays
		default:
			changed = true
			fmt.Fprintf(s.Out, "~ %s\n", pin.ID)
			for _, l := range lines {
				fmt.Fprintf(s.Out, "    %s\n", cli.Escape(l))
			}
		}
		pins.Checks = append(pins.Checks, pin)
	}
	if before != nil {
		for _, was := range before.Checks {
			if _, ok := pins.Pin(was.ID); !ok {
				changed = true
				fmt.Fprintf(s.Out, "- %s: no longer pinned\n", was.ID)
			}
		}
	}
	return pins, changed
}

// pinDiff says what tells two pins of one entry apart, their times aside.
func pinDiff(a, b allowlist.Pin) []string {
	var out []string
	if a.CheckDigest != b.CheckDigest {
		out = append(out, fmt.Sprintf("the entry was %s and is %s", a.CheckDigest, b.CheckDigest))
	}
	if !slices.Equal(a.Argv, b.Argv) {
		out = append(out, fmt.Sprintf("argv was %q and is %q", a.Argv, b.Argv))
	}
	if a.ResolvedPath != b.ResolvedPath {
		out = append(out, fmt.Sprintf("the command was %s and is %s", a.ResolvedPath, b.ResolvedPath))
	}
	return slices.Concat(out, allowlist.ClosureDiff(a.Closure, b.Closure), allowlist.DefinitionDiff(a.Definition, b.Definition))
}

// replaces reports whether a pin that is there would not be what it was.
func replaces(before, after allowlist.Pins) bool {
	return slices.ContainsFunc(before.Checks, func(was allowlist.Pin) bool {
		now, ok := after.Pin(was.ID)
		return !ok || len(pinDiff(was, now)) > 0
	})
}
