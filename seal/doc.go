// Package seal is the ground that every format of Striatum stands on: strict
// JSON decoding, canonical bytes, digests, and signed envelopes.
//
// Decoding. Decode accepts one JSON text per value, up to white space, key
// order and the spelling of characters: a duplicate key at any depth (compared
// after unescaping), a key that the Go type does not have (compared exactly,
// letter case included), data after the value, invalid UTF-8 or half a
// surrogate pair, null where the type has no meaning for it, a number that is
// not written as an integer where one is due, an integer beyond ±(2^53-1), and
// input that is over-long or over-deep are errors with a JSON pointer.
//
// Canonical bytes. Canonical writes RFC 8785 (JCS). A nil slice or map is
// written like an empty one, so that Go's difference between the two never
// reaches a digest. A string that is not valid UTF-8 is an error and is never
// silently repaired.
//
// Envelopes. Sign and Open speak DSSE v1 (https://github.com/secure-systems-lab/dsse):
//
//	{"payload":BASE64,"payloadType":TYPE,"signatures":[{"keyid":ID,"sig":BASE64}]}
//
// in canonical JSON without a final newline, with exactly one signature, over
// the bytes
//
//	"DSSEv1" SP LEN(TYPE) SP TYPE SP LEN(PAYLOAD) SP PAYLOAD
//
// Open refuses every other spelling of the same envelope, so one signature has
// one byte string. Signing keys are ECDSA P-256 with SHA-256 (deterministic, RFC
// 6979; the signature in DER). On reading, pure Ed25519 keys are accepted too.
// The key id is the SSH SHA-256 fingerprint of the public key, exactly as
// go-securesystemslib computes it; on reading it may be absent. It is only a
// hint: what counts is the keyring and the signature.
//
// The package never reads a file, a clock or the environment. Decode and
// Canonical walk Go types by reflection; they are the only code here that does.
package seal
