package workflow

import "testing"

func TestAGlobCoversWhatIsBelowIt(t *testing.T) {
	for _, tt := range []struct {
		glob, name string
		want       bool
	}{
		{"**/*_test.go", "a_test.go", true},
		{"**/*_test.go", "a/b/c_test.go", true},
		{"**/*_test.go", "a/b/C_TEST.GO", false},
		{"**/*_test.go", "a/b_test.go.txt", false},
		{"*_test.go", "a/b_test.go", false},
		{"testdata/**", "testdata/x/y", true},
		{"testdata", "testdata/x/y", true},
		{"**/testdata", "a/testdata/x/y", true},
		{"testdata", "a/testdata", false},
		{"{spec,tests}/*.py", "tests/a.py", true},
		{"a/**", "a", true},
		{"a/*", "a", false},
		{"a/*", "a/b/c", true},
		{"[ab]?/x", "a1/x/y", true},
	} {
		if got := MatchGlob(tt.glob, tt.name); got != tt.want {
			t.Errorf("%s on %s: got %t", tt.glob, tt.name, got)
		}
	}
}
