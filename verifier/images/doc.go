// Package images is a lane's own store of toolchain images: OCI images, named
// by digest, unpacked once into folders that checks then see read-only.
//
// It promises that what lies below Image.Root came from exactly the bytes that
// the name's digest stands for: the manifest, or the index and the manifest that
// it has for this system, and each layer, every one held against its SHA-256
// before anything in it is looked at. Images are hostile input. Nothing is
// written or read outside the folder, through links or otherwise; everything is
// bounded; devices, FIFOs, names that are absolute or lead upwards, and entries
// below a link (which engines place differently) refuse the whole image. Owners,
// set-user-id, set-group-id and sticky bits, file capabilities and all other
// extended attributes are dropped: a file is 0444, or 0555 if anyone may execute
// it, a folder 0755, all of whoever runs the lane. The image's configuration
// (user, entrypoint, environment) is never fetched.
//
// Formats: the OCI image specification 1.1 (manifest, index, layers as tar, with
// gzip or zstd, whiteouts) and its image layout; Docker's schema 2, which is the
// same under other names; the OCI distribution protocol, reading only, without
// credentials. Whiteouts hide what lower layers have, whatever their place in
// their own layer.
//
// Sources are the operator's, in order: folders with an OCI layout, and
// registries, over HTTPS (plain HTTP only to loopback). A registry is asked only
// for images whose name says so. What a source says is believed in nothing.
//
// Layout; whoever holds the lane's lock is the only writer:
//
//	<digest>/root        the unpacked image
//	<digest>/image.json  striatum.image.v1: digests and sizes of what was unpacked
//	<digest>/stat        the stat cache of its measurements
//	spool/               what is being fetched or removed; emptied at each Get
//
// <digest> is that of the image's name, in hex. The folder appears complete.
package images
