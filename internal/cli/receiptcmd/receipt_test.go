package receiptcmd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/receiptcmd"
	"striatum/internal/schemacheck"
	"striatum/internal/trust"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
)

// user is somebody with a folder of files and a home.
type user struct {
	t   *testing.T
	dir string
	env map[string]string
}

func newUser(t *testing.T) *user {
	dir := t.TempDir()
	return &user{t: t, dir: dir, env: map[string]string{"STRIATUM_HOME": filepath.Join(dir, "home")}}
}

func (u *user) factory(out, errs *bytes.Buffer) *cli.Factory {
	return &cli.Factory{
		Streams: cli.Streams{In: strings.NewReader(""), Out: out, Err: errs},
		Getenv:  func(k string) string { return u.env[k] },
		Getwd:   func() (string, error) { return u.dir, nil },
		Now:     func() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) },
		Rand:    rand.Reader,
	}
}

// run runs `receipt args…`; a %s in an argument is the user's folder.
func (u *user) run(args ...string) (code int, out, errs string) {
	u.t.Helper()
	var o, e bytes.Buffer
	f := u.factory(&o, &e)
	cmd := receiptcmd.New(f)
	full := []string{}
	for _, a := range args {
		full = append(full, strings.ReplaceAll(a, "%s", u.dir))
	}
	cmd.SetArgs(full)
	code = cli.Run(u.t.Context(), cmd, f.Streams)
	return code, o.String(), e.String()
}

func (u *user) write(name string, data []byte) {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.dir, name), data, 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// session opens the user's home.
func (u *user) session(fn func(ctx context.Context, s *embedded.Session)) {
	u.t.Helper()
	var o, e bytes.Buffer
	s, err := embedded.Open(u.t.Context(), u.factory(&o, &e))
	if err != nil {
		u.t.Fatal(err)
	}
	fn(u.t.Context(), s)
	if err := s.Close(); err != nil {
		u.t.Fatal(err)
	}
}

// homeReceipt returns facts as the lane of the user's home signs them.
func (u *user) homeReceipt(change func(r *receipt.Receipt)) (env []byte, sealed receipt.Receipt) {
	u.t.Helper()
	u.session(func(_ context.Context, s *embedded.Session) {
		r := receipttest.Facts()
		r.Lane.LaneID = s.Home.LaneID()
		change(&r)
		env, sealed = receipttest.Sign(u.t, r, s.Home.LaneKey)
	})
	return env, sealed
}

func unchanged(*receipt.Receipt) {}

func check(t *testing.T, code, want int, text string, parts ...string) {
	t.Helper()
	if code != want {
		t.Errorf("exit code %d, want %d:\n%s", code, want, text)
	}
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("want %q in:\n%s", p, text)
		}
	}
}

func TestVerifyBelievesTheLanesOfTheHome(t *testing.T) {
	u := newUser(t)
	env, sealed := u.homeReceipt(unchanged)
	u.write("r.json", env)
	code, out, errs := u.run("verify", "%s/r.json")
	check(t, code, 0, out+errs, "good, lane shared", sealed.SealDigest, "asserted", "the lanes enrolled in the home", "tests-pass")

	code, out, errs = u.run("verify", "%s/r.json", "--output", "json")
	check(t, code, 0, out+errs)
	var v receiptcmd.Verdict
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile("../../../docs/schemas/receipt_verification.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	if bad, err := schemacheck.Check(schema, []byte(out)); err != nil || len(bad) > 0 || !strings.HasPrefix(out, "{\n  \"schema_version\": ") {
		t.Errorf("%v, %v in\n%s", err, bad, out)
	}
	if v.Seal != sealed.SealDigest || v.KeySource != "home" || v.LaneClass != "shared" || v.Manifest != "not_compared" || v.EnvelopeSHA256 != seal.SHA256Hex(env) {
		t.Errorf("got %+v", v)
	}
}

func TestVerifyTellsFailuresApart(t *testing.T) {
	u := newUser(t)
	env, _ := u.homeReceipt(unchanged)
	k := receipttest.Key(t, 1)
	foreign, _ := receipttest.Sign(t, receipttest.Facts(), k)
	tampered := bytes.Replace(env, []byte(`{"payload":"eyJf`), []byte(`{"payload":"eyJe`), 1)
	anonymous := regexp.MustCompile(`"keyid":"[^"]*",`).ReplaceAll(env, nil)
	if bytes.Equal(anonymous, env) {
		t.Fatal("the envelope names no key")
	}
	u.write("good.json", env)
	u.write("anonymous.json", anonymous)
	u.write("tampered.json", tampered)
	u.write("foreign.json", foreign)
	u.write("cut.json", env[:len(env)/2])
	u.write("text.json", []byte("hello\n"))
	u.write("empty.json", nil)
	u.write("long.json", bytes.Repeat([]byte(" "), receipt.MaxBytes+1))
	u.write("huge.json", bytes.Repeat([]byte(" "), 16<<20+1))
	u.write("lane.pub", k.Public().PEM())
	u.write("manifest", []byte("another manifest"))
	for _, tt := range []struct {
		name string
		args []string
		code int
		text []string
	}{
		{"tampered", []string{"%s/tampered.json"}, 3, []string{"was changed after it was signed", "hint: do not rely on it"}},
		{"unknown key", []string{"%s/foreign.json"}, 3, []string{"nobody here knows the key", "hint: name the lane's public key with --key"}},
		{"another bare key", []string{"%s/good.json", "--key", "%s/lane.pub"}, 3, []string{"is signed by another key than that of", "hint: name with --key the public key of the lane that signed it"}},
		{"another bare key and no key id", []string{"%s/anonymous.json", "--key", "%s/lane.pub"}, 3, []string{"did not sign", "hint: either it was changed, or it is signed by another key"}},
		{"tampered, for a bare key", []string{"%s/tampered.json", "--key", "%s/home/keys/lane.pub"}, 3, []string{"was changed after it was signed"}},
		{"absent", []string{"%s/none.json"}, 2, []string{"there is no file"}},
		{"a folder", []string{"%s"}, 2, []string{"not a regular file", "hint: "}},
		{"cut", []string{"%s/cut.json"}, 6, []string{"is not a receipt"}},
		{"text", []string{"%s/text.json"}, 6, []string{"is not a receipt"}},
		{"empty", []string{"%s/empty.json"}, 6, []string{"is not a receipt"}},
		{"long", []string{"%s/long.json"}, 6, []string{"more than the limit of 1048576"}},
		{"huge", []string{"%s/huge.json"}, 6, []string{"more than 16777216 bytes"}},
		{"another manifest", []string{"%s/good.json", "--manifest", "%s/manifest"}, 3, []string{"and the receipt is about"}},
		{"no manifest", []string{"%s/good.json", "--manifest", "%s/none"}, 2, []string{"no such file"}},
		{"a folder as manifest", []string{"%s/good.json", "--manifest", "%s"}, 2, []string{"not a regular file"}},
		{"no key file", []string{"%s/good.json", "--key", "%s/none"}, 2, []string{"there is no file"}},
		{"no key in the file", []string{"%s/good.json", "--key", "%s/text.json"}, 6, []string{"read the public key", "hint:"}},
		{"key and trust", []string{"%s/good.json", "--key", "a", "--trust", "b", "--trust-root", "c"}, 2, []string{"none of the others can be"}},
		{"trust without root", []string{"%s/good.json", "--trust", "b"}, 2, []string{"must all be set"}},
		{"no file named", nil, 2, []string{"accepts 1 arg"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := u.run(append([]string{"verify"}, tt.args...)...)
			check(t, code, tt.code, errs, tt.text...)
			if out != "" {
				t.Errorf("printed %q", out)
			}
		})
	}
}

func TestVerifyWithABareKeyDoesNotKnowTheLane(t *testing.T) {
	u := newUser(t)
	k := receipttest.Key(t, 1)
	manifest := []byte("100644 x\n")
	facts := receipttest.Facts()
	facts.Inputs.ManifestSHA256 = seal.SHA256Hex(manifest)
	env, _ := receipttest.Sign(t, facts, k)
	u.write("r.json", env)
	u.write("lane.pub", k.Public().PEM())
	u.write("manifest", manifest)
	code, out, errs := u.run("verify", "%s/r.json", "--key", "%s/lane.pub", "--manifest", "%s/manifest")
	check(t, code, 0, out+errs, "good, lane not known to be isolated", "manifest    matches")
	if _, err := os.Stat(filepath.Join(u.dir, "home")); !os.IsNotExist(err) {
		t.Errorf("a home was made: %v", err)
	}
}

func TestVerifyWithATrustFile(t *testing.T) {
	u := newUser(t)
	k, root := receipttest.Key(t, 1), receipttest.Key(t, 9)
	env, _ := receipttest.Sign(t, receipttest.Facts(), k)
	u.write("r.json", env)
	u.write("root.pub", root.Public().PEM())
	u.write("other.pub", k.Public().PEM())
	put := func(version int64, change func(e *trust.Entry)) {
		e := trust.Entry{PublicKey: string(k.Public().PEM()), Role: seal.RoleLane, Class: seal.ClassIsolated, LaneID: "lane-1"}
		change(&e)
		file, err := trust.Sign(trust.File{Version: version, ExpiresAt: "2026-06-01T00:00:00Z", Keys: []trust.Entry{e}}, root)
		if err != nil {
			t.Fatal(err)
		}
		u.write("trust.json", file)
	}
	verify := func(rootFile string) (int, string) {
		code, out, errs := u.run("verify", "%s/r.json", "--trust", "%s/trust.json", "--trust-root", "%s/"+rootFile)
		return code, out + errs
	}
	plain := func(*trust.Entry) {}
	put(2, plain)
	code, text := verify("root.pub")
	check(t, code, 0, text, "good, lane isolated", "version 2 of the trust file")
	code, text = verify("other.pub")
	check(t, code, 3, text, "read the trust file")
	put(1, plain)
	code, text = verify("root.pub")
	check(t, code, 3, text, "a newer version of the trust file was seen")
	put(3, func(e *trust.Entry) { e.Revoked = trust.Retired })
	code, text = verify("root.pub")
	check(t, code, 3, text, "the key is revoked: retired")
	put(4, func(e *trust.Entry) { e.Repositories = []string{"repo-2"} })
	code, text = verify("root.pub")
	check(t, code, 3, text, "does not count for repository")
	put(5, func(e *trust.Entry) { e.LaneID = "lane-2" })
	code, text = verify("root.pub")
	check(t, code, 3, text, "may not sign it")
	u.write("trust.json", []byte("{}"))
	code, text = verify("root.pub")
	check(t, code, 6, text, "not a valid trust file")
}

func TestShowQuotesWhatATerminalWouldActOn(t *testing.T) {
	u := newUser(t)
	const hostile = "\x1b[31m\u202eevil\u2066\x07\u009b1m"
	facts := receipttest.Facts()
	failed := receipttest.Execution(receipt.Fail)
	failed.Reasons[0].Detail = hostile
	failed.Signal = "SIGKILL"
	facts.Executions[0] = failed
	facts.Check.Argv = []string{hostile}
	facts.Check.PassWhen = hostile
	facts.Findings = []receipt.Finding{{Code: "odd_name", Path: hostile, Detail: hostile}}
	facts.Incidents = []receipt.Incident{{Code: "drift", Effect: receipt.MakesIndeterminate, Detail: hostile}}
	facts.Posture.Facets[0].OK, facts.Posture.Facets[0].Observed = false, hostile
	facts.Posture.Engine, facts.Tools.StriatumVersion = hostile, hostile
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("m Test%02d%s", i, hostile))
	}
	facts.Census.FailedTests = receipt.NewList(names)
	facts.Census.SkippedTests = receipt.NewList([]string{hostile})
	env, sealed := receipttest.Sign(t, facts, receipttest.Key(t, 1))
	u.write("r.json", env)
	for _, format := range []string{"table", "json"} {
		code, out, errs := u.run("show", "%s/r.json", "--output", format)
		check(t, code, 0, out+errs, sealed.SealDigest, "failed", "Test07")
		for _, r := range out + errs {
			if r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u2066' {
				t.Fatalf("%s prints %q", format, r)
			}
		}
		if format == "json" {
			var again receipt.Receipt
			if err := json.Unmarshal([]byte(out), &again); err != nil || again.Findings[0].Path != hostile {
				t.Errorf("the JSON does not hold the receipt: %v", err)
			}
		} else {
			check(t, code, 0, out+errs, "and 30 more", "test_failed", "the signature was not checked", "not strict")
		}
	}
}

func TestShowPrintsACommandThatAShellReads(t *testing.T) {
	u := newUser(t)
	facts := receipttest.Facts()
	facts.Check.Argv = []string{"make", "it's done", "--all", "\u202e"}
	facts.Inputs.Dependencies = &receipt.Dependencies{Digest: receipttest.Digest("d"), FirstSeen: 4}
	env, _ := receipttest.Sign(t, facts, receipttest.Key(t, 1))
	u.write("r.json", env)
	code, out, errs := u.run("show", "%s/r.json")
	check(t, code, 0, out+errs, `command     make $'it\x27s done' --all $'\xe2\x80\xae'`+"\n", "modules     4 first seen\n")
}

func TestShowSaysWhatDidNotCount(t *testing.T) {
	u := newUser(t)
	facts := receipttest.Facts()
	facts.Inputs.Protected = &receipt.Protected{
		Commit: strings.Repeat("c", 40), Paths: []string{"**/*_test.go", "testdata/**"}, Files: 7,
		Restored: receipt.NewList([]string{"a_test.go"}), Added: receipt.NewList([]string{"b_test.go"}), Removed: receipt.NewList([]string{"main_test.go"}),
		TreeSHA256: receipttest.Digest("ran"), ManifestSHA256: receipttest.Digest("manifest"),
	}
	env, _ := receipttest.Sign(t, facts, receipttest.Key(t, 1))
	u.write("r.json", env)
	code, out, errs := u.run("show", "%s/r.json")
	check(t, code, 0, out+errs, receipttest.Digest("ran"), "7 files of commit "+strings.Repeat("c", 40)+" that match **/*_test.go testdata/**",
		"its own did not count", "a_test.go", "b_test.go", "main_test.go")
}

func TestShowSaysOnceWhatFailedInBothRuns(t *testing.T) {
	u := newUser(t)
	facts := receipttest.Facts()
	facts.Executions = []receipt.Execution{receipttest.Execution(receipt.Fail), receipttest.Execution(receipt.Fail)}
	env, _ := receipttest.Sign(t, facts, receipttest.Key(t, 1))
	u.write("r.json", env)
	code, out, errs := u.run("show", "%s/r.json")
	check(t, code, 0, out+errs, "because     test_failed: example.com/m TestAdd\n")
	if n := strings.Count(out, "test_failed"); n != 2 || strings.Contains(out, "check_failed") {
		t.Errorf("test_failed stands there %d times, want once for the runs and once for the control:\n%s", n, out)
	}
}

func TestShowOfEveryFrozenReceipt(t *testing.T) {
	u := newUser(t)
	files, err := filepath.Glob("../../../receipt/testdata/v1/*.receipt.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, f := range files {
		code, out, errs := u.run("show", f)
		check(t, code, 0, out+errs, "receipt     ", "classified  ")
	}
}

func TestShowRefusesWhatIsNoReceipt(t *testing.T) {
	u := newUser(t)
	u.write("text.json", []byte("hello"))
	for file, want := range map[string]int{"text.json": 6, "none.json": 2} {
		code, out, errs := u.run("show", "%s/"+file)
		check(t, code, want, errs, "show the receipt")
		if out != "" {
			t.Errorf("printed %q", out)
		}
	}
}

func TestExplainTakesAnOperator(t *testing.T) {
	u := newUser(t)
	env, sealed := u.homeReceipt(func(r *receipt.Receipt) { r.Executions[0] = receipttest.Execution(receipt.Fail) })
	var token string
	u.session(func(ctx context.Context, s *embedded.Session) {
		if _, err := s.Service.RecordReceipt(ctx, daemon.LocalUser(), env); err != nil {
			t.Fatal(err)
		}
		keep := func(t string) error { token = t; return nil }
		if _, err := s.Service.MintOperator(ctx, daemon.LocalUser(), time.Hour, keep); err != nil {
			t.Fatal(err)
		}
	})
	u.write("token", []byte(token+"\n"))
	u.write("bad-token", []byte("nonsense"))

	code, _, errs := u.run("explain", sealed.SealDigest, "--reason", "flaky proxy")
	check(t, code, 3, errs, "hint:")
	code, _, errs = u.run("explain", sealed.SealDigest, "--reason", "flaky proxy", "--token-file", "%s/bad-token")
	check(t, code, 3, errs)
	code, _, errs = u.run("explain", "not-a-seal", "--reason", "x", "--token-file", "%s/token")
	check(t, code, 2, errs, "not a seal")
	code, _, errs = u.run("explain", sealed.SealDigest, "--token-file", "%s/token")
	check(t, code, 2, errs, "--reason")
	code, _, errs = u.run("explain", sealed.SealDigest, "--reason", "flaky proxy", "--token-file", "%s/token")
	check(t, code, 0, errs, "explained "+sealed.SealDigest)
	u.env["STRIATUM_TOKEN_FILE"] = filepath.Join(u.dir, "token")
	code, _, errs = u.run("explain", receipttest.Digest("unknown"), "--reason", "x")
	if code == 0 {
		t.Errorf("a receipt that the store does not know is explained: %s", errs)
	}
}

// TestAReceiptIsNamedByItsSeal: the first digits of a seal, as a run prints them,
// name the copy in the worktree.
func TestAReceiptIsNamedByItsSeal(t *testing.T) {
	u := newUser(t)
	u.dir = filepath.Join(u.dir, "a[b*?")
	dir := filepath.Join(u.dir, ".striatum", "receipts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	env, sealed := u.homeReceipt(unchanged)
	name := ".striatum/receipts/" + sealed.SealDigest
	u.write(name+".receipt.json", env)
	u.write(name+".sigstore.json", env)
	for _, given := range []string{sealed.SealDigest, sealed.SealDigest[:12], sealed.SealDigest[:8]} {
		for _, command := range []string{"show", "verify"} {
			code, out, errs := u.run(command, given)
			check(t, code, 0, out+errs, sealed.SealDigest)
		}
	}
	code, _, errs := u.run("show", "0123456789ab")
	check(t, code, 2, errs, "no receipt in", "hint: `striatum gate read -v`")
	code, _, errs = u.run("show", sealed.SealDigest[:7])
	check(t, code, 2, errs, "there is no file", "a seal takes its first 8 digits or more")
	u.write(".striatum/receipts/"+sealed.SealDigest[:12]+strings.Repeat("0", 52)+".receipt.json", env)
	code, _, errs = u.run("show", sealed.SealDigest[:12])
	check(t, code, 2, errs, "2 receipts in", "hint: give more of its digits")
	code, _, errs = u.run("explain", sealed.SealDigest[:16], "--reason", "x")
	check(t, code, 3, errs, "no operator token was given")
}

// TestNoHomeIsMadeForLookingAtAReceipt: without a home nobody's key is known.
func TestNoHomeIsMadeForLookingAtAReceipt(t *testing.T) {
	u := newUser(t)
	env, _ := receipttest.Sign(t, receipttest.Facts(), receipttest.Key(t, 7))
	u.write("r.json", env)
	code, _, errs := u.run("verify", "%s/r.json")
	check(t, code, 3, errs, "nobody here knows the key", "hint: name the lane's public key with --key")
	if _, err := os.Stat(u.env["STRIATUM_HOME"]); !os.IsNotExist(err) {
		t.Errorf("a home was made: %v", err)
	}
}
