package daemon_test

import (
	"os"
	"strings"
	"testing"

	"striatum/daemon"
	"striatum/internal/schemacheck"
	"striatum/seal"
	"striatum/workflow"
	"striatum/workflowgenerate"
)

// The document is a format, and its digest is what operators accept: these
// bytes may never change.
func TestPolicyDocumentIsFrozenAndFitsItsSchema(t *testing.T) {
	files := daemon.Files{"verification/workflow.json": []byte("{}\n"), "verification/anchors.json": nil}
	document, digest, err := files.Document()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"files":{` +
		`"verification/anchors.json":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",` +
		`"verification/workflow.json":"ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"},` +
		`"schema_version":"striatum.policy.v1"}`
	if string(document) != want || digest != seal.SHA256Hex([]byte(want)) {
		t.Errorf("got %s, %s", document, digest)
	}
	schema, err := os.ReadFile("../docs/schemas/policy.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	violations, err := schemacheck.Check(schema, document)
	if err != nil || len(violations) > 0 {
		t.Errorf("got %v, %v", violations, err)
	}
}

// TestARequirementKnowsTheProtectedCommit: of a builtin and of an entry of the intent.
func TestARequirementKnowsTheProtectedCommit(t *testing.T) {
	commit := strings.Repeat("c", 40)
	protected := `"protected_inputs": {"commit": "` + commit + `", "paths": ["**/*_test.go"]}, `
	plan, err := workflowgenerate.Generate(workflowgenerate.Spec{Shape: "verification_gate", Checks: []string{"builtin:go-test", "schema"}})
	if err != nil {
		t.Fatal(err)
	}
	files := daemon.Files{}
	for _, f := range plan.Files {
		if f.Path == workflow.DefaultPath || f.Path == workflow.DefaultIntentPath {
			files[f.Path] = f.Data
		}
	}
	before, _, err := files.Requirements()
	if err != nil {
		t.Fatal(err)
	}
	for path, key := range map[string]string{workflow.DefaultPath: `"uses": "builtin:go-test"`, workflow.DefaultIntentPath: `"argv":`} {
		text := strings.Replace(string(files[path]), key, protected+key, 1)
		if text == string(files[path]) {
			t.Fatalf("%s has no %s", path, key)
		}
		files[path] = []byte(text)
	}
	after, _, err := files.Requirements()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, r := range after {
		if before[i].ProtectedCommit != "" {
			t.Errorf("%s has the protected commit %s", before[i].ClaimID, before[i].ProtectedCommit)
		}
		if r.ProtectedCommit == commit && r.CheckDigest != before[i].CheckDigest {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d requirements have the commit, and another digest, want 2: %+v", n, after)
	}
}

func TestARequirementSaysWhatItsCheckIsNarrowedTo(t *testing.T) {
	for _, tt := range []struct{ parameters, want string }{
		{``, ""},
		{`, "packages": ["./..."]`, ""},
		{`, "packages": ["./a", "./b/..."]`, "the packages ./a ./b/..."},
		{`, "dir": "tools"`, "the module in tools"},
		{`, "dir": "tools", "packages": ["./a"]`, "the packages ./a in tools"},
	} {
		files := policyFiles(t)
		const uses = `"uses": "builtin:go-test"`
		flow := strings.Replace(string(files[workflow.DefaultPath]), uses, uses+tt.parameters, 1)
		if tt.parameters != "" && flow == string(files[workflow.DefaultPath]) {
			t.Fatalf("no check with %s", uses)
		}
		files[workflow.DefaultPath] = []byte(flow)
		required, _, err := files.Requirements()
		if err != nil {
			t.Fatal(err)
		}
		if required[0].Scope != tt.want {
			t.Errorf("%s: got %q, want %q", tt.parameters, required[0].Scope, tt.want)
		}
	}
}
