package gocheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
)

func TestVetAndItsControl(t *testing.T) {
	const pass, fail = receipt.Pass, receipt.Fail
	for name, c := range map[string]struct {
		edit    func(t *testing.T, dir string)
		want    receipt.Judgement
		reasons string
		results []string
		control receipt.ControlOutcome
	}{
		"honest": {func(*testing.T, string) {}, pass, "", nil, receipt.FailedAsRequired},
		"a finding": {
			func(t *testing.T, dir string) {
				edit(t, dir, "leaf/leaf_test.go", "_ = Leaf()", "t.Logf(\"%d\", Leaf())")
			},
			fail, "vet_reported",
			[]string{"leaf/leaf_test.go:5:39: (*testing.common).Logf format %d has arg Leaf() of wrong type string"},
			receipt.FailedAsRequired,
		},
		"a finding in the root": {
			func(t *testing.T, dir string) {
				edit(t, dir, "root.go", "", "package m\n\nfunc f() int {\n\treturn 1\n\treturn 2\n}\n")
			},
			fail, "vet_reported",
			[]string{"root.go:5:2: unreachable code"},
			receipt.FailedAsRequired,
		},
		"a type error": {
			func(t *testing.T, dir string) {
				edit(t, dir, "mid/mid.go", "leaf.Leaf()", "leaf.Loaf()")
			},
			fail, "vet_reported",
			[]string{"mid/mid.go:5:33: undefined: leaf.Loaf"},
			receipt.FailedAsRequired, // of the packages that compile
		},
		"a type error in the lowest package": {
			func(t *testing.T, dir string) {
				edit(t, dir, "leaf/leaf.go", "\"leaf\"", "1")
			},
			fail, "vet_reported",
			[]string{"leaf/leaf.go:3:29: cannot use 1 (untyped int constant) as string value in return statement"},
			receipt.FailedAsRequired,
		},
		"a syntax error": {
			func(t *testing.T, dir string) {
				edit(t, dir, "root.go", "", "package m\n\nfunc f( {\n")
			},
			fail, "vet_reported", nil, receipt.FailedAsRequired,
		},
		"an import that is not there": {
			func(t *testing.T, dir string) {
				edit(t, dir, "root.go", "", "package m\n\nimport _ \"example.test/m/gone\"\n")
			},
			fail, "vet_reported", nil, receipt.Invalid, // nothing is vetted at all
		},
		"a broken go.mod": {
			func(t *testing.T, dir string) {
				edit(t, dir, "go.mod", "go 1.24", "go 1.24\n\nrequire example.test/x v1")
			},
			fail, "vet_failed", nil, receipt.Invalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := unpack(t, "honest.txtar")
			l := newLab(t, dir, Params{})
			c.edit(t, dir)
			if name != "a broken go.mod" { // found before any command runs
				l = newLab(t, dir, Params{})
			}
			j, _ := JudgeVet(l.discovery, first(l.vet(nil)), second(l.vet(nil)))
			if j.Judgement != c.want {
				t.Errorf("judged %q %v, want %q", j.Judgement, j.Reasons, c.want)
			}
			for _, r := range j.Reasons {
				if r.Code != c.reasons {
					t.Errorf("reason %+v, want %s", r, c.reasons)
				}
			}
			if c.results != nil || c.want == pass {
				if diff := cmp.Diff(c.results, lines(j.Results)); diff != "" {
					t.Errorf("results (-want +got)\n%s", diff)
				}
			}
			planted := l.plant(plantVet)
			log, end := l.vet(planted)
			if got, why := JudgeVetControl(l.discovery, planted, log, end); got != c.control {
				t.Errorf("control %q (%s), want %q", got, why, c.control)
			}
		})
	}
}

func first[A, B any](a A, _ B) A  { return a }
func second[A, B any](_ A, b B) B { return b }

func TestVetControlSeesThroughASilentVet(t *testing.T) {
	l := newLab(t, unpack(t, "honest.txtar"), Params{})
	planted := l.plant(plantVet)
	log, end := l.vet(planted)
	if got, why := JudgeVetControl(l.discovery, planted, log, End{}); got != receipt.DidNotFail {
		t.Errorf("status 0: %q (%s)", got, why)
	}
	if got, _ := JudgeVetControl(l.discovery, planted, log, End{Cut: "wall_clock"}); got != receipt.Invalid {
		t.Errorf("cut: %q", got)
	}
	if got, _ := JudgeVetControl(l.discovery, planted, log, End{ExitCode: -1, Signal: "SIGKILL"}); got != receipt.Invalid {
		t.Errorf("killed: %q", got)
	}
	one := NewToolLog() // a vet that keeps one package's findings to itself
	for _, text := range log.text {
		if !strings.HasPrefix(text, "mid/") {
			_, _ = fmt.Fprintln(one.StderrWriter(), text)
		}
	}
	one.Close()
	if got, why := JudgeVetControl(l.discovery, planted, one, end); got != receipt.DidNotFail || !strings.Contains(why, "m/mid") {
		t.Errorf("one missing: %q (%s)", got, why)
	}
}

func TestCompilerWarningsOfCAreNoFindings(t *testing.T) {
	log := NewToolLog()
	_, _ = log.StderrWriter().Write([]byte("# example.test/m/c\n./c.go:5:10: warning: unused variable 'x' [-Wunused-variable]\nc.c: In function 'f':\nc.c:1:2: warning: x\n"))
	log.Close()
	d := Discovery{Module: Module{Dir: "."}, Packages: []Package{{ImportPath: "example.test/m/c"}}}
	if j, _ := JudgeVet(d, log, End{}); j.Judgement != receipt.Pass || len(j.Results) != 0 {
		t.Errorf("got %q %v", j.Judgement, j.Reasons)
	}
	_, _ = log.StderrWriter().Write([]byte("c/c.go:5:10: unreachable code\n"))
	if j, _ := JudgeVet(d, log, End{}); j.Judgement != receipt.Fail {
		t.Errorf("a diagnostic with status 0: %q", j.Judgement)
	}
}

func TestBrokenPackagesAreKnownByTheirHeaders(t *testing.T) {
	d := Discovery{Module: Module{Dir: "."}, Packages: []Package{{ImportPath: "m/a", Dir: "a"}, {ImportPath: "m/b", Dir: "b"}, {ImportPath: "m/c", Dir: "c"}}}
	log := NewToolLog()
	_, _ = log.StderrWriter().Write([]byte(`# m/a
# [m/a]
a/a.go:1:1: vet's own, as Go 1.25 prints it
# m/b [m/b.test]
b/b.go:1:1: undefined: x
# m/c
# [m/c]
vet: c/c.go:1:1: undefined: y
`))
	log.Close()
	if diff := cmp.Diff(map[string]bool{"m/b": true, "m/c": true}, log.brokenPackages(d)); diff != "" {
		t.Error(diff)
	}
}

func FuzzVetOutput(f *testing.F) {
	f.Add("# m/a\n# [m/a]\nvet: a/a.go:1:2: undefined: x\na/b.go:3:4: unreachable code\n\tmore\n", 1)
	f.Add("a/zz.go:5: x\nc.c:1:1: warning: y\n/workspace/a/a.go:1:1: z\n/etc/x.go:1:1: q\n", 0)
	f.Add("go: downloading x\na.go:99999999999999999999:1: x\n../x.go:1:1: x\n", 1)
	d := Discovery{Module: Module{Dir: ".", Path: "m"}, Packages: []Package{{ImportPath: "m/a", Dir: "a", Name: "a", GoFiles: []string{"a.go"}}}}
	f.Fuzz(func(t *testing.T, text string, exit int) {
		log, pieces := NewToolLog(), NewToolLog()
		_, _ = log.StderrWriter().Write([]byte(text))
		for i := range len(text) {
			_, _ = pieces.StderrWriter().Write([]byte{text[i]})
		}
		log.Close()
		pieces.Close()
		j, diagnostics := JudgeVet(d, log, End{ExitCode: exit})
		other, _ := JudgeVet(d, pieces, End{ExitCode: exit})
		if diff := cmp.Diff(j, other); diff != "" {
			t.Errorf("pieces matter: %s", diff)
		}
		if j.Judgement == receipt.Pass && (exit != 0 || len(diagnostics) > 0) {
			t.Errorf("passed with status %d and %v", exit, diagnostics)
		}
		if !slices.IsSortedFunc(j.Results, func(a, b Result) int { return strings.Compare(a.Outcome, b.Outcome) }) {
			t.Errorf("not sorted: %v", j.Results)
		}
		for _, diag := range diagnostics {
			again, ok := parseDiagnostic(".", strings.SplitN(diag.String(), "\n", 2)[0])
			if !ok || again.Path != diag.Path || again.Line != diag.Line {
				t.Errorf("%q is read as %+v", diag, again)
			}
		}
		planted := []Planted{{ImportPath: "m/a", Path: "a/zzqqq.go", Line: 5}}
		if got, _ := JudgeVetControl(d, planted, log, End{ExitCode: exit}); got == receipt.FailedAsRequired && !strings.Contains(text, "zzqqq.go:5") {
			t.Error("a control failed that nobody reported")
		}
	})
}
