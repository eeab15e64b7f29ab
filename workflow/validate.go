package workflow

import (
	"fmt"
	"path"
	"strings"
)

// Validate applies every rule to a document and returns what it breaks, in the
// order of the rules; nil: it is valid. When the document is not well formed,
// or breaks the schema, the other rules are not asked.
func Validate(data []byte, v View) []Finding {
	w, findings := Read(data)
	if findings != nil {
		return findings
	}
	findings = intrinsic(w)
	r := rules{w: w}
	r.externals(v)
	return append(findings, r.found...)
}

// intrinsic applies the rules that need no View.
func intrinsic(w Workflow) []Finding {
	r := rules{w: w}
	r.ids()
	r.paths()
	r.jobs()
	r.checks()
	r.claims()
	r.graph()
	r.intentForbidden()
	r.floor()
	return r.found
}

// rules collects findings about one workflow.
type rules struct {
	w     Workflow
	found []Finding
}

func (r *rules) add(code Code, hint, pointer, format string, args ...any) {
	r.found = append(r.found, Finding{Pointer: pointer, Code: code, What: fmt.Sprintf(format, args...), Hint: hint})
}

// ids: every id is used once in its kind. The schema says how ids look.
func (r *rules) ids() {
	seen := map[string]string{}
	once := func(kind, id, pointer string) {
		key := kind + "\x00" + id
		if first, dup := seen[key]; dup {
			r.add(DuplicateID, "", pointer, "%s id %q is also that of %s", kind, id, first)
			return
		}
		seen[key] = pointer
	}
	for i, x := range r.w.Lanes {
		once("lane", x.ID, fmt.Sprintf("/lanes/%d/id", i))
	}
	for i, x := range r.w.Roles {
		once("role", x.ID, fmt.Sprintf("/roles/%d/id", i))
	}
	for i, x := range r.w.Jobs {
		once("job", x.ID, fmt.Sprintf("/jobs/%d/id", i))
	}
	for i, x := range r.w.Claims {
		once("claim", x.ID, fmt.Sprintf("/claims/%d/id", i))
	}
	r.eachCheck(func(_ Job, c CheckRef, at string) { once("check", c.CheckID(), at+idKey(c)) })
}

// idKey is the key of a check that its id comes from.
func idKey(c CheckRef) string {
	if c.ID != "" {
		return "/id"
	}
	return "/uses"
}

// eachCheck calls f for each check with its pointer.
func (r *rules) eachCheck(f func(j Job, c CheckRef, pointer string)) {
	for i, j := range r.w.Jobs {
		for k, c := range j.Checks {
			f(j, c, fmt.Sprintf("/jobs/%d/checks/%d", i, k))
		}
	}
}

// paths: every path is clean and stays in the worktree.
func (r *rules) paths() {
	file := func(p, pointer string) {
		if !CleanPath(p) || p == "." {
			r.add(InvalidPath, "", pointer, "%q is not a clean path relative to the top of the worktree", p)
		}
	}
	file(r.w.IntentPath, "/intent_path")
	for i, x := range r.w.Roles {
		file(x.Document, fmt.Sprintf("/roles/%d/document", i))
	}
	for i, j := range r.w.Jobs {
		file(j.TaskPrompt, fmt.Sprintf("/jobs/%d/task_prompt", i))
		for k, p := range j.WriteScope.AllowedPaths {
			r.scopePath(p, fmt.Sprintf("/jobs/%d/write_scope/allowed_paths/%d", i, k))
		}
		for k, p := range j.WriteScope.ForbiddenPaths {
			r.scopePath(p, fmt.Sprintf("/jobs/%d/write_scope/forbidden_paths/%d", i, k))
		}
		for k, a := range j.ExpectedArtifacts {
			r.scopePath(a.Path, fmt.Sprintf("/jobs/%d/expected_artifacts/%d/path", i, k))
		}
	}
}

func (r *rules) scopePath(p, pointer string) {
	if !CleanPath(strings.TrimSuffix(p, "/")) {
		r.add(InvalidPath, `"." is the whole worktree, "dir/" a folder with all below it`, pointer,
			"%q is not a clean path relative to the top of the worktree", p)
	}
}

// CleanPath reports whether p is a clean slash-separated path that is relative
// and does not leave its root; "." is one. Control characters, backslashes and
// invalid UTF-8 are none.
func CleanPath(p string) bool {
	if p == "" || path.Clean(p) != p || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") {
		return false
	}
	return !strings.ContainsFunc(p, func(c rune) bool {
		return c < 0x20 || c == 0x7f || c == '\\' || c == '\uFFFD'
	})
}

// Covers reports whether one of the scope paths is p or a folder above it.
func Covers(scope []string, p string) bool {
	for _, s := range scope {
		s = strings.TrimSuffix(s, "/")
		if s == "." || s == p || strings.HasPrefix(p, s+"/") {
			return true
		}
	}
	return false
}

// jobs: roles and lanes exist; verify jobs, and only they, name checks.
func (r *rules) jobs() {
	roles, lanes := map[string]bool{}, map[string]bool{}
	for _, x := range r.w.Roles {
		roles[x.ID] = true
	}
	for _, x := range r.w.Lanes {
		lanes[x.ID] = true
	}
	gates := 0
	for i, j := range r.w.Jobs {
		at := fmt.Sprintf("/jobs/%d", i)
		if !roles[j.RoleID] {
			r.add(UnknownRole, "", at+"/role_id", "job %q names role %q, which is not in roles", j.ID, j.RoleID)
		}
		if !lanes[j.LaneID] {
			r.add(UnknownLane, "", at+"/lane_id", "job %q names lane %q, which is not in lanes", j.ID, j.LaneID)
		}
		switch {
		case j.Type == JobVerify && len(j.Checks) == 0:
			r.add(VerifyNoChecks, "name at least one check, such as builtin:go-test", at, "verify job %q names no check", j.ID)
		case j.Type != JobVerify && len(j.Checks) > 0:
			r.add(ChecksOutside, "move them to a verify job", at+"/checks", "%s job %q names checks; only a verify job may", j.Type, j.ID)
		}
		if j.Type == JobGate {
			gates++
		}
	}
	if gates == 0 {
		r.add(NoGate, "add a job of type gate after the verify job", "/jobs", "no job is a gate, so nothing reads the claims")
	}
}

// intentForbidden: the intent is out of the reach of who writes and who
// verifies.
func (r *rules) intentForbidden() {
	for i, j := range r.w.Jobs {
		if j.Type != JobVerify && j.Type != JobBuild {
			continue
		}
		if !Covers(j.WriteScope.ForbiddenPaths, r.w.IntentPath) {
			r.add(IntentWritable, fmt.Sprintf("add %q to it", r.w.IntentPath), fmt.Sprintf("/jobs/%d/write_scope/forbidden_paths", i),
				"the intent %q is not forbidden to %s job %q, which could sanction its own checks", r.w.IntentPath, j.Type, j.ID)
		}
	}
}

// FloorHint names the ways out of a floor that plain builtins cannot reach.
const FloorHint = `set the floor to "asserted": VERIFIED takes an external check, or "builtin+toolchain:go-test" and its kin, whose bytes an operator attested, and an isolated lane and store, which this version does not have`

// floor: a plain builtin stops at ASSERTED, so its claim never reaches the
// floor verified and the gate could never be green.
func (r *rules) floor() {
	if r.w.GateFloor != FloorVerified {
		return
	}
	r.eachCheck(func(_ Job, c CheckRef, at string) {
		if PlainBuiltin(c.Uses) {
			r.add(FloorUnreachable, FloorHint, at,
				"gate_floor is verified, and claim %q rests on %s, which stops at ASSERTED: it shows that striatum called the tool, not which tool answered",
				c.BacksClaim, c.Uses)
		}
	})
}
