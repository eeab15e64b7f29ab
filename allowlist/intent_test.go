package allowlist

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/seal"
)

var update = flag.Bool("update", false, "write generated files again")

// sample is frozen: this version of the format opens for ever.
func sample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/allowlist.intent.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parsed(t testing.TB) Intent {
	t.Helper()
	in, err := ParseIntent(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestSchemaInDocsIsACopy(t *testing.T) {
	path := filepath.Join("..", "docs", "schemas", "allowlist.intent.v1.json")
	if *update {
		if err := os.WriteFile(path, IntentSchema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, IntentSchema()) {
		t.Errorf("%s differs; run: go generate ./allowlist", path)
	}
}

// edit sets, or with nil removes, the value at each path below the first entry.
func edit(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(sample(t), &doc); err != nil {
		t.Fatal(err)
	}
	for path, v := range changes {
		at := doc["checks"].([]any)[0]
		if rest, ok := strings.CutPrefix(path, "/"); ok {
			at, path = doc, rest
		}
		keys := strings.Split(path, "/")
		for i, key := range keys {
			last := i == len(keys)-1
			switch d := at.(type) {
			case map[string]any:
				switch {
				case last && v == nil:
					delete(d, key)
				case last:
					d[key] = v
				}
				at = d[key]
			case []any:
				n, err := strconv.Atoi(key)
				if err != nil {
					t.Fatal(err)
				}
				if last {
					d[n] = v
				}
				at = d[n]
			}
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type object = map[string]any

func words(w ...any) []any { return append([]any{}, w...) }

var ruleTable = []struct {
	name    string
	changes object
	code    Code
	pointer string
}{
	{"no id", object{"id": nil}, SchemaViolation, "/checks/0"},
	{"another schema version", object{"/schema_version": "x"}, SchemaViolation, "/schema_version"},
	{"an unknown key", object{"timeout": 3}, SchemaViolation, "/checks/0/timeout"},
	{"no negative control", object{"negative_control": nil}, SchemaViolation, "/checks/0"},
	{"a bare known-bad", object{"negative_control/mutation_of": nil}, SchemaViolation, "/checks/0/negative_control"},
	{"no mutation", object{"negative_control/mutation": nil}, SchemaViolation, "/checks/0/negative_control"},
	{"no mutation in the list", object{"negative_control/mutation": words()}, SchemaViolation, "/checks/0/negative_control/mutation"},
	{"no fails_with", object{"negative_control/fails_with": nil}, SchemaViolation, "/checks/0/negative_control"},
	{"a control that is filled and unfilled", object{"negative_control/unfilled": "x"}, SchemaViolation, "/checks/0/negative_control/mutation"},
	{"no agreement", object{"agreement": nil}, SchemaViolation, "/checks/0"},
	{"an unknown agreement", object{"agreement": "stderr"}, SchemaViolation, "/checks/0/agreement"},
	{"an unknown pass word", object{"pass_when": "exit_one"}, SchemaViolation, "/checks/0/pass_when"},
	{"two pass forms", object{"pass_when": object{"stdout_contains": "a", "artifact_present": "b"}}, SchemaViolation, "/checks/0/pass_when"},
	{"no pass form", object{"pass_when": object{}}, SchemaViolation, "/checks/0/pass_when"},
	{"an empty argv", object{"argv": words()}, SchemaViolation, "/checks/0/argv"},
	{"argv as a shell line", object{"argv": "python3 x"}, SchemaViolation, "/checks/0/argv"},
	{"a zero byte in argv", object{"argv": words("python3", "a\x00b")}, SchemaViolation, "/checks/0/argv/1"},
	{"unfilled in the definition", object{"definition": object{"unfilled": "x"}}, SchemaViolation, "/checks/0/definition"},
	{"unfilled and more", object{"argv": object{"unfilled": "x", "argv": words("a")}}, SchemaViolation, "/checks/0/argv/argv"},
	{"an image by tag", object{"toolchain": object{"image": "python:3"}}, SchemaViolation, "/checks/0/toolchain/image"},
	{"roots and image", object{"toolchain/image": "a@sha256:" + strings.Repeat("0", 64)}, SchemaViolation, "/checks/0/toolchain"},

	{"a hash in an entry", object{"binary_sha256": strings.Repeat("0", 64)}, HashInIntent, "/checks/0/binary_sha256"},
	{"a hash deep inside", object{"toolchain/binary_sha256": "x"}, HashInIntent, "/checks/0/toolchain/binary_sha256"},
	{"a hash at the top", object{"/binary_sha256": "x"}, HashInIntent, "/binary_sha256"},
	{"a reserved id", object{"id": "builtin-ish"}, ReservedID, "/checks/0/id"},
	{"two entries of one id", object{"id": "lint"}, DuplicateID, "/checks/1/id"},
	{"two entries for one claim", object{"backs_claim": "lint-is-clean"}, ClaimTwoChecks, "/checks/1/backs_claim"},

	{"an empty program", object{"argv": words("", "x")}, InvalidArgv, "/checks/0/argv/0"},
	{"a program out of the worktree", object{"argv": words("../bin/x")}, InvalidArgv, "/checks/0/argv/0"},
	{"a program in the target", object{"argv": words("{target}/x")}, InvalidArgv, "/checks/0/argv/0"},
	{"an interpreter without definition", object{"definition": nil}, DefinitionMissing, "/checks/0"},
	{"an interpreter with an empty definition", object{"definition": words()}, DefinitionMissing, "/checks/0"},
	{"a versioned interpreter", object{"argv": words("/usr/bin/python3.11", "x"), "definition": nil}, DefinitionMissing, "/checks/0"},
	{"a shell", object{"argv": words("/bin/sh", "-c", "true"), "definition": nil}, DefinitionMissing, "/checks/0"},
	{"a build driver", object{"argv": words("make", "check"), "definition": nil}, DefinitionMissing, "/checks/0"},
	{"a package runner", object{"argv": words("npx", "eslint"), "definition": nil}, DefinitionMissing, "/checks/0"},
	{"a wrapper", object{"argv": words("env", "linter"), "definition": nil}, DefinitionMissing, "/checks/0"},
	{"go test", object{"argv": words("go", "test", "./...")}, WeakerThanBuiltin, "/checks/0/argv"},
	{"go vet by path", object{"argv": words("/usr/local/go/bin/go", "vet")}, WeakerThanBuiltin, "/checks/0/argv"},
	{"go build in a folder", object{"argv": words("go", "-C", "sub", "build")}, WeakerThanBuiltin, "/checks/0/argv"},
	{"go test behind env", object{"argv": words("env", "A=b", "go", "test")}, WeakerThanBuiltin, "/checks/0/argv"},
	{"go test in a shell", object{"argv": words("bash", "-c", "cd x && go test ./...")}, WeakerThanBuiltin, "/checks/0/argv"},
	{"go test in a shell behind timeout", object{"argv": words("timeout", "5", "sh", "-c", "go test")}, WeakerThanBuiltin, "/checks/0/argv"},

	{"a definition out of the worktree", object{"definition": words("../x")}, InvalidPath, "/checks/0/definition/0"},
	{"a definition of too many alternatives", object{"definition": words(strings.Repeat("{a,b}", 4))}, InvalidGlob, "/checks/0/definition/0"},
	{"a definition with a brace that is not closed", object{"definition": words("tools/{a,b")}, InvalidGlob, "/checks/0/definition/0"},
	{"a definition that is no glob", object{"definition": words("tools/[")}, InvalidGlob, "/checks/0/definition/0"},
	{"an artifact out of the worktree", object{"pass_when": object{"artifact_present": "/tmp/x"}}, InvalidPath, "/checks/0/pass_when/artifact_present"},
	{"a mutated file out of the worktree", object{"negative_control/mutation/file": "../x"}, InvalidPath, "/checks/0/negative_control/mutation/file"},
	{"a fixture out of the worktree", object{"negative_control/mutation_of": "../x"}, InvalidPath, "/checks/0/negative_control/mutation_of"},
	{"a root that is not absolute", object{"toolchain/roots": words("usr/lib")}, InvalidPath, "/checks/0/toolchain/roots/0"},
	{"the whole host as a root", object{"toolchain/roots": words("/")}, InvalidPath, "/checks/0/toolchain/roots/0"},
	{"protected inputs out of the worktree", object{"protected_inputs": object{"commit": strings.Repeat("a", 40), "paths": words("/etc")}}, InvalidPath, "/checks/0/protected_inputs/paths/0"},
	{"protected inputs that are no glob", object{"protected_inputs": object{"commit": strings.Repeat("a", 40), "paths": words("a", "{b")}}, InvalidPath, "/checks/0/protected_inputs/paths/1"},
	{"a mutation of a protected input", object{"protected_inputs": object{"commit": strings.Repeat("a", 40), "paths": words("**")}}, InvalidMutation, "/checks/0/negative_control/mutation/file"},
	{"a definition of too many stars", object{"definition": words(strings.Repeat("*/", 8) + "*")}, InvalidGlob, "/checks/0/definition/0"},
	{"protected inputs of a branch", object{"protected_inputs": object{"commit": "main", "paths": words("a")}}, SchemaViolation, "/checks/0/protected_inputs/commit"},
	{"protected inputs without a path", object{"protected_inputs": object{"commit": strings.Repeat("a", 64)}}, SchemaViolation, "/checks/0/protected_inputs"},
	{"protected inputs with a key too many", object{"protected_inputs": object{"commit": strings.Repeat("a", 64), "paths": words("a"), "ref": "x"}}, SchemaViolation, "/checks/0/protected_inputs/ref"},
	{"tests without a test format", object{"pass_when": object{"tests": object{"min_passed": 1}}}, TestsNeedFormat, "/checks/0/pass_when/tests"},
	{"tests that ask for none", object{"agreement": "tap", "pass_when": object{"tests": object{"allow_skips": words("a")}}}, TestsNeedFormat, "/checks/0/pass_when/tests"},
	{"a mutation of two lines", object{"negative_control/mutation/find": "a\nb"}, InvalidMutation, "/checks/0/negative_control/mutation/find"},
	{"a mutation into two lines", object{"negative_control/mutation/replace": "a\nb"}, InvalidMutation, "/checks/0/negative_control/mutation/replace"},
	{"a mutation that changes nothing", object{"negative_control/mutation/replace": "\"type\": \"string\""}, InvalidMutation, "/checks/0/negative_control/mutation/replace"},
	{"a list's second mutation", object{"negative_control/mutation": words(object{"file": "a", "find": "b", "replace": "c"}, object{"file": "a", "find": "b", "replace": "b"})}, InvalidMutation, "/checks/0/negative_control/mutation/1/replace"},
	{"a pattern that does not compile", object{"negative_control/fails_with": "("}, InvalidPattern, "/checks/0/negative_control/fails_with"},
	{"a pattern of another dialect", object{"negative_control/fails_with": "a(?=b)"}, InvalidPattern, "/checks/0/negative_control/fails_with"},
	{"a pattern that matches nothing said", object{"negative_control/fails_with": ".*"}, FailsWithUnspecific, "/checks/0/negative_control/fails_with"},
	{"a limit out of range", object{"limits/wall_clock": "2d"}, InvalidLimit, "/checks/0/limits/wall_clock"},
}

func TestEveryRuleNamesItsPlace(t *testing.T) {
	for _, tt := range ruleTable {
		t.Run(tt.name, func(t *testing.T) {
			in, err := ParseIntent(edit(t, tt.changes))
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(Intent{}, in); diff != "" {
				t.Errorf("a value beside the error: %s", diff)
			}
			for _, f := range invalid.Findings {
				if f.Code == tt.code && f.Pointer == tt.pointer && f.What != "" {
					return
				}
			}
			t.Errorf("no finding %s at %q; got %+v", tt.code, tt.pointer, invalid.Findings)
		})
	}
}

func TestMalformedIntentsAreRefused(t *testing.T) {
	for name, data := range map[string]string{
		"nothing": "", "a list": "[]", "null": "null",
		"a duplicate key": `{"schema_version":"striatum.verifier_allowlist_intent.v1","checks":[],"checks":[]}`,
		"trailing data":   `{"schema_version":"striatum.verifier_allowlist_intent.v1","checks":[]} 1`,
		"too deep":        strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
	} {
		if _, err := ParseIntent([]byte(data)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestEveryCodeHasARow(t *testing.T) {
	seen := map[string]bool{string(Malformed): true}
	for _, tt := range ruleTable {
		seen[string(tt.code)] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "parse.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			code, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if !seen[code] {
				t.Errorf("no row for the code %q", code)
			}
		}
	}
}

func TestReasonsLiftWhatNeedsAReason(t *testing.T) {
	for name, changes := range map[string]object{
		"definition_reason": {"definition": nil, "definition_reason": "it reads nothing but its argument"},
		"external_reason":   {"argv": words("go", "test", "./..."), "external_reason": "it needs a build of our own"},
		"plain program":     {"argv": words("linter", "go", "test"), "definition": nil},
		"a target":          {"argv": words("/usr/bin/linter", "{target}"), "definition": nil},
		"stdout":            {"pass_when": object{"stdout_contains": "<ok> & done"}},
		"artifact":          {"pass_when": object{"artifact_present": "out/report.txt"}},
		"deep glob":         {"definition": words("tools/**/*.py", "a/?[x].go")},
	} {
		if _, err := ParseIntent(edit(t, changes)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStopsAreNamed(t *testing.T) {
	in, err := ParseIntent(edit(t, object{"argv": words("go", "test", "./..."), "external_reason": "ours"}))
	if err != nil {
		t.Fatal(err)
	}
	if s := in.Checks[0].Stops(); len(s) != 1 || s[0].Code != WeakerThanBuiltin {
		t.Errorf("go test stops by %+v", s)
	}
	if s := in.Checks[1].Stops(); len(s) != 1 || s[0].Code != ControlNotOnSubject {
		t.Errorf("a fixture control stops by %+v", s)
	}
	if s := parsed(t).Checks[0].Stops(); s != nil {
		t.Errorf("a control on the worktree stops by %+v", s)
	}
}

func TestCheckDigestIsOfTheEntryWithoutItsDescription(t *testing.T) {
	var doc struct{ Checks []map[string]any }
	if err := json.Unmarshal(sample(t), &doc); err != nil {
		t.Fatal(err)
	}
	for i, e := range parsed(t).Checks {
		delete(doc.Checks[i], "description")
		raw, err := seal.Canonical(doc.Checks[i])
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if want := seal.SHA256Hex(raw); got != want {
			t.Errorf("entry %q: got %s, want %s", e.ID, got, want)
		}
	}
}

func TestCheckDigestChangesWithEveryKeyButTheDescription(t *testing.T) {
	base, err := parsed(t).Checks[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	digest := func(changes object) string {
		in, err := ParseIntent(edit(t, changes))
		if err != nil {
			t.Fatal(err)
		}
		d, err := in.Checks[0].Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if digest(object{"description": "Other words."}) != base || digest(object{"description": nil}) != base {
		t.Error("the description is in the digest")
	}
	for name, changes := range map[string]object{
		"id": {"id": "schemas"}, "argv": {"argv": words("python3", "tools/check_schema.py")}, "claim": {"backs_claim": "other"},
		"definition": {"definition": words("tools/*.py")}, "definition gone, reason": {"definition": words(), "definition_reason": "x"},
		"pass_when": {"pass_when": object{"stdout_contains": "ok"}}, "agreement": {"agreement": "exit_code"},
		"mutation": {"negative_control/mutation/replace": "x"}, "a list of one": {"negative_control/mutation": words(object{"file": "schema/user.json", "find": "\"type\": \"string\"", "replace": "\"type\": \"strnig\""})},
		"fails_with": {"negative_control/fails_with": "strnig"}, "limits": {"limits/pids": 511}, "limits gone": {"limits": nil},
		"toolchain": {"toolchain": nil}, "reason": {"external_reason": "x"},
	} {
		if digest(changes) == base {
			t.Errorf("%s is not in the digest", name)
		}
	}
}

func TestUnfilledTemplatesAreValidAndNamed(t *testing.T) {
	u := object{"unfilled": "what to write here"}
	in, err := ParseIntent(edit(t, object{"argv": u, "pass_when": u, "negative_control": u}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/checks/0/argv", "/checks/0/pass_when", "/checks/0/negative_control"}
	if diff := cmp.Diff(want, in.Checks[0].UnfilledAt("/checks/0")); diff != "" {
		t.Error(diff)
	}
}

func FuzzIntentParse(f *testing.F) {
	f.Add(sample(f))
	for _, tt := range ruleTable {
		f.Add(edit(f, tt.changes))
	}
	u := object{"unfilled": "x"}
	f.Add(edit(f, object{"argv": u, "pass_when": u, "negative_control": u}))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := ParseIntent(data)
		if err != nil {
			return
		}
		first, err := in.Encode()
		if err != nil {
			t.Fatalf("accepted, but cannot be written: %v", err)
		}
		again, err := ParseIntent(first)
		if err != nil {
			t.Fatalf("written, but not accepted: %v\n%s", err, first)
		}
		if diff := cmp.Diff(in, again, cmp.AllowUnexported(NegativeControl{})); diff != "" {
			t.Fatalf("the value changed: %s", diff)
		}
		a, errA := seal.Canonical(json.RawMessage(data))
		b, errB := seal.Canonical(json.RawMessage(first))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("the document changed (%v, %v):\n%s\n%s", errA, errB, a, b)
		}
		if _, err := Join(in, nil, nil, "x"); err != nil {
			t.Fatalf("accepted, but cannot be joined: %v", err)
		}
	})
}

// TestTheDocumentedEntryIsTheExample keeps docs/external-checks.md and the folder
// that a test of the lane runs the same.
func TestTheDocumentedEntryIsTheExample(t *testing.T) {
	page, err := os.ReadFile("../docs/external-checks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	text, _, _ := strings.Cut(rest, "```")
	example, err := os.ReadFile("../examples/schema/allowlist.intent.json")
	if err != nil {
		t.Fatal(err)
	}
	documented, err := ParseIntent([]byte(`{"schema_version": "` + IntentSchemaVersion + `", "checks": [` + text + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := ParseIntent(example)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(digests(t, shown), digests(t, documented)); diff != "" {
		t.Errorf("the example and the page differ: %s", diff)
	}
}

// digests are the check digests of an intent, and its descriptions.
func digests(t *testing.T, i Intent) (out []string) {
	t.Helper()
	for _, e := range i.Checks {
		digest, err := e.Digest()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, digest, e.Description)
	}
	return out
}
