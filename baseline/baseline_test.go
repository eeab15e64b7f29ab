package baseline

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/schemacheck"
	"striatum/seal"
)

const (
	body  = "0123456789abcdef"
	other = "fedcba9876543210"
)

func digest(s string) string { return seal.SHA256Hex([]byte(s)) }

// sample is a check with one of everything.
func sample() Check {
	return Check{
		ID: "builtin:go-test",
		Packages: []Package{{ImportPath: "example.test/m", Tests: []Test{
			{Name: "TestBoth", Namesakes: 1, Body: body},
			{Name: "TestPlain", Body: body},
			{Name: "TestSkipped", Skipped: true, Body: body},
			{Name: "TestTable", Subtests: 3, SkippedSubtests: 1, Body: body},
		}}},
		Files: []File{
			{Path: "m_test.go", Helpers: body},
			{Path: "sys_test.go", Constraint: "linux", Helpers: body},
			{Path: "win_test.go", Constraint: "windows && <x>", Excluded: true},
		},
		Data: []Data{{Path: `"testdata/\303\251"`, SHA256: digest("a")}, {Path: "testdata/golden", SHA256: digest("b")}},
	}
}

func encode(t testing.TB, checks ...Check) []byte {
	t.Helper()
	b := Baseline{SchemaVersion: SchemaVersion, Checks: []Check{}}
	for _, c := range checks {
		b = b.With(c)
	}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseGivesBackWhatEncodeWrote(t *testing.T) {
	second := sample()
	second.ID = "all"
	data := encode(t, sample(), second)
	b, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Encode()
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("%v: got\n%s\nwant\n%s", err, again, data)
	}
	if got, ok := b.Find("all"); !ok || b.Checks[0].ID != "all" {
		t.Errorf("found %t %+v", ok, b.Checks)
	} else if diff := cmp.Diff(second, got); diff != "" {
		t.Error(diff)
	}
	if _, ok := b.Find("b"); ok {
		t.Error("found a check that is not there")
	}
	if lines := bytes.Count(data, []byte("\n")); lines != 1+2*(1+1+4+3+2) {
		t.Errorf("%d lines:\n%s", lines, data)
	}
}

func TestWithReplacesOneEntryAndLeavesTheOld(t *testing.T) {
	a, z := sample(), sample()
	a.ID, z.ID = "a", "z"
	old := Baseline{}.With(z).With(a)
	changed := a
	changed.Data = []Data{}
	now := old.With(changed)
	if got, _ := now.Find("a"); len(got.Data) != 0 || len(now.Checks) != 2 {
		t.Errorf("got %+v", now.Checks)
	}
	if got, _ := old.Find("a"); len(got.Data) != 2 {
		t.Error("the old one was changed")
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(encode(t, sample()))
	change := func(old, by string) string {
		if strings.Count(good, old) == 0 {
			t.Fatalf("the sample has no %q", old)
		}
		return strings.Replace(good, old, by, 1)
	}
	for name, text := range map[string]string{
		"nothing":                            "",
		"no object":                          "[]",
		"another version":                    change("baseline.v1", "baseline.v2"),
		"another form":                       strings.ReplaceAll(good, "\n", ""),
		"a blank":                            change(`"name"`, ` "name"`),
		"trailing bytes":                     good + "\n",
		"an unknown key":                     change(`"name"`, `"more":1,"name"`),
		"a key twice":                        change(`"skipped":true`, `"skipped":true,"skipped":true`),
		"a zero that is out":                 change(`"skipped":true`, `"skipped":false`),
		"tests out of order":                 change("TestBoth", "TestQ"),
		"a test twice":                       change("TestBoth", "TestPlain"),
		"no name":                            change("TestBoth", ""),
		"a long name":                        change("TestBoth", "A"+strings.Repeat("x", maxText)),
		"a negative number":                  change(`"subtests":3`, `"subtests":-3`),
		"a fraction":                         change(`"subtests":3`, `"subtests":3.5`),
		"a long body":                        change(body, body+"0"),
		"a body in capitals":                 change(body, strings.ToUpper(body)),
		"helpers of a file that is left out": change(`"excluded":true`, `"excluded":true,"helpers":"`+body+`"`),
		"a file without helpers":             change(`{"helpers":"`+body+`","path":"m_test.go"}`, `{"path":"m_test.go"}`),
		"a digest that is none":              change(digest("a"), "abc"),
		"no list":                            `{"schema_version":"striatum.verification_baseline.v1"}` + "\n",
		"not UTF-8":                          change("TestBoth", "TestA\xff"),
		"too long":                           good + strings.Repeat(" ", MaxBytes),
	} {
		if b, err := Parse([]byte(text)); err == nil || b.Checks != nil {
			t.Errorf("%s: got %+v, %v", name, b, err)
		}
	}
}

func TestEncodeSaysWhatIsTooLong(t *testing.T) {
	c := sample()
	for i := range 10_000 {
		c.Data = append(c.Data, Data{Path: fmt.Sprintf("testdata/z%05d", i), SHA256: digest("z")})
	}
	if _, err := (Baseline{}.With(c)).Encode(); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
	c = sample()
	c.Files[1].Constraint = strings.Repeat("a", maxText+1)
	if _, err := (Baseline{}.With(c)).Encode(); err == nil || errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
}

func TestTheSchemaFits(t *testing.T) {
	schema, err := os.ReadFile("../docs/schemas/verification_baseline.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	good := string(encode(t, sample()))
	if bad, err := schemacheck.Check(schema, []byte(good)); err != nil || len(bad) > 0 {
		t.Errorf("%v, %v", bad, err)
	}
	for _, key := range []string{`"name"`, `"path"`, `"id"`, `"import_path"`, `"checks"`} {
		if bad, err := schemacheck.Check(schema, []byte(strings.Replace(good, key, `"more":1,`+key, 1))); err != nil || len(bad) == 0 {
			t.Errorf("an unknown key beside %s fits: %v", key, err)
		}
		if bad, err := schemacheck.Check(schema, []byte(strings.Replace(good, key, `"x"`, 1))); err != nil || len(bad) == 0 {
			t.Errorf("it fits without %s: %v", key, err)
		}
	}
}

func TestCompareNamesWhatAnOperatorMustAccept(t *testing.T) {
	type lists struct{ Removed, NewlySkipped, InputsChanged, Edited, Added []string }
	test := func(c *Check, name string) *Test {
		for i := range c.Packages[0].Tests {
			if c.Packages[0].Tests[i].Name == name {
				return &c.Packages[0].Tests[i]
			}
		}
		t.Fatalf("no test %s", name)
		return nil
	}
	for name, c := range map[string]struct {
		change func(*Check)
		want   lists
	}{
		"nothing": {func(*Check) {}, lists{}},
		"a test removed": {
			func(c *Check) { c.Packages[0].Tests = c.Packages[0].Tests[1:] },
			lists{Removed: []string{"example.test/m TestBoth"}},
		},
		"a test renamed": {
			func(c *Check) { test(c, "TestPlain").Name = "TestPlain2" },
			lists{Removed: []string{"example.test/m TestPlain"}, Added: []string{"example.test/m TestPlain2"}},
		},
		"a package removed": {
			func(c *Check) { c.Packages = []Package{} },
			lists{Removed: []string{"example.test/m TestBoth", "example.test/m TestPlain", "example.test/m TestSkipped", "example.test/m TestTable"}},
		},
		"a namesake removed": {
			func(c *Check) { test(c, "TestBoth").Namesakes = 0 },
			lists{Removed: []string{"example.test/m TestBoth: 1 of 2"}},
		},
		"a test skipped": {
			func(c *Check) { test(c, "TestPlain").Skipped = true },
			lists{NewlySkipped: []string{"example.test/m TestPlain"}},
		},
		"a test no more skipped": {func(c *Check) { test(c, "TestSkipped").Skipped = false }, lists{}},
		"subtests removed": {
			func(c *Check) { test(c, "TestTable").Subtests = 0 },
			lists{Removed: []string{"example.test/m TestTable: 3 subtests passed, and 0 do"}},
		},
		"subtests skipped": {
			func(c *Check) { test(c, "TestTable").Subtests, test(c, "TestTable").SkippedSubtests = 1, 3 },
			lists{NewlySkipped: []string{"example.test/m TestTable: 3 subtests passed, and 1 do"}},
		},
		"skipped subtests added": {func(c *Check) { test(c, "TestTable").SkippedSubtests = 9 }, lists{}},
		"a test added": {
			func(c *Check) {
				c.Packages[0].Tests = append(c.Packages[0].Tests, Test{Name: "TestZ", Skipped: true, Body: body})
			},
			lists{Added: []string{"example.test/m TestZ"}},
		},
		"bodies edited": {
			func(c *Check) { test(c, "TestPlain").Body, c.Files[0].Helpers = other, other },
			lists{Edited: []string{"example.test/m TestPlain", "m_test.go"}},
		},
		"a file moved": {func(c *Check) { c.Files[0].Path = "a_test.go" }, lists{}},
		"a constraint added": {
			func(c *Check) { c.Files[0].Constraint = "linux" },
			lists{InputsChanged: []string{`m_test.go: its constraint was "" and is "linux"`}},
		},
		"a constraint changed": {
			func(c *Check) { c.Files[1].Constraint = "linux && slow" },
			lists{InputsChanged: []string{`sys_test.go: its constraint was "linux" and is "linux && slow"`}},
		},
		"a constraint removed": {func(c *Check) { c.Files[1].Constraint = "" }, lists{}},
		"a file left out": {
			func(c *Check) { c.Files[1] = File{Path: "sys_test.go", Constraint: "linux", Excluded: true} },
			lists{InputsChanged: []string{`sys_test.go: it is left out, constraint "linux"`}},
		},
		"a file no more left out": {func(c *Check) { c.Files[2] = File{Path: "win_test.go", Helpers: body} }, lists{}},
		"data changed": {
			func(c *Check) { c.Data[1].SHA256 = digest("c") },
			lists{InputsChanged: []string{"testdata/golden: it has other content"}},
		},
		"data removed": {
			func(c *Check) { c.Data = c.Data[1:] },
			lists{InputsChanged: []string{`"testdata/\303\251": it is gone`}},
		},
		"data added": {func(c *Check) { c.Data = append(c.Data, Data{Path: "testdata/x", SHA256: digest("x")}) }, lists{}},
	} {
		t.Run(name, func(t *testing.T) {
			now := sample()
			c.change(&now)
			d := Compare(sample(), now)
			if diff := cmp.Diff(c.want, lists(d)); diff != "" {
				t.Error(diff)
			}
			if want := len(c.want.Removed)+len(c.want.NewlySkipped)+len(c.want.InputsChanged) > 0; d.Lowers() != want {
				t.Errorf("lowers %t", d.Lowers())
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode(f, sample()))
	f.Add(encode(f))
	f.Add([]byte(`{"schema_version":"striatum.verification_baseline.v1","checks":[` + "\n" + `{"id":"a","packages":[],"test_files":[],"test_data":[]}]}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Parse(data)
		if err != nil {
			if b.Checks != nil {
				t.Fatalf("an error and %+v", b)
			}
			return
		}
		again, err := b.Encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%v: %q became %q", err, data, again)
		}
		for _, c := range b.Checks {
			if d := Compare(c, c); d.Lowers() || len(d.Edited)+len(d.Added) > 0 {
				t.Fatalf("it differs from itself: %+v", d)
			}
		}
	})
}
