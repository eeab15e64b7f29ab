package external_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/allowlist"
	"striatum/verifier/external"
)

func TestTestFilesAreToldByNameAndFolder(t *testing.T) {
	const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	tests := []string{
		"a_test.go", "src/x.spec.ts", "src/y.test.js", "lib/z_spec.rb", "test_q.py", "src/AppTest.java", "src/AppTests.cs", "src/AppSpec.scala",
		"a.t", "a.bats", "test.js", "t/basic.sh", "test/deep/data.json", "tests/x", "src/__tests__/y.js", "spec/z", "specs/z",
	}
	others := []string{
		"contest.go", "latest.txt", "testing.go", "attest.py", "src/lib.ts", "my_tests_data.csv.gz", "testdata/x.json", "greatest/x", "test", "src/t", "Test.md/x", "tests/run.sh",
	}
	var manifest strings.Builder
	want := []external.File{}
	for _, name := range tests {
		mode, perm := "100644", uint32(0o644)
		if name == "tests/x" {
			mode, perm = "100755", 0o755
		}
		manifest.WriteString(mode + " " + digest + " 0 " + name + "\n")
		want = append(want, external.File{Path: name, Mode: perm})
	}
	for _, name := range others {
		manifest.WriteString("100644 " + digest + " 0 " + name + "\n")
	}
	manifest.WriteString("120000 " + digest + " 3 tests/link\n100644 " + digest + " 0 \"tests/a\\tb\"\n")
	want = append(want, external.File{Path: "tests/a\tb", Mode: 0o644})
	got, err := external.TestFiles(allowlist.Entry{Argv: allowlist.Argv{Words: []string{"sh", "{target}/tests/run.sh"}}}, []byte(manifest.String()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := external.TestFiles(allowlist.Entry{}, []byte("what\n")); err == nil {
		t.Error("a line that is none was read")
	}
}
