// Package launcher is what striatum-init does as the first process of a
// sandbox. It is trusted, runs as root of the sandbox's own user namespace with
// a handful of capabilities there, and starts hostile programs.
//
// For each program a thread of its own makes a mount namespace, mounts the
// writable places, writes the program's files as the user check, gives up every
// capability, identity and privilege, puts on the seccomp profile, measures
// what is then in force, and only if all of it is as required starts the
// program, which inherits exactly that thread's state. The thread ends before
// the program can find it. When the program is over, everything else that runs
// is killed and reaped before the lane may send the next program.
//
// No program ever holds the launcher's own streams: each has /dev/null and two
// pipes, and no other descriptor.
package launcher
