package external

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"striatum/allowlist"
)

// testName matches the names that test runners look for by default: test.js,
// test_x.py, x_test.go, x.test.ts, x.spec.js, x_spec.rb, XTest.java, XTests.cs,
// XSpec.scala, x.t, x.bats.
var testName = regexp.MustCompile(`^(test\.[^.]+|test_.+\..+|.+_(test|spec)\.[^.]+|.+\.(test|spec)\.[^.]+|.+(Test|Tests|Spec)\.[^.]+|.+\.(t|bats))$`)

// testFolders are the folders whose files are tests, or their fixtures, whatever
// their names are.
var testFolders = []string{"t", "test", "tests", "__tests__", "spec", "specs"}

// File is a regular file of a tree.
type File struct {
	Path string // from the top of the tree
	Mode uint32 // 0644 or 0755
}

// TestFiles finds the test files of a tree by its manifest: the regular files that
// are named as test runners expect, or lie below a folder named t, test, tests,
// __tests__, spec or specs. A file that the entry's argv names runs the tests and
// is none of them.
func TestFiles(e allowlist.Entry, manifest []byte) ([]File, error) {
	var files []File
	inArgv := named(e.Argv.Words)
	for line := range strings.Lines(string(manifest)) {
		fields, quoted, ok := cutFields(line, 3)
		if !ok {
			return nil, fmt.Errorf("the tree's manifest has the line %q", line)
		}
		name := unquote(quoted)
		mode, err := strconv.ParseUint(fields[0], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("the tree's manifest has the line %q", line)
		}
		if mode>>12 == 0o10 && isTest(name) && inArgv[name] == "" {
			files = append(files, File{name, uint32(mode & 0o777)})
		}
	}
	return files, nil
}

func isTest(name string) bool {
	folders := strings.Split(path.Dir(name), "/")
	return testName.MatchString(path.Base(name)) ||
		slices.ContainsFunc(folders, func(f string) bool { return slices.Contains(testFolders, f) })
}
