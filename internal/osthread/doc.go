// Package osthread runs functions on operating system threads of their own,
// whose namespaces, identity and privileges they may change: such a thread ends
// with the function and is never used for anything else.
package osthread
