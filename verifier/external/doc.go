// Package external judges checks of the intent, which run any program: what
// their definition in the tree is, how their known-bad input is made, whether an
// execution passes, and by what two executions are compared. It executes
// nothing; package verifier runs what it says.
//
// # Passing
//
// An execution passes if its program exited 0, no signal and no limit ended it,
// and pass_when holds. If agreement is a format of test output, the report on
// standard output can only lower that: a test reported failed, or a report that
// reports nothing, fails the execution; one that cannot be read, or is over a
// bound, leaves it without a judgement.
//
// # Negative control
//
// The known-bad input is a passing one with one line changed. It must fail by
// the check's own judgement, ended by nothing but its own exit, and print what
// fails_with matches. Neither a passing run nor a run on the same input with the
// changed file emptied may print that: then fails_with says nothing about this
// failure (fails_with_unspecific), and any broken input would satisfy it.
//
// # Formats
//
// The formats are read from standard output: "go-test-json" as test2json writes
// it, "junit" as one XML document with testsuite and testcase elements (the
// schema of the Jenkins xUnit plugin; unknown elements are passed over), "tap"
// as TAP 13 and 14 (testanything.org). A test that is reported more than once
// has its worst outcome.
package external
