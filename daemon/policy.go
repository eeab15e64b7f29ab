package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"striatum/allowlist"
	"striatum/baseline"
	"striatum/claim"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
	"striatum/workflow"
)

// PolicySchemaVersion marks a policy document of this format.
const PolicySchemaVersion = "striatum.policy.v1"

// The bounds of a policy's files.
const (
	MaxPolicyFiles     = 1000
	MaxPolicyFileBytes = 1 << 20
)

// Files are the files of a worktree that a policy is made of: path, with
// slashes, relative to its top, to content.
type Files map[string][]byte

// PolicyDocument is the closed set that an operator accepts: which files count,
// each by its SHA-256. Its digest is the SHA-256 of its canonical JSON.
type PolicyDocument struct {
	SchemaVersion string            `json:"schema_version"`
	Files         map[string]string `json:"files"`
}

// Document returns the policy document of f, canonical, and its digest.
func (f Files) Document() (document []byte, digest string, err error) {
	document, err = seal.Canonical(PolicyDocument{SchemaVersion: PolicySchemaVersion, Files: f.digests()})
	if err != nil {
		return nil, "", fmt.Errorf("encode policy: %w", err)
	}
	return document, seal.SHA256Hex(document), nil
}

func (f Files) digests() map[string]string {
	out := make(map[string]string, len(f))
	for path, data := range f {
		out[path] = seal.SHA256Hex(data)
	}
	return out
}

// Workflow returns the workflow among f; found is false without one. The error
// is a problem of kind Invalid.
func (f Files) Workflow() (w workflow.Workflow, found bool, err error) {
	data, found := f[workflow.DefaultPath]
	if !found {
		return workflow.Workflow{}, false, nil
	}
	w, err = workflow.Parse(data)
	if err != nil {
		return workflow.Workflow{}, true, problem.Wrap(problem.Invalid, err, fmt.Sprintf("read %s", workflow.DefaultPath), "run `striatum workflow validate "+workflow.DefaultPath+"`")
	}
	return w, true, nil
}

// Intent returns the intent among f and where it stands: where the workflow
// says, else the default path. It has no entry when there is none. The error is
// a problem of kind Invalid.
func (f Files) Intent() (in allowlist.Intent, path string, err error) {
	path = workflow.DefaultIntentPath
	w, found, err := f.Workflow()
	if err != nil {
		return allowlist.Intent{}, "", err
	}
	if found {
		path = w.IntentPath
	}
	in, err = f.intentAt(path)
	return in, path, err
}

func (f Files) intentAt(path string) (allowlist.Intent, error) {
	data, ok := f[path]
	if !ok {
		return allowlist.Intent{}, nil
	}
	in, err := allowlist.ParseIntent(data)
	if err != nil {
		return allowlist.Intent{}, problem.Wrap(problem.Invalid, err, fmt.Sprintf("read the intent %q", path), "`striatum workflow validate "+workflow.DefaultPath+"` lists every finding")
	}
	return in, nil
}

// Requirements returns what the workflow among f requires: every claim, with
// the check that backs it; and the floor. Without a workflow it requires
// nothing. The error is a problem of kind Invalid.
func (f Files) Requirements() ([]gate.Requirement, claim.Status, error) {
	w, found, err := f.Workflow()
	if !found || err != nil {
		return nil, claim.Asserted, err
	}
	intent, err := f.intentAt(w.IntentPath)
	if err != nil {
		return nil, 0, err
	}
	checks := map[string]workflow.CheckRef{}
	for _, c := range w.Checks() {
		checks[c.BacksClaim] = c.CheckRef
	}
	var out []gate.Requirement
	for _, c := range w.Claims {
		r := gate.Requirement{ClaimID: c.ID, Statement: c.Statement}
		if check, ok := checks[c.ID]; ok {
			if err := require(&r, check, intent); err != nil {
				return nil, 0, problem.Wrap(problem.Invalid, err, fmt.Sprintf("read the check of claim %q", c.ID), "run `striatum workflow validate "+workflow.DefaultPath+"`")
			}
		}
		out = append(out, r)
	}
	floor := claim.Asserted
	if w.GateFloor == workflow.FloorVerified {
		floor = claim.Verified
	}
	return out, floor, nil
}

func require(r *gate.Requirement, check workflow.CheckRef, intent allowlist.Intent) (err error) {
	r.CheckID = check.CheckID()
	r.AllowSkips = gate.AllowSkips{Any: check.AllowSkips.Any, Names: check.AllowSkips.Tests}
	if !check.External() {
		r.Builtin = workflow.PlainBuiltin(check.Uses)
		r.Scope = scope(check)
		r.ProtectedCommit = protectedCommit(check.ProtectedInputs)
		r.CheckDigest, err = check.Digest()
		return err
	}
	entry, _, ok := intent.Entry(check.CheckID())
	if !ok {
		return nil // no digest: no receipt is of it
	}
	r.AllowSkips = gate.AllowSkips{Names: entry.PassWhen.Tests.AllowSkips}
	r.ProtectedCommit = protectedCommit(entry.ProtectedInputs)
	r.WeakerThanBuiltin = slices.ContainsFunc(entry.Stops(), func(s allowlist.Stop) bool { return s.Code == allowlist.WeakerThanBuiltin })
	r.CheckDigest, err = entry.Digest()
	return err
}

func protectedCommit(p *workflow.ProtectedInputs) string {
	if p == nil {
		return ""
	}
	return p.Commit
}

// scope says what a builtin is about, where its parameters narrow that.
func scope(check workflow.CheckRef) string {
	s := ""
	if len(check.Packages) > 0 && !slices.Contains(check.Packages, "./...") {
		s = "the packages " + strings.Join(check.Packages, " ")
	}
	if check.Dir != "" && check.Dir != "." {
		if s == "" {
			s = "the module"
		}
		s += " in " + check.Dir
	}
	return s
}

// AcceptedPolicy is the policy that counts for a repository.
type AcceptedPolicy struct {
	Digest string `json:"digest"`
	By     string `json:"by"`
	At     string `json:"at"`              // RFC 3339, by the clock of the store
	Files  Files  `json:"files,omitempty"` // the accepted bytes
}

// Policy returns the policy that was accepted last; found is false when none
// was.
func (s *Service) Policy(ctx context.Context, repositoryID string) (p AcceptedPolicy, found bool, err error) {
	err = s.view(ctx, "read the accepted policy", func(r store.Reader) error {
		p, found, err = acceptedPolicy(ctx, r, repositoryID)
		return err
	})
	return p, found, err
}

func acceptedPolicy(ctx context.Context, r store.Reader, repositoryID string) (AcceptedPolicy, bool, error) {
	row, err := r.Policy(ctx, repositoryID)
	if errors.Is(err, store.ErrNotFound) {
		return AcceptedPolicy{}, false, nil
	}
	if err != nil {
		return AcceptedPolicy{}, false, err
	}
	data, err := r.Blob(ctx, row.Value.DocumentSHA256)
	if err != nil {
		return AcceptedPolicy{}, false, err
	}
	var doc PolicyDocument
	if err := seal.Decode(data, &doc, seal.Limits{}); err != nil || doc.SchemaVersion != PolicySchemaVersion {
		return AcceptedPolicy{}, false, fmt.Errorf("%w: the policy document is not one", store.ErrCorrupt)
	}
	p := AcceptedPolicy{Digest: row.Value.DocumentSHA256, By: row.Value.By, At: row.RecordedAt, Files: Files{}}
	for path, digest := range doc.Files {
		if p.Files[path], err = r.Blob(ctx, digest); err != nil {
			return AcceptedPolicy{}, false, err
		}
	}
	return p, true, nil
}

// AcceptPolicy makes exactly these files count for a repository, and keeps
// their bytes. It is for operators. digest must be that of the files: what the
// operator saw. To accept the policy that counts already does nothing.
func (s *Service) AcceptPolicy(ctx context.Context, p Principal, repositoryID string, files Files, digest string) error {
	const what = "accept the policy"
	if err := p.mustBe(what, Operator); err != nil {
		return err
	}
	if err := CheckRepositoryID(repositoryID); err != nil {
		return err
	}
	if len(files) > MaxPolicyFiles {
		return problem.New(problem.Invalid, what, fmt.Sprintf("%d files are more than %d", len(files), MaxPolicyFiles), "")
	}
	requirements, _, err := files.Requirements()
	if err != nil {
		return err
	}
	if len(requirements) == 0 {
		return problem.New(problem.Invalid, what, "it requires no claim, so it could never be met", "run `striatum workflow generate`")
	}
	if data, ok := files[baseline.Path]; ok {
		b, err := baseline.Parse(data)
		if err != nil {
			return problem.Wrap(problem.Invalid, err, what, "remove "+baseline.Path+", or write it with `striatum verifier baseline accept`")
		}
		for _, c := range b.Checks {
			if !slices.ContainsFunc(requirements, func(r gate.Requirement) bool { return r.CheckID == c.ID }) {
				return problem.New(problem.Invalid, what, fmt.Sprintf("%s has the tests of the check %q, which backs no claim: nothing would be compared with them", baseline.Path, clip(c.ID)),
					"after a check was renamed, remove "+baseline.Path+", accept the policy, and accept the tests again: striatum verifier baseline accept")
			}
		}
	}
	document, actual, err := files.Document()
	if err != nil {
		return err
	}
	if actual != digest {
		return problem.New(problem.Refused, what, fmt.Sprintf("the files here have the digest %s, not %s", actual, clip(digest)), "look at them with `striatum policy show`, then accept that digest")
	}
	return s.update(ctx, what, func(w store.Writer) error {
		now, err := w.Policy(ctx, repositoryID)
		if err == nil && now.Value.DocumentSHA256 == digest {
			return nil
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		for _, path := range slices.Sorted(maps.Keys(files)) {
			if _, err := w.PutBlob(ctx, files[path]); err != nil {
				return err
			}
		}
		if _, err := w.PutBlob(ctx, document); err != nil {
			return err
		}
		_, err = w.AddPolicy(ctx, store.Policy{RepositoryID: repositoryID, DocumentSHA256: digest, By: p.String()})
		return err
	})
}
