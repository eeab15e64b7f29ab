// Package rehearsal is the record of a rehearsal: what a check of the intent
// came to on inputs that must pass and on inputs that must not, before an
// operator stands behind it. A lane signs it; this package derives its verdict,
// opens it again and keeps the newest of each check in the lane's home.
//
// # Verdict
//
// The executions on the tree itself are judged as a run's are
// (receipt.Derive). The check graduates if they pass and agree in a strict
// sandbox, if the negative control failed as required each of three times, for
// each mutation that the entry lists, and if the check passed on none of the
// other inputs. It is refused if it failed on the tree, if the control did not
// do its work, or if one of the other inputs passed:
//
//   - empty_worktree: nothing is there but the check's own definition;
//   - emptied_tests: each test file is empty (only where the check is compared by
//     a format of test output).
//
// Anything else is indeterminate: what was not seen to its end proves nothing.
//
// # Format
//
// A record is a DSSE envelope of type PayloadType with one signature by the lane,
// over the canonical JSON of Rehearsal (docs/schemas/rehearsal.v1.json). Open
// derives verdict and reasons again and refuses a record whose own differ.
//
// # Layout
//
// The folder belongs to the holder of the lane's lock; readers take none:
//
//	<key>.json   the newest record of one (repository, check digest, closure)
//
// <key> is the hex SHA-256 of the three, each ended by a newline. A record is
// replaced by one rename; beyond MaxKept the oldest are dropped.
package rehearsal
