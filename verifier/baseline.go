package verifier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"striatum/baseline"
	"striatum/receipt"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/verifier/gocheck"
)

// maxEditedTests bounds the findings that name an edited test.
const maxEditedTests = 20

// readBaseline reads the baseline of the frozen tree, if there is one, and notes
// its digest. It is that of the tree that was asked about, whatever protected inputs
// replace. errConcluded: it is there and is none.
func (r *run) readBaseline() error {
	r.body.Baseline = &receipt.Baseline{}
	root, err := os.OpenRoot(r.asked.Dir)
	if err != nil {
		return fmt.Errorf("open the frozen tree: %w", err)
	}
	defer func() { _ = root.Close() }() // a read-only handle
	data, err := gocheck.ReadFile(root.FS(), baseline.Path, baseline.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		r.body.Baseline.SHA256 = seal.SHA256Hex(data)
		var all baseline.Baseline
		if all, err = baseline.Parse(data); err == nil {
			r.accepted, r.body.Baseline.Entry = all.Find(r.check.CheckID())
			return nil
		}
	}
	r.incident("baseline_invalid", receipt.MakesIndeterminate, cut(fmt.Sprintf("%s: %v", baseline.Path, err)))
	return errConcluded
}

// compareBaseline compares the tests, as both runs had them, with the baseline of
// the tree, and keeps them as what an operator may accept next.
func (r *run) compareBaseline(results gocheck.Results) error {
	now, err := r.testCensus(results)
	if err != nil {
		return err
	}
	b := r.body.Baseline
	if b.Entry {
		d := baseline.Compare(r.accepted, now)
		b.TestsRemoved, b.TestsNewlySkipped, b.TestInputsChanged = receipt.NewList(d.Removed), receipt.NewList(d.NewlySkipped), receipt.NewList(d.InputsChanged)
		for i, name := range d.Edited {
			if i == maxEditedTests {
				r.body.Findings = append(r.body.Findings, receipt.FindingsLeftOut("test_edited", int64(len(d.Edited)-i)))
				break
			}
			r.finding("test_edited", r.source.module.Dir, cut(name+": its source is another than in the baseline"))
		}
	}
	r.proposal, err = baseline.Baseline{}.With(now).Encode()
	if err != nil {
		r.finding("baseline_over_bound", baseline.Path, cut("the tests cannot be accepted as a baseline: "+err.Error()))
		return nil
	}
	b.CensusSHA256 = seal.SHA256Hex(r.proposal)
	return nil
}

// testCensus is what the sources declare of tests, how they ran, and what they
// read.
func (r *run) testCensus(results gocheck.Results) (baseline.Check, error) {
	c := baseline.Check{ID: r.check.CheckID(), Packages: []baseline.Package{}, Files: []baseline.File{}}
	ran := ranTests(results)
	for _, p := range r.source.discovery.Packages {
		for _, s := range p.Sources {
			c.Files = append(c.Files, baseline.File{Path: snapshot.Quote(s.Path), Constraint: receipt.Text(s.Constraint), Excluded: s.Excluded, Helpers: s.Helpers})
		}
		if tests := testsOf(p, ran); len(tests) > 0 {
			c.Packages = append(c.Packages, baseline.Package{ImportPath: receipt.Text(p.ImportPath), Tests: tests})
		}
	}
	slices.SortFunc(c.Packages, func(a, b baseline.Package) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	slices.SortFunc(c.Files, func(a, b baseline.File) int { return strings.Compare(a.Path, b.Path) })
	var err error
	c.Data, err = testData(r.snap, r.source.discovery)
	return c, err
}

// testName is a test of a package, without its subtests.
type testName struct{ pkg, test string }

// ranTests says of each test how it and its subtests ended.
func ranTests(results gocheck.Results) map[testName]baseline.Test {
	all := map[testName]baseline.Test{}
	for _, x := range results {
		top, _, sub := strings.Cut(x.Test, "/")
		name := testName{x.Package, top}
		t := all[name]
		skipped := strings.Contains(x.Outcome, "skipped")
		switch {
		case !sub:
			t.Skipped = skipped
		case skipped:
			t.SkippedSubtests++
		default:
			t.Subtests++
		}
		all[name] = t
	}
	return all
}

// testsOf are the tests that p declares, with how they ran.
func testsOf(p gocheck.Package, ran map[testName]baseline.Test) []baseline.Test {
	declared := slices.SortedStableFunc(slices.Values(p.Tests), func(a, b gocheck.Test) int { return strings.Compare(a.Name, b.Name) })
	var all []baseline.Test
	for _, d := range declared {
		if last := len(all) - 1; last >= 0 && all[last].Name == d.Name {
			all[last].Namesakes++
			all[last].Body = baseline.Short([]byte(all[last].Body + d.Body))
			continue
		}
		t := ran[testName{p.ImportPath, d.Name}]
		t.Name, t.Body = d.Name, d.Body
		all = append(all, t)
	}
	return all
}

// maxDataLinks bounds how many links in a row lead to test data.
const maxDataLinks = 8

// testData are the files of the frozen tree, by its manifest, that lie in a folder
// of test data or are embedded by a test file and no Go source, and what links among
// them lead to in the tree.
func testData(snap snapshot.Snapshot, d gocheck.Discovery) ([]baseline.Data, error) {
	manifest, err := snap.ReadManifest()
	if err != nil {
		return nil, err
	}
	led := []string{} // to by links, sorted
	for range maxDataLinks {
		data, links, err := dataOf(manifest, func(name string) bool {
			return within(name, d.DataDirs) || path.Ext(name) != ".go" && within(name, d.Embedded) || within(name, led)
		})
		if err != nil {
			return nil, err
		}
		more := slices.Clone(led)
		for _, name := range links {
			target, err := os.Readlink(filepath.Join(snap.Dir, name))
			if err != nil {
				return nil, fmt.Errorf("read the frozen tree: %w", err)
			}
			if to := path.Join(path.Dir(name), target); !path.IsAbs(target) && filepath.IsLocal(to) && to != "." {
				more = append(more, to)
			}
		}
		slices.Sort(more)
		if more = slices.Compact(more); len(more) == len(led) {
			slices.SortFunc(data, func(a, b baseline.Data) int { return strings.Compare(a.Path, b.Path) })
			return data, nil
		}
		led = more
	}
	return nil, fmt.Errorf("find the test data: more than %d links lead from one to the next", maxDataLinks)
}

// dataOf are the files of a manifest that part names, and which of them are links.
func dataOf(manifest []byte, part func(name string) bool) (data []baseline.Data, links []string, err error) {
	data = []baseline.Data{}
	for line := range strings.Lines(string(manifest)) {
		e, err := snapshot.ParseManifestLine(line)
		if err != nil {
			return nil, nil, err
		}
		if !part(e.Path) {
			continue
		}
		if e.Link { // its digest is that of a file with its target as content
			links, e.SHA256 = append(links, e.Path), seal.SHA256Hex([]byte("link\x00"+e.SHA256))
		}
		data = append(data, baseline.Data{Path: e.Quoted, SHA256: e.SHA256})
	}
	return data, links, nil
}

// within reports whether name is one of the sorted paths or lies below one.
func within(name string, paths []string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		if _, ok := slices.BinarySearch(paths, at); ok {
			return true
		}
	}
	return false
}
