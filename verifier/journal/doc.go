// Package journal is a lane's private memory: which numbers it has opened, how
// each of them ended, and which receipts its store does not have yet.
//
// It promises that every number that was opened ends in exactly one receipt,
// whatever kills the lane in between; that numbers of one (epoch, repository)
// are taken one after the other, each naming the seal of the one before; and
// that a receipt that was finished is never lost. It never decides what a
// receipt says: it only builds the body for what a kill left open.
//
// Everything below its folder is written by one process at a time, the holder
// of the lock; readers take none. Layout:
//
//	lock                     held by flock; says who holds it, for people
//	state.json               striatum.lane_state.v1: the epoch, bound to this file
//	chains/<repo>.json       striatum.lane_chain.v1: the newest finished number
//	open/<repo>/             the number that is open; at most one per repository
//	    entry.json           striatum.lane_entry.v1: opened record and first draft
//	    note.json            the draft as last noted, if any
//	    reserved, reserved-note   space for the receipt and for one note
//	    <seal>.receipt.json  once here, the number is finished
//	pending/<seal>/          finished, not yet marked as recorded
//	receipts/<xx>/<seal>/    recorded; kept for ever
//	epochs/<epoch>/<repo>/   numbers that were open when their epoch ended
//
// <repo> is the hex SHA-256 of the repository id. Each step is one rename, and
// what follows from it is done again by the next holder of the lock if a crash
// prevented it.
package journal
