// Package gocheck is what a lane knows about Go: which tests a tree holds,
// which commands compile and check it, how a known-bad file is planted, and
// what the bytes that a sandbox gave back amount to.
//
// It is pure. It reads a frozen tree through an fs.FS, whose links must not
// lead out of it (os.Root's FS, for example), and bytes that runs produced. It
// starts no program, keeps no state and knows neither sandbox nor store. The
// randomness of what is planted comes in as a reader.
//
// What is read is foreign, so everything has a bound: a go.mod or go.work is
// read up to MaxModFileBytes, a Go file up to MaxSourceBytes, a line of a tool's
// output up to MaxLineBytes, and the framing of an execution's test binaries up to
// MaxTests tests and MaxNameBytes bytes of names in all. What is over a bound never passes: it makes
// the judgement indeterminate.
//
// # Test output
//
// A test binary that runs with -test.v=test2json begins each line of framing
// with the byte 0x16, in the middle of another line if it must. Tally reads
// only those lines, so that ordinary output of the code under test never
// counts. Code under test shares its process with the framework and can write
// that byte too: what is read here is testimony, held against the exit status,
// against the tests that the sources declare, and against a planted failure.
//
// # Result lines
//
// Two executions agree when their result lines are equal. A line of go-test is
// import path, test and outcome, joined by tabs; of go-vet one diagnostic; of
// go-build package and outcome, joined by a tab. Lines are sorted.
package gocheck

// The bounds of what is read.
const (
	MaxModFileBytes = 1 << 20
	MaxSourceBytes  = 4 << 20
	MaxLineBytes    = 64 << 10
	MaxTests        = 50_000 // in one execution, subtests included
	MaxNameBytes    = 4 << 20
	MaxDiagnostics  = 100_000
	// MaxFindings is how many findings of one code are listed; one more says
	// how many were left out.
	MaxFindings = 100
)
