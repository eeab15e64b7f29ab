package daemon_test

import (
	"os"
	"testing"

	"striatum/daemon"
	"striatum/internal/schemacheck"
	"striatum/seal"
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
