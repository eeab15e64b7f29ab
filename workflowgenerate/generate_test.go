package workflowgenerate

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"striatum/allowlist"
	"striatum/baseline"
	"striatum/workflow"
	"striatum/workflowtemplates"
)

var update = flag.Bool("update", false, "write golden files again")

var goldens = []struct {
	name string
	spec Spec
}{
	{"default", Spec{Shape: "verification_gate"}},
	{"external", Spec{Shape: "verification_gate", Checks: []string{"builtin:artifact-anchor-integrity", "builtin:go-test", "schema"}}},
	{"verified", Spec{Shape: "verification_gate", Floor: workflow.FloorVerified, Checks: []string{"builtin+toolchain:go-test", "schema"}}},
}

func TestPlansAreTheGoldenOnes(t *testing.T) {
	for _, tt := range goldens {
		t.Run(tt.name, func(t *testing.T) {
			plan := generate(t, tt.spec)
			got := new(txtar.Archive)
			for _, f := range plan.Files {
				got.Files = append(got.Files, txtar.File{Name: f.Path, Data: f.Data})
			}
			path := filepath.Join("testdata", tt.name+".txtar")
			if *update {
				if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(txtar.Format(got))); diff != "" {
				t.Errorf("%s; run: go test ./workflowgenerate -update\n%s", path, diff)
			}
		})
	}
}

func generate(t testing.TB, spec Spec) Plan {
	t.Helper()
	plan, err := Generate(spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestEqualSpecsGiveEqualBytes(t *testing.T) {
	for _, tt := range goldens {
		a, b := generate(t, tt.spec), generate(t, tt.spec)
		if diff := cmp.Diff(a.Files, b.Files); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func file(t *testing.T, p Plan, path string) []byte {
	t.Helper()
	for _, f := range p.Files {
		if f.Path == path {
			return f.Data
		}
	}
	t.Fatalf("no file %q", path)
	return nil
}

func TestDefaultPlanIsValidWithoutAnOperator(t *testing.T) {
	p := generate(t, Spec{Shape: "verification_gate"})
	if got := workflow.Validate(file(t, p, workflow.DefaultPath), workflow.View{}); len(got) > 0 {
		t.Errorf("findings %+v", got)
	}
	var ids []string
	for _, c := range p.Workflow.Checks() {
		ids = append(ids, c.CheckID())
		if c.CheckID() == "builtin:go-test" && !c.AllowSkips.Any {
			t.Error("go-test does not allow skips by default")
		}
	}
	if diff := cmp.Diff([]string{"builtin:go-build", "builtin:go-vet", "builtin:go-test"}, ids); diff != "" {
		t.Error(diff)
	}
	if p.Workflow.GateFloor != workflow.FloorAsserted || p.Workflow.AllowlistStatus != workflow.Filled || len(p.Intent.Checks) != 0 {
		t.Errorf("floor %s, status %s, %d entries", p.Workflow.GateFloor, p.Workflow.AllowlistStatus, len(p.Intent.Checks))
	}
}

func TestExternalCheckIsAnUnfilledEntryWithACheckAndAClaim(t *testing.T) {
	p := generate(t, Spec{Shape: "verification_gate", Checks: []string{"schema"}})
	intent, err := allowlist.ParseIntent(file(t, p, workflow.DefaultIntentPath))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := allowlist.Join(intent, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	got := workflow.Validate(file(t, p, workflow.DefaultPath), allowlist.View(rows))
	if len(got) == 0 {
		t.Fatal("an unfilled template is valid")
	}
	for _, f := range got {
		if !f.Unfilled || f.File != workflow.DefaultIntentPath || !strings.Contains(f.Hint, "striatum verifier pin --host-here") {
			t.Errorf("finding %+v", f)
		}
	}
	if _, ok := p.Workflow.Claim("schema-holds"); !ok || p.Workflow.AllowlistStatus != workflow.TemplateUnfilled {
		t.Errorf("claims %+v, status %s", p.Workflow.Claims, p.Workflow.AllowlistStatus)
	}
	if bytes.Contains(file(t, p, workflow.DefaultIntentPath), []byte("sha256")) {
		t.Error("the template has a hash")
	}
}

func TestFloorVerifiedIsRefusedOverPlainBuiltins(t *testing.T) {
	for name, checks := range map[string][]string{
		"defaults": nil, "one": {"builtin:go-test"}, "anchors": {"builtin:artifact-anchor-integrity"}, "one of two": {"schema", "builtin:go-vet"},
	} {
		_, err := Generate(Spec{Shape: "verification_gate", Floor: workflow.FloorVerified, Checks: checks})
		var floor *FloorError
		if !errors.As(err, &floor) {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		for _, b := range floor.Builtins {
			if !strings.Contains(err.Error(), b) {
				t.Errorf("%s: %q does not name %s", name, err, b)
			}
		}
		for _, way := range []string{"verifier pin", "verifier attest", "builtin+toolchain:go-"} {
			if !strings.Contains(floor.Hint(), way) {
				t.Errorf("%s: hint %q does not name the way out %q", name, floor.Hint(), way)
			}
		}
	}
	for name, checks := range map[string][]string{"external": {"schema"}, "toolchain": {"builtin+toolchain:go-test"}} {
		if _, err := Generate(Spec{Shape: "verification_gate", Floor: workflow.FloorVerified, Checks: checks}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImpossibleSpecsAreRefusedWithAHint(t *testing.T) {
	many := make([]string, MaxChecks+1)
	for name, spec := range map[string]Spec{
		"no shape":        {},
		"another shape":   {Shape: "release_train"},
		"another floor":   {Shape: "verification_gate", Floor: "designed"},
		"another builtin": {Shape: "verification_gate", Checks: []string{"builtin:go-fmt"}},
		"reserved":        {Shape: "verification_gate", Checks: []string{"builtins"}},
		"empty id":        {Shape: "verification_gate", Checks: []string{""}},
		"long id":         {Shape: "verification_gate", Checks: []string{strings.Repeat("a", 59)}},
		"path":            {Shape: "verification_gate", Checks: []string{"../x"}},
		"markup":          {Shape: "verification_gate", Checks: []string{"a`b\n# c"}},
		"template":        {Shape: "verification_gate", Checks: []string{"{{.Floor}}"}},
		"twice":           {Shape: "verification_gate", Checks: []string{"schema", "schema"}},
		"one claim twice": {Shape: "verification_gate", Checks: []string{"builtin:go-test", "builtin+toolchain:go-test"}},
		"language":        {Shape: "verification_gate", Language: "cobol"},
		"too many":        {Shape: "verification_gate", Checks: many},
	} {
		plan, err := Generate(spec)
		var se *SpecError
		if !errors.As(err, &se) || se.Hint == "" || plan.Files != nil {
			t.Errorf("%s: error %v (%d files)", name, err, len(plan.Files))
		}
	}
}

func TestIntentAndBaselineAreForbiddenToEveryJob(t *testing.T) {
	p := generate(t, Spec{Shape: "verification_gate"})
	for _, j := range p.Workflow.Jobs {
		if !slices.Contains(j.WriteScope.ForbiddenPaths, workflow.DefaultIntentPath) {
			t.Errorf("job %q may write the intent", j.ID)
		}
		if !workflow.Covers(j.WriteScope.ForbiddenPaths, baseline.Path) {
			t.Errorf("job %q may write the baseline", j.ID)
		}
	}
}

func TestRegistryCatalogAndPlansAgree(t *testing.T) {
	catalog, err := workflowtemplates.Load()
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, s := range catalog.Shapes {
		listed = append(listed, s.ID)
	}
	slices.Sort(listed)
	if diff := cmp.Diff(Shapes(), listed); diff != "" {
		t.Errorf("registry and catalog: %s", diff)
	}
	for _, s := range catalog.Shapes {
		p := generate(t, Spec{Shape: s.ID})
		var want, got []string
		for _, f := range s.Files {
			want = append(want, f.Path)
		}
		slices.Sort(want)
		for _, f := range p.Files {
			got = append(got, f.Path)
			if f.Mode != 0o644 || len(f.Data) == 0 || !bytes.HasSuffix(f.Data, []byte("\n")) {
				t.Errorf("file %q: mode %o, %d bytes", f.Path, f.Mode, len(f.Data))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files of %q: %s", s.ID, diff)
		}
		var jobs []workflowtemplates.Job
		for _, j := range p.Workflow.Jobs {
			jobs = append(jobs, workflowtemplates.Job{ID: j.ID, Type: j.Type, Objective: j.Objective})
		}
		if diff := cmp.Diff(s.Jobs, jobs); diff != "" {
			t.Errorf("jobs of %q: %s", s.ID, diff)
		}
		for _, c := range p.Workflow.Cycles {
			if c.MaxIterations != s.Rounds {
				t.Errorf("%q sends back %d times, the catalog says %d", s.ID, c.MaxIterations, s.Rounds)
			}
		}
	}
}

func TestDocumentsThatTheWorkflowNamesAreGenerated(t *testing.T) {
	p := generate(t, Spec{Shape: "verification_gate"})
	for _, r := range p.Workflow.Roles {
		file(t, p, r.Document)
	}
	for _, j := range p.Workflow.Jobs {
		file(t, p, j.TaskPrompt)
	}
}

func FuzzTemplateParams(f *testing.F) {
	for _, seed := range []string{"schema", "builtin:go-test", "a`b", "{{.Floor}}", "a\nb", "\"", "..", "é", "| x |", "<script>"} {
		f.Add(seed, "asserted", "go")
	}
	f.Fuzz(func(t *testing.T, id, floor, lang string) {
		plan, err := Generate(Spec{Shape: "verification_gate", Floor: workflow.Floor(floor), Language: lang, Checks: []string{id}})
		if err != nil {
			if plan.Files != nil {
				t.Fatal("files beside an error")
			}
			return
		}
		for _, r := range id {
			if !unicode.IsLower(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-:+", r) {
				t.Fatalf("id %q got through", id)
			}
		}
		// The structure of each document is that of a harmless id.
		harmless := Spec{Shape: "verification_gate", Floor: workflow.Floor(floor), Language: lang, Checks: []string{"builtin+toolchain:go-test"}}
		if !strings.HasPrefix(id, "builtin") {
			harmless.Checks = []string{"x"}
		} else if floor != string(workflow.FloorVerified) {
			harmless.Checks = []string{"builtin:go-test"}
		}
		want, err := Generate(harmless)
		if err != nil {
			t.Fatal(err)
		}
		for i, file := range plan.Files {
			if file.Path != want.Files[i].Path || strings.Contains(string(file.Data), "<no value>") {
				t.Fatalf("file %q changed its name or misses a value", file.Path)
			}
			if got, want := bytes.Count(file.Data, []byte("\n")), bytes.Count(want.Files[i].Data, []byte("\n")); strings.HasSuffix(file.Path, ".md") && got != want {
				t.Fatalf("file %q has %d lines, want %d", file.Path, got, want)
			}
		}
	})
}

func TestAFilledEntryIsKept(t *testing.T) {
	data, err := os.ReadFile("../examples/schema/allowlist.intent.json")
	if err != nil {
		t.Fatal(err)
	}
	intent, err := allowlist.ParseIntent(data)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Generate(Spec{Shape: "verification_gate", Checks: []string{"schema", "other"}, Entries: intent.Checks})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Intent.Checks; len(got) != 2 || got[0].Argv.Words == nil || got[1].Argv.Unfilled == "" || p.Workflow.AllowlistStatus != workflow.TemplateUnfilled {
		t.Errorf("got %+v", got)
	}
	intent.Checks[0].BacksClaim = "another"
	if p, err = Generate(Spec{Shape: "verification_gate", Checks: []string{"schema"}, Entries: intent.Checks}); err != nil || p.Intent.Checks[0].Argv.Unfilled == "" {
		t.Errorf("an entry of another claim: %v, %+v", err, p.Intent.Checks)
	}
}
