// Package storetest is the suite that every store passes: a subtest for each
// sentence of the contract in package store.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/eventlog"
	"striatum/store"
)

// Run tests the store that open returns: a new and empty one for each call,
// closed by the test's clean-up.
func Run(t *testing.T, open func(testing.TB) store.Store) {
	tests := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"EmptyStoreHasNothing", testEmpty},
		{"EveryRowIsReadBackAsWritten", testReadBack},
		{"EveryRowIsOneEntryOfTheChain", testChain},
		{"KeysAreUnique", testUnique},
		{"WhatARowNamesMustBeThere", testReferences},
		{"BlobsAreKeptByDigest", testBlobs},
		{"NewestBindingOfAPlaceCounts", testBindings},
		{"LedgerIsFollowedOnce", testLedgers},
		{"NewestPolicyCounts", testPolicies},
		{"OneAttestationIsActive", testAttestations},
		{"RequestsAreOpenUntilTheyEndOrExpire", testRequests},
		{"NewestProbeOfALaneCounts", testProbes},
		{"ListsAreOfOneRepository", testScopes},
		{"PagesMissNothingUnderInsert", testPaging},
		{"FailedUpdateLeavesNothing", testRollback},
		{"CancelledUpdateLeavesNothing", testCancel},
		{"UpdateSeesItsOwnWrites", testOwnWrites},
		{"ConcurrentUpdatesFormOneChain", testConcurrent},
		{"ViewIsOneStateAndDoesNotWait", testView},
		{"TextIsKeptExactly", testText},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

func digest(n int) string { return fmt.Sprintf("%064x", n) }

func update(t testing.TB, s store.Store, fn func(ctx context.Context, w store.Writer) error) {
	t.Helper()
	if err := s.Update(t.Context(), func(w store.Writer) error { return fn(t.Context(), w) }); err != nil {
		t.Fatalf("update: %v", err)
	}
}

func view(t testing.TB, s store.Store, fn func(ctx context.Context, r store.Reader) error) {
	t.Helper()
	if err := s.View(t.Context(), func(r store.Reader) error { return fn(t.Context(), r) }); err != nil {
		t.Fatalf("view: %v", err)
	}
}

func head(t testing.TB, s store.Store) (e eventlog.Entry) {
	t.Helper()
	view(t, s, func(ctx context.Context, r store.Reader) (err error) {
		e, err = r.Head(ctx)
		return err
	})
	return e
}

// addBinding is the row that tests add when any row will do.
func addBinding(ctx context.Context, w store.Writer, n int) error {
	_, err := w.AddRepository(ctx, store.Repository{
		RepositoryID: fmt.Sprintf("repo-%d", n),
		Place:        store.Place{Path: fmt.Sprintf("/src/%d", n), Device: "1", Inode: "18446744073709551615"},
		By:           "local",
	})
	return err
}

// refused expects that an Update with fn fails with want and changes nothing.
func refused(t *testing.T, s store.Store, want error, fn func(ctx context.Context, w store.Writer) error) {
	t.Helper()
	before := head(t, s)
	err := s.Update(t.Context(), func(w store.Writer) error { return fn(t.Context(), w) })
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
	if diff := cmp.Diff(before, head(t, s)); diff != "" {
		t.Errorf("the log changed: %s", diff)
	}
}

func testEmpty(t *testing.T, s store.Store) {
	view(t, s, func(ctx context.Context, r store.Reader) error {
		if e, err := r.Head(ctx); err != nil || e != (eventlog.Entry{}) {
			t.Errorf("Head: got %v, %v", e, err)
		}
		rows, err := r.Log(ctx, store.Page{})
		if err != nil || len(rows) != 0 {
			t.Errorf("Log: got %v, %v", rows, err)
		}
		for name, get := range map[string]func() error{
			"Blob":         func() error { _, err := r.Blob(ctx, digest(1)); return err },
			"RepositoryAt": func() error { _, err := r.RepositoryAt(ctx, store.Place{Path: "/x"}); return err },
			"Token":        func() error { _, err := r.Token(ctx, digest(1)); return err },
			"OpenedNamed":  func() error { _, err := r.OpenedNamed(ctx, digest(1)); return err },
			"RepositoryOf": func() error { _, err := r.RepositoryOf(ctx, digest(1)); return err },
			"Receipt":      func() error { _, err := r.Receipt(ctx, digest(1)); return err },
			"Ledger":       func() error { _, err := r.Ledger(ctx, "repo-1", ""); return err },
			"Policy":       func() error { _, err := r.Policy(ctx, "repo-1"); return err },

			"CheckRequest":      func() error { _, err := r.CheckRequest(ctx, "request-1"); return err },
			"CheckRequestTaken": func() error { _, err := r.CheckRequestTaken(ctx, "request-1"); return err },
			"CheckRequestEnd":   func() error { _, err := r.CheckRequestEnd(ctx, "request-1"); return err },
			"LaneProbe":         func() error { _, err := r.LaneProbe(ctx, "lane-1"); return err },
		} {
			if err := get(); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: got %v, want ErrNotFound", name, err)
			}
		}
		for name, n := range counts(ctx, t, r, "repo-1") {
			if n != 0 {
				t.Errorf("%s: got %d rows", name, n)
			}
		}
		return nil
	})
}

// counts returns how many rows each list has.
func counts(ctx context.Context, t testing.TB, r store.Reader, repo string) map[string]int {
	t.Helper()
	out := map[string]int{}
	count := func(name string, n int, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		out[name] = n
	}
	var page store.Page
	lanes, err := r.Lanes(ctx, page)
	count("Lanes", len(lanes), err)
	laneRevocations, err := r.LaneRevocations(ctx, page)
	count("LaneRevocations", len(laneRevocations), err)
	tokens, err := r.Tokens(ctx, page)
	count("Tokens", len(tokens), err)
	tokenRevocations, err := r.TokenRevocations(ctx, page)
	count("TokenRevocations", len(tokenRevocations), err)
	opened, err := r.Opened(ctx, repo, page)
	count("Opened", len(opened), err)
	receipts, err := r.Receipts(ctx, repo, "", page)
	count("Receipts", len(receipts), err)
	attestations, err := r.Attestations(ctx, repo, page)
	count("Attestations", len(attestations), err)
	revocations, err := r.AttestationRevocations(ctx, repo, page)
	count("AttestationRevocations", len(revocations), err)
	explanations, err := r.Explanations(ctx, repo, page)
	count("Explanations", len(explanations), err)
	requests, err := r.OpenCheckRequests(ctx, before, page)
	count("OpenCheckRequests", len(requests), err)
	return out
}

func testChain(t *testing.T, s store.Store) {
	n := len(Populate(t, s))
	view(t, s, func(ctx context.Context, r store.Reader) error {
		var last eventlog.Entry
		rows, err := r.Log(ctx, store.Page{})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := eventlog.Verify(last, row.Entry, row.Record); err != nil {
				t.Error(err)
			}
			last = row.Entry
		}
		if len(rows) != n {
			t.Errorf("got %d entries, want %d", len(rows), n)
		}
		end, err := r.Head(ctx)
		if diff := cmp.Diff(end, last); diff != "" {
			t.Errorf("Head is not the last entry: %s", diff)
		}
		return err
	})
}

func testBlobs(t *testing.T, s store.Store) {
	big := []byte(strings.Repeat("\x00\xff", store.MaxBlob/2))
	update(t, s, func(ctx context.Context, w store.Writer) error {
		for _, data := range [][]byte{nil, []byte("a"), []byte("a"), big} {
			sum, err := w.PutBlob(ctx, data)
			if err != nil {
				return err
			}
			got, err := w.Blob(ctx, sum)
			if err != nil || string(got) != string(data) {
				t.Errorf("blob of %d bytes: got %d bytes, %v", len(data), len(got), err)
			}
		}
		return nil
	})
	err := s.Update(t.Context(), func(w store.Writer) error {
		_, err := w.PutBlob(t.Context(), append(big, 0))
		return err
	})
	if err == nil {
		t.Error("a blob beyond MaxBlob was kept")
	}
	if h := head(t, s); h.Position != 0 {
		t.Errorf("a blob is no entry of the log, but its head is %v", h)
	}
}

func testText(t *testing.T, s store.Store) {
	for i, text := range []string{"", "ä\u2028€😀", `"\/'`, "line\nline\r\t", "%_?;--", "\u202e\ufeff", strings.Repeat("x", 100_000)} {
		want := store.Repository{RepositoryID: fmt.Sprint("repo-", i), Place: store.Place{Path: "/" + text, Device: "1", Inode: "2"}, By: text}
		update(t, s, func(ctx context.Context, w store.Writer) error {
			_, err := w.AddRepository(ctx, want)
			return err
		})
		view(t, s, func(ctx context.Context, r store.Reader) error {
			got, err := r.RepositoryAt(ctx, want.Place)
			if diff := cmp.Diff(got.Value, want); diff != "" {
				t.Error(diff)
			}
			return err
		})
	}
}
