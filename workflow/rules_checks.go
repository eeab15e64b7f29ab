package workflow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// checks: each check is a known builtin with parameters that it takes, or the
// id of an entry of the intent and nothing more.
func (r *rules) checks() {
	r.eachCheck(func(_ Job, c CheckRef, at string) {
		given := c.parameters().given()
		if c.External() {
			if ReservedID(c.ID) {
				r.add(UnknownBuiltin, fmt.Sprintf(`write "uses" for a builtin; the builtins are %s`, strings.Join(Builtins(), ", ")), at+"/id",
					"check id %q is reserved for builtins", c.ID)
			} else if !ValidID(c.ID) {
				r.add(InvalidID, "", at+"/id", "%q is not an id: want [a-z0-9][a-z0-9._-]{0,63}", c.ID)
			}
			for _, name := range given {
				r.add(ParameterUnknown, "write it in the check's entry of the intent", at+"/"+name, "external check %q takes no %q here", c.ID, name)
			}
			return
		}
		b, ok := LookupBuiltin(c.Uses)
		if !ok {
			r.add(UnknownBuiltin, "the builtins are "+strings.Join(Builtins(), ", "), at+"/uses", "%q is not a builtin", c.Uses)
			return
		}
		if c.ID != "" && c.ID != c.Uses && (ReservedID(c.ID) || !ValidID(c.ID)) {
			r.add(InvalidID, "", at+"/id", "%q is not an id for a check: want [a-z0-9][a-z0-9._-]{0,63}, not beginning with builtin", c.ID)
		}
		for _, name := range given {
			if !slices.Contains(b.Parameters, name) {
				r.add(ParameterUnknown, fmt.Sprintf("%s takes %s", b.ID, strings.Join(b.Parameters, ", ")), at+"/"+name, "%s takes no %q", b.ID, name)
			}
		}
		if c.Dir != "" && !CleanPath(c.Dir) {
			r.add(InvalidPath, "", at+"/dir", "%q is not a clean path relative to the top of the worktree", c.Dir)
		}
		for k, p := range c.Packages {
			if slices.Contains(strings.Split(p, "/"), "..") && p != "..." {
				r.add(InvalidPath, "", fmt.Sprintf("%s/packages/%d", at, k), "package pattern %q leaves the module", p)
			}
		}
		if c.Limits != nil {
			r.limits(*c.Limits, at+"/limits")
		}
		if p := c.ProtectedInputs; p != nil {
			if pointer, what := p.Fault(); what != "" {
				r.add(InvalidPath, "", at+"/protected_inputs"+pointer, "%s", what)
			}
		}
	})
}

func (r *rules) limits(l Limits, at string) {
	if _, err := l.Parse(); err != nil {
		if le, ok := errors.AsType[*LimitError](err); ok {
			at += "/" + le.Key
		}
		r.add(InvalidLimit, "", at, "%v", err)
	}
}

// claims: one claim, one check, both ways; a gate over no claim says nothing.
func (r *rules) claims() {
	known := map[string]bool{}
	for _, c := range r.w.Claims {
		known[c.ID] = true
	}
	backed := map[string]string{}
	r.eachCheck(func(_ Job, c CheckRef, at string) {
		at += "/backs_claim"
		first, twice := backed[c.BacksClaim]
		switch {
		case !known[c.BacksClaim]:
			r.add(UnknownClaim, "add it to claims", at, "check %q backs claim %q, which is not in claims", c.CheckID(), c.BacksClaim)
		case twice:
			r.add(ClaimTwoChecks, "give each check a claim of its own", at, "claim %q is backed by two checks, %q and %q", c.BacksClaim, first, c.CheckID())
		default:
			backed[c.BacksClaim] = c.CheckID()
		}
	})
	for i, c := range r.w.Claims {
		if _, ok := backed[c.ID]; !ok {
			r.add(ClaimNoCheck, "name a check that backs it in a verify job, or remove it", fmt.Sprintf("/claims/%d", i), "no check backs claim %q", c.ID)
		}
	}
	if len(r.w.Claims) == 0 {
		r.add(NoClaims, "add a claim and a check that backs it", "/claims", "there is no claim, so a gate has nothing to judge")
	}
}

// externals: every external check is a filled entry of the intent that backs
// the same claim; it, and every toolchain that is to be, is pinned on this host.
func (r *rules) externals(v View) {
	entries := map[string]External{}
	for _, e := range v.Externals {
		entries[e.ID] = e
	}
	r.eachCheck(func(_ Job, c CheckRef, at string) {
		if why := v.Unpinned[c.CheckID()]; why != "" && ToolchainBuiltin(c.Uses) {
			r.found = append(r.found, Finding{
				Pointer: at + "/uses", Code: EntryUnpinned, Unfilled: true,
				What: fmt.Sprintf("the toolchain of check %q is not pinned on this host: %s", c.CheckID(), why),
				Hint: "run: " + v.PinCommand,
			})
		}
		if !c.External() || ReservedID(c.ID) || !ValidID(c.ID) || v.IntentInvalid {
			return
		}
		e, ok := entries[c.ID]
		switch {
		case !ok && !v.IntentFound:
			r.add(IntentMissing, fmt.Sprintf("write %q, or name a builtin with \"uses\"", r.w.IntentPath), at+"/id",
				"external check %q needs the intent %q, and there is none that can be read", c.ID, r.w.IntentPath)
			return
		case !ok:
			r.add(UnknownCheck, fmt.Sprintf("add an entry %q to %q, or name a builtin with \"uses\"", c.ID, r.w.IntentPath), at+"/id",
				"check %q is not in the intent %q", c.ID, r.w.IntentPath)
			return
		}
		if e.BacksClaim != c.BacksClaim {
			r.add(ClaimMismatch, "let both name the same claim", at+"/backs_claim",
				"check %q backs claim %q here and %q in the intent", c.ID, c.BacksClaim, e.BacksClaim)
		}
		if e.Stops != "" && r.w.GateFloor == FloorVerified {
			r.add(FloorUnreachable, FloorHint, at, "gate_floor is verified, and claim %q stops at ASSERTED: %s", c.BacksClaim, e.Stops)
		}
		r.unfilled(c, e)
	})
}

func (r *rules) unfilled(c CheckRef, e External) {
	for _, p := range e.Unfilled {
		r.found = append(r.found, Finding{
			File: r.w.IntentPath, Pointer: p, Code: EntryUnfilled, Unfilled: true,
			What: fmt.Sprintf("entry %q is an unfilled template", c.ID),
			Hint: fmt.Sprintf("fill %s in %s, then run: %s", p, r.w.IntentPath, e.FixCommand),
		})
	}
	if len(e.Unfilled) == 0 && e.Unpinned != "" {
		r.found = append(r.found, Finding{
			File: r.w.IntentPath, Pointer: e.Pointer, Code: EntryUnpinned, Unfilled: true,
			What: fmt.Sprintf("entry %q is not pinned on this host: %s", c.ID, e.Unpinned),
			Hint: "run: " + e.FixCommand,
		})
	}
}
