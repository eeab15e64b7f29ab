package verifiercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/seal"
	"striatum/verifier/rehearsal"
	"striatum/workflow"
)

// attestJSON is what `verifier attest --pin` prints with --output json: what is
// there before anything is attested.
type attestJSON struct {
	SchemaVersion string `json:"schema_version"` // striatum.verifier_attest.v1
	Home          string `json:"home"`
	Store         string `json:"store"`
	Trust         string `json:"trust"`
	RepositoryID  string `json:"repository_id"`
	Worktree      string `json:"worktree"`
	PolicySHA256  string `json:"policy_sha256"`
	AcceptedBy    string `json:"accepted_by"`
	AcceptedAt    string `json:"accepted_at"`

	CheckID     string          `json:"check_id"`
	CheckDigest string          `json:"check_digest"`
	Definition  json.RawMessage `json:"definition"` // what the digest is of
	Description string          `json:"description"`
	Pin         allowlist.Pin   `json:"pin"`
	Digest      string          `json:"digest"`

	Rehearsal        *rehearsalJSON `json:"rehearsal"`         // nil: none that counts
	RehearsalCommand string         `json:"rehearsal_command"` // empty: a builtin plants its own control

	Active         *attestationJSON `json:"active"` // nil: it is not attested
	Before         *attestationJSON `json:"before"` // nil: nothing else of the check is
	Changes        string           `json:"definition_changes"`
	ClosureChanges []string         `json:"closure_changes"`

	Claims        []string   `json:"claims"`
	NewlyVerified []string   `json:"newly_verified"`
	Stops         []stopJSON `json:"stops"`
}

type stopJSON struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
}

type attestationJSON struct {
	Position      int64  `json:"position"`
	CheckID       string `json:"check_id"`
	CheckDigest   string `json:"check_digest"`
	ClosureSHA256 string `json:"closure_sha256"`
	By            string `json:"by"`
	At            string `json:"at"`
	Active        bool   `json:"active"`
	RevokedBy     string `json:"revoked_by"`
	RevokedAt     string `json:"revoked_at"`
}

func attestationOf(x *daemon.AttestationInfo) *attestationJSON {
	if x == nil {
		return nil
	}
	return &attestationJSON{
		Position: x.Position, CheckID: x.CheckID, CheckDigest: x.CheckDigest, ClosureSHA256: x.ClosureSHA256, By: x.By, At: x.RecordedAt,
		Active: x.Active(), RevokedBy: x.Revocation.By, RevokedAt: x.Revocation.RecordedAt,
	}
}

// review is what there is to know before seen is attested.
func (a *attester) review(ctx context.Context, seen daemon.Attestable) (attestJSON, error) {
	is := a.session.Is
	r := attestJSON{
		SchemaVersion: "striatum.verifier_attest.v1", Home: is.Home, Store: is.StoreName, Trust: string(is.StoreClass),
		RepositoryID: a.repo.ID, Worktree: a.worktree.Path, PolicySHA256: a.policy.Digest, AcceptedBy: a.policy.By, AcceptedAt: a.policy.At,
		CheckID: seen.Document.CheckID, CheckDigest: seen.Document.CheckDigest, Definition: seen.Definition, Description: seen.Description, Pin: seen.Pin, Digest: seen.Digest,
		Active: attestationOf(seen.Active), Before: attestationOf(seen.Before), ClosureChanges: []string{},
		Claims: append([]string{}, seen.Claims...), NewlyVerified: []string{}, Stops: []stopJSON{},
	}
	for _, s := range seen.Stops {
		r.Stops = append(r.Stops, stopJSON{string(s.Code), s.Sentence})
	}
	if len(seen.Stops) == 0 && seen.Active == nil {
		r.NewlyVerified = r.Claims
	}
	if !workflow.ToolchainBuiltin(r.CheckID) {
		r.RehearsalCommand = rehearseCommand(r.CheckID)
		var err error
		if r.Rehearsal, err = a.rehearsal(ctx, seen); err != nil {
			return r, err
		}
	}
	if seen.BeforeClosure != nil {
		r.ClosureChanges = slices.Concat(r.ClosureChanges, allowlist.ClosureDiff(seen.BeforeClosure, seen.Pin.Closure),
			allowlist.DefinitionDiff(string(seen.BeforeFiles), seen.Pin.Definition))
	}
	if seen.BeforeDefinition == nil || seen.Before.CheckDigest == seen.Document.CheckDigest {
		return r, nil
	}
	before, err := workflow.Indent(json.RawMessage(seen.BeforeDefinition))
	if err != nil {
		return r, err
	}
	after, err := workflow.Indent(json.RawMessage(seen.Definition))
	r.Changes = string(diff.Diff("attested", before, "accepted", after))
	return r, err
}

// show prints the review. Nothing of it is left out.
func (a *attester) show(ctx context.Context, seen daemon.Attestable, out cli.Output) error {
	r, err := a.review(ctx, seen)
	if err != nil {
		return err
	}
	if out == cli.JSON {
		return a.streams.WriteJSON(r)
	}
	text, err := r.table(seen)
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.streams.Out, text)
	return err
}

func (r *attestJSON) table(seen daemon.Attestable) (string, error) {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s%s\n", name, cli.Escape(fmt.Sprintf(format, args...)))
	}
	line("worktree", "%s", r.Worktree)
	line("store", "%s in %s, trust: %s", r.Store, r.Home, r.Trust)
	line("repository", "%s", r.RepositoryID)
	line("policy", "%s, accepted by %s at %s", r.PolicySHA256, r.AcceptedBy, r.AcceptedAt)
	line("check", "%s, digest %s", r.CheckID, r.CheckDigest)
	definition, err := workflow.Indent(r.Definition)
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(string(definition)) {
		line("", "%s", strings.TrimSuffix(l, "\n"))
	}
	if r.Description != "" {
		line("described", "%q", r.Description)
	}
	pin := r.Pin
	line("command", "%s, SHA-256 %s", pin.ResolvedPath, pin.BinarySHA256)
	line("pinned", "at %s by the lane with the key %s", pin.ObservedAt, pin.ObservedBy)
	if !pin.Posture.Strict {
		line("", "in a sandbox that was not strict")
	}
	line("closure", "%s, %d parts:", pin.ClosureSHA256, len(pin.Closure))
	for _, part := range pin.Closure {
		data, err := seal.Canonical(part)
		if err != nil {
			return "", err
		}
		line("", "%s", data)
	}
	for l := range strings.Lines(pin.Definition) {
		line("", "  in the definition: %s", strings.TrimSuffix(l, "\n"))
	}
	r.rehearsed(line)
	r.compare(line, seen)
	r.consequences(line)
	if r.Active == nil {
		line("to attest:", "%s", attestWith(seen))
	}
	return b.String(), nil
}

// rehearsed says what the check's newest rehearsal came to.
func (r *attestJSON) rehearsed(line func(name, format string, args ...any)) {
	x := r.Rehearsal
	switch {
	case r.RehearsalCommand == "":
		return
	case x == nil:
		line("rehearsed", "never, with exactly this check and closure; run: %s", r.RehearsalCommand)
		return
	case x.Verdict == rehearsal.Refused:
		line("rehearsed", "REFUSED at %s, on the tree %s, by the lane with the key %s:", x.RehearsedAt, x.TreeSHA256, x.RehearsedBy)
	default:
		line("rehearsed", "%s, at %s, on the tree %s, by the lane with the key %s", x.Verdict, x.RehearsedAt, x.TreeSHA256, x.RehearsedBy)
	}
	for _, why := range x.Reasons {
		line("", "%s: %s", why.Code, why.Detail)
	}
}

// compare says what was attested of the check before.
func (r *attestJSON) compare(line func(name, format string, args ...any), seen daemon.Attestable) {
	if x := r.Active; x != nil {
		line("attested", "this very thing, by %s at %s, at %d of the log", x.By, x.At, x.Position)
	}
	x := r.Before
	if x == nil {
		if r.Active == nil {
			line("attested", "nothing of this check: all of the above is new")
		}
		return
	}
	line("attested", "something else, by %s at %s, at %d of the log:", x.By, x.At, x.Position)
	if x.CheckDigest == r.CheckDigest {
		line("", "the check was the same")
	} else {
		line("", "the check had the digest %s", x.CheckDigest)
	}
	for l := range strings.Lines(r.Changes) {
		line("", "  %s", strings.TrimSuffix(l, "\n"))
	}
	if x.ClosureSHA256 == r.Pin.ClosureSHA256 {
		line("", "the closure was the same")
	} else {
		line("", "the closure had the digest %s", x.ClosureSHA256)
	}
	for _, l := range r.ClosureChanges {
		line("", "  %s", l)
	}
	if seen.BeforeDefinition == nil || seen.BeforeClosure == nil {
		line("", "its bytes are not in the store, so only the digests can be compared")
	}
}

// consequences says what the gate reads differently.
func (r *attestJSON) consequences(line func(name, format string, args ...any)) {
	claims := strings.Join(r.Claims, ", ")
	if claims == "" {
		claims = "no claim of the accepted policy"
	}
	line("backs", "%s", claims)
	switch {
	case len(r.NewlyVerified) > 0:
		line("VERIFIED", "newly, where a receipt of these bytes meets every other condition: %s", claims)
	case len(r.Stops) > 0:
		line("VERIFIED", "newly: none. What stops at ASSERTED stays there, because")
		for _, s := range r.Stops {
			line("", "%s: %s", s.Code, s.Sentence)
		}
	default:
		line("VERIFIED", "newly: none")
	}
}

// attestationsJSON is what `verifier attest --list --output json` prints.
type attestationsJSON struct {
	SchemaVersion string             `json:"schema_version"` // striatum.verifier_attestations.v1
	Home          string             `json:"home"`
	Store         string             `json:"store"`
	Trust         string             `json:"trust"`
	RepositoryID  string             `json:"repository_id"`
	Worktree      string             `json:"worktree"`
	Attestations  []*attestationJSON `json:"attestations"`
}

// list prints every attestation of the repository, the oldest first.
func (a *attester) list(ctx context.Context, out cli.Output) error {
	is := a.session.Is
	all, err := a.session.Attestations(ctx, a.repo.ID)
	if err != nil {
		return err
	}
	r := attestationsJSON{
		SchemaVersion: "striatum.verifier_attestations.v1", Home: is.Home, Store: is.StoreName, Trust: string(is.StoreClass),
		RepositoryID: a.repo.ID, Worktree: a.worktree.Path, Attestations: []*attestationJSON{},
	}
	for i := range all {
		r.Attestations = append(r.Attestations, attestationOf(&all[i]))
	}
	if out == cli.JSON {
		return a.streams.WriteJSON(r)
	}
	var b strings.Builder
	for _, x := range r.Attestations {
		state := "active"
		if !x.Active {
			state = fmt.Sprintf("revoked by %s at %s", x.RevokedBy, x.RevokedAt)
		}
		fmt.Fprintf(&b, "%d  %s, by %s at %s, %s\n    check   %s\n    closure %s\n", x.Position, cli.Escape(x.CheckID),
			cli.Escape(x.By), x.At, cli.Escape(state), cli.Escape(x.CheckDigest), cli.Escape(x.ClosureSHA256))
	}
	if len(all) == 0 {
		fmt.Fprintf(&b, "nothing is attested\n")
	}
	_, err = io.WriteString(a.streams.Out, b.String())
	return err
}
