package service_test

import (
	stdcmp "cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/allowlist"
	"striatum/claim"
	"striatum/daemon"
	"striatum/daemon/client"
	"striatum/daemon/httpapi"
	"striatum/daemon/wire"
	"striatum/gate"
	"striatum/internal/cli/service"
	"striatum/internal/execban"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/store"
	"striatum/store/sqlite"
	"striatum/workflow"
	"striatum/workflowgenerate"
)

const repoID = "repo-1"

// schema is the entry of an external check.
const schema = `{"schema_version": "striatum.verifier_allowlist_intent.v1", "checks": [{"id": "schema", "argv": ["python3", "tools/check.py", "{target}/schema"],
	"definition": ["tools/**"], "pass_when": "exit_zero", "backs_claim": "schema-holds", "agreement": "stdout", "description": "Every schema is valid, \u202e too.",
	"negative_control": {"mutation_of": ".", "fails_with": "unknown type", "mutation": {"file": "schema/a.json", "find": "string", "replace": "strnig"}}}]}`

// counter is randomness that is alike in every run.
type counter struct{ n byte }

func (c *counter) Read(b []byte) (int, error) {
	for i := range b {
		c.n++
		b[i] = c.n
	}
	return len(b), nil
}

// world is a service with a repository that has evidence of every kind.
type world struct {
	testing.TB
	*daemon.Service
	files       daemon.Files
	pins        []byte
	seal        string
	tokens      map[string]string // of the kinds of principal
	place       daemon.Worktree
	newlySigned []byte
}

func newWorld(t *testing.T) *world {
	t.Helper()
	now := func() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) }
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{TB: t, files: daemon.Files{}, tokens: map[string]string{}, place: daemon.Worktree{Path: "/src/\xff", Device: 1, Inode: 1<<64 - 1}}
	w.Service = daemon.New(daemon.Config{
		Store: st, Now: now, Rand: &counter{}, StoreClass: seal.ClassShared, StoreName: "sqlite", Home: "/home/x", ReportKey: receipttest.Key(t, 7),
	})
	lane := receipttest.Key(t, 1)
	ctx, operator := t.Context(), daemon.Principal{Kind: daemon.Operator, Name: "op-0"}
	w.must(w.EnrolLane(ctx, operator, daemon.LaneSpec{LaneID: "lane-1", PublicKey: lane.Public(), Class: seal.ClassShared}))
	w.must(w.BindRepository(ctx, operator, w.place, repoID))
	plan, err := workflowgenerate.Generate(workflowgenerate.Spec{Shape: "verification_gate", Checks: []string{"builtin:go-test", "schema"}})
	w.must(err)
	for _, f := range plan.Files {
		if f.Path == workflow.DefaultPath {
			w.files[f.Path] = f.Data
		}
	}
	w.files[workflow.DefaultIntentPath] = []byte(schema)
	_, digest, err := w.files.Document()
	w.must(err)
	w.must(w.AcceptPolicy(ctx, operator, repoID, w.files, digest))
	w.evidence(lane)
	w.pin(lane)
	for _, spec := range []daemon.TokenSpec{
		{Kind: daemon.Operator}, {Kind: daemon.Session, RepositoryID: repoID}, {Kind: daemon.Lane, LaneID: "lane-1"},
	} {
		spec.TTL = time.Hour
		token, hash, err := daemon.DrawToken(&counter{}, spec.Kind)
		w.must(err)
		_, err = w.RecordToken(ctx, operator, spec, hash)
		w.must(err)
		w.tokens[spec.Kind.String()] = token
	}
	return w
}

// evidence records a receipt that passed and binds its claim to it.
func (w *world) evidence(lane *seal.PrivateKey) {
	flow, _, err := w.files.Workflow()
	w.must(err)
	ref := flow.Checks()[0]
	digest, err := ref.Digest()
	w.must(err)
	r := receipttest.Facts()
	r.RunID, r.JobID = "", ref.JobID
	r.Check.ID, r.Check.Digest, r.Check.BacksClaim = ref.CheckID(), digest, ref.BacksClaim
	envelope, _ := receipttest.Sign(w.TB, r, lane)
	v, err := receipt.Open(envelope, receipttest.Ring(lane))
	w.must(err)
	w.newlySigned, w.seal = envelope, v.Seal()
	_, err = w.RecordReceipt(w.Context(), daemon.LocalUser(), envelope)
	w.must(err)
	_, err = w.UpdateClaims(w.Context(), daemon.LocalUser(), repoID, "", daemon.DeclaredClaims(flow), []claim.Update{{ClaimID: ref.BacksClaim, Receipt: &v}})
	w.must(err)
}

// pin signs pins of the external check.
func (w *world) pin(lane *seal.PrivateKey) {
	intent, _, err := w.files.Intent()
	w.must(err)
	e := intent.Checks[0]
	digest, err := e.Digest()
	w.must(err)
	p := allowlist.Pin{
		ID: e.ID, CheckDigest: digest, Argv: e.Argv.Words, ResolvedPath: "/usr/bin/python3", BinarySHA256: receipttest.Digest("python3"),
		Closure: []allowlist.ClosurePart{
			{Path: "/usr/bin/python3", SHA256: receipttest.Digest("python"), Size: new(int64(7))},
			{Tree: "definition", SHA256: receipttest.Digest("definition")},
		},
		ObservedAt: "2026-05-04T03:02:01Z", ObservedBy: lane.Public().ID(), Posture: receipt.Posture{Facets: []receipt.Facet{}},
	}
	p.ClosureSHA256, err = allowlist.ClosureDigest(p.Closure)
	w.must(err)
	w.pins, err = allowlist.SignPins(allowlist.Pins{
		SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: "0a1b2c3d-linux-amd64", Checks: []allowlist.Pin{p},
	}, lane)
	w.must(err)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// inProcess is the service as the holder of a token has it in a process.
func (w *world) inProcess(token string) service.Service {
	w.Helper()
	p, err := w.Authenticate(w.Context(), token)
	w.must(err)
	if token != "" {
		uid := uint32(os.Getuid())
		p.PeerUID = &uid
	}
	return w.As(p)
}

// overSocket is the service as the holder of a token has it from a daemon.
func (w *world) overSocket(token string) service.Service {
	w.Helper()
	dir, err := os.MkdirTemp("", "striatumd") // its path is short
	w.must(err)
	var lc net.ListenConfig
	l, err := lc.Listen(w.Context(), "unix", filepath.Join(dir, "s"))
	w.must(err)
	server := httpapi.New(httpapi.Config{
		Service: w.Service, Log: slog.New(slog.DiscardHandler), Now: time.Now, Rand: rand.Reader,
		OperatorUIDs: []uint32{uint32(os.Getuid())}, Confined: execban.Read,
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	c, err := client.Open(w.Context(), filepath.Join(dir, "s"), token)
	w.must(err)
	w.Cleanup(func() {
		err := c.Close()
		stop()
		for _, err := range []error{err, <-ended, os.RemoveAll(dir)} {
			if err != nil {
				w.Error(err)
			}
		}
	})
	return c
}

// step is what a call returned.
type step struct {
	Name    string
	Result  any
	Problem *problem.Problem
}

// transcript makes every call of the interface, some of them wrong, in an order in
// which each has something to do.
func (w *world) transcript(s service.Service) (steps []step) {
	ctx := w.Context()
	say := func(name string, err error, results ...any) {
		w.Helper()
		p := problem.Of(err)
		if p != nil {
			results, p.Err = nil, nil
		}
		data, err := json.Marshal(results)
		w.must(err)
		steps = append(steps, step{name, string(data), p})
	}
	d, err := s.Describe(ctx)
	say("Describe", err, d.StoreName, d.Home, d.StoreClass, d.Principal.String(), d.Principal.RepositoryID, d.Principal.RunID)
	for _, wt := range []daemon.Worktree{w.place, {Path: "/none"}, {Path: "/home"}} {
		repo, found, err := s.FindRepository(ctx, wt)
		say("FindRepository", err, repo, found)
	}
	for range 2 {
		repo, created, err := s.Repository(ctx, daemon.Worktree{Path: "/new", Device: 3, Inode: 4})
		say("Repository", err, repo.ID != "", created)
	}
	for _, id := range []string{repoID, "repo-2", "", "../x"} {
		policy, found, err := s.Policy(ctx, id)
		say("Policy", err, policy, found)
	}
	say("AcceptPolicy", s.AcceptPolicy(ctx, repoID, w.files, strings.Repeat("0", 64)))
	_, digest, err := w.files.Document()
	w.must(err)
	say("AcceptPolicy", s.AcceptPolicy(ctx, repoID, w.files, digest))
	say("AcceptPolicy", s.AcceptPolicy(ctx, repoID, nil, digest))
	for _, q := range []daemon.GateQuery{
		{RepositoryID: repoID, Files: w.files, Tree: gate.Tree{SHA256: receipttest.Digest("tree"), Source: "worktree", ManifestSHA256: receipttest.Digest("manifest")}},
		{RepositoryID: repoID, Floor: claim.Verified, RequireIsolated: true},
		{Files: w.files},
		{Files: daemon.Files{workflow.DefaultPath: []byte("{")}},
		{RepositoryID: "repo-2"},
		{RepositoryID: repoID, RunID: "run-2"},
	} {
		report, err := s.Gate(ctx, q)
		say("Gate", err, report)
		report, envelope, err := s.Summary(ctx, q)
		say("Summary", err, report, len(envelope) > 0)
	}
	q := daemon.AttestQuery{RepositoryID: repoID, CheckID: "schema", Pins: w.pins}
	for _, q := range []daemon.AttestQuery{q, {RepositoryID: repoID, CheckID: "schema"}, {RepositoryID: repoID, CheckID: "none"}, {RepositoryID: "repo-2"}} {
		a, err := s.Attestable(ctx, q)
		say("Attestable", err, a)
	}
	seen, err := w.Attestable(ctx, q)
	w.must(err)
	for _, digest := range []string{"wrong", seen.Digest, seen.Digest} {
		position, fresh, err := s.Attest(ctx, q, digest)
		say("Attest", err, position, fresh)
	}
	a, err := s.Attestable(ctx, q)
	say("Attestable", err, a)
	for _, id := range []string{"none", "schema", "schema"} {
		positions, err := s.RevokeAttestation(ctx, repoID, id, 0)
		say("RevokeAttestation", err, len(positions), positions)
	}
	all, err := s.Attestations(ctx, repoID)
	say("Attestations", err, append([]daemon.AttestationInfo{}, all...))
	all, err = s.Attestations(ctx, "repo-2")
	say("Attestations", err, len(all))
	for _, envelope := range [][]byte{w.newlySigned, []byte("none"), nil} {
		say("RecordOpened", s.RecordOpened(ctx, envelope))
		sealed, err := s.RecordReceipt(ctx, envelope)
		say("RecordReceipt", err, sealed)
	}
	flow, _, err := w.files.Workflow()
	w.must(err)
	for _, b := range []daemon.ClaimBinding{
		{RepositoryID: repoID, Declared: daemon.DeclaredClaims(flow), ClaimID: flow.Checks()[0].BacksClaim, Seal: w.seal},
		{RepositoryID: repoID, ClaimID: flow.Checks()[0].BacksClaim, Seal: w.seal},
		{RepositoryID: repoID, Declared: []claim.Claim{}, ClaimID: "schema-holds", Seal: w.seal},
		{RepositoryID: repoID, ClaimID: flow.Checks()[0].BacksClaim, Seal: strings.Repeat("0", 64)},
		{RepositoryID: "repo-2", ClaimID: flow.Checks()[0].BacksClaim, Seal: w.seal},
	} {
		ledger, err := s.Bind(ctx, b)
		say("Bind", err, string(ledger))
	}
	for _, name := range []string{w.seal, strings.Repeat("0", 64), "none", ""} {
		envelope, err := s.Receipt(ctx, name)
		say("Receipt", err, string(envelope))
		parts, files, err := s.Closure(ctx, name)
		say("Closure", err, parts, string(files))
	}
	parts, files, err := s.Closure(ctx, seen.Pin.ClosureSHA256)
	say("Closure", err, parts, string(files))
	for _, name := range []string{w.seal, "none"} {
		say("Explain", s.Explain(ctx, name, "flaky\x1b[2J"))
		say("Explain", s.Explain(ctx, name, ""))
	}
	for _, spec := range []daemon.LaneSpec{
		{LaneID: "lane-2", PublicKey: receipttest.Key(w.TB, 2).Public(), Class: seal.ClassShared},
		{LaneID: "lane-3", PublicKey: receipttest.Key(w.TB, 3).Public(), Class: seal.ClassIsolated},
		{LaneID: "lane-4", PublicKey: receipttest.Key(w.TB, 4).Public(), Class: seal.ClassShared, Probe: &daemon.Probe{Users: []string{"agent"}}},
		{LaneID: "lane-5", PublicKey: receipttest.Key(w.TB, 5).Public(), Class: seal.ClassShared, Probe: &daemon.Probe{}},
		{LaneID: "../x", PublicKey: receipttest.Key(w.TB, 3).Public(), Class: seal.ClassShared},
	} {
		say("EnrolLane", s.EnrolLane(ctx, spec))
	}
	for _, id := range []string{"lane-1", "lane-2", "none"} {
		for _, found := range []daemon.Probe{
			{Users: []string{"agent"}},
			{Users: []string{"agent"}, Findings: []store.ProbeFinding{{Code: "secret_readable", User: "agent", What: "/k"}}},
			{},
		} {
			say("RecordProbe", s.RecordProbe(ctx, id, found))
		}
	}
	_, err = s.Host(ctx) // what it tells is of the daemon alone
	say("Host", err)
	for _, kind := range []string{"worn out", daemon.RevokedCompromised} {
		lanes, err := s.RevokeLane(ctx, "lane-2", kind, 0)
		say("RevokeLane", err, lanes)
	}
	lanes, err := s.Lanes(ctx)
	say("Lanes", err, lanes)
	for _, most := range []int{0, 1, daemon.MaxTrustedReceipts, daemon.MaxTrustedReceipts + 1} {
		trusted, err := s.TrustedLanes(ctx, most)
		say("TrustedLanes", err, trusted)
	}
	ring, err := s.Keyring(ctx)
	say("Keyring", err, ring.Len())
	for _, spec := range []daemon.TokenSpec{
		{Kind: daemon.Operator, TTL: time.Hour},
		{Kind: daemon.Session, TTL: time.Hour, RepositoryID: repoID, RunID: "r", Jobs: []string{"b", "a"}},
		{Kind: daemon.Session, TTL: time.Hour},
		{Kind: daemon.Session, TTL: time.Millisecond, RepositoryID: repoID},
		{Kind: daemon.Session, TTL: 1 << 62, RepositoryID: repoID},
		{Kind: daemon.Session, TTL: -time.Hour, RepositoryID: repoID},
	} {
		say("CheckMint", s.CheckMint(ctx, spec))
		info, err := s.RecordToken(ctx, spec, receipttest.Digest(spec.Kind.String()+spec.RunID))
		say("RecordToken", err, info)
	}
	tokens, err := s.Tokens(ctx)
	say("Tokens", err, tokens)
	n, err := s.RevokeToken(ctx, "se-none")
	say("RevokeToken", err, n)
	for _, t := range tokens {
		if t.RunID == "r" {
			n, err := s.RevokeToken(ctx, t.ID)
			say("RevokeToken", err, n)
		}
	}
	w.requests(s, say)
	return steps
}

// requests asks for checks, takes some and ends them.
func (w *world) requests(s service.Service, say func(name string, err error, results ...any)) {
	ctx := w.Context()
	var id string
	for _, ask := range []daemon.CheckAsk{
		{RepositoryID: repoID},
		{RepositoryID: repoID, Checks: []string{"schema", "builtin:go-test"}, Commit: "HEAD"},
		{RepositoryID: repoID, RunID: "run-2"},
		{RepositoryID: "repo-2"},
		{RepositoryID: repoID, Checks: []string{"../x"}},
	} {
		r, err := s.RequestChecks(ctx, ask)
		id = stdcmp.Or(id, r.ID)
		r.ID = ""
		say("RequestChecks", err, r)
	}
	if id == "" { // others ask
		uid := uint32(os.Getuid())
		r, err := w.Service.RequestChecks(ctx, daemon.Principal{Kind: daemon.Operator, Name: "op-0", PeerUID: &uid}, daemon.CheckAsk{RepositoryID: repoID})
		w.must(err)
		id = r.ID
	}
	for _, uid := range []uint32{7, uint32(os.Getuid())} {
		r, err := s.TakeRequest(ctx, id, uid)
		r.ID = ""
		say("TakeRequest", err, r)
	}
	for _, end := range []daemon.RequestEnd{{Outcome: "well"}, {Outcome: daemon.RequestDone, Seals: []string{strings.Repeat("0", 64)}}, {Outcome: daemon.RequestDone, Seals: []string{w.seal}}} {
		say("EndRequest", s.EndRequest(ctx, id, end))
	}
	for _, id := range []string{id, strings.Repeat("0", 32)} {
		say("CancelRequest", s.CancelRequest(ctx, id))
		r, err := s.RequestState(ctx, id)
		r.ID = ""
		say("RequestState", err, r)
	}
	n, err := s.AbandonRequests(ctx)
	say("AbandonRequests", err, n)
}

// TestBothServicesAreAlike makes the same calls of both on equal stores.
func TestBothServicesAreAlike(t *testing.T) {
	for _, kind := range []string{"operator", "session", "lane", ""} {
		t.Run("as "+kind, func(t *testing.T) {
			near, far := newWorld(t), newWorld(t)
			got, want := far.transcript(far.overSocket(far.tokens[kind])), near.transcript(near.inProcess(near.tokens[kind]))
			// How a life of less than a second is called differs: the wire has none.
			for _, steps := range [][]step{got, want} {
				for i := range steps {
					if p := steps[i].Problem; p != nil && strings.HasPrefix(p.Why, "it would be good for ") {
						p.Why = "it would be good for"
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("in process (-), over the socket (+):\n%s", diff)
			}
			called, done, failed := map[string]bool{}, 0, 0
			for _, s := range want {
				called[s.Name] = true
				if done++; s.Problem != nil {
					failed++
				}
			}
			for m := range reflect.TypeFor[service.Service]().Methods() {
				if !called[m.Name] {
					t.Errorf("%s is not called", m.Name)
				}
			}
			if failed == 0 || kind == "operator" && failed > done/2 {
				t.Errorf("%d of %d calls failed", failed, done)
			}
		})
	}
}

func TestADaemonThatIsNotThereIsNeverASuccess(t *testing.T) {
	dir := t.TempDir()
	_, err := client.Open(t.Context(), filepath.Join(dir, "s"), "")
	if p := problem.Of(err); p == nil || p.Kind != problem.Missing {
		t.Errorf("no socket: got %v, want kind Missing", err)
	}
	for name, says := range map[string]string{
		"hangs up":         "",
		"no HTTP":          "hello\n",
		"an empty answer":  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"another server":   "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\": 1}",
		"half an answer":   "HTTP/1.1 200 OK\r\nContent-Length: 80\r\n\r\n{\"store_class\":",
		"another's no":     "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
		"a redirect":       "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://striatumd/x\r\nContent-Length: 0\r\n\r\n",
		"a kind that none": "HTTP/1.1 403 Forbidden\r\nContent-Type: application/problem+json\r\nContent-Length: 62\r\n\r\n{\"kind\":\"fine\",\"what\":\"w\",\"why\":\"\",\"hint\":\"\",\"request_id\":\"r\"}",
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			var lc net.ListenConfig
			l, err := lc.Listen(t.Context(), "unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 4096))
					_, _ = c.Write([]byte(says))
					_ = c.Close()
				}
			}()
			_, err = client.Open(t.Context(), socket, "striatum_se_x")
			if p := problem.Of(err); p == nil || p.Kind.ExitCode() != 4 || strings.Contains(p.Error(), "striatum_se_x") {
				t.Errorf("got %v, want exit 4", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
}

func TestASessionsCallIsRefusedAtItsBoundWithThePolicysFiles(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		kind string
		size int
		over bool
	}{
		{"session", wire.MaxSessionRequestBytes / 2, false}, {"session", wire.MaxSessionRequestBytes, true}, {"operator", wire.MaxSessionRequestBytes, false},
	} {
		files := daemon.Files{"verification/big": make([]byte, tt.size)}
		maps.Copy(files, w.files)
		_, err := w.overSocket(w.tokens[tt.kind]).Gate(t.Context(), daemon.GateQuery{RepositoryID: repoID, Files: files})
		p := problem.Of(err)
		over := p != nil && p.Kind == problem.Usage && strings.Contains(p.Why, "more than the 1048576 of a session's call") && strings.Contains(p.Hint, "policy's files")
		if over != tt.over || p != nil && p.Kind == problem.Indeterminate {
			t.Errorf("a file of %d bytes as %s: got %v", tt.size, tt.kind, err)
		}
	}
}
