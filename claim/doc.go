// Package claim is the ledger of completion claims: sentences about the work,
// each with a stable id, a status and the one check that it rests on.
//
// # The lattice
//
// DESIGNED < ASSERTED < VERIFIED. What a ledger says is what was authored. It
// is never what counts: package gate reads the receipts behind it and takes
// the lower of the two.
//
// # The writer's rules
//
//   - Claims of a workflow enter as DESIGNED, without evidence. A claim whose
//     sentence or check changes is another claim: it starts again as DESIGNED.
//   - A session writes only claims of jobs that it holds, up to ASSERTED. It
//     may add a claim under such a job; that claim is marked undeclared.
//   - A local user and an operator write any claim, up to ASSERTED.
//   - Only a lane binds evidence, and only with a receipt that was opened: a
//     verified_eligible one makes the claim VERIFIED, an asserted one ASSERTED,
//     a failed or void one DESIGNED; an indeterminate one is bound and leaves
//     the status unchanged.
//   - A status above the evidence is refused: nobody talks a claim up to
//     ASSERTED over a bound receipt that failed or is void.
//   - Every change names its author, above all a lowering one.
//
// A ledger is never changed. Each write makes a new one whose prev_ledger_seal
// is the seal of the one before; the first has 64 zeros there. A write that
// changes nothing returns the same ledger.
//
// # The format, striatum.claim_ledger.v1
//
// RFC 8785 canonical JSON, one spelling per ledger: Parse refuses any other
// spelling of the same content. The members are schema_version, repository_id,
// run_id (empty outside any run), claims (ascending by id, at most MaxClaims),
// prev_ledger_seal and ledger_seal, which is the SHA-256 of the document
// without it. Each claim has id, statement, status, check_id, job_id,
// receipt_ref (the seal that names the receipt), bound_input_digest (the tree
// that the receipt saw), evidence_digest (the seal again, as the claim's own
// binding), evidence_classification, author and undeclared.
//
// The package runs nothing, opens nothing and reads no clock.
package claim
