package seal

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

const testType = "application/vnd.test+json"

func newKey(t testing.TB) *PrivateKey {
	t.Helper()
	k, err := GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func laneRing(k *PrivateKey) Keyring {
	return NewKeyring(Key{Public: k.Public(), Role: RoleLane, Class: ClassShared, LaneID: "lane-1"})
}

func TestOpenReturnsWhatWasSigned(t *testing.T) {
	k := newKey(t)
	env, err := Sign(k, testType, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	payload, by, err := Open(env, testType, laneRing(k), RoleLane)
	if err != nil {
		t.Fatal(err)
	}
	if string(payload) != `{"a":1}` || by.LaneID != "lane-1" || by.Public != k.Public() {
		t.Errorf("got %q by %+v", payload, by)
	}
	again, err := Sign(k, testType, []byte(`{"a":1}`))
	if err != nil || !bytes.Equal(env, again) {
		t.Errorf("a second signature differs: %v", err)
	}
}

func TestOpenTellsItsRefusalsApart(t *testing.T) {
	k, other := newKey(t), newKey(t)
	env, err := Sign(k, testType, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(e *envelope)) []byte {
		var e envelope
		if err := Decode(env, &e, Limits{}); err != nil {
			t.Fatal(err)
		}
		change(&e)
		out, err := Canonical(e)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	forged, err := Sign(other, testType, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	report := NewKeyring(Key{Public: k.Public(), Role: RoleReport, Class: ClassShared})
	tests := []struct {
		name string
		in   []byte
		ring Keyring
		want error
	}{
		{"other key", forged, laneRing(k), ErrUnknownKey},
		{"empty keyring", env, Keyring{}, ErrUnknownKey},
		{"zero key in the keyring", env, NewKeyring(Key{Role: RoleLane}), ErrUnknownKey},
		{"key in another role", env, report, ErrWrongRole},
		{"changed payload", edit(func(e *envelope) { e.Payload = base64.StdEncoding.EncodeToString([]byte("Payload")) }), laneRing(k), ErrBadSignature},
		{"other key under this key's id", edit(func(e *envelope) {
			var f envelope
			if err := json.Unmarshal(forged, &f); err != nil {
				t.Fatal(err)
			}
			e.Signatures[0].Sig = f.Signatures[0].Sig
		}), laneRing(k), ErrBadSignature},
		{"no key id, other key", edit(func(e *envelope) { e.Signatures[0].KeyID = "" }), laneRing(other), ErrBadSignature},
		{"no signature", edit(func(e *envelope) { e.Signatures = nil }), laneRing(k), ErrMalformed},
		{"two signatures", edit(func(e *envelope) { e.Signatures = append(e.Signatures, e.Signatures[0]) }), laneRing(k), ErrMalformed},
		{"empty signature", edit(func(e *envelope) { e.Signatures[0].Sig = "" }), laneRing(k), ErrMalformed},
		{"other payload type", edit(func(e *envelope) { e.PayloadType = "x" }), laneRing(k), ErrMalformed},
		{"unpadded base64", edit(func(e *envelope) { e.Payload = strings.TrimRight(e.Payload, "=") }), laneRing(k), ErrMalformed},
		{"line end in base64", edit(func(e *envelope) { e.Payload += "\n" }), laneRing(k), ErrMalformed},
		{"space around", append([]byte(" "), env...), laneRing(k), ErrMalformed},
		{"final newline", append(bytes.Clone(env), '\n'), laneRing(k), ErrMalformed},
		{"unknown key in it", []byte(strings.Replace(string(env), `{"payload"`, `{"extra":1,"payload"`, 1)), laneRing(k), ErrMalformed},
		{"not JSON", []byte("receipt"), laneRing(k), ErrMalformed},
		{"empty", nil, laneRing(k), ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			payload, by, err := Open(tt.in, testType, tt.ring, RoleLane)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if payload != nil || by != (Key{}) {
				t.Errorf("a refusal gave %q by %+v", payload, by)
			}
		})
	}
	bare := edit(func(e *envelope) { e.Signatures[0].KeyID = "" })
	if _, _, err := Open(bare, testType, laneRing(k), RoleLane); err != nil {
		t.Errorf("without a key id: %v", err)
	}
}

func TestOpenPrefersTheAskedRoleOfAKeyInTwoRoles(t *testing.T) {
	k := newKey(t)
	env, err := Sign(k, testType, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	ring := NewKeyring(Key{Public: k.Public(), Role: RoleReport}, Key{Public: k.Public(), Role: RoleLane, LaneID: "l"})
	if _, by, err := Open(env, testType, ring, RoleLane); err != nil || by.LaneID != "l" {
		t.Errorf("got %+v, %v", by, err)
	}
}

func TestNoChangedByteOpens(t *testing.T) {
	k := newKey(t)
	env, err := Sign(k, testType, []byte(`{"some":"payload"}`))
	if err != nil {
		t.Fatal(err)
	}
	ring := laneRing(k)
	for i := range env {
		for _, b := range []byte{env[i] ^ 1, env[i] ^ 0x20, env[i] ^ 0x80, ' ', '"', 'A', 0} {
			if b == env[i] {
				continue
			}
			bad := bytes.Clone(env)
			bad[i] = b
			if _, _, err := Open(bad, testType, ring, RoleLane); err == nil {
				t.Fatalf("byte %d changed to %q opens", i, b)
			}
		}
		if _, _, err := Open(env[:i], testType, ring, RoleLane); err == nil {
			t.Fatalf("the first %d bytes open", i)
		}
	}
}

func TestKeysRoundTripThroughPEM(t *testing.T) {
	k := newKey(t)
	text, err := k.PEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParsePrivateKey(text)
	if err != nil || again.Public() != k.Public() {
		t.Errorf("private: %v", err)
	}
	pub, err := ParsePublicKey(k.Public().PEM())
	if err != nil || pub != k.Public() {
		t.Errorf("public: %v", err)
	}
	if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Count(s, k.Public().ID()) != 4 || len(s) > 400 {
		t.Errorf("printing a private key gives %q", s)
	}
}

func TestGenerateKeyUsesTheGivenRandomness(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, 32)
	a, err := GenerateKey(bytes.NewReader(seed))
	if err != nil {
		t.Fatal(err)
	}
	b, err := GenerateKey(bytes.NewReader(append(bytes.Repeat([]byte{0xff}, 32), seed...)))
	if err != nil || a.Public() != b.Public() {
		t.Errorf("a draw outside the group is not repeated: %v", err)
	}
	if _, err := GenerateKey(bytes.NewReader(seed[:31])); err == nil {
		t.Error("a short source gave a key")
	}
	if _, err := GenerateKey(zeros{}); err == nil {
		t.Error("a broken source gave a key")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestParseKeysRefuses(t *testing.T) {
	k := newKey(t)
	pub := string(k.Public().PEM())
	priv, err := k.PEM()
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	spki := func(key any) string {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	for name, in := range map[string]string{
		"empty": "", "text": "hello", "P-384": spki(&p384.PublicKey), "RSA": spki(&rsaKey.PublicKey), "private": string(priv),
		"two blocks": pub + pub, "text before": "x\n" + pub, "text after": pub + "x",
		"headers": strings.Replace(pub, "-----\n", "-----\nA: b\n\n", 1), "long": pub + strings.Repeat(" ", maxPEM),
		"damaged": strings.Replace(pub, "MFkw", "MFkx", 1),
	} {
		if got, err := ParsePublicKey([]byte(in)); err == nil || got != (PublicKey{}) {
			t.Errorf("ParsePublicKey(%s): %v, %v", name, got, err)
		}
		if got, err := ParsePrivateKey([]byte(in)); name != "private" && (err == nil || got != nil) {
			t.Errorf("ParsePrivateKey(%s): no error", name)
		}
	}
}

func TestEd25519IsReadAndItsIDIsTheSSHFingerprint(t *testing.T) {
	edPub, edPriv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := newPublicKey(edPub)
	if err != nil {
		t.Fatal(err)
	}
	want, err := dsse.SHA256KeyID(edPub)
	if err != nil || pub.ID() != want {
		t.Errorf("id %s, want %s (%v)", pub.ID(), want, err)
	}
	payload := []byte("p")
	env, err := Canonical(envelope{
		Payload: base64.StdEncoding.EncodeToString(payload), PayloadType: testType,
		Signatures: []signature{{KeyID: want, Sig: base64.StdEncoding.EncodeToString(ed25519.Sign(edPriv, PAE(testType, payload)))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(env, testType, NewKeyring(Key{Public: pub, Role: RoleLane}), RoleLane); err != nil {
		t.Error(err)
	}
}

// TestOtherToolsAgree checks ids, PAE bytes and signatures against
// go-securesystemslib, in both directions.
func TestOtherToolsAgree(t *testing.T) {
	k := newKey(t)
	env, err := Sign(k, testType, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	sslibKey, err := signerverifier.LoadKey(k.Public().PEM())
	if err != nil {
		t.Fatal(err)
	}
	sv, err := signerverifier.NewECDSASignerVerifierFromSSLibKey(sslibKey)
	if err != nil {
		t.Fatal(err)
	}
	id, err := dsse.SHA256KeyID(sv.Public())
	if err != nil || id != k.Public().ID() {
		t.Errorf("id %s, want %s (%v)", k.Public().ID(), id, err)
	}
	if got, want := PAE(testType, []byte("payload")), dsse.PAE(testType, []byte("payload")); !bytes.Equal(got, want) {
		t.Errorf("PAE %q, want %q", got, want)
	}
	var e dsse.Envelope
	if err := json.Unmarshal(env, &e); err != nil {
		t.Fatal(err)
	}
	v, err := dsse.NewEnvelopeVerifier(noID{sv})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), &e); err != nil {
		t.Errorf("go-securesystemslib refuses our envelope: %v", err)
	}
	e.Payload = base64.StdEncoding.EncodeToString([]byte("other"))
	if _, err := v.Verify(t.Context(), &e); err == nil {
		t.Error("go-securesystemslib accepts a changed payload")
	}
}

// noID leaves the key id to dsse, as most callers of that package do.
type noID struct {
	*signerverifier.ECDSASignerVerifier
}

func (noID) KeyID() (string, error) { return "", nil }

// FuzzEnvelopeOpen: no envelope other than the signed one opens.
func FuzzEnvelopeOpen(f *testing.F) {
	k, err := GenerateKey(bytes.NewReader(bytes.Repeat([]byte{3}, 32)))
	if err != nil {
		f.Fatal(err)
	}
	env, err := Sign(k, testType, []byte(`{"a":1}`))
	if err != nil {
		f.Fatal(err)
	}
	var e envelope
	if err := Decode(env, &e, Limits{}); err != nil {
		f.Fatal(err)
	}
	e.Signatures[0].KeyID = ""
	bare, err := Canonical(e)
	if err != nil {
		f.Fatal(err)
	}
	ring := laneRing(k)
	f.Add(env, 0, byte(0))
	f.Add(env, 20, byte(1))
	f.Add(bare, 5, byte(0x20))
	f.Add([]byte("{}"), 0, byte(0))
	f.Fuzz(func(t *testing.T, data []byte, at int, flip byte) {
		data = bytes.Clone(data)
		if at >= 0 && at < len(data) {
			data[at] ^= flip
		}
		payload, by, err := Open(data, testType, ring, RoleLane)
		if err == nil && !bytes.Equal(data, env) && !bytes.Equal(data, bare) {
			t.Fatalf("opened %q", data)
		}
		if err != nil && (payload != nil || by != (Key{})) {
			t.Fatalf("a refusal gave %q", payload)
		}
	})
}

func TestSignWritesCanonicalJSON(t *testing.T) {
	env, err := Sign(newKey(t), `odd"type é`, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Canonical(json.RawMessage(env))
	if err != nil || !bytes.Equal(again, env) {
		t.Errorf("got %s, want %s (%v)", env, again, err)
	}
}
