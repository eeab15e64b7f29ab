package schemacheck

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const schema = `{
	"type": "object", "additionalProperties": false, "required": ["a", "b"],
	"properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "object", "required": ["c"], "properties": {"c": {"enum": ["x"]}}}}}
}`

func TestEveryViolationHasItsPointer(t *testing.T) {
	got, err := Check([]byte(schema), []byte(`{"a":"1","b":[{"c":"x"},{"c":"y"},{}],"z/~":1}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Violation{
		{"/a", "got string, want integer"},
		{"/b/1/c", "value must be 'x'"},
		{"/b/2", `missing key "c"`},
		{"/z~1~0", "unknown key"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAValidDocumentHasNoViolation(t *testing.T) {
	if got, err := Check([]byte(schema), []byte(`{"a":1,"b":[]}`)); err != nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestASchemaMayNotReferElsewhere(t *testing.T) {
	for _, ref := range []string{"file:///etc/passwd", "https://example.com/s.json", "other.json"} {
		if _, err := Check([]byte(`{"$ref":"`+ref+`"}`), []byte(`{}`)); err == nil {
			t.Errorf("%s was loaded", ref)
		}
	}
}

func TestWhatIsNoJSONIsAnError(t *testing.T) {
	if _, err := Check([]byte(schema), []byte(`{`)); err == nil {
		t.Error("a broken document was accepted")
	}
	if _, err := Check([]byte(`{`), []byte(`{}`)); err == nil {
		t.Error("a broken schema was accepted")
	}
}
