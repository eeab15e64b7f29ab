// Package modules is a lane's own module store: the proven dependencies of Go
// checks, filled outside every sandbox, without a go command and without any
// version control program.
//
// It promises that whatever a check can read as a dependency hashes to a line
// of the go.sum that was judged and, for a version that the store has met
// before, to what it was then; and that a check sees its own dependencies and
// no other project's. It never believes a download cache, a proxy or a zip: it
// copies with caps first and proves the copy (x/mod's dirhash and zip). A
// go.sum proves consistency, not origin, so the origin is counted beside it: a
// checksum database that the operator named has it with the same hashes, the
// operator accepted it, or it was first seen here. A hash that such a database
// contradicts is tampered; one that it does not know, or cannot say now, is not.
//
// What is fetched: the .mod of every go.sum line, and the zip of every module
// that go.mod requires (after replace); for a go.mod before 1.17, which does
// not name them all, every zip of go.sum. In a workspace the go.mod and go.sum
// of its modules count together, and every zip of go.work.sum. Sources, in order: the user's
// download cache, then the operator's proxies over HTTPS.
//
// Layout; whoever holds the lane's lock is the only writer:
//
//	mods/<id>        a proven .mod
//	zips/<id>/       a proven zip, unpacked, owned by the lane, files 0444
//	known/<id>.json  striatum.known_module.v1: the hashes first seen for a version
//	sets/<digest>/   one GOMODCACHE: hard links to exactly the modules of a set
//	sumdb/           the newest signed tree of a checksum database, and its answers
//	spool/           downloads; emptied at each Fetch
//
// <id> is the hex SHA-256 of "path@version" and, except in known, the h1.
package modules
