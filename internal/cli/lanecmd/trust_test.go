package lanecmd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/lanecmd"
	"striatum/internal/cli/receiptcmd"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

// operator has a home, a folder of files, and a clock.
type operator struct {
	*testing.T
	dir string
	env map[string]string
	now time.Time
}

func newOperator(t *testing.T) *operator {
	dir := t.TempDir()
	return &operator{T: t, dir: dir, now: time.Now(), env: map[string]string{"STRIATUM_HOME": filepath.Join(dir, "home")}}
}

func (o *operator) factory(out *bytes.Buffer) *cli.Factory {
	return &cli.Factory{
		Streams: cli.Streams{In: strings.NewReader(""), Out: out, Err: out},
		Getenv:  func(k string) string { return o.env[k] },
		Getwd:   func() (string, error) { return o.dir, nil },
		Now:     func() time.Time { return o.now }, Rand: rand.Reader,
	}
}

// run runs a command, which must exit with code and say want. An argument that
// ends in .json, .pub or .token is a file.
func (o *operator) run(code int, want string, args ...string) {
	o.Helper()
	var out bytes.Buffer
	f := o.factory(&out)
	cmd := lanecmd.New(f)
	if args[0] == "receipt" {
		cmd = receiptcmd.New(f)
	}
	for i, a := range args {
		if ext := filepath.Ext(a); ext == ".json" || ext == ".pub" || ext == ".token" {
			args[i] = filepath.Join(o.dir, a)
		}
	}
	cmd.SetArgs(args[1:])
	if got := cli.Run(o.Context(), cmd, f.Streams); got != code || !strings.Contains(out.String(), want) {
		o.Errorf("%v: exit %d, want %d and %q:\n%s", args, got, code, want, out.String())
	}
}

// verify verifies a receipt with a trust file.
func (o *operator) verify(code int, want, receipt, trust string) {
	o.Helper()
	o.run(code, want, "receipt", "verify", receipt, "--trust", trust, "--trust-root", "home/keys/root.pub")
}

func (o *operator) session(fn func(ctx context.Context, s *embedded.Session)) {
	o.Helper()
	var out bytes.Buffer
	s, err := embedded.Open(o.Context(), o.factory(&out))
	o.must(err)
	fn(o.Context(), s)
	o.must(s.Close())
}

func (o *operator) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// sign writes a receipt of a lane to a file, and records it if it is to be.
func (o *operator) sign(name, lane string, key *seal.PrivateKey, sequence int64, prev string, record bool) (sealDigest string) {
	o.Helper()
	r := receipttest.Facts()
	r.Lane.LaneID, r.Sequence, r.Nonce = lane, sequence, name
	if prev != "" {
		r.PrevSeal = prev
	}
	env, sealed := receipttest.Sign(o.T, r, key)
	o.must(os.WriteFile(filepath.Join(o.dir, name), env, 0o600))
	if record {
		o.session(func(ctx context.Context, s *embedded.Session) {
			_, err := s.Service.RecordReceipt(ctx, daemon.LocalUser(), env)
			o.must(err)
		})
	}
	return sealed.SealDigest
}

func TestRotatingALaneKeepsItsOldReceipts(t *testing.T) {
	o := newOperator(t)
	var first *seal.PrivateKey
	var one string
	o.session(func(ctx context.Context, s *embedded.Session) {
		first, one = s.Home.LaneKey, s.Home.LaneID()
		_, err := s.Service.MintOperator(ctx, daemon.LocalUser(), time.Hour, func(token string) error {
			return os.WriteFile(filepath.Join(o.dir, "op.token"), []byte(token+"\n"), 0o600)
		})
		o.must(err)
	})
	old := o.sign("old.json", one, first, 1, "", true)
	o.run(3, "no operator token was given", "lane", "trust", "--out", "v1.json")
	o.env["STRIATUM_TOKEN_FILE"] = filepath.Join(o.dir, "op.token")
	o.run(0, "version 1, lanes: 1, good until", "lane", "trust", "--out", "v1.json")
	o.verify(0, "good, lane shared", "old.json", "v1.json")

	// Lane 1 is put out of use, and lane 2 takes over.
	second := receipttest.Key(t, 2)
	o.must(os.WriteFile(filepath.Join(o.dir, "two.pub"), second.Public().PEM(), 0o600))
	o.run(0, "retired", "lane", "revoke", one, "--retired")
	o.run(0, "enrolled lane lane-2", "lane", "enrol", "--key", "two.pub", "--class", "shared", "--id", "lane-2")
	o.sign("new.json", one, first, 2, old, false)
	o.sign("backdated.json", one, first, 1, "", false)
	two := o.sign("two.json", "lane-2", second, 1, "", true)
	o.run(0, "version 2, lanes: 2", "lane", "trust", "--out", "v2.json")
	o.verify(0, "good, lane shared", "old.json", "v2.json")
	o.verify(0, "good, lane shared", "two.json", "v2.json")
	o.verify(3, "retired, and the trust file does not name this receipt", "new.json", "v2.json")
	o.verify(3, "retired, and the trust file does not name this receipt", "backdated.json", "v2.json")
	o.verify(3, "a newer version of the trust file was seen", "old.json", "v1.json")

	// Lane 2's key was in other hands since after its first receipt.
	o.sign("three.json", "lane-2", second, 2, two, true)
	o.run(0, "compromised, nothing counts from log entry 7 on", "lane", "revoke", "lane-2", "--compromised", "--since", "7")
	o.run(0, "version 3, lanes: 2", "lane", "trust", "--out", "v3.json")
	o.verify(0, "good, lane shared", "old.json", "v3.json")
	o.verify(0, "good, lane shared", "two.json", "v3.json")
	o.verify(3, "compromised, and the trust file does not name", "three.json", "v3.json")

	// Whoever else signs a file, and a file that is too old, is not believed.
	o.run(3, "read the trust file", "receipt", "verify", "old.json", "--trust", "v3.json", "--trust-root", "two.pub")
	o.now = o.now.Add(91 * 24 * time.Hour)
	o.verify(3, "the trust file has expired", "old.json", "v3.json")
}

func TestAHomeFromABackupGoesOnFromTheFileThatIsThere(t *testing.T) {
	o := newOperator(t)
	o.session(func(ctx context.Context, s *embedded.Session) {
		_, err := s.Service.MintOperator(ctx, daemon.LocalUser(), time.Hour, func(token string) error {
			return os.WriteFile(filepath.Join(o.dir, "op.token"), []byte(token+"\n"), 0o600)
		})
		o.must(err)
	})
	o.env["STRIATUM_TOKEN_FILE"] = filepath.Join(o.dir, "op.token")
	o.run(0, "created root key", "lane", "trust", "--out", "trust.json", "--ttl", "1h")
	o.run(0, "version 2", "lane", "trust", "--out", "trust.json")
	o.must(os.Remove(filepath.Join(o.dir, "home", "trust_seen.json")))
	o.run(0, "version 3", "lane", "trust", "--out", "trust.json")
	o.run(0, "version 4", "lane", "trust", "--out", "other.json")
	for _, ttl := range []string{"59m", "9000h", "-1h"} {
		o.run(2, "it may be good for", "lane", "trust", "--out", "trust.json", "--ttl", ttl)
	}
	o.run(2, "write", "lane", "trust", "--out", "absent/trust.json")
}
