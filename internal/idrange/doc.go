// Package idrange hands out ranges of user and group ids that belong to nobody
// on the host and to one sandbox at a time, whichever lane runs it. A range is
// held by a lock on a file, which the kernel gives up with its holder.
package idrange
