package gocheck

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"path"

	"striatum/receipt"
)

// Planted is a known-bad file for one package. Its names are random words that
// say nothing of their purpose.
type Planted struct {
	ImportPath string
	Path       string // of the new file, slash-separated, relative to the tree
	Data       []byte
	Test       string // for go-test: the test that must fail
	Line       int    // for go-vet and go-build: where the error is
}

// word draws n lower-case letters.
func word(rnd io.Reader, n int) (string, error) {
	buf := make([]byte, n)
	for i := 0; i < n; {
		var b [1]byte
		if _, err := io.ReadFull(rnd, b[:]); err != nil {
			return "", fmt.Errorf("draw a random name: %w", err)
		}
		if b[0] < 26*9 { // every letter is as likely as any other
			buf[i] = 'a' + b[0]%26
			i++
		}
	}
	return string(buf), nil
}

// words draws the names that one planted file needs. They are longer than any
// GOOS or GOARCH, so that no file name is a constraint.
func words(rnd io.Reader) ([5]string, error) {
	var w [5]string
	for i := range w {
		var err error
		if w[i], err = word(rnd, 13); err != nil {
			return w, err
		}
	}
	return w, nil
}

// PlantTest returns a file with one failing test for each package of d that has
// tests. It belongs to the external test package, which is in the same binary:
// so the package itself and what imports it need not be compiled again. It is to
// be there when the tests are compiled and only then, so that the folder that
// they run in is that of a real run. Names are drawn from rnd; an error is one of
// reading it.
func PlantTest(d Discovery, rnd io.Reader) ([]Planted, error) {
	var all []Planted
	for _, p := range d.Packages {
		if !p.HasTests() {
			continue
		}
		w, err := words(rnd)
		if err != nil {
			return nil, err
		}
		clause := p.XTestName
		if clause == "" {
			clause = p.Name + "_test"
		}
		test := "Test" + string(w[1][0]-'a'+'A') + w[1][1:]
		data := fmt.Appendf(nil, "package %s\n\nimport %s \"testing\"\n\nfunc %s(t *%s.T) {\n\tt.Errorf(\"got %%q, want %%q\", %q, %q)\n}\n",
			clause, w[2], test, w[2], w[3], w[4])
		all = append(all, Planted{
			ImportPath: p.ImportPath, Path: path.Join(p.Dir, "zz_"+w[0]+"_test.go"), Data: data, Test: test,
		})
	}
	return all, nil
}

// PlantVet returns, for each package of d, a file that compiles and that go vet
// must report: a call of Printf whose argument does not fit its verb.
func PlantVet(d Discovery, rnd io.Reader) ([]Planted, error) {
	return plantSource(d.Packages, rnd, func(w [5]string) string {
		return fmt.Sprintf("import %s \"fmt\"\n\nfunc %s() {\n\t%s.Printf(\"%s %%d\\n\", %q)\n}\n", w[1], w[2], w[1], w[3], w[4])
	}, "Printf")
}

// PlantBuild returns, for each package of d that go build compiles, a file with
// a type error.
func PlantBuild(d Discovery, rnd io.Reader) ([]Planted, error) {
	return plantSource(d.Buildable(), rnd, func(w [5]string) string {
		return fmt.Sprintf("func %s() int {\n\treturn %q\n}\n", w[1], w[2])
	}, "return")
}

// Buildable lists the packages that have more than test files.
func (d Discovery) Buildable() []Package {
	var all []Package
	for _, p := range d.Packages {
		if len(p.GoFiles) > 0 || p.Problem != "" && !p.HasTests() {
			all = append(all, p)
		}
	}
	return all
}

func plantSource(packages []Package, rnd io.Reader, body func([5]string) string, at string) ([]Planted, error) {
	var all []Planted
	for _, p := range packages {
		w, err := words(rnd)
		if err != nil {
			return nil, err
		}
		clause, suffix := p.Name, ".go"
		if len(p.GoFiles) == 0 { // only test files: stay one of them
			suffix = "_test.go"
			if len(p.TestFiles) == 0 {
				clause = p.XTestName
			}
		}
		data := fmt.Appendf(nil, "package %s\n\n%s", clause, body(w))
		line := 1 + bytes.Count(data[:bytes.Index(data, []byte(at))], []byte("\n"))
		all = append(all, Planted{ImportPath: p.ImportPath, Path: path.Join(p.Dir, "zz_"+w[0]+suffix), Data: data, Line: line})
	}
	return all, nil
}

// JudgeTestControl judges a run of tests with planted failures, made from the
// same discovery as planted. Every planted test must be reported failing by a
// binary that then exits with a status of its own that is not 0.
func JudgeTestControl(planted []Planted, runs []PackageRun) (receipt.ControlOutcome, string) {
	byPath := map[string]PackageRun{}
	for _, r := range runs {
		byPath[r.ImportPath] = r
	}
	var missed, unclear []string
	for _, p := range planted {
		r, ok := byPath[p.ImportPath]
		switch {
		case !ok || r.Tally == nil || r.Cut != "":
			unclear = append(unclear, p.ImportPath+" was not run to its end")
		case r.Signal != "":
			unclear = append(unclear, p.ImportPath+" was ended by "+r.Signal)
		case r.ExitCode == 0:
			missed = append(missed, p.ImportPath+" exited with status 0")
		default:
			s := r.Tally.tests[p.Test]
			switch {
			case s == nil || s.ended() == 0:
				unclear = append(unclear, p.ImportPath+" ended before the planted test did")
			case s.failed == 0:
				missed = append(missed, p.ImportPath+" did not report the planted failure")
			case s.passed+s.skipped > 0:
				missed = append(missed, p.ImportPath+" reported the planted test with two outcomes")
			}
		}
	}
	return controlOutcome(len(planted), missed, unclear)
}

// ControlDiffers names, as "import/path TestName", the tests that end otherwise
// in the control than in both runs a and b, which are sorted: what the presence of
// a planted failure changes, or chance. Tests on which a and b do not agree
// are left out, and so are tests that only the control has.
func ControlDiffers(control []PackageRun, a, b Results) []string {
	byPath := map[string]*Tally{}
	for _, r := range control {
		byPath[r.ImportPath] = r.Tally
	}
	var names []string
	j := 0
	for _, r := range a {
		for j < len(b) && b[j].compareTest(r) < 0 {
			j++
		}
		t := byPath[r.Package]
		if j == len(b) || b[j] != r || t == nil {
			continue
		}
		s, known := t.others[maphash.String(nameSeed, r.Test)]
		if !known || s.describe() != r.Outcome {
			names = append(names, r.Package+" "+r.Test)
		}
	}
	return names
}

// controlOutcome: one control that did not fail is enough to void a check.
func controlOutcome(planted int, missed, unclear []string) (receipt.ControlOutcome, string) {
	switch {
	case len(missed) > 0:
		return receipt.DidNotFail, nameSome(missed)
	case len(unclear) > 0:
		return receipt.Invalid, nameSome(unclear)
	case planted == 0:
		return receipt.Invalid, "there is no package to plant a failure in"
	}
	return receipt.FailedAsRequired, ""
}
