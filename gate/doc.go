// Package gate says what each claim has earned. Evaluate is a pure function
// from (claims, evidence, attestations, lanes, policy) to a Report: it opens
// nothing, runs nothing, reads no clock, takes no context and returns no
// error. Whatever could not be read is an input too, and lowers.
//
// # What a claim earns
//
// For each required claim every condition that fails is reported as a Basis,
// with its effect:
//
//   - against: the evidence speaks against the claim, or was tampered with.
//     The claim is DESIGNED and red.
//   - missing: something that a green needs is not there. The claim is at most
//     ASSERTED, and amber.
//   - cap: the evidence is good and can carry no more. At most ASSERTED; may
//     be green.
//
// effective = min(authored, earned). Green: nothing against, nothing missing,
// and effective at or above the floor, which is the higher of the policy's and
// the caller's and never below ASSERTED. Bases are listed against, missing,
// cap; builtin_cap is the first of the caps, since no operator can lift it.
//
// # Hidden evidence
//
// Evidence that existed and cannot be seen may have spoken against the claim.
// So these missing bases hold a claim at DESIGNED instead of ASSERTED (still
// amber): store_unavailable; receipt_unavailable and unknown_lane where the
// receipt that the claim names cannot be opened; attempt_unsealed (an opened
// number for this check and these inputs that has no receipt, running or lost);
// and receipt_chain_gap where nothing tells what the lost number was for. With
// them deleting a receipt never raises a claim, whatever it said. One deletion
// cannot be seen from receipts at all: that of one of two receipts which a lane
// sealed for the same number. It is what the append-only log is for.
//
// # Absence
//
// The zero Report grants nothing. A report without required claims, or in
// which no required claim has a receipt that could be opened, says "nothing
// was checked" and is not green. Claims of the ledger that are not required
// are listed as undeclared and never count.
//
// # The formats
//
// Report.Encode gives striatum.gate_report.v1: RFC 8785 bytes, equal for equal
// inputs, whatever the order of the input's lists. Summary gives the payload
// of a SLSA verification summary over a report; signing is the caller's.
package gate
