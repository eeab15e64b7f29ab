package policycmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"striatum/internal/cli"
	"striatum/seal"
)

// Report is what the policy commands print with --output json. Digest is that
// of the worktree's files, empty without any.
type Report struct {
	SchemaVersion string  `json:"schema_version"` // striatum.policy_comparison.v1
	Home          string  `json:"home"`
	Store         string  `json:"store"`
	Trust         string  `json:"trust"`
	RepositoryID  string  `json:"repository_id"`
	Worktree      string  `json:"worktree"`
	Digest        string  `json:"digest"`
	Accepted      string  `json:"accepted_digest"`
	AcceptedBy    string  `json:"accepted_by"`
	AcceptedAt    string  `json:"accepted_at"`
	Counts        bool    `json:"counts"` // the worktree's policy is the accepted one
	Files         []File  `json:"files"`
	Claims        []Claim `json:"claims"`
}

// Change says how a file stands to the accepted policy.
type Change string

// The changes.
const (
	Same    Change = "same"
	Added   Change = "added"
	Changed Change = "changed"
	Removed Change = "removed"
)

// File is one file of either policy. The digests are empty where it is absent.
type File struct {
	Path           string `json:"path"`
	Change         Change `json:"change"`
	SHA256         string `json:"sha256"`
	AcceptedSHA256 string `json:"accepted_sha256"`
}

// Claim is a claim that the worktree's workflow requires.
type Claim struct {
	ID      string `json:"id"`
	CheckID string `json:"check_id"`
	Skips   string `json:"allowed_skips"`
}

func (h *here) report() (Report, error) {
	is := h.session.Is
	r := Report{
		SchemaVersion: "striatum.policy_comparison.v1", Home: is.Home, Store: is.StoreName,
		Trust: string(is.StoreClass), RepositoryID: h.repo.ID, Worktree: h.worktree.Path, Digest: h.digest, Files: []File{}, Claims: []Claim{},
	}
	if h.found {
		r.Accepted, r.AcceptedBy, r.AcceptedAt = h.accepted.Digest, h.accepted.By, h.accepted.At
		r.Counts = h.digest == h.accepted.Digest
	}
	paths := map[string]bool{}
	for p := range h.files {
		paths[p] = true
	}
	for p := range h.accepted.Files {
		paths[p] = true
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		now, isNow := h.files[p]
		then, wasThen := h.accepted.Files[p]
		f := File{Path: p, Change: Same}
		if isNow {
			f.SHA256 = seal.SHA256Hex(now)
		}
		if wasThen {
			f.AcceptedSHA256 = seal.SHA256Hex(then)
		}
		switch {
		case !wasThen:
			f.Change = Added
		case !isNow:
			f.Change = Removed
		case f.SHA256 != f.AcceptedSHA256:
			f.Change = Changed
		}
		r.Files = append(r.Files, f)
	}
	required, _, err := h.files.Requirements()
	for _, q := range required {
		skips := "none"
		switch {
		case q.AllowSkips.Any:
			skips = "any"
		case len(q.AllowSkips.Names) > 0:
			skips = strings.Join(q.AllowSkips.Names, ", ")
		}
		r.Claims = append(r.Claims, Claim{ID: q.ClaimID, CheckID: q.CheckID, Skips: skips})
	}
	return r, err
}

// print shows the worktree's policy beside the accepted one. A workflow that is
// not valid is shown too, and then the error.
func (h *here) print(s cli.Streams, out cli.Output, accepting bool) error {
	r, invalid := h.report()
	if out == cli.JSON {
		if err := s.WriteJSON(r); err != nil {
			return err
		}
		return invalid
	}
	var b strings.Builder
	fmt.Fprintf(&b, "worktree   %s\n", cli.Escape(r.Worktree))
	fmt.Fprintf(&b, "store      %s in %s, trust: %s\n", r.Store, cli.Escape(r.Home), r.Trust)
	fmt.Fprintf(&b, "repository %s\n", orNone(r.RepositoryID))
	fmt.Fprintf(&b, "policy     %s\n", orNone(r.Digest))
	switch {
	case r.Accepted == "":
		fmt.Fprintf(&b, "accepted   none\n")
	case r.Counts:
		fmt.Fprintf(&b, "accepted   this one, by %s at %s\n", r.AcceptedBy, r.AcceptedAt)
	default:
		fmt.Fprintf(&b, "accepted   %s, by %s at %s\n", r.Accepted, r.AcceptedBy, r.AcceptedAt)
	}
	for _, f := range r.Files {
		fmt.Fprintf(&b, "  %-8s %s\n", f.Change, cli.Escape(f.Path))
		if f.Change == Changed {
			d := diff.Diff("accepted", h.accepted.Files[f.Path], "worktree", h.files[f.Path])
			for line := range strings.Lines(string(d)) {
				fmt.Fprintf(&b, "    %s\n", cli.Escape(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	for _, c := range r.Claims {
		fmt.Fprintf(&b, "requires   %s by %s, allowed skips: %s\n", c.ID, orNone(c.CheckID), cli.Escape(c.Skips))
	}
	if r.Digest != "" && !r.Counts && invalid == nil && !accepting {
		fmt.Fprintf(&b, "to accept: striatum policy accept --digest %s --token-file FILE\n", r.Digest)
	}
	if _, err := io.WriteString(s.Out, b.String()); err != nil {
		return err
	}
	return invalid
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return cli.Escape(s)
}
