package storetest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/store"
)

// Sample is one row of each kind, about each other.
type Sample struct {
	Repository            store.Repository
	Lane                  store.Lane
	LaneRevocation        store.LaneRevocation
	Token                 store.Token
	TokenRevocation       store.TokenRevocation
	Opened                store.Opened
	Receipt               store.Receipt
	Ledger                store.Ledger
	Policy                store.Policy
	Attestation           store.Attestation
	AttestationRevocation store.AttestationRevocation
	Explanation           store.Explanation
	CheckRequest          store.CheckRequest
	CheckRequestTaken     store.CheckRequestTaken
	CheckRequestEnd       store.CheckRequestEnd
	LaneProbe             store.LaneProbe
}

// NewSample returns rows of the repository repo-1 whose blob is the digest
// given.
func NewSample(blob string) Sample {
	return Sample{
		Repository:      store.Repository{RepositoryID: "repo-1", Place: store.Place{Path: "/src/1", Device: "1", Inode: "2"}, By: "local"},
		Lane:            store.Lane{KeyID: "SHA256:a", LaneID: "lane-1", Class: "shared", PublicKey: "pem", By: "local"},
		LaneRevocation:  store.LaneRevocation{KeyID: "SHA256:a", Kind: "compromised", By: "operator", Since: 2},
		Token:           store.Token{Hash: digest(1), Kind: "session", Name: "se-1", ExpiresAt: "2027-01-02T03:04:05Z", By: "operator", RepositoryID: "repo-1", RunID: "run-1", Jobs: []string{"verify"}},
		TokenRevocation: store.TokenRevocation{Hash: digest(1), By: "operator"},
		Opened:          store.Opened{Name: digest(7), LaneEpoch: "epoch-1", Sequence: 1, RepositoryID: "repo-1", EnvelopeSHA256: blob},
		Receipt: store.Receipt{
			Seal: digest(2), KeyID: digest(9), PrevSeal: digest(8), LaneEpoch: "epoch-1", Sequence: 1<<53 - 1, RepositoryID: "repo-1", RunID: "run-1", CheckID: "builtin:go-test", CheckDigest: digest(3),
			TreeSHA256: digest(4), Classification: "asserted", EnvelopeSHA256: blob,
		},
		Ledger:                store.Ledger{RepositoryID: "repo-1", RunID: "run-1", Seal: digest(5), PrevSeal: store.NoLedger, By: "local", DocumentSHA256: blob},
		Policy:                store.Policy{RepositoryID: "repo-1", DocumentSHA256: blob, By: "operator"},
		Attestation:           store.Attestation{RepositoryID: "repo-1", CheckID: "schema", CheckDigest: digest(3), ClosureSHA256: digest(6), By: "operator"},
		AttestationRevocation: store.AttestationRevocation{RepositoryID: "repo-1", By: "operator"}, // Attestation: set by Populate
		Explanation:           store.Explanation{RepositoryID: "repo-1", Seal: digest(2), Reason: "flaky network", By: "operator"},
		CheckRequest: store.CheckRequest{
			ID: "request-1", RepositoryID: "repo-1", RunID: "run-1", By: "session:se-1", UID: 1<<32 - 2, Checks: []string{"builtin:go-test", "schema"}, Commit: "HEAD", ExpiresAt: expiry,
		},
		CheckRequestTaken: store.CheckRequestTaken{ID: "request-1", LaneID: "lane-1"},
		CheckRequestEnd:   store.CheckRequestEnd{ID: "request-1", By: "lane:lane-1", Outcome: "done", Why: "it is", Seals: []string{digest(2)}},
		LaneProbe: store.LaneProbe{
			LaneID: "lane-1", Reached: "secret_readable", ReachedAt: 1<<53 - 2, Spans: []store.LogSpan{{From: 3, To: 1<<53 - 3}}, Users: []string{"agent"}, By: "lane:lane-1",
			Findings: []store.ProbeFinding{{Code: "secret_readable", User: "agent", What: "/k"}},
		},
	}
}

// Populate adds a row of each kind, in the order of Sample, and returns their
// positions.
func Populate(t testing.TB, s store.Store) (positions []int64) {
	t.Helper()
	update(t, s, func(ctx context.Context, w store.Writer) error {
		positions = nil
		blob, err := w.PutBlob(ctx, []byte("document"))
		if err != nil {
			return err
		}
		rows := NewSample(blob)
		for _, add := range []func() (int64, error){
			func() (int64, error) { return w.AddRepository(ctx, rows.Repository) },
			func() (int64, error) { return w.AddLane(ctx, rows.Lane) },
			func() (int64, error) { return w.AddLaneRevocation(ctx, rows.LaneRevocation) },
			func() (int64, error) { return w.AddToken(ctx, rows.Token) },
			func() (int64, error) { return w.AddTokenRevocation(ctx, rows.TokenRevocation) },
			func() (int64, error) { return w.AddOpened(ctx, rows.Opened) },
			func() (int64, error) { return w.AddReceipt(ctx, rows.Receipt) },
			func() (int64, error) { return w.AddLedger(ctx, rows.Ledger) },
			func() (int64, error) { return w.AddPolicy(ctx, rows.Policy) },
			func() (int64, error) { return w.AddAttestation(ctx, rows.Attestation) },
			func() (int64, error) {
				rows.AttestationRevocation.Attestation = positions[len(positions)-1]
				return w.AddAttestationRevocation(ctx, rows.AttestationRevocation)
			},
			func() (int64, error) { return w.AddExplanation(ctx, rows.Explanation) },
			func() (int64, error) { return w.AddCheckRequest(ctx, rows.CheckRequest) },
			func() (int64, error) { return w.AddCheckRequestTaken(ctx, rows.CheckRequestTaken) },
			func() (int64, error) { return w.AddCheckRequestEnd(ctx, rows.CheckRequestEnd) },
			func() (int64, error) { return w.AddLaneProbe(ctx, rows.LaneProbe) },
		} {
			position, err := add()
			if err != nil {
				return err
			}
			positions = append(positions, position)
		}
		return nil
	})
	return positions
}

func testReadBack(t *testing.T, s store.Store) {
	positions := Populate(t, s)
	for i, p := range positions {
		if p != int64(i+1) {
			t.Errorf("row %d has position %d, want %d", i, p, i+1)
		}
	}
	view(t, s, func(ctx context.Context, r store.Reader) error {
		blob, err := r.Receipt(ctx, digest(2))
		if err != nil {
			return err
		}
		want := NewSample(blob.Value.EnvelopeSHA256)
		want.AttestationRevocation.Attestation = positions[9]
		var page store.Page

		repository, err := r.RepositoryAt(ctx, want.Repository.Place)
		same(t, "RepositoryAt", repository, err, positions[0], want.Repository)
		lanes, err := r.Lanes(ctx, page)
		only(t, "Lanes", lanes, err, positions[1], want.Lane)
		laneRevocations, err := r.LaneRevocations(ctx, page)
		only(t, "LaneRevocations", laneRevocations, err, positions[2], want.LaneRevocation)
		token, err := r.Token(ctx, digest(1))
		same(t, "Token", token, err, positions[3], want.Token)
		tokens, err := r.Tokens(ctx, page)
		only(t, "Tokens", tokens, err, positions[3], want.Token)
		tokenRevocations, err := r.TokenRevocations(ctx, page)
		only(t, "TokenRevocations", tokenRevocations, err, positions[4], want.TokenRevocation)
		opened, err := r.Opened(ctx, "repo-1", page)
		only(t, "Opened", opened, err, positions[5], want.Opened)
		named, err := r.OpenedNamed(ctx, digest(7))
		same(t, "OpenedNamed", named, err, positions[5], want.Opened)
		for what, name := range map[string]string{"seal": digest(2), "previous seal": digest(8), "opened name": digest(7)} {
			if got, err := r.RepositoryOf(ctx, name); got != "repo-1" || err != nil {
				t.Errorf("RepositoryOf %s: got %q, %v", what, got, err)
			}
		}
		same(t, "Receipt", blob, nil, positions[6], want.Receipt)
		receipts, err := r.Receipts(ctx, "repo-1", "", page)
		only(t, "Receipts", receipts, err, positions[6], want.Receipt)
		receipts, err = r.Receipts(ctx, "repo-1", digest(3), page)
		only(t, "Receipts of a check", receipts, err, positions[6], want.Receipt)
		ledger, err := r.Ledger(ctx, "repo-1", "run-1")
		same(t, "Ledger", ledger, err, positions[7], want.Ledger)
		policy, err := r.Policy(ctx, "repo-1")
		same(t, "Policy", policy, err, positions[8], want.Policy)
		attestations, err := r.Attestations(ctx, "repo-1", page)
		only(t, "Attestations", attestations, err, positions[9], want.Attestation)
		revocations, err := r.AttestationRevocations(ctx, "repo-1", page)
		only(t, "AttestationRevocations", revocations, err, positions[10], want.AttestationRevocation)
		explanations, err := r.Explanations(ctx, "repo-1", page)
		only(t, "Explanations", explanations, err, positions[11], want.Explanation)
		request, err := r.CheckRequest(ctx, want.CheckRequest.ID)
		same(t, "CheckRequest", request, err, positions[12], want.CheckRequest)
		taken, err := r.CheckRequestTaken(ctx, want.CheckRequest.ID)
		same(t, "CheckRequestTaken", taken, err, positions[13], want.CheckRequestTaken)
		end, err := r.CheckRequestEnd(ctx, want.CheckRequest.ID)
		same(t, "CheckRequestEnd", end, err, positions[14], want.CheckRequestEnd)
		probe, err := r.LaneProbe(ctx, "lane-1")
		same(t, "LaneProbe", probe, err, positions[15], want.LaneProbe)
		return nil
	})
}

func same[T any](t *testing.T, name string, got store.Row[T], err error, position int64, want T) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if got.RecordedAt == "" {
		t.Errorf("%s has no time", name)
	}
	if diff := cmp.Diff(got, store.Row[T]{Position: position, RecordedAt: got.RecordedAt, Value: want}); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

func only[T any](t *testing.T, name string, got []store.Row[T], err error, position int64, want T) {
	t.Helper()
	if err != nil || len(got) != 1 {
		t.Errorf("%s: got %d rows, %v", name, len(got), err)
		return
	}
	same(t, name, got[0], nil, position, want)
}

func testUnique(t *testing.T, s store.Store) {
	Populate(t, s)
	var blob string
	view(t, s, func(ctx context.Context, r store.Reader) error {
		row, err := r.Policy(ctx, "repo-1")
		blob = row.Value.DocumentSHA256
		return err
	})
	rows := NewSample(blob)
	for name, add := range map[string]func(ctx context.Context, w store.Writer) error{
		"lane key":     func(ctx context.Context, w store.Writer) error { _, err := w.AddLane(ctx, rows.Lane); return err },
		"token hash":   func(ctx context.Context, w store.Writer) error { _, err := w.AddToken(ctx, rows.Token); return err },
		"opened name":  func(ctx context.Context, w store.Writer) error { _, err := w.AddOpened(ctx, rows.Opened); return err },
		"receipt seal": func(ctx context.Context, w store.Writer) error { _, err := w.AddReceipt(ctx, rows.Receipt); return err },
		"request": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddCheckRequest(ctx, rows.CheckRequest)
			return err
		},
		"taken request": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddCheckRequestTaken(ctx, rows.CheckRequestTaken)
			return err
		},
		"end of a request": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddCheckRequestEnd(ctx, rows.CheckRequestEnd)
			return err
		},
		"first ledger": func(ctx context.Context, w store.Writer) error { _, err := w.AddLedger(ctx, rows.Ledger); return err },
	} {
		t.Run(name, func(t *testing.T) { refused(t, s, store.ErrConflict, add) })
	}
}

func testReferences(t *testing.T, s store.Store) {
	rows := NewSample(digest(99))
	for name, add := range map[string]func(ctx context.Context, w store.Writer) error{
		"lane of a revocation": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddLaneRevocation(ctx, rows.LaneRevocation)
			return err
		},
		"token of a revocation": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddTokenRevocation(ctx, rows.TokenRevocation)
			return err
		},
		"attestation of a revocation": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddAttestationRevocation(ctx, store.AttestationRevocation{RepositoryID: "repo-1", Attestation: 7})
			return err
		},
		"request that is taken": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddCheckRequestTaken(ctx, rows.CheckRequestTaken)
			return err
		},
		"request that ends": func(ctx context.Context, w store.Writer) error {
			_, err := w.AddCheckRequestEnd(ctx, rows.CheckRequestEnd)
			return err
		},
		"envelope of opened":  func(ctx context.Context, w store.Writer) error { _, err := w.AddOpened(ctx, rows.Opened); return err },
		"envelope of receipt": func(ctx context.Context, w store.Writer) error { _, err := w.AddReceipt(ctx, rows.Receipt); return err },
		"document of ledger":  func(ctx context.Context, w store.Writer) error { _, err := w.AddLedger(ctx, rows.Ledger); return err },
		"document of policy":  func(ctx context.Context, w store.Writer) error { _, err := w.AddPolicy(ctx, rows.Policy); return err },
	} {
		t.Run(name, func(t *testing.T) { refused(t, s, store.ErrConflict, add) })
	}
}

func testBindings(t *testing.T, s store.Store) {
	place := store.Place{Path: "/src", Device: "1", Inode: "2"}
	for _, id := range []string{"repo-old", "repo-new"} {
		update(t, s, func(ctx context.Context, w store.Writer) error {
			_, err := w.AddRepository(ctx, store.Repository{RepositoryID: id, Place: place})
			return err
		})
	}
	view(t, s, func(ctx context.Context, r store.Reader) error {
		got, err := r.RepositoryAt(ctx, place)
		if got.Value.RepositoryID != "repo-new" {
			t.Errorf("got %q, want the newest binding", got.Value.RepositoryID)
		}
		for _, other := range []store.Place{{Path: "/src", Device: "1", Inode: "3"}, {Path: "/src", Device: "2", Inode: "2"}, {Path: "/SRC", Device: "1", Inode: "2"}} {
			if row, err := r.RepositoryAt(ctx, other); err == nil {
				t.Errorf("place %v: got %v", other, row)
			}
		}
		return err
	})
}

func testLedgers(t *testing.T, s store.Store) {
	add := func(run, seal, prev string) func(ctx context.Context, w store.Writer) error {
		return func(ctx context.Context, w store.Writer) error {
			blob, err := w.PutBlob(ctx, []byte(seal))
			if err != nil {
				return err
			}
			_, err = w.AddLedger(ctx, store.Ledger{RepositoryID: "repo-1", RunID: run, Seal: seal, PrevSeal: prev, DocumentSHA256: blob})
			return err
		}
	}
	refused(t, s, store.ErrConflict, add("run-1", digest(2), digest(1))) // follows nothing
	update(t, s, add("run-1", digest(1), store.NoLedger))
	update(t, s, add("run-1", digest(2), digest(1)))
	refused(t, s, store.ErrConflict, add("run-1", digest(3), digest(1)))
	refused(t, s, store.ErrConflict, add("run-1", digest(3), store.NoLedger))
	update(t, s, add("", digest(9), store.NoLedger)) // another run is another chain
	view(t, s, func(ctx context.Context, r store.Reader) error {
		got, err := r.Ledger(ctx, "repo-1", "run-1")
		if got.Value.Seal != digest(2) {
			t.Errorf("got ledger %s, want the newest", got.Value.Seal)
		}
		return err
	})
}

func testPolicies(t *testing.T, s store.Store) {
	var second string
	for _, text := range []string{"first", "second", "first", "second"} { // an old one may be accepted again
		update(t, s, func(ctx context.Context, w store.Writer) (err error) {
			if second, err = w.PutBlob(ctx, []byte(text)); err != nil {
				return err
			}
			_, err = w.AddPolicy(ctx, store.Policy{RepositoryID: "repo-1", DocumentSHA256: second})
			return err
		})
	}
	view(t, s, func(ctx context.Context, r store.Reader) error {
		got, err := r.Policy(ctx, "repo-1")
		if got.Value.DocumentSHA256 != second {
			t.Errorf("got policy %s, want the one accepted last", got.Value.DocumentSHA256)
		}
		return err
	})
}

func testProbes(t *testing.T, s store.Store) {
	for _, row := range []store.LaneProbe{{LaneID: "lane-1", OK: true}, {LaneID: "lane-2", OK: true}, {LaneID: "lane-1"}} {
		update(t, s, func(ctx context.Context, w store.Writer) error {
			_, err := w.AddLaneProbe(ctx, row)
			return err
		})
	}
	view(t, s, func(ctx context.Context, r store.Reader) error {
		for id, ok := range map[string]bool{"lane-1": false, "lane-2": true} {
			if got, err := r.LaneProbe(ctx, id); err != nil || got.Value.LaneID != id || got.Value.OK != ok {
				t.Errorf("%s: got %+v, %v, want the newest", id, got, err)
			}
		}
		return nil
	})
}

func testScopes(t *testing.T, s store.Store) {
	Populate(t, s)
	view(t, s, func(ctx context.Context, r store.Reader) error {
		for _, name := range []string{"Opened", "Receipts", "Attestations", "AttestationRevocations", "Explanations"} {
			if n := counts(ctx, t, r, "repo-2")[name]; n != 0 {
				t.Errorf("%s of another repository: got %d rows", name, n)
			}
		}
		if rows, err := r.Receipts(ctx, "repo-1", digest(7), store.Page{}); err != nil || len(rows) != 0 {
			t.Errorf("receipts of another check: got %d, %v", len(rows), err)
		}
		return nil
	})
}
