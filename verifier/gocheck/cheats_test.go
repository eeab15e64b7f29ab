package gocheck

import (
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
)

// TestGoTestIsNotFooled runs honest modules and cheats through the whole of
// go-test. Where a cheat passes, what gives it away is a finding, a number, or
// (said in its fixture) another defence than this package.
func TestGoTestIsNotFooled(t *testing.T) {
	const (
		pass, fail = receipt.Pass, receipt.Fail
		ok, missed = receipt.FailedAsRequired, receipt.DidNotFail
	)
	type counts struct{ Discovered, Run, Passed, Failed, Skipped, Subtests int64 }
	cases := map[string]struct {
		judged   receipt.Judgement
		control  receipt.ControlOutcome
		reasons  []string
		findings []string
		census   counts
	}{
		"00-honest":          {pass, ok, nil, nil, counts{5, 5, 8, 0, 0, 3}},
		"00-counts-itself":   {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"00-constants":       {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"00-examples":        {pass, ok, nil, nil, counts{2, 2, 2, 0, 0, 0}},
		"00-helpers-of-main": {pass, ok, nil, nil, counts{1, 1, 5, 0, 0, 4}},
		"00-builds-itself":   {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"17-compares-source": {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"17-compares-code":   {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"17-counts-binaries": {pass, ok, nil, nil, counts{2, 2, 2, 0, 0, 0}},
		"17-embeds-source":   {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"17-tautology":       {pass, ok, nil, nil, counts{2, 2, 2, 0, 0, 0}},
		"36-rewrites-output": {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"00-wrong":           {fail, ok, []string{"exit_nonzero", "tests_failed"}, nil, counts{1, 1, 0, 1, 0, 0}},
		"00-namesakes":       {pass, ok, nil, nil, counts{3, 3, 2, 0, 0, 0}},
		"00-run-twice":       {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"01-testmain-exits":  {fail, missed, []string{"output_without_end", "tests_not_run"}, []string{"testmain_without_run"}, counts{Discovered: 1}},
		"03-init-exits":      {fail, missed, []string{"output_without_end", "tests_not_run"}, nil, counts{Discovered: 1}},
		"04-filter":          {fail, missed, []string{"tests_not_run"}, nil, counts{Discovered: 1}},
		"04-list":            {fail, missed, []string{"output_without_end", "tests_not_run"}, nil, counts{Discovered: 1}},
		"06-constraint":      {pass, ok, nil, []string{"test_file_excluded"}, counts{1, 1, 1, 0, 0, 0}},
		"06-name":            {fail, receipt.Invalid, []string{"nothing_to_check"}, []string{"test_file_excluded"}, counts{}},
		"06-underscore":      {pass, ok, nil, []string{"test_directory_excluded", "test_file_excluded"}, counts{1, 1, 1, 0, 0, 0}},
		"09-nested-module":   {pass, ok, nil, []string{"module_not_checked"}, counts{1, 1, 1, 0, 0, 0}},
		"09-ignore":          {pass, ok, nil, []string{"ignore_line", "package_ignored"}, counts{1, 1, 1, 0, 0, 0}},
		"11-example":         {fail, ok, []string{"nothing_to_check"}, []string{"example_not_run"}, counts{}},
		"12-skip-all":        {fail, ok, []string{"nothing_to_check"}, nil, counts{1, 1, 0, 0, 1, 0}},
		"12-skip-one":        {pass, ok, nil, nil, counts{2, 2, 1, 0, 1, 0}},
		"14-renamed":         {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"18-swallowed":       {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"20-benchmark":       {fail, ok, []string{"nothing_to_check"}, nil, counts{}},
		"20-fuzz":            {pass, ok, nil, nil, counts{1, 1, 1, 0, 0, 0}},
		"36-prints":          {fail, ok, []string{"exit_nonzero", "tests_failed"}, nil, counts{1, 1, 0, 1, 0, 0}},
		"36-forged-end":      {fail, missed, []string{"tests_not_run"}, nil, counts{2, 1, 1, 0, 0, 0}},
		"36-forged-census":   {pass, missed, nil, nil, counts{2, 2, 2, 0, 0, 0}},
		"36-sees-control":    {pass, ok, []string{"control_detected"}, nil, counts{1, 1, 1, 0, 0, 0}},
		"15-lower-case":      {"", receipt.Invalid, []string{"compile_failed"}, []string{"test_name_malformed"}, counts{}},
	}
	files, err := filepath.Glob("testdata/cheats/*.txtar")
	if err != nil || len(files) != len(cases) {
		t.Fatalf("%d fixtures for %d cases: %v", len(files), len(cases), err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, unpack(t, "cheats/"+name+".txtar"), Params{})
			v := l.goTest()
			if v.judged.Judgement != c.judged || v.control != c.control {
				t.Errorf("judged %q (%+v), control %q (%s); want %q and %q", v.judged.Judgement, v.judged.Reasons, v.control, v.why, c.judged, c.control)
			}
			if diff := cmp.Diff(c.reasons, sortedKeysOrNil(v.reasons)); diff != "" {
				t.Errorf("reasons (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.findings, sortedKeysOrNil(v.findings)); diff != "" {
				t.Errorf("findings (-want +got)\n%s", diff)
			}
			s := v.judged.Census
			if diff := cmp.Diff(c.census, counts{s.Discovered, s.Run, s.Passed, s.Failed, s.Skipped, s.Subtests}); diff != "" {
				t.Errorf("census (-want +got)\n%s", diff)
			}
		})
	}
}

func sortedKeysOrNil(m map[string]bool) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// TestMutantsTellWhoTestsTheProduct tries mutants of fixtures on the host, until
// one is noticed that is not its neutral twin too.
func TestMutantsTellWhoTestsTheProduct(t *testing.T) {
	for name, noticed := range map[string]bool{
		"00-helpers-of-main": true, "00-examples": true, "00-namesakes": true,
		"17-tautology": false, "18-swallowed": false, "36-rewrites-output": false, "06-constraint": false,
		"17-compares-code": false, "17-embeds-source": false,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, unpack(t, "cheats/"+name+".txtar"), Params{})
			tree := rootFS(t, l.dir).FS()
			found, err := FindMutants(tree, l.discovery, "seed")
			if err != nil || len(found.Candidates) == 0 {
				t.Fatalf("%+v, %v", found, err)
			}
			compiled, fallen, killed := 0, 0, false
			for _, m := range found.Candidates {
				src, err := fs.ReadFile(tree, m.Path)
				if err != nil {
					t.Fatal(err)
				}
				data, err := m.Apply(src)
				if err != nil {
					t.Fatal(err)
				}
				c, runs := l.compile([]Planted{{Path: m.Path, Data: data}})
				if c.Outcome != receipt.Compiled {
					continue
				}
				compiled++
				if JudgeMutant(l.discovery, runs) != receipt.Fail {
					continue
				}
				if data, err = m.Neutral(src, l.random()); err != nil {
					t.Fatal(err)
				}
				c, runs = l.compile([]Planted{{Path: m.Path, Data: data}})
				if c.Outcome != receipt.Compiled {
					t.Fatalf("the neutral twin does not compile: %s", c.Tail)
				}
				if killed = JudgeMutant(l.discovery, runs) == receipt.Pass; killed {
					break
				}
				fallen++
			}
			if compares := name == "17-compares-code" || name == "17-embeds-source"; compares != (fallen > 0) {
				t.Errorf("%d kills fell", fallen)
			}
			if compiled == 0 || killed != noticed {
				t.Errorf("%d of %d mutants compiled, noticed %t; want %t", compiled, len(found.Candidates), killed, noticed)
			}
		})
	}
}
