package verifiercmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/internal/worktree"
	"striatum/seal"
	"striatum/store"
	"striatum/workflow"
)

// maxTyped bounds the answer to a question.
const maxTyped = 256

// attestOptions are the flags of `verifier attest`.
type attestOptions struct {
	pin       string
	digest    string
	revoke    string
	position  int64
	list      bool
	worktree  string
	tokenFile string
	output    cli.Output
}

func newAttest(f *cli.Factory) *cobra.Command {
	var o attestOptions
	cmd := &cobra.Command{
		Use:   "attest --pin ID | --revoke ID | --list",
		Short: "Stand behind the bytes of a pinned check, or take that back (operator)",
		Long: `Attest records an operator's word that exactly the bytes which this host's pin of
a check names may be trusted for exactly the check that the accepted policy has.
It shows the check, every part of the closure, what was attested of the check
before, and which claims read higher. It then wants the digest of what it showed:
with --digest, or typed in on a terminal as the check's id.

An attestation counts for this repository, check and closure alone; an edited
check or other bytes need a new one. --revoke takes back every active attestation
of a check. What is attested stands in the store; the file beside the pins is a
copy for people, which nothing reads.

Exit codes: 0 attested, taken back or listed; 2 the digest is yet to be given;
3 refused: no operator, another digest, not in the accepted policy, or pins that
no lane signed; 4 or 7 the store did not answer: then nothing is attested;
8 the check is not pinned here.`,
		Example: `  striatum verifier attest --pin schema
  striatum verifier attest --pin schema --digest DIGEST --token-file ~/striatum-operator.token
  striatum verifier attest --revoke schema --token-file ~/striatum-operator.token
  striatum verifier attest --list --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.execute(cmd.Context(), f)
			if !o.list && unanswered(err) {
				f.Streams.Notef("WARNING: the store did not answer. Take nothing for attested or revoked that this does not show: striatum verifier attest --list")
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.pin, "pin", "", "show, and attest, this host's pin of the check with this `id`")
	fl.StringVar(&o.digest, "digest", "", "with --pin: the `digest` that it showed, 64 hex digits")
	fl.StringVar(&o.revoke, "revoke", "", "take back every active attestation of the check with this `id`")
	fl.Int64Var(&o.position, "position", 0, "with --revoke: only the attestation at this `number` of the log")
	fl.BoolVar(&o.list, "list", false, "list every attestation of this repository")
	fl.StringVar(&o.worktree, "worktree", "", "the worktree, or a folder in it (default: the working directory)")
	fl.StringVar(&o.tokenFile, "token-file", "", "`file` with the operator token (default: STRIATUM_TOKEN_FILE)")
	cmd.MarkFlagsMutuallyExclusive("pin", "revoke", "list")
	cmd.MarkFlagsMutuallyExclusive("digest", "revoke", "list")
	cmd.MarkFlagsMutuallyExclusive("position", "pin", "list")
	cli.AddOutput(cmd, &o.output)
	return cmd
}

// unanswered reports whether err may be the store's, so that nobody knows what
// it holds.
func unanswered(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	switch problem.Of(err).Kind { //nolint:exhaustive // the others are an answer
	case problem.Missing, problem.Indeterminate, problem.Internal:
		return true
	}
	return errors.Is(err, store.ErrCorrupt)
}

// attester is the worktree, its repository, and who asks.
type attester struct {
	session     *service.Session
	streams     cli.Streams
	worktree    daemon.Worktree
	repo        daemon.Repository // without an id where the store never met the worktree
	policy      daemon.AcceptedPolicy
	intentPath  string // of the accepted policy, if there is one
	fingerprint string
}

func (o *attestOptions) execute(ctx context.Context, f *cli.Factory) (err error) {
	switch {
	case o.pin == "" && o.revoke == "" && !o.list:
		return problem.New(problem.Usage, "attest a check", "none of --pin, --revoke and --list is given", "look at one first: striatum verifier attest --pin ID")
	case o.position < 0:
		return problem.New(problem.Usage, "revoke an attestation", "--position is negative", "take it from `striatum verifier attest --list`")
	case o.digest != "" && !seal.ValidDigest(o.digest):
		return problem.New(problem.Usage, "attest the check", "--digest is not 64 lower-case hex digits", "take it whole from: "+allowlist.AttestCommand(o.pin))
	}
	top, err := (&runOptions{worktree: o.worktree}).top(f)
	if err != nil {
		return err
	}
	a := attester{streams: f.Streams}
	if a.worktree, err = home.Worktree(top); err != nil {
		return err
	}
	if a.session, err = service.Open(ctx, f, o.tokenFile); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.session.Close()) }()
	p := a.session.Is.Principal
	if a.repo, _, err = a.session.FindRepository(ctx, a.worktree); err != nil {
		return err
	}
	if o.list {
		return a.list(ctx, o.output)
	}
	if a.policy, _, err = a.session.Policy(ctx, a.repo.ID); err != nil {
		return err
	}
	if _, a.intentPath, err = a.policy.Files.Intent(); err != nil {
		return err
	}
	if a.fingerprint, err = hostFingerprint(a.session.UserHome.LaneDir(), f.Rand); err != nil {
		return err
	}
	if o.revoke != "" {
		return a.revoke(ctx, p, o.revoke, o.position)
	}
	return a.attest(ctx, p, o)
}

// attest shows what would be attested and, given its digest, attests it.
func (a *attester) attest(ctx context.Context, p daemon.Principal, o *attestOptions) error {
	what := fmt.Sprintf("attest the check %q", o.pin)
	if a.policy.Digest != "" && !a.sameChecks() {
		return problem.New(problem.Refused, what, "the worktree's workflow or intent is not the accepted one", "look at the difference with `striatum policy show`; accept it, or undo it")
	}
	pins, err := embedded.PinsFile(a.worktree.Path, a.intentPath, a.fingerprint)
	if err != nil {
		return err
	}
	q := daemon.AttestQuery{RepositoryID: a.repo.ID, CheckID: o.pin, Pins: pins}
	seen, err := a.session.Attestable(ctx, q)
	if err != nil {
		return err
	}
	if err := a.show(ctx, seen, o.output); err != nil {
		return err
	}
	digest := o.digest
	if digest == "" {
		if seen.Active != nil {
			a.streams.Notef("it is attested already")
			return nil
		}
		if err := a.confirm(ctx, p, what, seen); err != nil {
			return err
		}
		digest = seen.Digest
	}
	position, fresh, err := a.session.Attest(ctx, q, digest)
	if err != nil {
		return err
	}
	if fresh {
		a.streams.Notef("attested %s for repository %s, as %s, at %d of the log", o.pin, a.repo.ID, p, position)
	} else {
		a.streams.Notef("it is attested already, at %d of the log", position)
	}
	a.cache(ctx)
	return nil
}

// sameChecks reports whether the worktree's workflow and intent have the accepted
// bytes. What cannot be read has not.
func (a *attester) sameChecks() bool {
	here, err := embedded.PolicyFiles(a.worktree.Path)
	same := func(path string) bool { return bytes.Equal(here[path], a.policy.Files[path]) }
	return err == nil && same(a.intentPath) && same(workflow.DefaultPath)
}

// confirm asks an operator on a terminal to type the check's id. Everybody else
// is told the command with the digest.
func (a *attester) confirm(ctx context.Context, p daemon.Principal, what string, seen daemon.Attestable) error {
	if p.Kind != daemon.Operator || !a.streams.InIsTerminal || !a.streams.ErrIsTerminal {
		return problem.New(problem.Usage, what, "its digest is not given", "read the above, then run: "+attestWith(seen))
	}
	id := seen.Document.CheckID
	return typed(ctx, a.streams, what, fmt.Sprintf("To stand behind exactly these bytes type %s: ", id), id)
}

// typed asks for a word on a terminal. The error is a problem of kind Refused if
// another one, or none, was typed in.
func typed(ctx context.Context, streams cli.Streams, what, question, word string) error {
	fmt.Fprint(streams.Err, question)
	line := make(chan string, 1)
	go func() { // ends with the process where nobody types
		text, _ := bufio.NewReader(io.LimitReader(streams.In, maxTyped)).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		if strings.TrimSpace(text) == word {
			return nil
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return problem.New(problem.Refused, what, "it was not confirmed", "")
}

// attestWith is the literal command that attests what was seen.
func attestWith(seen daemon.Attestable) string {
	return allowlist.AttestCommand(seen.Document.CheckID) + " --digest " + seen.Digest + " --token-file FILE"
}

func (a *attester) revoke(ctx context.Context, p daemon.Principal, id string, position int64) error {
	revoked, err := a.session.RevokeAttestation(ctx, a.repo.ID, id, position)
	if err != nil {
		return err
	}
	for _, at := range revoked {
		a.streams.Notef("revoked the attestation of %s at %d of the log, as %s", id, at, p)
	}
	if len(revoked) == 0 {
		a.streams.Notef("it was revoked before")
	}
	a.cache(ctx)
	return nil
}

// cache writes the copy for people beside the pins. What is attested stands in
// the store: a copy that cannot be written costs a note.
func (a *attester) cache(ctx context.Context) {
	if err := a.writeSidecar(ctx); err != nil {
		a.streams.Notef("no copy beside the pins: %s", cli.Escape(cli.Explain(err).Error()))
	}
}

func (a *attester) writeSidecar(ctx context.Context) (err error) {
	ring, err := a.session.Keyring(ctx)
	if err != nil {
		return err
	}
	pins, _, err := embedded.Pins(a.worktree.Path, a.intentPath, a.fingerprint, ring)
	if err != nil || pins == nil {
		return err
	}
	all, err := a.session.Attestations(ctx, a.repo.ID)
	if err != nil {
		return err
	}
	side := allowlist.Sidecar{SchemaVersion: allowlist.AttestSchemaVersion, Attestations: map[string]allowlist.Attestation{}}
	for _, pin := range pins.Checks {
		if slices.ContainsFunc(all, func(x daemon.AttestationInfo) bool {
			return x.Active() && x.CheckDigest == pin.CheckDigest && x.ClosureSHA256 == pin.ClosureSHA256
		}) {
			side.Attestations[pin.ID] = allowlist.Attestation{CheckDigest: pin.CheckDigest, ClosureSHA256: pin.ClosureSHA256}
		}
	}
	data, err := side.Encode()
	if err != nil {
		return err
	}
	root, err := worktree.Open(a.worktree.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return root.WriteFile(allowlist.AttestPath(a.intentPath, a.fingerprint), data, 0o644)
}
