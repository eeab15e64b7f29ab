// Package verifier is the lane: it runs named checks in sandboxes and signs a
// receipt for each. It never decides a claim, never executes anything of a
// worktree on the host, and reads no setting from one.
//
// For each check it does nine steps: resolve it; take a number, which is on
// disk before untrusted code runs; freeze the tree (once for all checks of a
// request); measure the tools; run the negative control; run the check twice,
// each in a fresh sandbox on the same frozen tree; classify; seal and sign;
// record. Every number that was taken ends in exactly one receipt.
//
// The Go checks compile first: one sandbox builds every test binary twice, from
// the tree and from the tree with planted defects, and no code of the
// repository runs in it. The control and the two runs then execute those
// binaries, each program with a file system layer of its own.
package verifier
