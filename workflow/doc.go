// Package workflow is the model of verification/workflow.json: who does what in
// which order, which checks back which claims, and which floor the gate asks
// for. It parses strictly, validates with a JSON pointer for every finding, and
// encodes deterministically. It executes nothing and opens no file: what it
// has to know of the intent and of this host's pins comes in as a View.
//
// # The document
//
// One JSON object of schema "striatum.workflow.v1", at most MaxBytes long and
// MaxDepth deep, described by workflow.v1.json in this folder (a copy stands
// in docs/schemas). Ids are [a-z0-9][a-z0-9._-]{0,63}.
//
//   - jobs do the work; edges order them and form no cycle; cycles name the
//     only ways back, each with a largest number of rounds.
//   - claims are sentences; every claim is backed by exactly one check of a
//     verify job.
//   - a check is a builtin ("uses": "builtin:go-test", with parameters) or the
//     id of an entry of the intent (external, no parameters: they stand in the
//     entry). Without "id" a builtin's id is its "uses".
//   - write_scope paths are clean, relative to the top of the worktree; "." is
//     everything, a final "/" means a folder with all below it. Forbidden wins
//     over allowed.
//   - allowlist_status is what the generator saw. Nothing trusts it.
//
// The digest of a builtin check is the SHA-256 of the canonical JSON (RFC 8785)
// of {"builtin_revision", "parameters", "uses"}, where parameters holds exactly
// the parameters that the document gives. The revision changes when the
// judgement of the builtin changes, not with each build.
package workflow
