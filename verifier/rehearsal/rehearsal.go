package rehearsal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"striatum/receipt"
	"striatum/seal"
)

// SchemaVersion marks a record of this format, PayloadType its envelope.
const (
	SchemaVersion = "striatum.rehearsal.v1"
	PayloadType   = "application/vnd.striatum.rehearsal+json"
)

const (
	// MaxBytes bounds a record's envelope.
	MaxBytes = 1 << 20
	// MaxMutations bounds the mutations of an entry that is rehearsed.
	MaxMutations = 20
	// Repetitions is how often each mutation is tried.
	Repetitions = 3
)

// budget says how much of what a check can blow up is kept.
type budget struct {
	reasons int // of an execution
	text    int // bytes of a free text
}

// budgets are tried in order until the envelope fits.
func budgets() []budget { return []budget{{5, 500}, {2, 200}, {0, 50}} }

// ErrInvalid is the reason of every record that its lane signed but that is none.
var ErrInvalid = errors.New("the rehearsal is not valid")

// Subject is what a rehearsal is about: a check with its bytes, in a repository.
// ClosureSHA256 is empty where nothing could be observed.
type Subject struct {
	RepositoryID  string `json:"repository_id"`
	CheckDigest   string `json:"check_digest"`
	ClosureSHA256 string `json:"closure_sha256"`
}

// Rehearsal is what a lane saw of one check. Verdict, Reasons and Posture.Strict
// are derived. All digests are lower-case hex SHA-256.
type Rehearsal struct {
	SchemaVersion string        `json:"schema_version"`
	Subject       Subject       `json:"subject"`
	Check         receipt.Check `json:"check"`
	TreeSHA256    string        `json:"tree_sha256"` // git's tree id of the snapshot
	GitCommit     string        `json:"git_commit"`  // empty: the worktree's files
	IntentSHA256  string        `json:"intent_sha256"`
	PinsSHA256    string        `json:"pins_sha256"`

	// Mutations is how many the entry lists, TestFiles how many files of the tree
	// count as tests (0 too where the check reports no tests).
	Mutations int64 `json:"mutations"`
	TestFiles int64 `json:"test_files"`

	Runs     []receipt.Execution `json:"runs"` // on the tree as it is, at most two
	Controls []Control           `json:"controls"`
	Reds     []Red               `json:"reds"`

	Incidents []receipt.Incident `json:"incidents"`
	Posture   receipt.Posture    `json:"posture"`
	Limits    receipt.Limits     `json:"limits"`

	Verdict Verdict          `json:"verdict"`
	Reasons []receipt.Reason `json:"reasons"`

	StriatumVersion string       `json:"striatum_version"`
	StriatumSHA256  string       `json:"striatum_sha256"`
	Lane            receipt.Lane `json:"lane"`
	RehearsedAt     string       `json:"rehearsed_at"` // RFC 3339, UTC
}

// Control is one try of the negative control.
type Control struct {
	Mutation int64           `json:"mutation"` // from 1, in the entry's order
	File     string          `json:"file"`     // that it changes
	Control  receipt.Control `json:"control"`
}

// Input is a tree on which the check must not pass.
type Input string

// The inputs.
const (
	EmptyWorktree Input = "empty_worktree"
	EmptiedTests  Input = "emptied_tests"
)

// Red is the execution on an input that must not pass.
type Red struct {
	Input     Input             `json:"input"`
	Execution receipt.Execution `json:"execution"`
}

// Verdict says what a rehearsal came to.
type Verdict string

// The verdicts.
const (
	Graduates     Verdict = "graduates"
	Refused       Verdict = "refused"
	Indeterminate Verdict = "indeterminate"
)

// Failed reports whether the check failed on the tree as it is.
func (r Rehearsal) Failed() bool {
	for _, x := range r.Runs {
		if x.Judgement == receipt.Fail {
			return true
		}
	}
	return false
}

// Sign cuts what code under test can blow up, derives and signs r. It returns the
// envelope and the record as Open will.
func Sign(r Rehearsal, key *seal.PrivateKey) ([]byte, Rehearsal, error) {
	err := fmt.Errorf("%w: over %d bytes, though all texts are cut", ErrInvalid, MaxBytes)
	for _, b := range budgets() {
		cut := b.cut(r)
		cut.SchemaVersion = SchemaVersion
		derive(&cut)
		payload, cerr := seal.Canonical(cut)
		if cerr == nil && base64.StdEncoding.EncodedLen(len(payload)) > MaxBytes-1024 {
			continue
		}
		var envelope []byte
		if err = cerr; err == nil {
			cut, err = parse(payload)
		}
		if err == nil {
			envelope, err = seal.Sign(key, PayloadType, payload)
		}
		if err == nil {
			return envelope, cut, nil
		}
		break
	}
	return nil, Rehearsal{}, fmt.Errorf("sign rehearsal: %w", err)
}

// Open verifies a record. The error is one of seal's (seal.ErrUnknownKey,
// seal.ErrBadSignature, seal.ErrMalformed, seal.ErrWrongRole) or ErrInvalid.
func Open(envelope []byte, ring seal.Keyring) (Rehearsal, seal.Key, error) {
	if len(envelope) > MaxBytes {
		return Rehearsal{}, seal.Key{}, fmt.Errorf("open rehearsal: %w: more than %d bytes", ErrInvalid, MaxBytes)
	}
	payload, by, err := seal.Open(envelope, PayloadType, ring, seal.RoleLane)
	if err != nil {
		return Rehearsal{}, seal.Key{}, fmt.Errorf("open rehearsal: %w", err)
	}
	r, err := parse(payload)
	if err == nil && by.LaneID != "" && by.LaneID != r.Lane.LaneID {
		err = fmt.Errorf("%w: lane %q with the key of %q", ErrInvalid, r.Lane.LaneID, by.LaneID)
	}
	if err != nil {
		return Rehearsal{}, seal.Key{}, fmt.Errorf("open rehearsal: %w", err)
	}
	return r, by, nil
}

// parse reads a payload, whose verdict must follow from its facts.
func parse(payload []byte) (Rehearsal, error) {
	var r Rehearsal
	if err := seal.Decode(payload, &r, seal.Limits{Bytes: MaxBytes, Depth: 16}); err != nil {
		return Rehearsal{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := r.validate(); err != nil {
		return Rehearsal{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	derive(&r)
	again, err := seal.Canonical(r)
	if err != nil || !bytes.Equal(again, payload) {
		return Rehearsal{}, fmt.Errorf("%w: it is not what follows from its facts, in canonical form", ErrInvalid)
	}
	return r, nil
}

func (r Rehearsal) validate() error {
	at, err := time.Parse(time.RFC3339, r.RehearsedAt)
	switch {
	case r.SchemaVersion != SchemaVersion:
		return fmt.Errorf("/schema_version: want %q", SchemaVersion)
	case r.StriatumSHA256 != "" && !seal.ValidDigest(r.StriatumSHA256):
		return errors.New("/striatum_sha256: not a digest")
	case !seal.ValidDigest(r.Subject.CheckDigest) || r.Subject.CheckDigest != r.Check.Digest:
		return errors.New("/subject/check_digest: not the digest of the check")
	case r.Subject.ClosureSHA256 != "" && !seal.ValidDigest(r.Subject.ClosureSHA256):
		return errors.New("/subject/closure_sha256: not a digest")
	case r.Subject.ClosureSHA256 == "" && len(r.Runs) > 0:
		return errors.New("/runs: of a command that was not observed")
	case r.Check.ID == "" || r.Check.Kind != receipt.External:
		return errors.New("/check: not one of the intent")
	case len(r.Runs) > 2, r.Mutations < 0, r.TestFiles < 0:
		return errors.New("/runs: too many, or a count below zero")
	case len(r.Controls) > MaxMutations*Repetitions, len(r.Reds) > 2:
		return errors.New("/controls: too many")
	case err != nil || at.Location() != time.UTC:
		return errors.New("/rehearsed_at: not an RFC 3339 time in UTC")
	}
	return r.parts().Validate()
}

// parts are what a receipt has too.
func (r Rehearsal) parts() receipt.Parts {
	p := receipt.Parts{
		RepositoryID: r.Subject.RepositoryID,
		Check:        r.Check, Executions: slices.Clone(r.Runs), Incidents: r.Incidents, Posture: r.Posture, Limits: r.Limits, Lane: r.Lane,
		Inputs: receipt.Inputs{TreeSHA256: r.TreeSHA256, GitCommit: r.GitCommit, IntentSHA256: r.IntentSHA256, PinsSHA256: r.PinsSHA256},
	}
	for _, c := range r.Controls {
		p.Controls = append(p.Controls, c.Control)
	}
	for _, x := range r.Reds {
		p.Executions = append(p.Executions, x.Execution)
	}
	return p
}

// cut returns r with bounded texts and lists, sharing no list with it.
func (b budget) cut(r Rehearsal) Rehearsal {
	runs := make([]receipt.Execution, len(r.Runs))
	for i, x := range r.Runs {
		runs[i] = b.execution(x)
	}
	controls := make([]Control, len(r.Controls))
	for i, c := range r.Controls {
		c.File, c.Control.Why, c.Control.MutationOf = b.shorten(c.File), b.shorten(c.Control.Why), b.shorten(c.Control.MutationOf)
		for _, x := range []**receipt.Execution{&c.Control.Baseline, &c.Control.Emptied, &c.Control.Execution} {
			if *x != nil {
				short := b.execution(**x)
				*x = &short
			}
		}
		controls[i] = c
	}
	reds := make([]Red, len(r.Reds))
	for i, x := range r.Reds {
		reds[i] = Red{x.Input, b.execution(x.Execution)}
	}
	incidents := make([]receipt.Incident, len(r.Incidents))
	for i, x := range r.Incidents {
		x.Detail = b.shorten(x.Detail)
		incidents[i] = x
	}
	facets := make([]receipt.Facet, len(r.Posture.Facets))
	for i, f := range r.Posture.Facets {
		f.Required, f.Observed = b.shorten(f.Required), b.shorten(f.Observed)
		facets[i] = f
	}
	r.Runs, r.Controls, r.Reds, r.Incidents, r.Posture.Facets = runs, controls, reds, incidents, facets
	return r
}

// execution cuts the reasons of one.
func (b budget) execution(x receipt.Execution) receipt.Execution {
	reasons := make([]receipt.Reason, 0, b.reasons)
	for _, reason := range x.Reasons[:min(len(x.Reasons), b.reasons)] {
		reason.Detail = b.shorten(reason.Detail)
		reasons = append(reasons, reason)
	}
	x.Reasons = reasons
	return x
}

// shorten cuts s to whole characters of valid UTF-8.
func (b budget) shorten(s string) string {
	s = receipt.Text(s)
	if len(s) <= b.text {
		return s
	}
	s = s[:b.text]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
