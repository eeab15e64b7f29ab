// Package allowlist reads what may run besides the builtins, and what this
// host has seen of it. It executes nothing, opens no file and decides no claim.
//
// # Intent
//
// verification/allowlist.intent.json (schema
// "striatum.verifier_allowlist_intent.v1") is committed, reviewable and
// hashless: it says which external checks are sanctioned, what each proves
// (backs_claim) and a known-bad input that each must fail on
// (negative_control). A digest of a program in it is refused, since it would
// hold on one host only. ParseIntent applies the JSON Schema
// (allowlist.intent.v1.json in this folder, a copy in docs/schemas) and every
// rule that a schema cannot say, with a JSON pointer for each finding.
//
// The check digest is the SHA-256 of the canonical JSON of the entry without
// its description. Whatever else changes in an entry changes it, so that a pin
// or an attestation of the former entry no longer counts.
//
// # Pins
//
// verification/allowlist.pins.FP.json holds what the lane of one host observed:
// a DSSE envelope (payload type PinsPayloadType) signed by a lane's key, whose
// payload is the canonical JSON of Pins. A file that a person or an agent wrote
// has no such signature and is refused.
//
// # Attestation sidecar
//
// verification/allowlist.pins.FP.attest.json is a cache for people: id to (check
// digest, closure digest). The truth is the daemon's store; the gate never
// reads the sidecar.
//
// # Join
//
// Join is the pure join of the three: every entry is on exactly one Rung. What
// has no pin that counts carries the typed value Unpinned, never a string.
package allowlist
