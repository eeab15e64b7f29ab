// Package receipt is the sealed, signed transcript of one check.
//
// A lane fills the facts of a Receipt and calls Sign. Whoever reads it calls
// Open, which is the only maker of Verified, the one form of a receipt that a
// gate accepts. Nothing that follows from the facts is believed because it is
// written: Open computes the derived fields, the seal and the whole statement
// again and refuses a receipt whose bytes differ from its own.
//
// On disk a receipt is a DSSE envelope (package seal) of at most MaxBytes,
// signed by one key in the role of a lane. The payload is an in-toto Statement v1
// in canonical JSON:
//
//	_type          https://in-toto.io/Statement/v1
//	subject[0]     name "worktree"; digest.gitTree is the SHA-256 tree id of the
//	               snapshot, digest.sha256 that of the tree manifest file (absent
//	               when no manifest was made), digest.gitCommit the commit, if any
//	predicateType  https://in-toto.io/attestation/test-result/v0.1
//	predicate      result: PASSED for asserted and verified_eligible, WARNED for
//	               these when a test was skipped, FAILED for all else;
//	               configuration[0]: name "urn:striatum:receipt:v1",
//	               digest.sha256 the seal, annotations the receipt's body;
//	               configuration[1..]: name and digest of what decided the result;
//	               passedTests, warnedTests (the skipped ones), failedTests
//
// The seal is the SHA-256 of the canonical body without its seal_digest.
//
// The package reads no file, clock or environment and draws no randomness.
package receipt
