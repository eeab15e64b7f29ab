package verifier_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"striatum/allowlist"
	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/seal"
	"striatum/verifier"
	"striatum/verifier/external"
	"striatum/verifier/gocheck"
	"striatum/workflow"
)

// fingerprint is the host of the lab's lane.
const fingerprint = "00000000-linux-amd64"

// entry parses an intent of one entry.
func entry(t *testing.T, text string) allowlist.Entry {
	t.Helper()
	in, err := allowlist.ParseIntent([]byte(`{"schema_version": "` + allowlist.IntentSchemaVersion + `", "checks": [` + text + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return in.Checks[0]
}

// ask is a request for one entry, with pins as they are.
func ask(root string, e allowlist.Entry, pins *allowlist.Pins) verifier.Request {
	return verifier.Request{
		RepositoryID: "repo-test", Requester: "local", Root: root, Wait: time.Minute,
		Select: func(string) (verifier.Selection, error) {
			rows, err := allowlist.Join(allowlist.Intent{SchemaVersion: allowlist.IntentSchemaVersion, Checks: []allowlist.Entry{e}}, pins, nil, fingerprint)
			if err != nil {
				return verifier.Selection{}, err
			}
			return verifier.Selection{
				Checks:    []workflow.CheckRef{{ID: e.ID, BacksClaim: e.BacksClaim}},
				Externals: map[string]allowlist.Row{e.ID: rows[0]},
			}, nil
		},
	}
}

// pin observes the entry's command in the tree.
func (l *lab) pin(t *testing.T, root string, e allowlist.Entry) *allowlist.Pins {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, err := l.lane(t, nil).Observe(t.Context(), ask(root, e, nil))
	if err != nil {
		t.Fatal(err)
	}
	if seen[0].Why != "" {
		t.Fatalf("nothing was observed: %s", seen[0].Why)
	}
	pins := &allowlist.Pins{SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: fingerprint, Checks: []allowlist.Pin{seen[0].Pin}}
	if _, err := allowlist.SignPins(*pins, l.key); err != nil {
		t.Fatal(err)
	}
	return pins
}

// external runs one entry, pinned in the tree before change.
func (l *lab) external(t *testing.T, text, tree string, change func(root string)) receipt.Receipt {
	t.Helper()
	root := testenv.Tree(t, tree)
	e := entry(t, text)
	pins := l.pin(t, root, e)
	if change != nil {
		change(root)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	outcomes, err := l.lane(t, nil).Run(context.Background(), ask(root, e, pins))
	if err != nil {
		t.Fatal(err)
	}
	return outcomes[0].Receipt.Receipt()
}

const checkSchema = `-- tools/check.py --
import json, pathlib, sys
for p in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    kind = json.loads(p.read_text())["type"]
    if kind not in ("string", "number"):
        sys.exit(f"{p.name}: unknown type '{kind}'")
    print(p.name, kind)
-- schema/user.json --
{
  "type": "string"
}
`

// schemaEntry is an entry of that tree; edit replaces parts of its text.
func schemaEntry(edit ...string) string {
	text := `{"id": "schema", "argv": ["python3", "tools/check.py", "{target}/schema"], "definition": ["tools/**"],
		"pass_when": "exit_zero", "backs_claim": "schema-is-valid", "agreement": "stdout",
		"negative_control": {"mutation_of": ".", "mutation": {"file": "schema/user.json", "find": "\"string\"", "replace": "\"strnig\""},
			"fails_with": "unknown type .strnig."}}`
	return strings.NewReplacer(edit...).Replace(text)
}

func TestExternalChecksOfAnyTool(t *testing.T) {
	l := open(t)
	for name, c := range map[string]struct{ entry, tree string }{
		"python": {schemaEntry(), checkSchema},
		"shell": {
			`{"id": "todo", "argv": ["tools/check.sh", "{target}"], "pass_when": {"stdout_contains": "no todo left"}, "backs_claim": "c", "agreement": "exit_code",
			"negative_control": {"mutation_of": ".", "mutation": [{"file": "src/a.txt", "find": "done", "replace": "TODO"}, {"file": "src/a.txt", "find": "really", "replace": "TODO"}], "fails_with": "TODO in"}}`,
			"-- tools/check.sh --\n#!/bin/sh\ncd \"$1\" || exit 2\nif grep -l TODO src/*; then echo TODO in src; exit 1; fi\ntest -s src/a.txt || { echo empty; exit 1; }\necho no todo left\n-- src/a.txt --\nthis is done, really\n",
		},
		"node": {
			`{"id": "unit", "argv": ["node", "--test", "--test-reporter=tap"], "definition": ["test"], "pass_when": {"tests": {"must_pass": ["adds"], "min_passed": 1}}, "backs_claim": "c", "agreement": "tap",
			"negative_control": {"mutation_of": ".", "mutation": {"file": "lib.js", "find": "a + b", "replace": "a - b"}, "fails_with": "expected: 3"}}`,
			"-- lib.js --\nexports.add = (a, b) => a + b;\n-- test/lib.test.js --\nconst test = require('node:test');\nconst assert = require('node:assert');\nconst { add } = require('../lib.js');\ntest('adds', () => assert.strictEqual(add(1, 2), 3));\n",
		},
		"artifact": {
			`{"id": "site", "argv": ["sh", "build.sh"], "definition": ["build.sh"], "pass_when": {"artifact_present": "out/index.html"}, "backs_claim": "c", "agreement": "exit_code",
			"negative_control": {"mutation_of": ".", "mutation": {"file": "page.txt", "find": "title", "replace": "titel"}, "fails_with": "no title"}}`,
			"-- build.sh --\nmkdir out\ngrep title page.txt > out/index.html && exit\ntest -s page.txt && echo no title\nexit 1\n-- page.txt --\na title\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.external(t, c.entry, c.tree, nil)
			if r.Classification != receipt.VerifiedEligible || !r.Posture.Strict || r.Control.Outcome != receipt.FailedAsRequired || r.Control.Emptied == nil {
				data, _ := json.MarshalIndent(r, "", " ")
				t.Errorf("got %s", data)
			}
		})
	}
}

// TestExternalChecksThatProveNothing holds each way for a check, or its control,
// to say nothing against what must come of it.
func TestExternalChecksThatProveNothing(t *testing.T) {
	l := open(t)
	sh := func(control, rest string) string {
		return `{"id": "x", "argv": ["sh", "x.sh", "{target}"], "definition": ["x.sh"], "backs_claim": "c", "agreement": "exit_code", "pass_when": "exit_zero",
			"negative_control": {` + control + `, "fails_with": "is bad"}` + rest + `}`
	}
	onTree := `"mutation_of": ".", "mutation": {"file": "in.txt", "find": "good", "replace": "bad"}`
	tree := func(script string) string { return "-- x.sh --\n" + script + "\n-- in.txt --\ngood\n" }
	honest := "grep -q good $1/in.txt || { test -s $1/in.txt && echo it is bad; exit 1; }"
	fixture := `"mutation_of": "fix", "mutation": {"file": "fix/in.txt", "find": "good", "replace": "bad"}`
	for name, c := range map[string]struct {
		entry, tree string
		change      func(root string)
		want        receipt.Classification
		outcome     receipt.ControlOutcome
		says        string
	}{
		"honest":                {sh(onTree, ""), tree(honest), nil, receipt.VerifiedEligible, receipt.FailedAsRequired, ""},
		"fails":                 {sh(onTree, ""), tree(honest + "; echo it is bad; exit 3"), nil, receipt.Failed, receipt.FailedAsRequired, "exit code 3"},
		"true":                  {sh(onTree, ""), tree("true"), nil, receipt.Void, receipt.DidNotFail, ""},
		"exits zero":            {sh(onTree, ""), tree(honest + "\nexit 0"), nil, receipt.VerifiedEligible, receipt.FailedAsRequired, ""},
		"swallows":              {sh(onTree, ""), tree("(" + honest + ") || exit 0"), nil, receipt.Void, receipt.DidNotFail, ""},
		"says nothing":          {sh(onTree, ""), tree("grep -q good $1/in.txt"), nil, receipt.Void, receipt.Invalid, "without printing"},
		"says it always":        {sh(onTree, ""), tree("echo nothing is bad; grep -q good $1/in.txt"), nil, receipt.Void, receipt.Invalid, "fails_with_unspecific"},
		"says it when empty":    {sh(onTree, ""), tree("grep -q good $1/in.txt || { echo it is bad; exit 1; }"), nil, receipt.Void, receipt.Invalid, "fails_with_unspecific"},
		"not found inside":      {sh(onTree, ""), tree("grep -q good $1/in.txt || no-such-command; echo it is bad"), nil, receipt.Void, receipt.DidNotFail, ""},
		"not found":             {sh(onTree, ""), tree("grep -q good $1/in.txt && exit; echo it is bad; no-such-command"), nil, receipt.Void, receipt.Invalid, "127"},
		"signal":                {sh(onTree, ""), tree("grep -q good $1/in.txt && exit; echo it is bad; kill -SEGV $$"), nil, receipt.Void, receipt.Invalid, "SIGSEGV"},
		"endless control":       {sh(onTree, `, "limits": {"wall_clock": "3s"}`), tree("grep -q good $1/in.txt && exit; echo it is bad; sleep 100"), nil, receipt.Void, receipt.Invalid, "limit"},
		"endless run":           {sh(onTree, `, "limits": {"wall_clock": "3s"}`), tree("grep -q good $1/in.txt || { test -s $1/in.txt && echo it is bad; exit 1; }; sleep 100"), nil, receipt.Indeterminate, receipt.FailedAsRequired, "wall_clock"},
		"mutation is absent":    {sh(onTree, ""), tree(honest), func(root string) { put(t, root, "in.txt", "goood\n") }, receipt.Failed, receipt.Invalid, "exactly once"},
		"mutation is twice":     {sh(onTree, ""), tree(honest), func(root string) { put(t, root, "in.txt", "good good\n") }, receipt.Void, receipt.Invalid, "exactly once"},
		"file is absent":        {sh(onTree, ""), tree(honest), func(root string) { remove(t, root, "in.txt") }, receipt.Failed, receipt.Invalid, "no regular file"},
		"mutates its script":    {sh(`"mutation_of": ".", "mutation": {"file": "x.sh", "find": "good", "replace": "bad"}`, ""), tree("grep -q good $1/in.txt"), nil, receipt.Void, receipt.Invalid, "definition"},
		"edited script":         {sh(onTree, ""), tree(honest), func(root string) { put(t, root, "x.sh", "true\n") }, receipt.Indeterminate, receipt.NotReached, "the definition in the tree was"},
		"fixture":               {sh(fixture, ""), tree(honest) + "-- fix/in.txt --\ngood\n", nil, receipt.Asserted, receipt.FailedAsRequired, "control_not_on_subject"},
		"fixture is broken":     {sh(fixture, ""), tree(honest) + "-- fix/in.txt --\ngood\n-- fix/x --\n", func(root string) { put(t, root, "fix/in.txt", "not so goood\n") }, receipt.Void, receipt.Invalid, "exactly once"},
		"fixture does not pass": {sh(fixture, ""), tree(honest+"; test -e $1/never || test $1 = /workspace") + "-- fix/in.txt --\ngood\n", nil, receipt.Void, receipt.Invalid, "does not pass"},
		"outside the fixture":   {sh(`"mutation_of": "fix", "mutation": {"file": "in.txt", "find": "good", "replace": "bad"}`, ""), tree(honest) + "-- fix/in.txt --\ngood\n", nil, receipt.Void, receipt.Invalid, "not part of the fixture"},
		"artifact is in tree":   {strings.Replace(sh(onTree, ""), `"exit_zero"`, `{"artifact_present": "in.txt"}`, 1), tree(honest), nil, receipt.Failed, receipt.FailedAsRequired, "artifact_missing"},
		"random output":         {strings.Replace(sh(onTree, ""), `"exit_code"`, `"stdout"`, 1), tree(honest + "; cat /proc/sys/kernel/random/uuid"), nil, receipt.Indeterminate, receipt.FailedAsRequired, "no_reexecution_agreement"},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.external(t, c.entry, c.tree, c.change)
			data, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if r.Classification != c.want || r.Control.Outcome != c.outcome || !strings.Contains(string(data), c.says) {
				t.Errorf("%s, control %s (%s); want %s, %s and %q; reasons %v", r.Classification, r.Control.Outcome, r.Control.Why, c.want, c.outcome, c.says, r.Reasons)
			}
		})
	}
}

// put writes a file of the tree at root, whose folder need not be there.
func put(t *testing.T, root, name, content string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, root, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
}

// TestObserveSaysWhatCannotBePinned: a command that runs nothing, or that needs
// what is not where tools are installed, is no error of the machine.
func TestObserveSaysWhatCannotBePinned(t *testing.T) {
	l := open(t)
	for name, c := range map[string]struct{ argv0, tree, want string }{
		"absent":         {"no-such-tool", checkSchema, "no such program"},
		"not executable": {"tools/check.py", checkSchema, "not executable"},
		"no definition":  {"python3", "-- schema/user.json --\n{}\n", "matches the definition"},
		"in a home":      {"/root/tool", checkSchema, "no such program"},
		"its interpreter is nobody's": {
			"tools/check.py", "-- tools/check.py --\n#!/workspace/bin/i\n-- bin/i --\n#!/bin/sh\nexit 0\n-- schema/user.json --\n\"string\"\n",
			`runs "bin/i" of the tree, which is no part of the definition`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l.mu.Lock()
			defer l.mu.Unlock()
			e := entry(t, schemaEntry(`"python3"`, `"`+c.argv0+`"`))
			seen, err := l.lane(t, nil).Observe(t.Context(), ask(testenv.Tree(t, c.tree), e, nil))
			if err != nil || len(seen) != 1 || !strings.Contains(seen[0].Why, c.want) {
				t.Errorf("got %+v, %v, want %q", seen, err, c.want)
			}
		})
	}
}

// TestPinCoversInterpreterAndLibraries: the closure of a script has its
// interpreter, what the loader takes for it, the declared roots and the definition.
func TestPinCoversInterpreterAndLibraries(t *testing.T) {
	l := open(t)
	root := testenv.Tree(t, "-- tools/check.py --\n#!/usr/bin/env python3\nprint(1)\n-- schema/user.json --\n\"string\"\n")
	e := entry(t, schemaEntry(`"python3", "tools/check.py"`, `"tools/check.py"`, `"description"`, ``, `"agreement"`, `"toolchain": {"roots": ["/usr/lib/python3.11/json"]}, "agreement"`))
	p := l.pin(t, root, e).Checks[0]
	var names []string
	for _, c := range p.Closure {
		names = append(names, c.Path+c.Root+c.Tree)
	}
	for _, want := range []string{"/usr/bin/python3.11", "/usr/bin/env", "/usr/lib/python3.11/json", "definition", "libc.so.6"} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, want) }) {
			t.Errorf("the closure lacks %s: %q", want, names)
		}
	}
	if p.ResolvedPath != "/workspace/tools/check.py" || !p.Posture.Strict {
		t.Errorf("got %+v", p)
	}
}

// TestAProgramOfTheTreeIsItsOwnDefinition: a static program that is committed, with
// a folder of the host as its only declared root.
func TestAProgramOfTheTreeIsItsOwnDefinition(t *testing.T) {
	l := open(t)
	data, err := os.ReadFile(testenv.Init(t))
	if err != nil {
		t.Fatal(err)
	}
	root := testenv.Tree(t, "-- bin/README --\n-- f --\nbytes\n-- a.json --\n{\"schema_version\":\"striatum.anchors.v1\",\"anchors\":[{\"path\":\"f\",\"sha256\":\""+seal.SHA256Hex([]byte("bytes\n"))+"\"}]}\n")
	if err := os.WriteFile(filepath.Join(root, "bin", "checker"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	e := entry(t, `{"id": "x", "argv": ["bin/checker", "anchors", "a.json", "{target}"], "backs_claim": "c", "agreement": "stdout", "pass_when": "exit_zero",
		"toolchain": {"roots": ["/usr/share/zoneinfo/Arctic", "/usr/lib/os-release"]},
		"negative_control": {"mutation_of": ".", "mutation": {"file": "f", "find": "bytes", "replace": "other"}, "fails_with": "differs `+seal.SHA256Hex([]byte("other\n"))+`"}}`)
	pins := l.pin(t, root, e)
	if p := pins.Checks[0]; p.ResolvedPath != "/workspace/bin/checker" || p.BinarySHA256 != seal.SHA256Hex(data) {
		t.Errorf("got %+v", p)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	outcomes, err := l.lane(t, nil).Run(t.Context(), ask(root, e, pins))
	if err != nil {
		t.Fatal(err)
	}
	if r := outcomes[0].Receipt.Receipt(); r.Classification != receipt.VerifiedEligible {
		t.Errorf("got %s, %s %v", r.Classification, r.Control.Why, r.Reasons)
	}
}

func TestAnIgnoredFileIsNamedInTheReceipt(t *testing.T) {
	l := open(t)
	r := l.external(t, schemaEntry(), checkSchema+"-- .gitignore --\nschema/item.json\n*.log\n-- schema/item.json --\n{\"type\": \"nunber\"}\n-- a.log --\n\n", nil)
	want := receipt.Finding{
		Code: "files_ignored", Path: "a.log",
		Detail: "git ignores it, so it is not in the snapshot, and the check did not see it; and 1 more",
	}
	if r.Classification != receipt.VerifiedEligible || !slices.Contains(r.Findings, want) {
		t.Errorf("got %s, findings %v", r.Classification, r.Findings)
	}
}

// TestExternalChecksSeeTheTreeWhereTheirDefinitionSays: a path of argv that begins
// with the folder is taken for one of the tree.
func TestExternalChecksSeeTheTreeWhereTheirDefinitionSays(t *testing.T) {
	if external.WorkDir != gocheck.WorkDir {
		t.Errorf("the tree is at %q, and taken to be at %q", gocheck.WorkDir, external.WorkDir)
	}
}
