// Package reaper is what "striatum-init daemon" does: the first process of a
// pid and mount namespace that holds a lane's private containerd and all that
// comes from it. The lane's kernel link to it (parent-death signal) ends the
// namespace, and the kernel then ends every process in it and drops every
// mount, however the lane died.
package reaper
