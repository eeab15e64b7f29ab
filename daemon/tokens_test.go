package daemon_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/daemon"
	"striatum/internal/problem"
	"striatum/store"
)

// give mints a token of that spec, as an operator.
func (d *desk) give(spec daemon.TokenSpec) (token string, info daemon.TokenInfo) {
	d.Helper()
	d.must(d.CheckMint(d.Context(), operator(), spec))
	token, hash, err := daemon.DrawToken(rand.Reader, spec.Kind)
	d.must(err)
	info, err = d.RecordToken(d.Context(), operator(), spec, hash)
	d.must(err)
	return token, info
}

func sessionSpec() daemon.TokenSpec {
	return daemon.TokenSpec{Kind: daemon.Session, TTL: time.Hour, RepositoryID: repoID, RunID: runID, Jobs: []string{"verify", "build"}}
}

func TestTokenSaysWhoItsHolderIs(t *testing.T) {
	d := newDesk(t).enrol()
	op, opInfo := d.give(daemon.TokenSpec{Kind: daemon.Operator, TTL: time.Hour})
	se, seInfo := d.give(sessionSpec())
	la, _ := d.give(daemon.TokenSpec{Kind: daemon.Lane, TTL: time.Hour, LaneID: "lane-1"})
	for token, want := range map[string]daemon.Principal{
		op: {Kind: daemon.Operator, Name: opInfo.ID},
		se: {Kind: daemon.Session, Name: seInfo.ID, RepositoryID: repoID, RunID: runID, Jobs: []string{"build", "verify"}},
		la: {Kind: daemon.Lane, Name: "lane-1"},
	} {
		got, err := d.Authenticate(d.Context(), token)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	// The secret of one kind with the prefix of another is nobody's.
	secret := strings.TrimPrefix(se, "striatum_se_")
	for _, forged := range []string{"striatum_op_" + secret, "striatum_la_" + secret, "striatum_xx_" + secret, secret, se + strings.Repeat("A", 4096)} {
		d.refused(problem.Refused, "", func() error { _, err := d.Authenticate(d.Context(), forged); return err })
	}
}

func TestTokensAreListedWithoutTheirText(t *testing.T) {
	d := newDesk(t).enrol()
	se, info := d.give(sessionSpec())
	la, _ := d.give(daemon.TokenSpec{Kind: daemon.Lane, TTL: time.Minute, LaneID: "lane-1"})
	d.now = d.now.Add(time.Minute)
	got, err := d.Tokens(d.Context(), operator())
	d.must(err)
	if len(got) != 2 || got[0].ID != info.ID || !got[0].Good() || got[0].By != "operator:op-1" || got[1].Name != "lane-1" || got[1].Good() || !got[1].Expired {
		t.Errorf("got %+v", got)
	}
	d.must(d.store.View(d.Context(), func(r store.Reader) error {
		rows, err := r.Log(d.Context(), store.Page{})
		for _, row := range rows {
			for _, token := range []string{se, la} {
				if strings.Contains(string(row.Record), token[len("striatum_se_"):]) {
					t.Error("the token stands in the store")
				}
			}
		}
		return err
	}))
}

func TestRevokedTokenEndsAtOnceAndStaysListed(t *testing.T) {
	d := newDesk(t).enrol()
	kept, _ := d.give(sessionSpec())
	token, info := d.give(sessionSpec())
	for _, want := range []int{1, 0} { // the second time it is over already
		if n, err := d.RevokeToken(d.Context(), operator(), info.ID); n != want || err != nil {
			t.Errorf("got %d, %v, want %d", n, err, want)
		}
	}
	d.refused(problem.Refused, "revoked", func() error { _, err := d.Authenticate(d.Context(), token); return err })
	if _, err := d.Authenticate(d.Context(), kept); err != nil {
		t.Errorf("the other token: %v", err)
	}
	all, err := d.Tokens(d.Context(), operator())
	d.must(err)
	if !slices.ContainsFunc(all, func(i daemon.TokenInfo) bool { return i.ID == info.ID && i.Revoked && !i.Good() }) {
		t.Errorf("got %+v, want the revoked one in it", all)
	}
	d.refused(problem.Usage, "none in this store", func() error { _, err := d.RevokeToken(d.Context(), operator(), "se-\x1b[2J"); return err })
}

func TestAClockThatIsSetBackMakesNoTokenGoodAgain(t *testing.T) {
	d := newDesk(t).enrol()
	token, _ := d.give(sessionSpec())
	start := d.now
	d.now = start.Add(2 * time.Hour)
	d.refused(problem.Refused, "expired", func() error { _, err := d.Authenticate(d.Context(), token); return err })
	d.must(d.BindRepository(d.Context(), operator(), daemon.Worktree{Path: "/w"}, "mine")) // the log now knows the time
	d.now = start
	d.refused(problem.Refused, "expired", func() error { _, err := d.Authenticate(d.Context(), token); return err })
}

func TestTokensThatMakeNoSenseAreNotMinted(t *testing.T) {
	d := newDesk(t).enrol()
	_, hash, err := daemon.DrawToken(rand.Reader, daemon.Session)
	d.must(err)
	for name, change := range map[string]func(*daemon.TokenSpec){
		"no kind":              func(s *daemon.TokenSpec) { s.Kind = 0 },
		"the local user's":     func(s *daemon.TokenSpec) { *s = daemon.TokenSpec{Kind: daemon.Local, TTL: time.Hour} },
		"no life":              func(s *daemon.TokenSpec) { s.TTL = 0 },
		"negative life":        func(s *daemon.TokenSpec) { s.TTL = -time.Hour },
		"for ever":             func(s *daemon.TokenSpec) { s.TTL = daemon.MaxTokenTTL + time.Second },
		"half a second":        func(s *daemon.TokenSpec) { s.TTL += time.Second / 2 },
		"no repository":        func(s *daemon.TokenSpec) { s.RepositoryID = "" },
		"a path":               func(s *daemon.TokenSpec) { s.RepositoryID = "../etc" },
		"escapes in the run":   func(s *daemon.TokenSpec) { s.RunID = "\x1b]0;x" },
		"SQL in a job":         func(s *daemon.TokenSpec) { s.Jobs = []string{"x'; DROP TABLE tokens; --"} },
		"a job twice":          func(s *daemon.TokenSpec) { s.Jobs = []string{"a", "a"} },
		"too many jobs":        func(s *daemon.TokenSpec) { s.Jobs = make([]string, daemon.MaxTokenJobs+1) },
		"a session with lane":  func(s *daemon.TokenSpec) { s.LaneID = "lane-1" },
		"an operator's bound":  func(s *daemon.TokenSpec) { s.Kind = daemon.Operator },
		"a lane's bound":       func(s *daemon.TokenSpec) { s.Kind, s.LaneID = daemon.Lane, "lane-1" },
		"a lane not enrolled":  func(s *daemon.TokenSpec) { *s = daemon.TokenSpec{Kind: daemon.Lane, TTL: time.Hour, LaneID: "lane-9"} },
		"a lane without an id": func(s *daemon.TokenSpec) { *s = daemon.TokenSpec{Kind: daemon.Lane, TTL: time.Hour} },
	} {
		spec := sessionSpec()
		change(&spec)
		t.Run(name, func(t *testing.T) {
			d.refused(problem.Usage, "", func() error { return d.CheckMint(d.Context(), operator(), spec) })
			d.refused(problem.Usage, "", func() error { _, err := d.RecordToken(d.Context(), operator(), spec, hash); return err })
		})
	}
	for _, bad := range []string{"", "x", strings.ToUpper(hash), hash[1:]} {
		d.refused(problem.Usage, "SHA-256", func() error { _, err := d.RecordToken(d.Context(), operator(), sessionSpec(), bad); return err })
	}
	_, err = d.RecordToken(d.Context(), operator(), sessionSpec(), hash)
	d.must(err)
	d.refused(problem.Refused, "already", func() error { _, err := d.RecordToken(d.Context(), operator(), sessionSpec(), hash); return err })
	if _, _, err := daemon.DrawToken(strings.NewReader("short"), daemon.Session); err == nil {
		t.Error("a token was drawn from too little randomness")
	}
}
