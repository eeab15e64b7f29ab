package baseline

import "fmt"

// Difference is what a census has otherwise than the accepted one. Each line
// names a test ("import/path TestName") or a file, and where it is more than its
// absence, after a colon what. The first three are what an operator must accept.
type Difference struct {
	Removed       []string // tests, and subtests by their number
	NewlySkipped  []string
	InputsChanged []string // test data, and constraints of test files
	Edited        []string // tests and files of helpers whose source is another
	Added         []string
}

// Lowers reports whether there is something that an operator must accept.
func (d Difference) Lowers() bool {
	return len(d.Removed)+len(d.NewlySkipped)+len(d.InputsChanged) > 0
}

// Compare says how now differs from accepted. A test is known by package and name,
// so a move within its package is no difference; added tests, files and data
// never lower.
func Compare(accepted, now Check) Difference {
	var d Difference
	d.tests(accepted, now)
	d.files(accepted, now)
	data := map[string]string{}
	for _, x := range now.Data {
		data[x.Path] = x.SHA256
	}
	for _, x := range accepted.Data {
		switch digest, ok := data[x.Path]; {
		case !ok:
			d.InputsChanged = append(d.InputsChanged, x.Path+": it is gone")
		case digest != x.SHA256:
			d.InputsChanged = append(d.InputsChanged, x.Path+": it has other content")
		}
	}
	return d
}

type testKey struct{ pkg, name string }

func tests(c Check) map[testKey]Test {
	all := map[testKey]Test{}
	for _, p := range c.Packages {
		for _, t := range p.Tests {
			all[testKey{p.ImportPath, t.Name}] = t
		}
	}
	return all
}

func (d *Difference) tests(accepted, now Check) {
	have, had := tests(now), tests(accepted)
	for _, p := range accepted.Packages {
		for _, was := range p.Tests {
			name := p.ImportPath + " " + was.Name
			is, ok := have[testKey{p.ImportPath, was.Name}]
			switch {
			case !ok:
				d.Removed = append(d.Removed, name)
				continue
			case is.Namesakes < was.Namesakes:
				d.Removed = append(d.Removed, fmt.Sprintf("%s: %d of %d", name, was.Namesakes-is.Namesakes, was.Namesakes+1))
			case is.Skipped && !was.Skipped:
				d.NewlySkipped = append(d.NewlySkipped, name)
			case is.Subtests >= was.Subtests:
			case is.Subtests+is.SkippedSubtests < was.Subtests+was.SkippedSubtests:
				d.Removed = append(d.Removed, fmt.Sprintf("%s: %d subtests passed, and %d do", name, was.Subtests, is.Subtests))
			default:
				d.NewlySkipped = append(d.NewlySkipped, fmt.Sprintf("%s: %d subtests passed, and %d do", name, was.Subtests, is.Subtests))
			}
			if is.Body != was.Body {
				d.Edited = append(d.Edited, name)
			}
		}
	}
	for _, p := range now.Packages {
		for _, t := range p.Tests {
			if _, ok := had[testKey{p.ImportPath, t.Name}]; !ok {
				d.Added = append(d.Added, p.ImportPath+" "+t.Name)
			}
		}
	}
}

// files compares those that are still there. What was in one that is gone is
// known by its tests.
func (d *Difference) files(accepted, now Check) {
	files := map[string]File{}
	for _, f := range now.Files {
		files[f.Path] = f
	}
	for _, was := range accepted.Files {
		is, ok := files[was.Path]
		switch {
		case !ok:
		case is.Excluded && !was.Excluded:
			d.InputsChanged = append(d.InputsChanged, fmt.Sprintf("%s: it is left out, constraint %q", was.Path, is.Constraint))
		case is.Constraint != was.Constraint && is.Constraint != "":
			d.InputsChanged = append(d.InputsChanged, fmt.Sprintf("%s: its constraint was %q and is %q", was.Path, was.Constraint, is.Constraint))
		case !was.Excluded && is.Helpers != was.Helpers:
			d.Edited = append(d.Edited, was.Path)
		}
	}
}
