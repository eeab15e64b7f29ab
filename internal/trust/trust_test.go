package trust_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/schemacheck"
	"striatum/internal/trust"
	"striatum/seal"
)

func key(t testing.TB, seed byte) *seal.PrivateKey {
	t.Helper()
	k, err := seal.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// early is the seal of a receipt from before the third key was revoked.
var early, late = strings.Repeat("a", 64), strings.Repeat("b", 64)

func sample(t testing.TB) trust.File {
	entry := func(seed byte, lane string, class seal.Class) trust.Entry {
		return trust.Entry{PublicKey: string(key(t, seed).Public().PEM()), Role: seal.RoleLane, Class: class, LaneID: lane, Repositories: []string{}}
	}
	f := trust.File{
		SchemaVersion: trust.SchemaVersion, Version: 3, ExpiresAt: "2026-06-01T00:00:00Z",
		Keys: []trust.Entry{entry(1, "lane-1", seal.ClassIsolated), entry(2, "lane-2", seal.ClassShared), entry(3, "lane-3", seal.ClassIsolated)},
	}
	f.Keys[1].Repositories = []string{"repo-1"}
	f.Keys[2].Revoked, f.Keys[2].Since, f.Keys[2].Receipts = trust.Compromised, 12, []string{early}
	return f
}

func TestOpenReturnsWhatTheRootSigned(t *testing.T) {
	root := key(t, 9)
	env, err := trust.Sign(sample(t), root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := trust.Open(env, root.Public(), now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(t), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := got.Keyring().Len(); n != 3 {
		t.Errorf("%d keys", n)
	}
	for _, tt := range []struct {
		seed             byte
		repo, seal, want string
	}{
		{1, "any", late, ""},
		{2, "repo-1", late, ""},
		{2, "repo-2", late, "does not count"},
		{3, "repo-1", late, "revoked: compromised"},
		{3, "repo-1", early, ""},
		{4, "repo-1", early, "not in the trust file"},
	} {
		err := got.Admits(key(t, tt.seed).Public(), tt.repo, tt.seal)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("key %d for %s: %v, want %q", tt.seed, tt.repo, err, tt.want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	root := key(t, 9)
	env, err := trust.Sign(sample(t), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		env  []byte
		root *seal.PrivateKey
		now  time.Time
		want error
	}{
		{"another root", env, key(t, 8), now, seal.ErrUnknownKey},
		{"changed", bytes.Replace(env, []byte(`"payload":"ey`), []byte(`"payload":"ex`), 1), root, now, seal.ErrBadSignature},
		{"expired", env, root, now.AddDate(1, 0, 0), trust.ErrExpired},
		{"not an envelope", []byte("[]"), root, now, trust.ErrInvalid},
		{"long", make([]byte, trust.MaxBytes+1), root, now, trust.ErrInvalid},
	} {
		if _, err := trust.Open(tt.env, tt.root.Public(), tt.now); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestSignRefusesInvalidFiles(t *testing.T) {
	for name, change := range map[string]func(f *trust.File){
		"version":      func(f *trust.File) { f.Version = 0 },
		"expires_at":   func(f *trust.File) { f.ExpiresAt = "" },
		"role":         func(f *trust.File) { f.Keys[0].Role = seal.RoleRoot },
		"class":        func(f *trust.File) { f.Keys[0].Class = "" },
		"lane_id":      func(f *trust.File) { f.Keys[0].LaneID = "" },
		"revoked":      func(f *trust.File) { f.Keys[0].Revoked = "maybe" },
		"since":        func(f *trust.File) { f.Keys[0].Since = 1 },
		"revoked keys": func(f *trust.File) { f.Keys[0].Receipts = []string{early} },
		"receipts/1":   func(f *trust.File) { f.Keys[2].Receipts = []string{late, early} },
		"receipts/0":   func(f *trust.File) { f.Keys[2].Receipts = []string{"x"} },
		"limit of 10000": func(f *trust.File) {
			f.Keys[2].Receipts = nil
			for i := range trust.MaxReceipts + 1 {
				f.Keys[2].Receipts = append(f.Keys[2].Receipts, fmt.Sprintf("%064x", i))
			}
		},
		"PEM":           func(f *trust.File) { f.Keys[0].PublicKey = "" },
		"there twice":   func(f *trust.File) { f.Keys[1].PublicKey = f.Keys[0].PublicKey },
		"limit of 1000": func(f *trust.File) { f.Keys = make([]trust.Entry, 1001) },
	} {
		f := sample(t)
		change(&f)
		if _, err := trust.Sign(f, key(t, 9)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSeenRefusesOlderVersionsOfTheSameRoot(t *testing.T) {
	a, b := key(t, 1).Public(), key(t, 2).Public()
	seen, err := trust.ParseSeen(nil)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := seen.Admit(a, 3); !changed || err != nil {
		t.Errorf("first: %t, %v", changed, err)
	}
	data, err := seen.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if seen, err = trust.ParseSeen(data); err != nil {
		t.Fatal(err)
	}
	if changed, err := seen.Admit(a, 3); changed || err != nil {
		t.Errorf("same: %t, %v", changed, err)
	}
	if _, err := seen.Admit(a, 2); !errors.Is(err, trust.ErrOlder) {
		t.Errorf("older: %v", err)
	}
	if _, err := seen.Admit(b, 1); err != nil {
		t.Errorf("another root: %v", err)
	}
	for _, bad := range []string{"{}", `{"schema_version":"x","versions":{}}`, `{"schema_version":"striatum.trust_seen.v1","versions":{"a":1,"a":2}}`} {
		if _, err := trust.ParseSeen([]byte(bad)); err == nil {
			t.Errorf("ParseSeen(%s): no error", bad)
		}
	}
}

// FuzzTrustOpen takes bytes as the payload that a root signed: what is accepted
// is what Sign makes of it again.
func FuzzTrustOpen(f *testing.F) {
	root := key(f, 9)
	payload, err := seal.Canonical(sample(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(payload)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		env, err := seal.Sign(root, trust.PayloadType, payload)
		if err != nil {
			t.Skip()
		}
		got, err := trust.Open(env, root.Public(), now)
		if err != nil {
			return
		}
		if again, err := trust.Sign(got, root); err != nil || !bytes.Equal(again, env) {
			t.Fatalf("signed again it differs: %v", err)
		}
	})
}

func TestSchemaFits(t *testing.T) {
	schema, err := os.ReadFile("../../docs/schemas/trust.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := seal.Canonical(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if bad, err := schemacheck.Check(schema, doc); err != nil || len(bad) > 0 {
		t.Errorf("%v, %v", bad, err)
	}
	doc = bytes.Replace(doc, []byte(`"revoked":""`), []byte(`"revoked":"perhaps"`), 1)
	if bad, err := schemacheck.Check(schema, doc); err != nil || len(bad) == 0 {
		t.Errorf("%v, %v", bad, err)
	}
}

func TestAFullFileHasRoom(t *testing.T) {
	root, f := key(t, 9), sample(t)
	f.Keys[2].Receipts = nil
	for i := range trust.MaxReceipts {
		f.Keys[2].Receipts = append(f.Keys[2].Receipts, fmt.Sprintf("%064x", i))
	}
	env, err := trust.Sign(f, root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Open(env, root.Public(), now); err != nil {
		t.Error(err)
	}
}
