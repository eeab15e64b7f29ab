// Package sandboxtest is the suite that every sandbox.Engine passes: a subtest
// for each sentence of the contract, run with real programs. The programs are
// the test binary itself, which Main turns into what an argument names.
package sandboxtest
