package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/seal"
)

var update = flag.Bool("update", false, "write generated files again")

func TestSchemaInDocsIsACopy(t *testing.T) {
	path := filepath.Join("..", "docs", "schemas", "workflow.v1.json")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, Schema()) {
		t.Errorf("%s differs; run: go generate ./workflow", path)
	}
}

func TestEncodeReturnsTheBytesOfAGeneratedDocument(t *testing.T) {
	w, err := Parse(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Encode(w)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(sample(t)), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestParseReturnsNothingOnAnError(t *testing.T) {
	w, err := Parse(edit(t, sample(t), map[string]any{"jobs/1/checks/0/uses": "builtin:no"}))
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Findings) != 1 {
		t.Fatalf("error %v", err)
	}
	if diff := cmp.Diff(Workflow{}, w); diff != "" {
		t.Error(diff)
	}
}

func TestCheckDigestIsFrozen(t *testing.T) {
	// The bytes were written by hand from the rule in the package comment.
	tests := []struct {
		check CheckRef
		json  string
	}{
		{CheckRef{Uses: "builtin:go-build"}, `{"builtin_revision":1,"parameters":{},"uses":"builtin:go-build"}`},
		{CheckRef{Uses: "builtin:go-test", AllowSkips: AllowSkips{Any: true}}, `{"builtin_revision":2,"parameters":{"allow_skips":"any"},"uses":"builtin:go-test"}`},
	}
	for _, tt := range tests {
		got, err := tt.check.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if want := seal.SHA256Hex([]byte(tt.json)); got != want {
			t.Errorf("digest of %+v: got %s, want %s", tt.check, got, want)
		}
	}
}

func TestCheckDigestChangesWithEveryParameterOnly(t *testing.T) {
	base := CheckRef{Uses: "builtin:go-test"}
	digest := func(c CheckRef) string {
		d, err := c.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := base
	same.ID, same.BacksClaim = "tests", "other"
	if digest(same) != digest(base) {
		t.Error("the digest changes with id or claim")
	}
	seen := map[string]string{digest(base): "base"}
	for name, c := range map[string]CheckRef{
		"toolchain":    {Uses: "builtin+toolchain:go-test"},
		"dir":          {Uses: base.Uses, Dir: "sub"},
		"packages":     {Uses: base.Uses, Packages: []string{"./..."}},
		"tags":         {Uses: base.Uses, Tags: []string{"x"}},
		"go_work":      {Uses: base.Uses, GoWork: true},
		"skips any":    {Uses: base.Uses, AllowSkips: AllowSkips{Any: true}},
		"skips listed": {Uses: base.Uses, AllowSkips: AllowSkips{Tests: []string{"any"}}},
		"limits":       {Uses: base.Uses, Limits: &Limits{Pids: 7}},
		"mutants":      {Uses: base.Uses, Mutants: 1},
		"protected":    {Uses: base.Uses, ProtectedInputs: &ProtectedInputs{Commit: "a", Paths: []string{"x"}}},
		"other commit": {Uses: base.Uses, ProtectedInputs: &ProtectedInputs{Commit: "b", Paths: []string{"x"}}},
		"other paths":  {Uses: base.Uses, ProtectedInputs: &ProtectedInputs{Commit: "a", Paths: []string{"y"}}},
	} {
		d := digest(c)
		if other, dup := seen[d]; dup {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
}

func TestExternalChecksHaveNoDigestHere(t *testing.T) {
	if _, err := (CheckRef{ID: "schema"}).Digest(); !errors.Is(err, ErrNotBuiltin) {
		t.Errorf("error %v", err)
	}
}

func TestEveryCheckParameterIsInTheDigestAndKnownToABuiltin(t *testing.T) {
	full := CheckRef{
		Uses: "builtin:go-test", Dir: "a", Packages: []string{"./..."}, Tags: []string{"x"}, GoWork: true,
		AllowSkips: AllowSkips{Any: true}, Limits: &Limits{Pids: 1}, Mutants: 1,
		ProtectedInputs: &ProtectedInputs{},
	}
	b, _ := LookupBuiltin("builtin:go-test")
	for _, name := range full.parameters().given() {
		if !slices.Contains(b.Parameters, name) {
			t.Errorf("builtin:go-test does not take %q", name)
		}
	}
	if got := len(full.parameters().given()); got != 8 {
		t.Errorf("%d parameters are in the digest, want 8", got)
	}
}

func TestLimitsParse(t *testing.T) {
	_, err := Limits{Disk: "1024"}.Parse()
	var le *LimitError
	if !errors.As(err, &le) || le.Key != "disk" {
		t.Errorf("a disk of 1 KiB: error %v", err)
	}
	got, err := Limits{WallClock: "5m", Memory: "2GiB", Pids: 512, CPUs: 2, Output: "16MiB", Disk: "2GiB"}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	want := Bounds{WallClock: 5 * time.Minute, MemoryBytes: 2 << 30, Pids: 512, MilliCPUs: 2000, OutputBytes: 16 << 20, DiskBytes: 2 << 30}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, l := range []Limits{
		{WallClock: "500ms"},
		{WallClock: "25h"},
		{WallClock: "-5m"},
		{Memory: "1KiB"},
		{Memory: "02GiB"},
		{Memory: "+2GiB"},
		{Memory: "2 GiB"},
		{Memory: "2GB"},
		{Memory: "9223372036854775807GiB"},
		{Memory: "-1GiB"},
		{Pids: 1 << 20},
		{CPUs: -1},
		{Output: "2GiB"},
	} {
		if b, err := l.Parse(); err == nil {
			t.Errorf("%+v: accepted as %+v", l, b)
		}
	}
}

func TestCoversAFolderButNotItsNeighbour(t *testing.T) {
	for _, tt := range []struct {
		scope string
		want  bool
	}{
		{".", true},
		{"verification/", true},
		{"verification", true},
		{"verification/allowlist.intent.json", true},
		{"verif", false},
		{"verification/allowlist", false},
		{"other/", false},
		{"verification/allowlist.intent.json.bak", false},
	} {
		if got := Covers([]string{tt.scope}, DefaultIntentPath); got != tt.want {
			t.Errorf("Covers(%q): got %v, want %v", tt.scope, got, tt.want)
		}
	}
}

// canonical returns the RFC 8785 bytes of a document.
func canonical(t testing.TB, data []byte) []byte {
	t.Helper()
	out, err := seal.Canonical(json.RawMessage(data))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func FuzzWorkflowParse(f *testing.F) {
	f.Add(sample(f))
	for _, tt := range ruleTable {
		f.Add(edit(f, sample(f), tt.changes))
	}
	for _, tt := range malformedTable {
		if len(tt.data) < 1000 {
			f.Add([]byte(tt.data))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		Validate(data, pinned())
		w, err := Parse(data)
		if err != nil {
			return
		}
		first, err := Encode(w)
		if err != nil {
			t.Fatalf("accepted, but cannot be written: %v", err)
		}
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("written, but not accepted: %v", err)
		}
		if diff := cmp.Diff(w, again); diff != "" {
			t.Fatalf("the value changed: %s", diff)
		}
		if a, b := canonical(t, data), canonical(t, first); !bytes.Equal(a, b) {
			t.Fatalf("the document changed:\n%s\n%s", a, b)
		}
	})
}
