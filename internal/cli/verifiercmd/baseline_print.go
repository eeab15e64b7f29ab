package verifiercmd

import (
	"fmt"
	"io"
	"strings"

	"striatum/baseline"
	"striatum/internal/cli"
)

// baselineJSON is what `verifier baseline show` and `accept` print with --output
// json. Digest is that of the policy with the baseline; what `accept` changes is in
// Changes.
type baselineJSON struct {
	SchemaVersion string               `json:"schema_version"` // striatum.verifier_baseline.v1
	Home          string               `json:"home"`
	Store         string               `json:"store"`
	Trust         string               `json:"trust"`
	RepositoryID  string               `json:"repository_id"`
	Worktree      string               `json:"worktree"`
	Accepted      string               `json:"accepted_digest"` // of the policy; empty: none
	Digest        string               `json:"digest"`
	Changes       []baselineChangeJSON `json:"changes"`
	Baseline      baseline.Baseline    `json:"baseline"`
}

type baselineChangeJSON struct {
	CheckID       string   `json:"check_id"`
	Receipt       string   `json:"receipt"`
	New           bool     `json:"new"` // nothing of the check was accepted before
	Removed       []string `json:"tests_removed"`
	NewlySkipped  []string `json:"tests_newly_skipped"`
	InputsChanged []string `json:"test_inputs_changed"`
	Edited        []string `json:"edited"`
	Added         []string `json:"added"`
}

// print shows the baseline b, which the policy with the digest has, and what
// accepting it changes. Nothing is left out.
func (b *baseliner) print(out cli.Output, digest string, now baseline.Baseline, changes []change) error {
	is := b.session.Is
	if out == cli.JSON {
		r := baselineJSON{
			SchemaVersion: "striatum.verifier_baseline.v1", Home: is.Home, Store: is.StoreName, Trust: string(is.StoreClass),
			RepositoryID: b.repo.ID, Worktree: b.worktree.Path, Accepted: b.policy.Digest, Digest: digest, Changes: []baselineChangeJSON{}, Baseline: now,
		}
		r.Baseline.Checks = append([]baseline.Check{}, now.Checks...)
		for _, c := range changes {
			list := func(names []string) []string { return append([]string{}, names...) }
			r.Changes = append(r.Changes, baselineChangeJSON{
				c.Check, c.Receipt, c.New, list(c.Removed), list(c.NewlySkipped), list(c.InputsChanged), list(c.Edited), list(c.Added),
			})
		}
		return b.streams.WriteJSON(r)
	}
	var text strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "%-11s%s\n", name, cli.Escape(fmt.Sprintf(format, args...)))
	}
	line("worktree", "%s", b.worktree.Path)
	line("store", "%s in %s, trust: %s", is.StoreName, is.Home, is.StoreClass)
	line("repository", "%s", b.repo.ID)
	if b.found {
		line("policy", "%s, accepted by %s at %s", b.policy.Digest, b.policy.By, b.policy.At)
	} else {
		line("policy", "none accepted")
	}
	for _, c := range now.Checks {
		tests, skipped := 0, 0
		for _, p := range c.Packages {
			for _, t := range p.Tests {
				if tests++; t.Skipped {
					skipped++
				}
			}
		}
		line("check", "%s: %d tests, %d of them skipped; %d test files; %d files of test data", c.ID, tests, skipped, len(c.Files), len(c.Data))
	}
	if len(now.Checks) == 0 {
		line("baseline", "none accepted: no removed or skipped test is noticed")
	}
	if changes == nil {
		if err := b.content(&text, now); err != nil {
			return err
		}
	}
	for _, c := range changes {
		line("changes", "of %s, by receipt %s:", c.Check, c.Receipt)
		c.lines(line)
	}
	if changes != nil && digest != b.policy.Digest {
		line("to accept:", "striatum verifier baseline accept --digest %s --token-file FILE", digest)
	}
	_, err := io.WriteString(b.streams.Out, text.String())
	return err
}

// content writes the file itself.
func (b *baseliner) content(text *strings.Builder, now baseline.Baseline) error {
	if len(now.Checks) == 0 {
		return nil
	}
	data, err := now.Encode()
	if err != nil {
		return err
	}
	for l := range strings.Lines(string(data)) {
		fmt.Fprintf(text, "  %s\n", cli.Escape(strings.TrimSuffix(l, "\n")))
	}
	return nil
}

// lines are what accepting the change means.
func (c change) lines(line func(name, format string, args ...any)) {
	n := 0
	for _, x := range []struct {
		word  string
		names []string
	}{{"removed", c.Removed}, {"now skipped", c.NewlySkipped}, {"changed", c.InputsChanged}, {"edited", c.Edited}, {"added", c.Added}} {
		for _, name := range x.names {
			n++
			line("", "%-12s%s", x.word, name)
		}
	}
	if n == 0 {
		line("", "none")
	}
}
