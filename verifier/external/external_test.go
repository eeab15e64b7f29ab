package external

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"striatum/allowlist"
	"striatum/receipt"
	"striatum/seal"
)

func opener(s string) Opener {
	return func() (io.ReadCloser, error) { return io.NopCloser(iotest.OneByteReader(strings.NewReader(s))), nil }
}

func output(stdout, stderr string) Output {
	return Output{Stdout: opener(stdout), Stderr: opener(stderr), StdoutSHA256: seal.SHA256Hex([]byte(stdout))}
}

func codes(rs []receipt.Reason) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Code)
	}
	return strings.Join(out, " ")
}

func TestJudgeExecutions(t *testing.T) {
	contains := allowlist.PassWhen{Form: allowlist.StdoutContains, Text: "all good"}
	tests := func(min int64, must ...string) allowlist.PassWhen {
		return allowlist.PassWhen{Form: allowlist.Tests, Tests: allowlist.TestCounts{MustPass: must, MinPassed: min}}
	}
	zero := allowlist.PassWhen{Form: allowlist.ExitZero}
	for _, tt := range []struct {
		name      string
		when      allowlist.PassWhen
		agreement allowlist.Agreement
		run       Run
		want      receipt.Judgement
		codes     string
	}{
		{"exit zero", zero, allowlist.ByExitCode, Run{}, receipt.Pass, ""},
		{"exit one", zero, allowlist.ByExitCode, Run{ExitCode: 1}, receipt.Fail, "exit_nonzero"},
		{"signal", zero, allowlist.ByExitCode, Run{ExitCode: 137, Signal: "SIGKILL"}, receipt.Fail, "exit_nonzero"},
		{"cut", zero, allowlist.ByExitCode, Run{Cut: "its time was over"}, receipt.Inconclusive, "execution_cut_short"},
		{"cut although it failed", zero, allowlist.ByExitCode, Run{ExitCode: 1, Cut: "the output limit was hit"}, receipt.Inconclusive, "execution_cut_short"},
		{"text", contains, allowlist.ByExitCode, Run{Output: output("xx all good yy", "")}, receipt.Pass, ""},
		{"text on stderr", contains, allowlist.ByExitCode, Run{Output: output("xx", "all good")}, receipt.Fail, "stdout_lacks_text"},
		{"text and exit", contains, allowlist.ByExitCode, Run{ExitCode: 2, Output: output("all good", "")}, receipt.Fail, "exit_nonzero"},
		{"artifact", allowlist.PassWhen{Form: allowlist.ArtifactPresent, Text: "a"}, allowlist.ByExitCode, Run{Artifact: true}, receipt.Pass, ""},
		{"no artifact", allowlist.PassWhen{Form: allowlist.ArtifactPresent, Text: "a"}, allowlist.ByExitCode, Run{}, receipt.Fail, "artifact_missing"},
		{"tap", zero, allowlist.ByTAP, Run{Output: output("1..2\nok 1 - a\nok 2 - b\n", "")}, receipt.Pass, ""},
		{"tap that fails and exits zero", zero, allowlist.ByTAP, Run{Output: output("1..2\nok 1 - a\nnot ok 2 - b\n", "")}, receipt.Fail, "tests_failed"},
		{"tap that passes and exits one", zero, allowlist.ByTAP, Run{ExitCode: 1, Output: output("1..1\nok 1 - a\n", "")}, receipt.Fail, "exit_nonzero"},
		{"no report", zero, allowlist.ByTAP, Run{Output: output("hello\n", "")}, receipt.Inconclusive, "report_unreadable"},
		{"no report, and it failed", zero, allowlist.ByTAP, Run{ExitCode: 1, Output: output("hello\n", "")}, receipt.Fail, "exit_nonzero report_unreadable"},
		{"empty plan", zero, allowlist.ByTAP, Run{Output: output("1..0\n", "")}, receipt.Fail, "nothing_to_check"},
		{"all skipped", zero, allowlist.ByTAP, Run{Output: output("1..1\nok 1 - a # SKIP why\n", "")}, receipt.Fail, "nothing_to_check"},
		{"must pass", tests(0, "a"), allowlist.ByTAP, Run{Output: output("1..1\nok 1 - a\n", "")}, receipt.Pass, ""},
		{"must pass is absent", tests(0, "a", "c"), allowlist.ByTAP, Run{Output: output("1..1\nok 1 - a\n", "")}, receipt.Fail, "tests_not_passed"},
		{"must pass was skipped", tests(0, "b"), allowlist.ByTAP, Run{Output: output("1..2\nok 1 - a\nok 2 - b # skip\n", "")}, receipt.Fail, "tests_not_passed"},
		{"too few", tests(2), allowlist.ByTAP, Run{Output: output("1..1\nok 1 - a\n", "")}, receipt.Fail, "too_few_passed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.run.Stdout == nil {
				tt.run.Output = output("", "")
			}
			j, err := Judge(allowlist.Entry{PassWhen: tt.when, Agreement: tt.agreement}, tt.run)
			if err != nil {
				t.Fatal(err)
			}
			if j.Judgement != tt.want || codes(j.Reasons) != tt.codes {
				t.Errorf("got %s %q, want %s %q", j.Judgement, codes(j.Reasons), tt.want, tt.codes)
			}
			if !seal.ValidDigest(j.ResultSHA256) {
				t.Errorf("result %q is no digest", j.ResultSHA256)
			}
		})
	}
}

func TestResultTellsRunsApart(t *testing.T) {
	digest := func(a allowlist.Agreement, r Run) string {
		t.Helper()
		j, err := Judge(allowlist.Entry{PassWhen: allowlist.PassWhen{Form: allowlist.ExitZero}, Agreement: a}, r)
		if err != nil {
			t.Fatal(err)
		}
		return j.ResultSHA256
	}
	one, two := Run{Output: output("1..2\nok 1 - a\nok 2 - b\n", "")}, Run{Output: output("1..2\nok 1 - b\n# 3 ms\nok 2 - a\n", "")}
	if digest(allowlist.ByStdout, one) == digest(allowlist.ByStdout, two) {
		t.Error("by stdout: other bytes have one result")
	}
	if digest(allowlist.ByTAP, one) != digest(allowlist.ByTAP, two) {
		t.Error("by tap: the same tests have two results")
	}
	if digest(allowlist.ByExitCode, one) == digest(allowlist.ByExitCode, Run{ExitCode: 3, Output: output("", "")}) {
		t.Error("by exit code: other codes have one result")
	}
}

func TestReadErrorIsNoJudgement(t *testing.T) {
	broken := func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), nil }
	for _, e := range []allowlist.Entry{
		{PassWhen: allowlist.PassWhen{Form: allowlist.StdoutContains, Text: "x"}, Agreement: allowlist.ByExitCode},
		{PassWhen: allowlist.PassWhen{Form: allowlist.ExitZero}, Agreement: allowlist.ByTAP},
		{PassWhen: allowlist.PassWhen{Form: allowlist.ExitZero}, Agreement: allowlist.ByJUnit},
	} {
		if j, err := Judge(e, Run{Output: Output{Stdout: broken}}); !errors.Is(err, io.ErrUnexpectedEOF) || j.Judgement != "" {
			t.Errorf("%s: got %v, %v", e.Agreement, j, err)
		}
	}
	if _, err := Printed(regexp.MustCompile("x"), Output{Stdout: broken, Stderr: broken}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestPrintedLooksInBothStreams(t *testing.T) {
	for _, tt := range []struct {
		pattern, stdout, stderr string
		want                    bool
	}{
		{"unknown type .strnig.", "a\nunknown type 'strnig'\n", "", true},
		{"unknown type .strnig.", "", "unknown type 'strnig'", true},
		{"ab", "a", "b", false}, // streams are not joined
		{"^b$", "a\nb\n", "", false},
		{"(?m)^b$", "a\nb\n", "", true},
	} {
		got, err := Printed(regexp.MustCompile(tt.pattern), output(tt.stdout, tt.stderr))
		if err != nil || got != tt.want {
			t.Errorf("%q in %q and %q: got %v, %v", tt.pattern, tt.stdout, tt.stderr, got, err)
		}
	}
}

func TestTextAcrossReadsIsFound(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for text, want := range map[string]bool{"needle": true, "needles": false} {
		j, err := Judge(allowlist.Entry{
			PassWhen: allowlist.PassWhen{Form: allowlist.StdoutContains, Text: text}, Agreement: allowlist.ByExitCode,
		}, Run{Output: Output{Stdout: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(long + "needle" + long)), nil
		}}})
		if err != nil || (j.Judgement == receipt.Pass) != want {
			t.Errorf("%q: got %s, %v", text, j.Judgement, err)
		}
	}
}

func TestReports(t *testing.T) {
	for _, tt := range []struct {
		name   string
		format allowlist.Agreement
		in     string
		want   string // sorted "name=outcome", or "!" and a part of the reason
	}{
		{"go", allowlist.ByGoTestJSON, `{"Action":"run","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"run","Package":"p","Test":"B"}
{"Action":"skip","Package":"p","Test":"B"}
{"Action":"pass","Package":"p"}
`, "p A=passed p B=skipped"},
		{"go without an end", allowlist.ByGoTestJSON, `{"Action":"run","Package":"p","Test":"A"}`, "p A=failed"},
		{"go package fails", allowlist.ByGoTestJSON, `{"Action":"fail","Package":"p"}`, "p=failed"},
		{"go noise", allowlist.ByGoTestJSON, "PASS\n", "!no event"},
		{"go twice", allowlist.ByGoTestJSON, `{"Action":"fail","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}`, "p A=failed"},
		{
			"junit", allowlist.ByJUnit, `<?xml version="1.0"?><testsuites><testsuite name="s"><testcase classname="c" name="a"/>
<testcase classname="c" name="b"><failure message="x">y</failure></testcase>
<testcase name="s"><skipped/></testcase><testcase classname="c" name="e"><error/></testcase><system-out>z</system-out></testsuite></testsuites>`,
			"c a=passed c b=failed c e=failed s=skipped",
		},
		{"junit suite error", allowlist.ByJUnit, `<testsuite><error/><testcase name="a"/></testsuite>`, "(suite)=failed a=passed"},
		{"junit cut", allowlist.ByJUnit, `<testsuite><testcase name="a"/>`, "!no XML"},
		{"junit other", allowlist.ByJUnit, `<html/>`, "!no testsuite"},
		{"junit entity", allowlist.ByJUnit, `<!DOCTYPE x [<!ENTITY e "v">]><testsuite><testcase name="&e;"/></testsuite>`, "!no XML"},
		{"junit deep", allowlist.ByJUnit, strings.Repeat("<testsuite>", 100), "!nest deeper"},
		{
			"tap", allowlist.ByTAP, "TAP version 14\n# Subtest: a\n    ok 1 - inner\n    1..1\nok 1 - a\n  ---\n  duration: 1\nnot ok 9\n  ...\nnot ok 2 - b\nok 3 c # SKIP no\nnot ok 4 - d # TODO later\n1..4\n",
			"a=passed b=failed c=skipped d=skipped",
		},
		{"tap short", allowlist.ByTAP, "1..2\nok 1 - a\n", "(plan of 2, 1 reported)=failed a=passed"},
		{"tap bail", allowlist.ByTAP, "1..1\nok 1 - a\nBail out! disk\n", "(bail out)=failed a=passed"},
		{"tap no plan", allowlist.ByTAP, "ok 1 - a\n", "!no plan"},
		{"tap plan without a number", allowlist.ByTAP, "1..\nok 1 - a\n", "!its plan"},
		{"tap plan of spaces", allowlist.ByTAP, "1.. \t\n", "!its plan"},
		{"tap plan with a reason", allowlist.ByTAP, "1..1\t# why\nok 1 - a\n", "a=passed"},
		{"tap two plans", allowlist.ByTAP, "1..1\n1..1\nok\n", "!its plan"},
		{"tap numbers", allowlist.ByTAP, "1..2\nok\nok 2\n", "1=passed 2=passed"},
		{"long line", allowlist.ByTAP, strings.Repeat("x", maxLine+1), "!longer than"},
		{"many", allowlist.ByTAP, many(MaxTests + 1), "!more than 50000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rep, err := Parse(tt.format, strings.NewReader(tt.in))
			if part, bad := strings.CutPrefix(tt.want, "!"); bad {
				f, ok := errors.AsType[*FormatError](err)
				if !ok || !strings.Contains(f.Why, part) || rep != nil {
					t.Fatalf("got %v, %v, want %q", rep, err, part)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, o := range rep.Tests {
				got = append(got, name+"="+o.String())
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got %q, want %q", s, tt.want)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "1..%d\n", n)
	for i := range n {
		fmt.Fprintf(&b, "ok %d - t%d\n", i+1, i)
	}
	return b.String()
}

func TestMutateNeedsExactlyOne(t *testing.T) {
	m := allowlist.Mutation{File: "f", Find: "aa", Replace: "b"}
	for in, want := range map[string]string{"xaay": "xby", "aa": "b", "": "", "a": "", "aaxaa": "", "aaa": ""} {
		got, err := Mutate([]byte(in), m)
		if want == "" {
			if !errors.Is(err, ErrNotOnce) || got != nil {
				t.Errorf("%q: got %q, %v, want ErrNotOnce", in, got, err)
			}
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestPickIsDecidedByTheNonceAndReachesAll(t *testing.T) {
	seen := map[int]int{}
	for i := range 300 {
		nonce := fmt.Sprintf("%032x", i)
		p := Pick(3, nonce)
		if p != Pick(3, nonce) || p < 0 || p > 2 {
			t.Fatalf("nonce %s: got %d", nonce, p)
		}
		seen[p]++
	}
	for i := range 3 {
		if seen[i] < 50 {
			t.Errorf("mutation %d was picked %d times of 300", i, seen[i])
		}
	}
}

const manifest = `100644 aaaa 1 README.md
100755 bbbb 2 tools/check.py
100644 cccc 3 tools/lib/a.py
100644 dddd 4 "tools/\303\244.py"
100644 eeee 5 conf.yml
`

func TestDefinitionIsWhatGlobsAndArgvName(t *testing.T) {
	for _, tt := range []struct {
		argv, globs []string
		want        []string
	}{
		{[]string{"python3", "tools/check.py", "{target}/README.md"}, nil, []string{"README.md", "tools/check.py"}},
		{[]string{"./tools/check.py"}, nil, []string{"tools/check.py"}},
		{[]string{"sh", "x"}, []string{"tools"}, []string{"tools/check.py", "tools/lib/a.py", `"tools/\303\244.py"`}},
		{[]string{"sh", "x"}, []string{"tools/*.py"}, []string{"tools/check.py", `"tools/\303\244.py"`}},
		{[]string{"sh", "x"}, []string{"**/*.py", "conf.yml"}, []string{"tools/check.py", "tools/lib/a.py", `"tools/\303\244.py"`, "conf.yml"}},
		{[]string{"true"}, nil, nil},
	} {
		d, err := Define(allowlist.Entry{Argv: allowlist.Argv{Words: tt.argv}, Definition: tt.globs}, []byte(manifest))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.Paths, tt.want) {
			t.Errorf("%q %q: got %q, want %q", tt.argv, tt.globs, d.Paths, tt.want)
		}
	}
	e := allowlist.Entry{Argv: allowlist.Argv{Words: []string{"sh", "x"}}, Definition: []string{"tools/ä.py"}}
	before, err := Define(e, []byte(manifest))
	if err != nil || !before.Has("tools/ä.py") || before.Has("conf.yml") {
		t.Fatalf("got %+v, %v", before, err)
	}
	after, err := Define(e, []byte(strings.Replace(manifest, "dddd", "ffff", 1)))
	if err != nil || before.SHA256 == after.SHA256 {
		t.Errorf("other bytes have one digest: %v", err)
	}
	after, err = Define(e, []byte(strings.Replace(manifest, "aaaa", "ffff", 1)))
	if err != nil || before.SHA256 != after.SHA256 {
		t.Errorf("bytes outside changed the digest: %v", err)
	}
	if !strings.Contains(before.Lines, `"tools/\303\244.py"`) || seal.SHA256Hex([]byte(before.Lines)) != before.SHA256 {
		t.Errorf("the lines %q do not have the digest", before.Lines)
	}
	for _, tt := range []struct{ argv, want []string }{
		{[]string{"python3", "tools/check.py", "{target}/tools", "./tools/lib", "conf.yml"}, nil},
		{[]string{"no/such.py", "-m", "a/b=c", "https://x/y.z", "/usr/lib/x.py", "../up.py", "{target}", "verbose"}, nil},
		{[]string{"sh", "tools/chek.py", "{target}/schema.d/x", "check.py"}, []string{"check.py", "tools/chek.py", "{target}/schema.d/x"}},
	} {
		d, err := Define(allowlist.Entry{Argv: allowlist.Argv{Words: tt.argv}}, []byte(manifest))
		if err != nil || !slices.Equal(d.Absent, tt.want) {
			t.Errorf("%q: absent %q, %v; want %q", tt.argv, d.Absent, err, tt.want)
		}
	}
	e.Definition = []string{"tools/*.rb"}
	if _, err := Define(e, []byte(manifest)); err == nil || !strings.Contains(err.Error(), `"tools/*.rb"`) {
		t.Errorf("a glob without a match: got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tap", "1..2\nok 1 - a\nnot ok 2 - b # TODO\n")
	f.Add("junit", `<testsuite><testcase classname="c" name="a"><skipped/></testcase></testsuite>`)
	f.Add("go-test-json", `{"Action":"run","Package":"p","Test":"A"}`)
	f.Fuzz(func(t *testing.T, format, in string) {
		rep, err := Parse(allowlist.Agreement(format), strings.NewReader(in))
		if err != nil {
			if rep != nil {
				t.Fatalf("an error and a report: %v", rep)
			}
			return
		}
		c := rep.Census()
		if c.Passed+c.Skipped+c.Failed != int64(len(rep.Tests)) {
			t.Fatalf("%d tests, census %+v", len(rep.Tests), c)
		}
		again, err := Parse(allowlist.Agreement(format), strings.NewReader(in))
		if err != nil || again.SHA256() != rep.SHA256() {
			t.Fatalf("the same report has two digests: %v", err)
		}
	})
}
