package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/allowlist"
	"striatum/claim"
	"striatum/daemon"
	"striatum/gate"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/store"
	"striatum/workflow"
	"striatum/workflowgenerate"
)

// schema is the entry of the external check that these tests attest.
const schema = `{"id": "schema", "argv": ["python3", "tools/check.py", "{target}/schema"], "definition": ["tools/**"],
	"pass_when": "exit_zero", "backs_claim": "schema-holds", "agreement": "stdout", "description": "Every schema is valid.",
	"negative_control": {"mutation_of": ".", "fails_with": "unknown type", "mutation": {"file": "schema/a.json", "find": "string", "replace": "strnig"}}}`

// intentOf is an intent of one entry, after edits of its text.
func intentOf(entry string, edit ...string) []byte {
	return []byte(`{"schema_version": "` + allowlist.IntentSchemaVersion + `", "checks": [` + strings.NewReplacer(edit...).Replace(entry) + `]}`)
}

// newExternal is a desk whose one claim rests on the external check "schema",
// under an accepted policy.
func newExternal(t testing.TB) *checked {
	t.Helper()
	c := &checked{desk: newDesk(t).enrol(), files: daemon.Files{}, claim: "schema-holds"}
	plan, err := workflowgenerate.Generate(workflowgenerate.Spec{Shape: "verification_gate", Checks: []string{"schema"}})
	c.must(err)
	for _, f := range plan.Files {
		if f.Path == workflow.DefaultPath {
			c.files[f.Path] = f.Data
		}
	}
	c.accept(intentOf(schema))
	return c
}

// accept makes a policy with that intent count.
func (c *checked) accept(intent []byte) {
	c.Helper()
	c.files = maps.Clone(c.files)
	c.files[workflow.DefaultIntentPath] = intent
	_, digest, err := c.files.Document()
	c.must(err)
	c.must(c.AcceptPolicy(c.Context(), operator(), repoID, c.files, digest))
}

// pin returns a pins file of the accepted entry whose closure has these bytes.
func (c *checked) pin(content string, key *seal.PrivateKey) allowlist.Pin {
	c.Helper()
	intent, _, err := c.files.Intent()
	c.must(err)
	e := intent.Checks[0]
	digest, err := e.Digest()
	c.must(err)
	p := allowlist.Pin{
		ID: e.ID, CheckDigest: digest, Argv: e.Argv.Words, ResolvedPath: "/usr/bin/python3", BinarySHA256: receipttest.Digest("python3"),
		Closure: []allowlist.ClosurePart{
			{Path: "/usr/bin/python3", SHA256: receipttest.Digest(content), Size: new(int64(7))},
			{Tree: "definition", SHA256: receipttest.Digest("definition")},
		},
		ObservedAt: "2026-05-04T03:02:01Z", ObservedBy: key.Public().ID(), Posture: receipt.Posture{Facets: []receipt.Facet{}},
	}
	p.ClosureSHA256, err = allowlist.ClosureDigest(p.Closure)
	c.must(err)
	return p
}

func (c *checked) signPins(key *seal.PrivateKey, pins ...allowlist.Pin) []byte {
	c.Helper()
	envelope, err := allowlist.SignPins(allowlist.Pins{
		SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: "0a1b2c3d-linux-amd64", Checks: pins,
	}, key)
	c.must(err)
	return envelope
}

// asked is the query for the check "schema" with a closure of these bytes.
func (c *checked) asked(content string) daemon.AttestQuery {
	c.Helper()
	return daemon.AttestQuery{RepositoryID: repoID, CheckID: "schema", Pins: c.signPins(c.lane, c.pin(content, c.lane))}
}

// seen is the digest that an operator reads before he attests.
func (c *checked) seen(q daemon.AttestQuery) string {
	c.Helper()
	a, err := c.Attestable(c.Context(), q)
	c.must(err)
	return a.Digest
}

func (c *checked) attest(q daemon.AttestQuery) int64 {
	c.Helper()
	position, fresh, err := c.Attest(c.Context(), operator(), q, c.seen(q))
	c.must(err)
	if !fresh {
		c.Error("it was attested before")
	}
	return position
}

// attesting tries to attest q, by its right digest unless another is given.
func (c *checked) attesting(p daemon.Principal, q daemon.AttestQuery, digest string) func() error {
	return func() error { _, _, err := c.Attest(c.Context(), p, q, digest); return err }
}

// The document is a format, and its digest is what operators name: these bytes
// may never change.
func TestAttestationDocumentIsFrozen(t *testing.T) {
	d := daemon.AttestationDocument{
		SchemaVersion: daemon.AttestationSchemaVersion, RepositoryID: "repo-1", CheckID: "schema",
		CheckDigest: receipttest.Digest("check"), ClosureSHA256: receipttest.Digest("closure"),
	}
	want := seal.SHA256Hex([]byte(fmt.Sprintf(`{"check_digest":"%s","check_id":"schema","closure_sha256":"%s","repository_id":"repo-1","schema_version":"striatum.verifier_attestation.v1"}`, d.CheckDigest, d.ClosureSHA256)))
	if got, err := d.Digest(); err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestAttestationIsBoundAndTakenBack(t *testing.T) {
	c := newExternal(t)
	q := c.asked("python 3.11")
	position := c.attest(q)
	before := c.head()
	if again, fresh, err := c.Attest(c.Context(), operator(), q, c.seen(q)); again != position || fresh || err != nil || c.head() != before {
		t.Errorf("to attest it again: got %d, fresh %t, %v and %d rows", again, fresh, err, c.head()-before)
	}
	pin := c.pin("python 3.11", c.lane)
	want := store.Attestation{RepositoryID: repoID, CheckID: "schema", CheckDigest: pin.CheckDigest, ClosureSHA256: pin.ClosureSHA256, By: "operator:op-1"}
	all, err := c.Attestations(c.Context(), repoID)
	if err != nil || len(all) != 1 || all[0].Attestation != want || !all[0].Active() || all[0].RecordedAt != "2026-05-04T03:02:01Z" {
		t.Errorf("got %+v, %v, want %+v", all, err, want)
	}
	if other, err := c.Attestations(c.Context(), "repo-2"); err != nil || len(other) != 0 {
		t.Errorf("another repository: got %+v, %v", other, err)
	}

	revoke := func(id string, position int64) ([]int64, error) {
		return c.RevokeAttestation(c.Context(), operator(), repoID, id, position)
	}
	for id, at := range map[string]int64{"other": 0, "schema": position + 1} {
		c.refused(problem.Usage, "there is none", func() error { _, err := revoke(id, at); return err })
	}
	second := c.attest(c.asked("python 3.12"))
	if got, err := revoke("schema", position); err != nil || !slices.Equal(got, []int64{position}) {
		t.Errorf("got %v, %v, want the one at %d", got, err, position)
	}
	third := c.attest(q)
	if got, err := revoke("schema", 0); err != nil || !slices.Equal(got, []int64{second, third}) {
		t.Errorf("got %v, %v, want those at %d and %d", got, err, second, third)
	}
	before = c.head()
	if got, err := revoke("schema", 0); err != nil || got != nil || c.head() != before {
		t.Errorf("what is revoked already: got %v, %v and %d rows", got, err, c.head()-before)
	}
	all, err = c.Attestations(c.Context(), repoID)
	c.must(err)
	if len(all) != 3 || slices.ContainsFunc(all, daemon.AttestationInfo.Active) || all[0].Revocation.By != "operator:op-1" || all[0].Revocation.RecordedAt == "" {
		t.Errorf("got %+v", all)
	}
}

func TestOnlyTheOperatorsTokenAttests(t *testing.T) {
	c := newExternal(t)
	q := c.asked("python3")
	digest := c.seen(q)
	token := c.mint()
	for name, p := range map[string]daemon.Principal{
		"local": daemon.LocalUser(), "session": {Kind: daemon.Session, Name: "s-1", Jobs: []string{"verify"}},
		"lane": {Kind: daemon.Lane, Name: "lane-1"}, "nobody": {},
	} {
		t.Run(name, func(*testing.T) {
			words := "may not do that"
			if p.Kind == daemon.Local {
				words = "no operator token was given"
			}
			c.refused(problem.Refused, words, c.attesting(p, q, digest))
			c.refused(problem.Refused, words, func() error { _, err := c.RevokeAttestation(c.Context(), p, repoID, "schema", 0); return err })
		})
	}
	with := func(token string) func() error {
		return func() error {
			p, err := c.Authenticate(c.Context(), token)
			if err != nil {
				return err
			}
			return c.attesting(p, q, digest)()
		}
	}
	c.refused(problem.Refused, "no operator token was given", with(""))
	c.refused(problem.Refused, "does not know it", with("striatum_se_"+token[12:]))
	c.must(with(token)())

	_, err := c.RevokeAttestation(c.Context(), operator(), repoID, "schema", 0)
	c.must(err)
	now := c.now
	c.now = now.Add(time.Hour)
	c.refused(problem.Refused, "expired", with(token))
	c.now = now
	c.must(c.store.Update(c.Context(), func(w store.Writer) error {
		_, err := w.AddTokenRevocation(c.Context(), store.TokenRevocation{Hash: seal.SHA256Hex([]byte(token)), By: "operator:op"})
		return err
	}))
	c.refused(problem.Refused, "revoked", with(token))
}

func TestNothingElseIsAttested(t *testing.T) {
	c := newExternal(t)
	good := c.asked("python3")
	pin := c.pin("python3", c.lane)
	foreign := receipttest.Key(t, 9)
	otherCheck := pin
	otherCheck.ID = "lint"
	otherArgv := pin
	otherArgv.Argv = []string{"true"}
	for name, tt := range map[string]struct {
		change func(q *daemon.AttestQuery)
		kind   problem.Kind
		words  string
	}{
		"another repository":   {func(q *daemon.AttestQuery) { q.RepositoryID = "repo-2" }, problem.Refused, "no policy is accepted"},
		"a check of no policy": {func(q *daemon.AttestQuery) { q.CheckID = "lint" }, problem.Refused, "no such external or builtin+toolchain check"},
		"a builtin":            {func(q *daemon.AttestQuery) { q.CheckID = "builtin:go-test" }, problem.Refused, "no such external or builtin+toolchain check"},
		"no pins":              {func(q *daemon.AttestQuery) { q.Pins = nil }, problem.Unfilled, "no pins of this host"},
		"pins by hand":         {func(q *daemon.AttestQuery) { q.Pins = []byte(`{"checks":[]}`) }, problem.Refused, ""},
		"altered pins":         {func(q *daemon.AttestQuery) { q.Pins = bytes.Replace(q.Pins, []byte("ey"), []byte("eX"), 1) }, problem.Refused, ""},
		"pins of an unknown key": {
			func(q *daemon.AttestQuery) { q.Pins = c.signPins(foreign, c.pin("python3", foreign)) },
			problem.Refused, "unknown key",
		},
		"pins without pins":      {func(q *daemon.AttestQuery) { q.Pins = c.signPins(c.lane) }, problem.Unfilled, "do not name it"},
		"a pin of another check": {func(q *daemon.AttestQuery) { q.Pins = c.signPins(c.lane, otherCheck) }, problem.Unfilled, "do not name it"},
		"a pin of another argv":  {func(q *daemon.AttestQuery) { q.Pins = c.signPins(c.lane, otherArgv) }, problem.Unfilled, "changed after it was pinned"},
	} {
		t.Run(name, func(*testing.T) {
			q := good
			tt.change(&q)
			c.refused(tt.kind, tt.words, c.attesting(operator(), q, c.seen(good)))
		})
	}
	// What an operator read of other bytes is no word on these.
	for _, digest := range []string{c.seen(c.asked("python4")), ""} {
		c.refused(problem.Refused, c.seen(good), c.attesting(operator(), good, digest))
	}
	// Nor is a pin one on an entry that was accepted later.
	digest := c.seen(good)
	c.accept(intentOf(schema, "unknown type", "unknown"))
	c.refused(problem.Unfilled, "changed after it was pinned", c.attesting(operator(), good, digest))
	c.accept(intentOf(schema, "Every schema is valid.", "Every schema."))
	c.attest(good) // only its description changed

	c.must(c.store.Update(c.Context(), func(w store.Writer) error {
		_, err := w.AddLaneRevocation(c.Context(), store.LaneRevocation{KeyID: c.lane.Public().ID(), Kind: "retired", By: "operator:op-1"})
		return err
	}))
	c.refused(problem.Refused, "was revoked", c.attesting(operator(), good, digest))
}

func TestDigestOfAnotherCheckIsRefused(t *testing.T) {
	c := newExternal(t)
	second := strings.NewReplacer(`"schema"`, `"lint"`, "schema-holds", "lint-holds").Replace(schema)
	c.accept(intentOf(schema + "," + second))
	intent, _, err := c.files.Intent()
	c.must(err)
	pins := []allowlist.Pin{c.pin("python3", c.lane), c.pin("python3", c.lane)}
	pins[1].ID = "lint"
	pins[1].CheckDigest, err = intent.Checks[1].Digest()
	c.must(err)
	envelope := c.signPins(c.lane, pins...)
	ask := func(id string) daemon.AttestQuery {
		return daemon.AttestQuery{RepositoryID: repoID, CheckID: id, Pins: envelope}
	}
	c.refused(problem.Refused, c.seen(ask("lint")), c.attesting(operator(), ask("lint"), c.seen(ask("schema"))))
	if a, err := c.Attestable(c.Context(), ask("lint")); err != nil || a.Claims != nil {
		t.Errorf("no claim rests on it: got %v, %v", a.Claims, err)
	}
}

func TestAttestableSaysWhatAnOperatorMustKnow(t *testing.T) {
	c := newExternal(t)
	a, err := c.Attestable(c.Context(), c.asked("python 3.11"))
	c.must(err)
	if !slices.Equal(a.Claims, []string{"schema-holds"}) || a.Active != nil || a.Before != nil || a.Description == "" {
		t.Errorf("got %+v", a)
	}
	codes := func(a daemon.Attestable) (out []gate.Code) {
		for _, s := range a.Stops {
			out = append(out, s.Code)
		}
		return out
	}
	if diff := cmp.Diff([]gate.Code{gate.LaneNotIsolated, gate.StoreNotIsolated}, codes(a)); diff != "" {
		t.Error(diff)
	}
	first := c.attest(c.asked("python 3.11"))
	a, err = c.Attestable(c.Context(), c.asked("python 3.11"))
	c.must(err)
	if a.Active == nil || a.Active.Position != first || a.Before != nil {
		t.Errorf("attested: got %+v, %+v", a.Active, a.Before)
	}
	was := c.pin("python 3.11", c.lane)
	c.accept(intentOf(schema, `"mutation_of": "."`, `"mutation_of": "fixtures"`, "schema/a.json", "a.json"))
	a, err = c.Attestable(c.Context(), c.asked("python 3.12"))
	c.must(err)
	if a.Active != nil || a.Before == nil || a.Before.Position != first || !strings.Contains(string(a.BeforeDefinition), `"mutation_of":"."`) {
		t.Errorf("an entry that changed: got %+v, %+v", a.Before, string(a.BeforeDefinition))
	}
	if diff := cmp.Diff(was.Closure, a.BeforeClosure); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]gate.Code{gate.ControlNotOnSubject, gate.LaneNotIsolated, gate.StoreNotIsolated}, codes(a)); diff != "" {
		t.Error(diff)
	}
	// What only the store's own rows say is compared by digest.
	c.must(c.store.Update(c.Context(), func(w store.Writer) error {
		_, err := w.AddAttestation(c.Context(), store.Attestation{RepositoryID: repoID, CheckID: "schema", CheckDigest: "x", ClosureSHA256: "y", By: "operator:op-1"})
		return err
	}))
	a, err = c.Attestable(c.Context(), c.asked("python 3.12"))
	if err != nil || a.Before == nil || a.Before.ClosureSHA256 != "y" || a.BeforeDefinition != nil || a.BeforeClosure != nil {
		t.Errorf("got %+v, %v", a.Before, err)
	}
}

// TestGateReadsAttestationsFromTheStore walks one claim from a pin to an
// attestation, back, and to other bytes.
func TestGateReadsAttestationsFromTheStore(t *testing.T) {
	c := newExternal(t)
	run := func(sequence int64, prev, content string) string {
		t.Helper()
		pin := c.pin(content, c.lane)
		c.check = func(r *receipt.Receipt) {
			r.RunID, r.JobID, r.Compile, r.Census = "", "verify", nil, nil
			r.Check = receipt.Check{ID: "schema", Kind: receipt.External, Digest: pin.CheckDigest, Argv: pin.Argv, BacksClaim: c.claim, PassWhen: "exit_zero", Agreement: "stdout"}
			r.Tools.BuiltinID, r.Tools.ClosureSHA256 = "", pin.ClosureSHA256
			r.Control.Kind = receipt.ControlWorktree
		}
		return c.attempt(sequence, prev, nil).Seal()
	}
	want := func(when string, rung gate.Rung, code gate.Code) {
		t.Helper()
		r := c.gate(c.query())
		capped := []gate.Code{code, gate.LaneNotIsolated, gate.StoreNotIsolated}
		if code == "" {
			capped = capped[1:]
		}
		if diff := cmp.Diff(capped, codes(r)); diff != "" || r.Claims[0].Effective != claim.Asserted || r.Claims[0].Rung != rung || !r.Green() {
			t.Errorf("%s: %s, rung %s, green %t; bases (-want +got):\n%s", when, r.Claims[0].Effective, r.Claims[0].Rung, r.Green(), diff)
		}
	}
	first := run(1, receipt.FirstPrevSeal, "python 3.11")
	want("pinned", gate.RungPinnedUnattested, gate.AttestationMissing)
	if fix := c.gate(c.query()).Claims[0].Bases[0].Fix; fix != "striatum verifier attest --pin schema" {
		t.Errorf("the fix is %q", fix)
	}
	c.attest(c.asked("python 3.11"))
	want("attested after the run", gate.RungAttested, "")
	_, err := c.RevokeAttestation(c.Context(), operator(), repoID, "schema", 0)
	c.must(err)
	want("revoked", gate.RungPinnedUnattested, gate.AttestationRevoked)
	c.attest(c.asked("python 3.11"))
	want("attested again", gate.RungAttested, "")
	second := run(2, first, "python 3.12")
	want("pinned again, with other bytes", gate.RungPinnedUnattested, gate.AttestationMissing)
	c.attest(c.asked("python 3.12"))
	want("and attested", gate.RungAttested, "")
	run(3, second, "python 3.11")
	want("the bytes of before", gate.RungAttested, "")
}

// unreachable is a store that can be read and not be written.
type unreachable struct{ store.Store }

func (unreachable) Update(context.Context, func(store.Writer) error) error {
	return store.ErrUnavailable
}

func TestUnreachableStoreIsNeverSuccess(t *testing.T) {
	c := newExternal(t)
	q := c.asked("python3")
	digest := c.seen(q)
	for _, fail := range []string{"view", "policy", "blob"} {
		if _, err := c.over(faultyStore{c.store, fail}).Attestable(t.Context(), q); err == nil {
			t.Errorf("%s: no error", fail)
		}
	}
	svc := c.over(unreachable{c.store})
	c.refused(problem.Missing, "cannot be reached", func() error { _, _, err := svc.Attest(t.Context(), operator(), q, digest); return err })
	c.attest(q)
	c.refused(problem.Missing, "cannot be reached", func() error {
		_, err := svc.RevokeAttestation(t.Context(), operator(), repoID, "schema", 0)
		return err
	})
}

// TestAToolchainIsAttested: a builtin+toolchain check of the accepted workflow is
// attested as an entry of the intent is; a plain builtin is not.
func TestAToolchainIsAttested(t *testing.T) {
	const uses = "builtin+toolchain:go-vet"
	c := &checked{desk: newDesk(t).enrol(), files: daemon.Files{}, claim: "vet-is-clean"}
	plan, err := workflowgenerate.Generate(workflowgenerate.Spec{Shape: "verification_gate", Checks: []string{uses, "builtin:go-build"}})
	c.must(err)
	for _, f := range plan.Files {
		if f.Path == workflow.DefaultPath {
			c.files[f.Path] = f.Data
		}
	}
	_, digest, err := c.files.Document()
	c.must(err)
	c.must(c.AcceptPolicy(c.Context(), operator(), repoID, c.files, digest))
	w, _, err := c.files.Workflow()
	c.must(err)
	pins := []allowlist.Pin{}
	for _, check := range w.Checks() {
		d, err := check.Digest()
		c.must(err)
		b, _ := workflow.LookupBuiltin(check.Uses)
		p := allowlist.Pin{
			ID: uses, CheckDigest: d, Argv: b.Argv(), ResolvedPath: "/usr/bin/go", BinarySHA256: receipttest.Digest("go"),
			Closure:    []allowlist.ClosurePart{{Path: "/usr/bin/go", SHA256: receipttest.Digest("go"), Size: new(int64(2))}},
			ObservedAt: "2026-05-04T03:02:01Z", ObservedBy: c.lane.Public().ID(), Posture: receipt.Posture{Facets: []receipt.Facet{}},
		}
		p.ClosureSHA256, err = allowlist.ClosureDigest(p.Closure)
		c.must(err)
		if check.Uses == uses {
			pins = append(pins, p)
		}
	}
	q := daemon.AttestQuery{RepositoryID: repoID, CheckID: uses, Pins: c.signPins(c.lane, pins...)}
	c.attest(q)
	a, err := c.Attestable(c.Context(), q)
	c.must(err)
	if a.Active == nil || !slices.Equal(a.Claims, []string{"vet-is-clean"}) || !strings.Contains(string(a.Definition), `"uses":"`+uses+`"`) {
		t.Errorf("got %+v", a)
	}
	q.CheckID = "builtin:go-build"
	if _, err := c.Attestable(c.Context(), q); problem.Of(err).Kind != problem.Refused {
		t.Errorf("a plain builtin: %v", err)
	}
}
