package workflow

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// sample is a valid document with one builtin and one external check. It is
// frozen: this version of the format opens for ever.
func sample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/workflow.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// pinned is a View in which the sample's external check is filled and pinned.
func pinned() View {
	return View{IntentFound: true, Externals: []External{{ID: "schema", BacksClaim: "schema-holds", Pointer: "/checks/0", FixCommand: "fix"}}}
}

// edit changes a document: each path such as "jobs/1/checks/0/uses" is set, or
// removed when the value is nil; a final "+" appends to a list.
func edit(t testing.TB, data []byte, changes map[string]any) []byte {
	t.Helper()
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for path, v := range changes {
		doc = set(t, doc, strings.Split(path, "/"), v)
	}
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func set(t testing.TB, doc any, path []string, v any) any {
	t.Helper()
	if len(path) == 0 {
		return v
	}
	switch d := doc.(type) {
	case map[string]any:
		if len(path) == 1 && v == nil {
			delete(d, path[0])
			return d
		}
		d[path[0]] = set(t, d[path[0]], path[1:], v)
		return d
	case []any:
		if path[0] == "+" {
			return append(d, v)
		}
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(d) {
			t.Fatalf("no element %q", path[0])
		}
		if len(path) == 1 && v == nil {
			return append(d[:i:i], d[i+1:]...)
		}
		d[i] = set(t, d[i], path[1:], v)
		return d
	}
	t.Fatalf("cannot go into %q", path[0])
	return nil
}

type object = map[string]any

// protected is what a check with protected inputs says.
func protected(paths ...any) object {
	return object{"commit": strings.Repeat("a", 40), "paths": append([]any{}, paths...)}
}

var ruleTable = []struct {
	name    string
	changes object
	view    func() View // nil: pinned
	code    Code
	pointer string
	file    string
}{
	{"a missing key", object{"gate_floor": nil}, nil, SchemaViolation, "", ""},
	{"an unknown key", object{"jobs/0/colour": "red"}, nil, SchemaViolation, "/jobs/0/colour", ""},
	{"an unknown schema version", object{"schema_version": "striatum.workflow.v9"}, nil, SchemaViolation, "/schema_version", ""},
	{"an unknown job type", object{"jobs/0/type": "deploy"}, nil, SchemaViolation, "/jobs/0/type", ""},
	{"an id out of form", object{"claims/0/id": "Tests Pass"}, nil, SchemaViolation, "/claims/0/id", ""},
	{"a cycle without a bound", object{"cycles/0/max_iterations": nil}, nil, SchemaViolation, "/cycles/0", ""},
	{"a cycle of no round", object{"cycles/0/max_iterations": 0}, nil, SchemaViolation, "/cycles/0/max_iterations", ""},
	{"a cycle of too many rounds", object{"cycles/0/max_iterations": 101}, nil, SchemaViolation, "/cycles/0/max_iterations", ""},
	{"a control character in a line", object{"name": "a\nb"}, nil, SchemaViolation, "/name", ""},
	{"go_work that says nothing", object{"jobs/1/checks/0/go_work": false}, nil, SchemaViolation, "/jobs/1/checks/0/go_work", ""},
	{"allow_skips of another word", object{"jobs/1/checks/0/allow_skips": "some"}, nil, SchemaViolation, "/jobs/1/checks/0/allow_skips", ""},
	{"a flag among the packages", object{"jobs/1/checks/0/packages": []any{"-exec=x"}}, nil, SchemaViolation, "/jobs/1/checks/0/packages/0", ""},
	{"a flag among the tags", object{"jobs/1/checks/0/tags": []any{"a,b -x"}}, nil, SchemaViolation, "/jobs/1/checks/0/tags/0", ""},
	{"a check with neither id nor uses", object{"jobs/1/checks/0/id": nil, "jobs/1/checks/0/uses": nil, "jobs/1/checks/0/allow_skips": nil}, nil, SchemaViolation, "/jobs/1/checks/0", ""},

	{"two jobs of one id", object{"jobs/2/id": "build"}, nil, DuplicateID, "/jobs/2/id", ""},
	{"two claims of one id", object{"claims/+": object{"id": "tests-pass", "statement": "x"}}, nil, DuplicateID, "/claims/2/id", ""},
	{"two roles of one id", object{"roles/1/id": "builder"}, nil, DuplicateID, "/roles/1/id", ""},
	{"two lanes of one id", object{"lanes/0/id": "verifier"}, nil, DuplicateID, "/lanes/1/id", ""},
	{"two checks of one id", object{"jobs/1/checks/0/id": "schema"}, nil, DuplicateID, "/jobs/1/checks/1/id", ""},
	{"two builtins whose ids default to the same", object{"jobs/1/checks/0/id": nil, "jobs/1/checks/1": object{"uses": "builtin:go-test", "backs_claim": "schema-holds"}}, nil, DuplicateID, "/jobs/1/checks/1/uses", ""},

	{"an external id out of form", object{"jobs/1/checks/1/id": "Schema!"}, nil, InvalidID, "/jobs/1/checks/1/id", ""},
	{"a builtin with another builtin's id", object{"jobs/1/checks/0/id": "builtin:go-vet"}, nil, InvalidID, "/jobs/1/checks/0/id", ""},

	{"an intent out of the worktree", object{"intent_path": "../intent.json"}, nil, InvalidPath, "/intent_path", ""},
	{"an absolute task prompt", object{"jobs/0/task_prompt": "/etc/passwd"}, nil, InvalidPath, "/jobs/0/task_prompt", ""},
	{"an unclean role document", object{"roles/0/document": "a/../b"}, nil, InvalidPath, "/roles/0/document", ""},
	{"a scope path out of the worktree", object{"jobs/0/write_scope/allowed_paths/0": "../"}, nil, InvalidPath, "/jobs/0/write_scope/allowed_paths/0", ""},
	{"an artifact out of the worktree", object{"jobs/1/expected_artifacts/0/path": "/tmp/x"}, nil, InvalidPath, "/jobs/1/expected_artifacts/0/path", ""},
	{"a module folder out of the worktree", object{"jobs/1/checks/0/dir": "../other"}, nil, InvalidPath, "/jobs/1/checks/0/dir", ""},
	{"a package out of the module", object{"jobs/1/checks/0/packages": []any{"./../other"}}, nil, InvalidPath, "/jobs/1/checks/0/packages/0", ""},

	{"a role that is not there", object{"jobs/0/role_id": "nobody"}, nil, UnknownRole, "/jobs/0/role_id", ""},
	{"a lane that is not there", object{"jobs/0/lane_id": "nowhere"}, nil, UnknownLane, "/jobs/0/lane_id", ""},

	{"an edge to nowhere", object{"edges/1/to": "nowhere"}, nil, EdgeUnknownJob, "/edges/1/to", ""},
	{"an edge from nowhere", object{"edges/1/from": "nowhere"}, nil, EdgeUnknownJob, "/edges/1/from", ""},
	{"a job that waits for itself", object{"edges/+": object{"from": "build", "to": "build", "on": "completed"}}, nil, EdgeSelf, "/edges/4", ""},
	{"the same edge twice", object{"edges/+": object{"from": "build", "to": "verify", "on": "completed"}}, nil, EdgeDuplicate, "/edges/4", ""},
	{"a back edge that is not declared", object{"edges/+": object{"from": "gate", "to": "verify", "on": "completed"}}, nil, UndeclaredCycle, "/edges/4", ""},
	{"a back edge beside its declaration", object{"edges/+": object{"from": "review", "to": "build", "on": "completed"}}, nil, UndeclaredCycle, "/edges/4", ""},
	{"approved by a build", object{"edges/0/on": "approved"}, nil, EdgeCondition, "/edges/0/on", ""},
	{"green by a review", object{"edges/2/on": "green"}, nil, EdgeCondition, "/edges/2/on", ""},

	{"a cycle to nowhere", object{"cycles/0/to": "nowhere"}, nil, CycleUnknownJob, "/cycles/0/to", ""},
	{"a cycle from nowhere", object{"cycles/0/from": "nowhere"}, nil, CycleUnknownJob, "/cycles/0/from", ""},
	{"a cycle from a gate", object{"cycles/0/from": "gate"}, nil, CycleNotReview, "/cycles/0/from", ""},
	{"a cycle that leads on", object{"cycles/0/to": "commit"}, nil, CycleNotBack, "/cycles/0/to", ""},
	{"a cycle to itself", object{"cycles/0/to": "review"}, nil, CycleNotBack, "/cycles/0/to", ""},
	{"the same cycle twice", object{"cycles/+": object{"from": "review", "to": "build", "on_verdict": "needs_revision", "max_iterations": 5}}, nil, CycleDuplicate, "/cycles/1", ""},

	{"a verify job without checks", object{"jobs/1/checks": nil}, nil, VerifyNoChecks, "/jobs/1", ""},
	{"checks in a review", object{"jobs/2/checks": []any{object{"id": "b", "uses": "builtin:go-vet", "backs_claim": "tests-pass"}}}, nil, ChecksOutside, "/jobs/2/checks", ""},
	{"a builtin that is not there", object{"jobs/1/checks/0/uses": "builtin:go-tset"}, nil, UnknownBuiltin, "/jobs/1/checks/0/uses", ""},
	{"an external check as uses", object{"jobs/1/checks/0/uses": "schema"}, nil, UnknownBuiltin, "/jobs/1/checks/0/uses", ""},
	{"a builtin named by id alone", object{"jobs/1/checks/0/uses": nil, "jobs/1/checks/0/allow_skips": nil}, nil, UnknownBuiltin, "/jobs/1/checks/0/id", ""},
	{"allow_skips for go vet", object{"jobs/1/checks/0/uses": "builtin:go-vet", "jobs/1/checks/0/id": "vet"}, nil, ParameterUnknown, "/jobs/1/checks/0/allow_skips", ""},
	{"mutants, which only tests take", object{"jobs/1/checks/0/uses": "builtin:go-vet", "jobs/1/checks/0/mutants": 3}, nil, ParameterUnknown, "/jobs/1/checks/0/mutants", ""},
	{"protected inputs of the anchors", object{"jobs/1/checks/0/uses": "builtin:artifact-anchor-integrity", "jobs/1/checks/0/allow_skips": nil, "jobs/1/checks/0/protected_inputs": protected("a")}, nil, ParameterUnknown, "/jobs/1/checks/0/protected_inputs", ""},
	{"protected inputs of an external check here", object{"jobs/1/checks/1/protected_inputs": protected("a")}, nil, ParameterUnknown, "/jobs/1/checks/1/protected_inputs", ""},
	{"protected inputs out of the worktree", object{"jobs/1/checks/0/protected_inputs": protected("a", "../b")}, nil, InvalidPath, "/jobs/1/checks/0/protected_inputs/paths/1", ""},
	{"a protected path that is no glob", object{"jobs/1/checks/0/protected_inputs": protected("a/[")}, nil, InvalidPath, "/jobs/1/checks/0/protected_inputs/paths/0", ""},
	{"the whole worktree as protected", object{"jobs/1/checks/0/protected_inputs": protected(".")}, nil, InvalidPath, "/jobs/1/checks/0/protected_inputs/paths/0", ""},
	{"alternatives without an end", object{"jobs/1/checks/0/protected_inputs": protected("{a,a}{a,a}{a,a}{a,a}b")}, nil, InvalidPath, "/jobs/1/checks/0/protected_inputs/paths/0", ""},
	{"a protected commit by its name", object{"jobs/1/checks/0/protected_inputs": object{"commit": "main", "paths": []any{"a"}}}, nil, SchemaViolation, "/jobs/1/checks/0/protected_inputs/commit", ""},
	{"a protected commit by a short id", object{"jobs/1/checks/0/protected_inputs": object{"commit": "0123abc", "paths": []any{"a"}}}, nil, SchemaViolation, "/jobs/1/checks/0/protected_inputs/commit", ""},
	{"no protected path", object{"jobs/1/checks/0/protected_inputs": protected()}, nil, SchemaViolation, "/jobs/1/checks/0/protected_inputs/paths", ""},
	{"parameters of an external check", object{"jobs/1/checks/1/dir": "sub"}, nil, ParameterUnknown, "/jobs/1/checks/1/dir", ""},
	{"a wall clock that is none", object{"jobs/1/checks/0/limits": object{"wall_clock": "soon"}}, nil, InvalidLimit, "/jobs/1/checks/0/limits/wall_clock", ""},
	{"too much memory", object{"jobs/1/checks/0/limits": object{"memory": "9999GiB"}}, nil, InvalidLimit, "/jobs/1/checks/0/limits/memory", ""},

	{"a claim that is not there", object{"jobs/1/checks/0/backs_claim": "code-is-good"}, nil, UnknownClaim, "/jobs/1/checks/0/backs_claim", ""},
	{"a claim with two checks", object{"jobs/1/checks/+": object{"uses": "builtin:go-vet", "backs_claim": "tests-pass"}}, nil, ClaimTwoChecks, "/jobs/1/checks/2/backs_claim", ""},
	{"a claim with two checks of two jobs", object{"jobs/+": object{
		"id": "verify2", "type": "verify", "role_id": "verifier", "lane_id": "verifier", "objective": "x", "task_prompt": "p.md",
		"write_scope": object{"allowed_paths": []any{}, "forbidden_paths": []any{"verification/"}}, "expected_artifacts": []any{},
		"checks": []any{object{"uses": "builtin:go-vet", "backs_claim": "tests-pass"}},
	}}, nil, ClaimTwoChecks, "/jobs/5/checks/0/backs_claim", ""},
	{"a claim without a check", object{"claims/+": object{"id": "it-is-fast", "statement": "It is fast."}}, nil, ClaimNoCheck, "/claims/2", ""},
	{"no claims", object{"claims": []any{}}, nil, NoClaims, "/claims", ""},
	{"another claim than the intent's", object{}, func() View {
		v := pinned()
		v.Externals[0].BacksClaim = "other"
		return v
	}, ClaimMismatch, "/jobs/1/checks/1/backs_claim", ""},

	{"no gate", object{"jobs/3/type": "review", "edges/3/on": "completed"}, nil, NoGate, "/jobs", ""},
	{"a gate without a verify job before it", object{"edges/2/from": "build", "edges/2/on": "completed"}, nil, GateNoVerify, "/jobs/3", ""},
	{"a commit without a gate before it", object{"edges/3/from": "review", "edges/3/on": "approved"}, nil, CommitNoGate, "/jobs/4", ""},
	{"an intent that the build job may write", object{"jobs/0/write_scope/forbidden_paths": []any{".git/"}}, nil, IntentWritable, "/jobs/0/write_scope/forbidden_paths", ""},
	{"an intent that the verify job may write", object{"jobs/1/write_scope/forbidden_paths": []any{"verification/allowlist.intent.jso"}}, nil, IntentWritable, "/jobs/1/write_scope/forbidden_paths", ""},
	{"a floor over a plain builtin", object{"gate_floor": "verified"}, nil, FloorUnreachable, "/jobs/1/checks/0", ""},
	{"a floor over an entry that stops", object{"gate_floor": "verified", "jobs/1/checks/0/uses": "builtin+toolchain:go-test", "jobs/1/checks/0/id": nil}, func() View {
		v := pinned()
		v.Externals[0].Stops = "its control mutates a fixture"
		return v
	}, FloorUnreachable, "/jobs/1/checks/1", ""},

	{"no intent", object{}, func() View { return View{} }, IntentMissing, "/jobs/1/checks/1/id", ""},
	{"a check that is not in the intent", object{}, func() View { return View{IntentFound: true} }, UnknownCheck, "/jobs/1/checks/1/id", ""},
	{"an unfilled entry", object{}, func() View {
		v := pinned()
		v.Externals[0].Unfilled = []string{"/checks/0/argv"}
		return v
	}, EntryUnfilled, "/checks/0/argv", "verification/allowlist.intent.json"},
	{"an unpinned entry", object{}, func() View {
		v := pinned()
		v.Externals[0].Unpinned = "no pins"
		return v
	}, EntryUnpinned, "/checks/0", "verification/allowlist.intent.json"},
}

func TestEveryRuleNamesItsPlace(t *testing.T) {
	for _, tt := range ruleTable {
		t.Run(tt.name, func(t *testing.T) {
			view := pinned()
			if tt.view != nil {
				view = tt.view()
			}
			got := Validate(edit(t, sample(t), tt.changes), view)
			for _, f := range got {
				if f.Code == tt.code && f.Pointer == tt.pointer && f.File == tt.file {
					if f.What == "" {
						t.Error("the finding says nothing")
					}
					return
				}
			}
			t.Errorf("no finding %s at %q; got %+v", tt.code, tt.pointer, got)
		})
	}
}

var malformedTable = []struct{ name, data, pointer string }{
	{"nothing", "", ""},
	{"no JSON", "workflow", ""},
	{"a list", "[]", ""},
	{"null", "null", ""},
	{"data after the object", `{"schema_version":"striatum.workflow.v1"} {}`, ""},
	{"a duplicate key", `{"name":"a","name":"b"}`, "/name"},
	{"a duplicate key spelt otherwise", `{"name":"a","n\u0061me":"b"}`, "/name"},
	{"a duplicate key deep inside", `{"jobs":[{"write_scope":{"allowed_paths":[],"allowed_paths":[]}}]}`, "/jobs/0/write_scope/allowed_paths"},
	{"invalid UTF-8", "{\"name\":\"\xff\"}", ""},
	{"too deep", strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), "-"},
	{"too long", `{"name":"` + strings.Repeat("a", MaxBytes) + `"}`, ""},
}

func TestMalformedDocumentsAreOneFindingEach(t *testing.T) {
	for _, tt := range malformedTable {
		t.Run(tt.name, func(t *testing.T) {
			got := Validate([]byte(tt.data), View{})
			if len(got) == 0 {
				t.Fatal("accepted")
			}
			if f := got[0]; f.Code != Malformed && f.Code != SchemaViolation || tt.pointer != "-" && f.Pointer != tt.pointer {
				t.Errorf("got %+v, want pointer %q", f, tt.pointer)
			}
		})
	}
}

// TestEveryCodeHasARow reads the codes from the source, so that a new rule
// without a row here is noticed.
func TestEveryCodeHasARow(t *testing.T) {
	seen := map[string]bool{string(Malformed): true} // rows of malformedTable
	for _, tt := range ruleTable {
		seen[string(tt.code)] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "finding.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			code, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if !seen[code] {
				t.Errorf("no row for the code %q", code)
			}
		}
		return true
	})
}

func TestSampleIsValid(t *testing.T) {
	if got := Validate(sample(t), pinned()); len(got) != 0 {
		t.Errorf("findings: %+v", got)
	}
	if _, err := Parse(sample(t)); err != nil {
		t.Error(err)
	}
}

func TestOnlyUnfilledAndUnpinnedAreMarkedSo(t *testing.T) {
	for _, tt := range ruleTable {
		view := pinned()
		if tt.view != nil {
			view = tt.view()
		}
		for _, f := range Validate(edit(t, sample(t), tt.changes), view) {
			if want := f.Code == EntryUnfilled || f.Code == EntryUnpinned; f.Unfilled != want {
				t.Errorf("%s: %s marked unfilled %v, want %v", tt.name, f.Code, f.Unfilled, want)
			}
			if f.Unfilled && !strings.Contains(f.Hint, "fix") {
				t.Errorf("%s: hint %q lacks the fix command", tt.name, f.Hint)
			}
		}
	}
}
