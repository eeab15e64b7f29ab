package allowlist

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/schemacheck"
	"striatum/receipt"
	"striatum/seal"
	"striatum/workflow"
)

// testKey is a fixed key: tests and fuzz corpora stay the same.
func testKey(t testing.TB, seed byte) *seal.PrivateKey {
	t.Helper()
	k, err := seal.GenerateKey(rand.NewChaCha8([32]byte{seed}))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ring(k *seal.PrivateKey, role seal.Role) seal.Keyring {
	return seal.NewKeyring(seal.Key{Public: k.Public(), Role: role, Class: seal.ClassShared, LaneID: "lane"})
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

// samplePins pins the sample intent's first entry on host.
func samplePins(t testing.TB, k *seal.PrivateKey, host string) Pins { //nolint:unparam // the host is what a reader wants to see
	t.Helper()
	e := parsed(t).Checks[0]
	digest, err := e.Digest()
	if err != nil {
		t.Fatal(err)
	}
	p := Pin{
		ID: e.ID, CheckDigest: digest, Argv: e.Argv.Words, ResolvedPath: "/usr/bin/python3", BinarySHA256: zeros,
		Closure: []ClosurePart{
			{Path: "/usr/bin/python3", SHA256: zeros, Size: new(int64(7))},
			{Root: "/usr/lib/python3", TreeSHA256: zeros, Files: new(int64(2)), Bytes: new(int64(0))},
			{Tree: "definition", SHA256: zeros},
			{Image: "python@sha256:" + zeros, SHA256: zeros},
		},
		ObservedAt: "2026-01-02T03:04:05Z", ObservedBy: k.Public().ID(),
		Posture: receipt.Posture{Facets: []receipt.Facet{}},
	}
	if p.ClosureSHA256, err = ClosureDigest(p.Closure); err != nil {
		t.Fatal(err)
	}
	return Pins{SchemaVersion: PinsSchemaVersion, HostFingerprint: host, Checks: []Pin{p}}
}

const host = "01234567-linux-amd64"

func signed(t testing.TB, p Pins, k *seal.PrivateKey) []byte {
	t.Helper()
	env, err := SignPins(p, k)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func TestPinsOpenToWhatWasSigned(t *testing.T) {
	k := testKey(t, 1)
	want := samplePins(t, k, host)
	got, err := ParsePins(signed(t, want, k), ring(k, seal.RoleLane))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPinsThatNoLaneSignedAreRefused(t *testing.T) {
	k, other := testKey(t, 1), testKey(t, 2)
	env := signed(t, samplePins(t, k, host), k)
	byHand, err := seal.Canonical(samplePins(t, k, host))
	if err != nil {
		t.Fatal(err)
	}
	receiptType, err := seal.Sign(k, seal.PayloadInToto, byHand)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env  []byte
		ring seal.Keyring
		want error
	}{
		"by hand":          {byHand, ring(k, seal.RoleLane), seal.ErrMalformed},
		"unknown key":      {env, ring(other, seal.RoleLane), seal.ErrUnknownKey},
		"report key":       {env, ring(k, seal.RoleReport), seal.ErrWrongRole},
		"another type":     {receiptType, ring(k, seal.RoleLane), seal.ErrMalformed},
		"another observer": {signed(t, samplePins(t, other, host), k), ring(k, seal.RoleLane), ErrPins},
	} {
		if p, err := ParsePins(tt.env, tt.ring); !errors.Is(err, tt.want) || p.Checks != nil {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
	}
}

func TestImpossiblePinsAreNotSigned(t *testing.T) {
	k := testKey(t, 1)
	for name, change := range map[string]func(*Pins){
		"schema":         func(p *Pins) { p.SchemaVersion = "x" },
		"fingerprint":    func(p *Pins) { p.HostFingerprint = "../x" },
		"id":             func(p *Pins) { p.Checks[0].ID = "A" },
		"check digest":   func(p *Pins) { p.Checks[0].CheckDigest = "" },
		"argv":           func(p *Pins) { p.Checks[0].Argv = nil },
		"path":           func(p *Pins) { p.Checks[0].ResolvedPath = "python3" },
		"binary":         func(p *Pins) { p.Checks[0].BinarySHA256 = "0" },
		"no closure":     func(p *Pins) { p.Checks[0].Closure = nil },
		"closure":        func(p *Pins) { p.Checks[0].Closure[0].Size = new(int64(8)) },
		"closure digest": func(p *Pins) { p.Checks[0].ClosureSHA256 = zeros },
		"mixed part":     func(p *Pins) { p.Checks[0].Closure[0].Root = "/x" },
		"negative size":  func(p *Pins) { p.Checks[0].Closure[0].Size = new(int64(-1)) },
		"empty part":     func(p *Pins) { p.Checks[0].Closure[2] = ClosurePart{} },
		"tree":           func(p *Pins) { p.Checks[0].Closure[2].Tree = "other" },
		"definition":     func(p *Pins) { p.Checks[0].Definition = "100644 aa 1 check.py\n" },
		"time":           func(p *Pins) { p.Checks[0].ObservedAt = "2026-01-02" },
		"zone":           func(p *Pins) { p.Checks[0].ObservedAt = "2026-01-02T03:04:05+01:00" },
		"twice":          func(p *Pins) { p.Checks = append(p.Checks, p.Checks[0]) },
	} {
		p := samplePins(t, k, host)
		change(&p)
		if _, err := SignPins(p, k); !errors.Is(err, ErrPins) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestJoinPutsEachEntryOnOneRung(t *testing.T) {
	k := testKey(t, 1)
	in := parsed(t)
	pins := samplePins(t, k, host)
	pin := pins.Checks[0]
	word := Attestation{pin.CheckDigest, pin.ClosureSHA256}
	changed := parsed(t)
	changed.Checks[0].PassWhen = PassWhen{Form: StdoutContains, Text: "ok"}
	unfilled := parsed(t)
	unfilled.Checks[0].Argv = Argv{Unfilled: "x"}
	otherArgv := samplePins(t, k, host)
	otherArgv.Checks[0].Argv = []string{"python3"}
	for name, tt := range map[string]struct {
		in   Intent
		pins *Pins
		att  []Attestation
		host string
		want Rung
	}{
		"no pins":                         {in, nil, []Attestation{word}, host, NamedUnpinned},
		"pins of another host":            {in, &pins, []Attestation{word}, "89abcdef-linux-amd64", NamedUnpinned},
		"pins of another definition":      {changed, &pins, []Attestation{word}, host, NamedUnpinned},
		"pins of another argv":            {in, &otherArgv, []Attestation{word}, host, NamedUnpinned},
		"an unfilled entry":               {unfilled, &pins, []Attestation{word}, host, NamedUnpinned},
		"pinned":                          {in, &pins, nil, host, PinnedUnattested},
		"attested with another closure":   {in, &pins, []Attestation{{pin.CheckDigest, zeros}}, host, PinnedUnattested},
		"attested for another definition": {in, &pins, []Attestation{{zeros, pin.ClosureSHA256}}, host, PinnedUnattested},
		"attested":                        {in, &pins, []Attestation{word}, host, Attested},
	} {
		rows, err := Join(tt.in, tt.pins, tt.att, tt.host)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 2 || rows[1].Rung != NamedUnpinned {
			t.Fatalf("%s: rows %+v", name, rows)
		}
		r := rows[0]
		if r.Rung != tt.want {
			t.Errorf("%s: got %s, want %s", name, r.Rung, tt.want)
		}
		if (r.Unpinned != nil) != (r.Rung == NamedUnpinned) || (r.Pin.ID != "") == (r.Rung == NamedUnpinned) {
			t.Errorf("%s: rung %s with pin %q and unpinned %v", name, r.Rung, r.Pin.ID, r.Unpinned)
		}
		if u := r.Unpinned; u != nil && (u.HostFingerprint != tt.host || u.EntryPointer != "/checks/0" || u.FixCommand != "striatum verifier pin --host-here" || u.Why == "") {
			t.Errorf("%s: %+v", name, u)
		}
		if TemplateStatus(rows) != workflow.TemplateUnfilled {
			t.Errorf("%s: an unpinned row reads FILLED", name)
		}
	}
}

func TestTemplateStatusIsFilledOnceAllIsPinned(t *testing.T) {
	k := testKey(t, 1)
	in := parsed(t)
	in.Checks = in.Checks[:1]
	pins := samplePins(t, k, host)
	rows, err := Join(in, &pins, nil, host)
	if err != nil {
		t.Fatal(err)
	}
	if got := TemplateStatus(rows); got != workflow.Filled {
		t.Errorf("got %s", got)
	}
	if got := TemplateStatus(nil); got != workflow.Filled {
		t.Errorf("an empty intent reads %s", got)
	}
}

func TestHostFingerprintNamesMachineAndArchitecture(t *testing.T) {
	fp := HostFingerprint("0123", "linux", "amd64")
	if want := seal.SHA256Hex([]byte("0123\namd64"))[:8] + "-linux-amd64"; fp != want {
		t.Errorf("got %s, want %s", fp, want)
	}
	if !ValidFingerprint(fp) || ValidFingerprint("../"+fp) || ValidFingerprint(fp+"\n") {
		t.Error("ValidFingerprint is wrong")
	}
	if got, want := PinsPath("verification/allowlist.intent.json", fp), "verification/allowlist.pins."+fp+".json"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := AttestPath("a/i.json", fp), "a/allowlist.pins."+fp+".attest.json"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSidecarRoundTripsAndRefusesTheRest(t *testing.T) {
	want := Sidecar{SchemaVersion: AttestSchemaVersion, Attestations: map[string]Attestation{"b": {zeros, zeros}, "a": {zeros, zeros}}}
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseSidecar(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(got.List()) != 2 {
		t.Errorf("list %+v", got.List())
	}
	for _, bad := range []string{
		``, `{}`, `{"schema_version":"x","attestations":{}}`,
		`{"schema_version":"` + AttestSchemaVersion + `","attestations":{"a":{"check_digest":"x","closure_sha256":"y"}}}`,
		`{"schema_version":"` + AttestSchemaVersion + `","attestations":{},"extra":1}`,
	} {
		if _, err := ParseSidecar([]byte(bad)); !errors.Is(err, ErrSidecar) {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

func TestDocumentsFitTheirPublishedSchemas(t *testing.T) {
	k := testKey(t, 1)
	pins, err := seal.Canonical(samplePins(t, k, host))
	if err != nil {
		t.Fatal(err)
	}
	side, err := Sidecar{SchemaVersion: AttestSchemaVersion, Attestations: map[string]Attestation{"a": {zeros, zeros}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string][]byte{"allowlist.pins.v1.json": pins, "allowlist.attest.v1.json": side} {
		schema, err := os.ReadFile("../docs/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		bad, err := schemacheck.Check(schema, doc)
		if err != nil || len(bad) > 0 {
			t.Errorf("%s: %v %v", name, err, bad)
		}
		broken := bytes.Replace(doc, []byte(`"schema_version"`), []byte(`"other"`), 1)
		if bad, err = schemacheck.Check(schema, broken); err != nil || len(bad) == 0 {
			t.Errorf("%s accepts anything: %v", name, err)
		}
	}
}

func FuzzPinsParse(f *testing.F) {
	k := testKey(f, 1)
	good, err := seal.Canonical(samplePins(f, k, host))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(strings.Replace(string(good), `"size":7`, `"size":-7`, 1)))
	f.Add(append([]byte(" "), good...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		env, err := seal.Sign(k, PinsPayloadType, payload)
		if err != nil {
			return
		}
		p, err := ParsePins(env, ring(k, seal.RoleLane))
		if err != nil {
			if p.Checks != nil || p.HostFingerprint != "" {
				t.Fatal("a value beside the error")
			}
			return
		}
		again, err := SignPins(p, k)
		if err != nil {
			t.Fatalf("accepted, but cannot be signed: %v", err)
		}
		if !bytes.Equal(env, again) {
			t.Fatalf("another file for the same pins:\n%s\n%s", env, again)
		}
	})
}

func FuzzSidecarParse(f *testing.F) {
	f.Add([]byte(`{"schema_version":"` + AttestSchemaVersion + `","attestations":{"a":{"check_digest":"` + zeros + `","closure_sha256":"` + zeros + `"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSidecar(data)
		if err != nil {
			return
		}
		out, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		a, errA := seal.Canonical(json.RawMessage(data))
		b, errB := seal.Canonical(json.RawMessage(out))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("the document changed (%v, %v):\n%s\n%s", errA, errB, a, b)
		}
	})
}
