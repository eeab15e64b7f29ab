package gocheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/collector"
	"striatum/internal/testenv"
	"striatum/receipt"
)

// edit changes a file of a fixture: the first old becomes new. An empty old
// writes the whole file.
func edit(t *testing.T, dir, file, old, new string) {
	t.Helper()
	file = filepath.Join(dir, file)
	text := []byte(new)
	if old != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), old) {
			t.Fatalf("%s has no %q", file, old)
		}
		text = []byte(strings.Replace(string(data), old, new, 1))
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) vet(planted []Planted) (*ToolLog, End) {
	return l.goCommand(Vet(l.discovery.Module, l.params), planted)
}

func (l *lab) build(planted []Planted) (*ToolLog, End) {
	return l.goCommand(Build(l.discovery.Module, l.params), planted)
}

func (l *lab) plant(how func(*lab) ([]Planted, error)) []Planted {
	l.t.Helper()
	planted, err := how(l)
	if err != nil {
		l.t.Fatal(err)
	}
	return planted
}

func plantVet(l *lab) ([]Planted, error)   { return PlantVet(l.discovery, l.random()) }
func plantBuild(l *lab) ([]Planted, error) { return PlantBuild(l.discovery, l.random()) }

func lines(rs Results) []string {
	var all []string
	for _, r := range rs {
		all = append(all, r.String())
	}
	return all
}

func TestBuildAndItsControl(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(t *testing.T, dir string)
		want    receipt.Judgement
		results []string
		control receipt.ControlOutcome
	}{
		"honest": {
			func(*testing.T, string) {}, receipt.Pass,
			[]string{"example.test/m\tbuilt", "example.test/m/cmd/tool\tbuilt", "example.test/m/leaf\tbuilt", "example.test/m/mid\tbuilt"},
			receipt.FailedAsRequired,
		},
		"a type error": {
			func(t *testing.T, dir string) { edit(t, dir, "mid/mid.go", "leaf.Leaf()", "leaf.Loaf()") }, receipt.Fail,
			[]string{"example.test/m\tbuilt", "example.test/m/cmd/tool\tbehind_error", "example.test/m/leaf\tbuilt", "example.test/m/mid\tfailed"},
			receipt.FailedAsRequired,
		},
		"more errors than are printed": {
			func(t *testing.T, dir string) {
				edit(t, dir, "leaf/leaf.go", "", "package leaf\n"+strings.Repeat("var _ int = \"\"\n", 20))
			}, receipt.Fail,
			[]string{"example.test/m\tbuilt", "example.test/m/cmd/tool\tbehind_error", "example.test/m/leaf\tfailed", "example.test/m/mid\tbehind_error"},
			receipt.FailedAsRequired,
		},
		"a link error": {
			func(t *testing.T, dir string) {
				edit(t, dir, "cmd/tool/main.go", "func main() {", "func gone()\n\nfunc main() { gone();")
				edit(t, dir, "cmd/tool/asm.s", "", "")
			}, receipt.Fail,
			[]string{"example.test/m\tbuilt", "example.test/m/cmd/tool\tfailed", "example.test/m/leaf\tbuilt", "example.test/m/mid\tbuilt"},
			receipt.FailedAsRequired,
		},
		"an import that is not there": {
			func(t *testing.T, dir string) {
				edit(t, dir, "mid/mid.go", "", "package mid\n\nimport _ \"example.test/m/gone\"\n")
			}, receipt.Fail,
			[]string{"example.test/m\tnot_built", "example.test/m/cmd/tool\tbehind_error", "example.test/m/leaf\tnot_built", "example.test/m/mid\tfailed"},
			receipt.Invalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := unpack(t, "honest.txtar")
			c.edit(t, dir)
			l := newLab(t, dir, Params{})
			log, end := l.build(nil)
			j, tail := JudgeBuild(l.discovery, log, end)
			if j.Judgement != c.want || (tail == "") != (c.want == receipt.Pass) {
				t.Errorf("judged %q %v, tail %q; want %q", j.Judgement, j.Reasons, tail, c.want)
			}
			if diff := cmp.Diff(c.results, lines(j.Results)); diff != "" {
				t.Errorf("results (-want +got)\n%s", diff)
			}
			planted := l.plant(plantBuild)
			log, end = l.build(planted)
			if got, why := JudgeBuildControl(l.discovery, planted, log, end); got != c.control {
				t.Errorf("control %q (%s), want %q", got, why, c.control)
			}
			if got, _ := JudgeBuildControl(l.discovery, planted, log, End{}); got == receipt.FailedAsRequired {
				t.Error("a status 0 is a control that failed")
			}
			if left, err := filepath.Glob(filepath.Join(dir, "tool")); err != nil || len(left) > 0 {
				t.Errorf("the build left %v, %v", left, err)
			}
		})
	}
}

func TestBuildAndVetOfNothingFail(t *testing.T) {
	l := newLab(t, testenv.Tree(t, "-- go.mod --\nmodule m\n\ngo 1.24\n"), Params{})
	log, end := l.vet(nil)
	if j, _ := JudgeVet(l.discovery, log, end); j.Judgement != receipt.Fail || !strings.Contains(reasonCodes(j), "nothing_to_check") {
		t.Errorf("vet: %q %v", j.Judgement, j.Reasons)
	}
	log, end = l.build(nil)
	if j, _ := JudgeBuild(l.discovery, log, end); j.Judgement != receipt.Fail || !strings.Contains(reasonCodes(j), "nothing_to_check") {
		t.Errorf("build: %q %v", j.Judgement, j.Reasons)
	}
}

func TestDependencyThatIsInNoCacheIsIndeterminate(t *testing.T) {
	dir := testenv.Tree(t, `-- go.mod --
module example.test/m

go 1.24

require example.test/absent v1.0.0
-- go.sum --
example.test/absent v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
example.test/absent v1.0.0/go.mod h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-- m.go --
package m

import _ "example.test/absent"
-- m_test.go --
package m

import "testing"

func TestM(t *testing.T) {}
`)
	l := newLab(t, dir, Params{})
	compiled, _ := l.compile(nil)
	if compiled.Outcome != receipt.CompileInconclusive || compiled.Reasons[0].Code != "dependency_missing" {
		t.Errorf("compile: %+v", compiled)
	}
	log, end := l.vet(nil)
	if j, _ := JudgeVet(l.discovery, log, end); j.Judgement != receipt.Inconclusive || reasonCodes(j) != "dependency_missing" {
		t.Errorf("vet: %q %v", j.Judgement, j.Reasons)
	}
	log, end = l.build(nil)
	if j, _ := JudgeBuild(l.discovery, log, end); j.Judgement != receipt.Inconclusive || reasonCodes(j) != "dependency_missing" {
		t.Errorf("build: %q %v", j.Judgement, j.Reasons)
	}
	// Without a line in go.sum it is what plain go says: a failure.
	edit(t, dir, "go.sum", "", "")
	if compiled, _ = l.compile(nil); compiled.Outcome != receipt.CompileFailed {
		t.Errorf("without go.sum: %+v", compiled)
	}
}

func TestModuleThatNeedsANewerGoIsIndeterminate(t *testing.T) {
	dir := testenv.Tree(t, "-- go.mod --\nmodule example.test/m\n\ngo 1.999\n-- m_test.go --\npackage m\n")
	l := newLab(t, dir, Params{})
	compiled, _ := l.compile(nil)
	if compiled.Outcome != receipt.CompileInconclusive || compiled.Reasons[0].Code != "toolchain_too_old" {
		t.Errorf("compile: %+v", compiled)
	}
}

func TestJudgeCompileNamesWhatDoesNotCompile(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(t *testing.T, dir string)
		detail string
	}{
		"a test": {func(t *testing.T, dir string) { edit(t, dir, "leaf/leaf_test.go", "_ = Leaf()", "_ = Loaf()") }, "example.test/m/leaf [example.test/m/leaf.test]: leaf/leaf_test.go:5:35: undefined: Loaf"},
		"vet's subset": {func(t *testing.T, dir string) {
			edit(t, dir, "leaf/leaf_test.go", "_ = Leaf()", "t.Logf(\"%d\", Leaf())")
		}, "example.test/m/leaf [example.test/m/leaf.test]: leaf/leaf_test.go:5:39: (*testing.common).Logf format %d has arg Leaf() of wrong type string"},
		"a package": {func(t *testing.T, dir string) { edit(t, dir, "mid/mid.go", "leaf.Leaf()", "leaf.Loaf()") }, "example.test/m/mid: mid/mid.go:5:33: undefined: leaf.Loaf"},
		"go.mod":    {func(t *testing.T, dir string) { edit(t, dir, "go.mod", "go 1.24", "go 1.24\n\nbogus") }, "the go command ended with exit status 1: go.mod:5: unknown directive: bogus"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := unpack(t, "honest.txtar")
			l := newLab(t, dir, Params{})
			c.edit(t, dir)
			compiled, _ := l.compile(nil)
			if compiled.Outcome != receipt.CompileFailed || compiled.Reasons[0].Detail != c.detail || compiled.Tail == "" {
				t.Errorf("got %+v\nwant %q", compiled, c.detail)
			}
		})
	}
}

func TestJudgeCompileIsUnsureOfWhatItDoesNotUnderstand(t *testing.T) {
	d := Discovery{Packages: []Package{declares("a", "TestA")}}
	const passed = `{"Action":"pass","Package":"a"}` + "\n"
	for name, c := range map[string]struct {
		stdout string
		end    End
		want   receipt.CompileOutcome
		reason string
	}{
		"passed":            {passed, End{}, receipt.Compiled, ""},
		"a cached result":   {`{"Action":"output","Package":"a","Output":"ok  \ta\t(cached)\n"}` + "\n" + passed, End{}, receipt.CompileInconclusive, "cached_result"},
		"no event":          {"words\n" + passed, End{}, receipt.CompileInconclusive, "output_not_understood"},
		"an unknown action": {`{"Action":"novel"}` + "\n" + passed, End{}, receipt.CompileInconclusive, "output_not_understood"},
		"a long line":       {`{"Action":"output","Output":"` + strings.Repeat("x", MaxLineBytes) + "\"}\n" + passed, End{}, receipt.CompileInconclusive, "output_not_understood"},
		"no result":         {"", End{}, receipt.CompileInconclusive, "census_mismatch"},
		"another package":   {passed + `{"Action":"pass","Package":"b"}` + "\n", End{}, receipt.CompileInconclusive, "census_mismatch"},
		"cut":               {passed, End{Cut: "memory"}, receipt.CompileInconclusive, "command_cut_short"},
		"exit status":       {passed, End{ExitCode: 1}, receipt.CompileFailed, "compile_failed"},
		"signal":            {passed, End{ExitCode: -1, Signal: "SIGSEGV"}, receipt.CompileFailed, "compile_failed"},
		"a failed build":    {`{"Action":"build-fail","ImportPath":"a"}` + "\n" + passed, End{}, receipt.CompileFailed, "compile_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			log := NewToolLog()
			_, _ = log.StdoutWriter().Write([]byte(c.stdout))
			log.Close()
			got := JudgeCompile(d, log, c.end)
			reason := ""
			if len(got.Reasons) > 0 {
				reason = got.Reasons[0].Code
			}
			if got.Outcome != c.want || reason != c.reason {
				t.Errorf("got %+v, want %q for %q", got, c.want, c.reason)
			}
		})
	}
}

func TestMatchRecordsWantsOneBinaryForEachPackageWithTests(t *testing.T) {
	d := Discovery{Packages: []Package{declares("m/a", "TestA"), {ImportPath: "m/b", Dir: "b"}, declares("m/c")}}
	d.Packages[0].Dir, d.Packages[2].Dir = "a", "c"
	args := []string{"-test.paniconexit0", "-test.v=test2json", "-test.count=1", "-test.timeout=1m0s"}
	record := func(dir string, args ...string) collector.Record {
		return collector.Record{Dir: dir, Args: args, Binary: "x"}
	}
	good := []collector.Record{record("/workspace/a", args...), record("/workspace/c", args...)}
	binaries, err := MatchRecords(d, good, labTimeout)
	if err != nil || len(binaries) != 2 || binaries[1].ImportPath != "m/c" || binaries[1].Dir != "/workspace/c" {
		t.Fatalf("got %+v, %v", binaries, err)
	}
	for name, records := range map[string][]collector.Record{
		"one missing":       good[:1],
		"one too many":      append(slices.Clone(good), record("/workspace/b", args...)),
		"outside":           append(slices.Clone(good), record("/tmp/x", args...)),
		"twice":             append(slices.Clone(good), good[0]),
		"another argument":  {good[0], record("/workspace/c", append(slices.Clone(args), "-test.run=^$")...)},
		"argument missing":  {good[0], record("/workspace/c", args[1:]...)},
		"another timeout":   {good[0], record("/workspace/c", append(slices.Clone(args[:3]), "-test.timeout=2m0s")...)},
		"no records at all": nil,
	} {
		if got, err := MatchRecords(d, records, labTimeout); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestCommandsAndEnvironmentAreFixed(t *testing.T) {
	m := Module{Dir: "sub"}
	p := Params{Packages: []string{"./a", "./b/..."}, Tags: []string{"x", "y"}}
	c, err := TestCompile(m, p, []string{"/striatum-init", "collect", "/out", "--"}, 3*MaxTimeout)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Dir, strings.Join(c.Args, " "), strings.Join(Vet(m, p).Args, " "), strings.Join(Build(m, Params{}).Args, " ")}
	want := []string{
		"/workspace/sub",
		"test -json -count=1 -timeout=10m0s -exec=/striatum-init collect /out -- -buildvcs=false -tags=x,y ./a ./b/...",
		"vet -buildvcs=false -tags=x,y ./a ./b/...",
		"build -json -o=/dev/null -buildvcs=false ./...",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, words := range [][]string{nil, {""}, {"a b"}, {"a'"}} {
		if _, err := TestCompile(m, p, words, labTimeout); err == nil {
			t.Errorf("collector %q was accepted", words)
		}
	}
	env := NewEnvironment("/usr/local/go", true, false)
	wantEnv := []string{
		"CGO_ENABLED=1", "GOCACHE=/cache/go-build", "GOENV=off", "GOFLAGS=", "GOMODCACHE=/cache/go-mod", "GOPROXY=off", "GOSUMDB=off", "GOTELEMETRY=off",
		"GOTOOLCHAIN=local", "GOWORK=off", "HOME=/home/check", "LANG=C.UTF-8", "PATH=/usr/local/go/bin:/usr/bin:/bin", "TMPDIR=/tmp", "TZ=UTC",
	}
	if diff := cmp.Diff(wantEnv, env.List()); diff != "" {
		t.Error(diff)
	}
	for _, other := range []Environment{NewEnvironment("/usr/lib/go", true, false), NewEnvironment("/usr/local/go", false, false), NewEnvironment("/usr/local/go", true, true)} {
		if other.Digest() == env.Digest() {
			t.Errorf("%v has the same digest", other.List())
		}
	}
	for _, v := range env.Variables() {
		if v.Why == "" {
			t.Errorf("%s has no reason", v.Name)
		}
	}
}
