// Package execban makes a process one that cannot start a program. On Linux it
// sets no_new_privs and a seccomp filter that refuses execve and execveat, on
// all threads at once; neither can be taken back, and both pass on to every
// later thread and process. Other systems have neither, which Read says.
//
// The filter refuses, with EPERM, the two calls of the native ABI, and with them
// every call that comes in by another ABI (32-bit, x32), whose numbers are
// others. All else passes.
//
// go-seccomp-bpf, which compiles the filter of the sandbox, is not used here: its
// filters let calls of another architecture through where the default is to
// allow, and loading them takes a thread that could not be synchronised for a
// success.
package execban

// State is what is in force, as the kernel says now. Refused is what came of
// trying: an execve of nothing returned EPERM.
type State struct {
	Threads    int  // of this process
	NoNewPrivs int  // threads that have no_new_privs
	Filtered   int  // threads that have a seccomp filter
	Refused    bool // an execve was tried on one of them, and refused
}

// Holds reports whether no thread can start a program.
func (s State) Holds() bool {
	return s.Refused && s.Threads > 0 && s.NoNewPrivs == s.Threads && s.Filtered == s.Threads
}
