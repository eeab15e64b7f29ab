// Package seccompfilter is the system call profile of every program that runs
// in a sandbox: what is not named here is denied with EPERM, by its number on
// the native ABI alone. Calls of another ABI get EPERM, of x32 ENOSYS, clone3
// ENOSYS (C libraries then use clone, whose flags a filter can read), and
// numbers younger than the profile ENOSYS.
//
// Honest programs in Go, C, Python and Node, and the Go toolchain, find what
// they use. Not there: tracing and memory of other processes, mounting,
// namespaces, key rings, bpf, perf, io_uring, userfaultfd, modules, clocks,
// handles to files, quota, swap, reboot, personality, and sockets other than
// local, IPv4, IPv6, and the routing netlink that lists interfaces.
//
// The profile is compiled here and not by runc: that costs 20 to 40 ms of every
// run, and package elastic/go-seccomp-bpf, whose tables of numbers are used,
// goes on comparing with an argument in place of the number once a condition
// has failed, so that socket(AF_PACKET) passes as pread64, both being 17.
package seccompfilter
