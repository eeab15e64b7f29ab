package archtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"striatum/allowlist"
	"striatum/claim"
	"striatum/internal/anchors"
	"striatum/internal/home"
	"striatum/internal/schemacheck"
	"striatum/internal/trust"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/verifier/rehearsal"
	"striatum/workflow"
)

// format is one kind of document: a sample, what reads it, and its schema, if it
// has one. wrap makes of a changed document what its writer would have signed or
// sealed, so that the reader gets as far as its fields; nil for a plain file.
type format struct {
	name, schema string
	sample       []byte
	wrap         func(t *testing.T, doc []byte) []byte
	read         func(doc []byte) error
}

func formats(t *testing.T) []format {
	t.Helper()
	key, root := receipttest.Key(t, 1), receipttest.Key(t, 2)
	ring := receipttest.Ring(key)
	signed := func(key *seal.PrivateKey, payloadType string) func(*testing.T, []byte) []byte {
		return func(t *testing.T, doc []byte) []byte {
			t.Helper()
			if canonical, err := seal.Canonical(json.RawMessage(doc)); err == nil {
				doc = canonical
			}
			envelope, err := seal.Sign(key, payloadType, doc)
			if err != nil {
				t.Fatal(err)
			}
			return envelope
		}
	}
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	return []format{
		{
			name: "workflow", schema: "workflow.v1.json", sample: []byte(read(t, "workflow/testdata/workflow.v1.json")),
			read: func(doc []byte) error { _, err := workflow.Parse(doc); return err },
		},
		{
			name: "intent", schema: "allowlist.intent.v1.json", sample: []byte(read(t, "allowlist/testdata/allowlist.intent.v1.json")),
			read: func(doc []byte) error { _, err := allowlist.ParseIntent(doc); return err },
		},
		{
			name: "pins", schema: "allowlist.pins.v1.json", sample: payload(t, pins(t, key), allowlist.PinsPayloadType, ring),
			wrap: signed(key, allowlist.PinsPayloadType),
			read: func(doc []byte) error { _, err := allowlist.ParsePins(doc, ring); return err },
		},
		{
			name: "sidecar", schema: "allowlist.attest.v1.json", sample: sidecar(t),
			read: func(doc []byte) error { _, err := allowlist.ParseSidecar(doc); return err },
		},
		{
			name: "ledger", schema: "claim_ledger.v1.json", sample: ledger(t), wrap: sealedLedger,
			read: func(doc []byte) error { _, err := claim.Parse(doc); return err },
		},
		{
			name: "trust file", schema: "trust.v1.json", sample: payload(t, trustFile(t, key, root), trust.PayloadType, seal.NewKeyring(seal.Key{Public: root.Public(), Role: seal.RoleRoot})),
			wrap: signed(root, trust.PayloadType),
			read: func(doc []byte) error { _, err := trust.Open(doc, root.Public(), now); return err },
		},
		{
			name: "rehearsal", schema: "rehearsal.v1.json", sample: payload(t, rehearsed(t, key), rehearsal.PayloadType, ring),
			wrap: signed(key, rehearsal.PayloadType),
			read: func(doc []byte) error { _, _, err := rehearsal.Open(doc, ring); return err },
		},
		{
			name: "anchors", sample: []byte(`{"schema_version":"striatum.anchors.v1","anchors":[{"path":"a.txt","sha256":"` + receipttest.Digest("a") + `"}]}`),
			read: func(doc []byte) error { _, err := anchors.Parse(doc); return err },
		},
		{
			name: "settings", sample: []byte(`{"schema_version":"striatum.config.v1","containerd_socket":"/run/c.sock","go":"/usr/bin/go","proxies":["off"],"images":["/srv/images"],"snapshot_files":7,"snapshot_bytes":9}`),
			read: func(doc []byte) error {
				h := home.Home{Dir: t.TempDir()}
				if err := os.WriteFile(h.ConfigPath(), doc, 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := h.Settings()
				return err
			},
		},
	}
}

// TestEveryFieldOfEveryDocument changes each field of each kind of document that
// users or agents can hand to us. A key that is there twice or that nobody knows
// is never accepted; nothing else is that the published schema forbids; and an
// error is short and holds nothing that a terminal would act on.
func TestEveryFieldOfEveryDocument(t *testing.T) {
	for _, f := range formats(t) {
		t.Run(f.name, func(t *testing.T) {
			var schema []byte
			if f.schema != "" {
				schema = []byte(read(t, filepath.Join("docs/schemas", f.schema)))
			}
			try := func(doc []byte) error {
				if f.wrap != nil {
					doc = f.wrap(t, doc)
				}
				return f.read(doc)
			}
			if err := try(f.sample); err != nil {
				t.Fatalf("the sample is refused: %v", err)
			}
			n := 0
			for _, c := range changes(t, f.sample) {
				n++
				err := try(c.doc)
				if err != nil {
					if text := err.Error(); len(text) > 4096 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == '\u202e' }) {
						t.Errorf("%s: the error has %d bytes, or characters that a terminal acts on: %.300q", c.what, len(text), text)
					}
					continue
				}
				if c.never {
					t.Errorf("%s: it was accepted", c.what)
				}
				if schema == nil {
					continue
				}
				if bad, err := schemacheck.Check(schema, c.doc); err != nil || len(bad) > 0 {
					t.Errorf("%s: it was accepted, and the schema says %v %v", c.what, bad, err)
				}
			}
			if n < 20 {
				t.Errorf("only %d changes were tried", n)
			}
		})
	}
}

// change is a document with one thing wrong, perhaps. never says that no reader
// may accept it.
type change struct {
	what  string
	doc   []byte
	never bool
}

// changes returns doc with each key of each object missing, there twice, of each
// other type, over-long or hostile, and with a foreign key in each object.
func changes(t *testing.T, doc []byte) []change {
	t.Helper()
	var root any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&root); err != nil {
		t.Fatal(err)
	}
	const twice = "\u0001twice"
	values := map[string]any{
		"a number": 7, "a fraction": 0.5, "a negative number": -1, "a huge number": json.Number("1e400"), "a string": "x", "the empty string": "",
		"null": nil, "true": true, "a list": []any{}, "an object": map[string]any{}, "a list of lists": []any{[]any{}},
		"a long string": strings.Repeat("a", 70_000), "a hostile string": "\x1b]0;x\x07\u202e/../'; DROP TABLE log; --\n\x00",
	}
	var out []change
	done := map[string]bool{} // by place, whichever element of a list it is in
	add := func(never bool, format string, a ...any) {
		data, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		// A marked key becomes one that is there twice.
		data = bytes.ReplaceAll(data, []byte(`\u0001twice`), nil)
		out = append(out, change{fmt.Sprintf(format, a...), data, never})
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for i := range v {
				was := v[i]
				if !done[at+"/-"] {
					v[i] = nil
					add(false, "null in %s", at)
					v[i] = was
				}
				done[at+"/-"] = true
				walk(at+"/-", was)
			}
		case map[string]any:
			for _, foreign := range []string{"foreign\x1b[31m", strings.Repeat("b", 70_000)} {
				v[foreign] = true
				add(true, "a foreign key in %q", at)
				delete(v, foreign)
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				if done[at+"/"+k] {
					walk(at+"/"+k, v[k])
					continue
				}
				done[at+"/"+k] = true
				was := v[k]
				v[k+twice] = was
				add(true, "%s/%s twice", at, k)
				delete(v, k+twice)
				delete(v, k)
				add(false, "without %s/%s", at, k)
				for _, name := range slices.Sorted(maps.Keys(values)) {
					v[k] = values[name]
					add(false, "%s as %s/%s", name, at, k)
				}
				v[k] = was
				walk(at+"/"+k, was)
			}
		}
	}
	walk("", root)
	return out
}

func payload(t *testing.T, envelope []byte, payloadType string, ring seal.Keyring) []byte {
	t.Helper()
	for _, role := range []seal.Role{seal.RoleLane, seal.RoleRoot} {
		if doc, _, err := seal.Open(envelope, payloadType, ring, role); err == nil {
			return doc
		}
	}
	t.Fatal("the sample does not open")
	return nil
}

func pins(t *testing.T, key *seal.PrivateKey) []byte {
	t.Helper()
	lines := "100644 " + receipttest.Digest("script") + " 5 check.sh\n"
	size := int64(5)
	closure := []allowlist.ClosurePart{{Path: "/usr/bin/sh", SHA256: receipttest.Digest("sh"), Size: &size}, {Tree: "definition", SHA256: seal.SHA256Hex([]byte(lines))}}
	digest, err := allowlist.ClosureDigest(closure)
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := allowlist.SignPins(allowlist.Pins{
		SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: "0123abcd-linux-amd64",
		Checks: []allowlist.Pin{{
			ID: "unit", CheckDigest: receipttest.Digest("check"), Argv: []string{"sh", "check.sh"}, ResolvedPath: "/usr/bin/sh", BinarySHA256: receipttest.Digest("sh"),
			Closure: closure, ClosureSHA256: digest, Definition: lines, ObservedAt: "2026-05-04T03:02:01Z", ObservedBy: key.Public().ID(), Posture: receipttest.Facts().Posture,
		}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

func sidecar(t *testing.T) []byte {
	t.Helper()
	doc, err := allowlist.Sidecar{
		SchemaVersion: allowlist.AttestSchemaVersion,
		Attestations:  map[string]allowlist.Attestation{"unit": {CheckDigest: receipttest.Digest("check"), ClosureSHA256: receipttest.Digest("closure")}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func ledger(t *testing.T) []byte {
	t.Helper()
	l, err := claim.New("repo-1", "run-1", []claim.Claim{{ID: "tests-pass", Statement: "The tests pass.", CheckID: "builtin:go-test", JobID: "verify"}})
	if err != nil {
		t.Fatal(err)
	}
	return l.Encode()
}

// sealedLedger seals a changed ledger as its writer would.
func sealedLedger(t *testing.T, doc []byte) []byte {
	t.Helper()
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) != nil {
		return doc
	}
	was, there := fields["ledger_seal"]
	delete(fields, "ledger_seal")
	body, err := seal.Canonical(fields)
	if _, twice := seal.Canonical(json.RawMessage(doc)); twice != nil || err != nil || !there || string(was) != `"`+ledgerSeal(t)+`"` {
		return doc
	}
	fields["ledger_seal"] = json.RawMessage(`"` + seal.SHA256Hex(body) + `"`)
	out, err := seal.Canonical(fields)
	if err != nil {
		return doc
	}
	return out
}

func ledgerSeal(t *testing.T) string {
	t.Helper()
	l, err := claim.Parse(ledger(t))
	if err != nil {
		t.Fatal(err)
	}
	return l.Seal()
}

func trustFile(t *testing.T, lane, root *seal.PrivateKey) []byte {
	t.Helper()
	envelope, err := trust.Sign(trust.File{
		Version: 3, ExpiresAt: "2027-01-01T00:00:00Z",
		Keys: []trust.Entry{{PublicKey: string(lane.Public().PEM()), Role: seal.RoleLane, Class: seal.ClassIsolated, LaneID: "lane-1", Repositories: []string{"repo-1"}}},
	}, root)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

func rehearsed(t *testing.T, key *seal.PrivateKey) []byte {
	t.Helper()
	r := receipttest.Facts()
	r.Check.ID, r.Check.Kind, r.Check.Agreement = "unit", receipt.External, "stdout"
	red := receipttest.Execution(receipt.Fail)
	x := rehearsal.Rehearsal{
		Subject: rehearsal.Subject{RepositoryID: "repo-1", CheckDigest: r.Check.Digest, ClosureSHA256: receipttest.Digest("closure")},
		Check:   r.Check, TreeSHA256: receipttest.Digest("tree"), Mutations: 1,
		Runs: r.Executions, Posture: r.Posture, Limits: r.Limits, Lane: r.Lane, RehearsedAt: "2026-05-04T03:02:09Z",
		Reds: []rehearsal.Red{{Input: rehearsal.EmptyWorktree, Execution: red}},
	}
	for range 3 {
		x.Controls = append(x.Controls, rehearsal.Control{Mutation: 1, File: "a.txt", Control: receipt.Control{
			Kind: receipt.ControlWorktree, MutationOf: ".", MutationSHA256: receipttest.Digest("mutation"), Execution: &red, Emptied: &red, Outcome: receipt.FailedAsRequired,
		}})
	}
	envelope, _, err := rehearsal.Sign(x, key)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}
